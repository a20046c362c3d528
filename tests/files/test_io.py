"""The writer: whole files or none, and one line for what the system refuses."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from fedbench.errors import FedbenchError
from fedbench.files import io
from fedbench.files.products import Product

FOLDER = Product("a folder", ("half", "whole"), {"whole": Path.exists})


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    io.write_text(path, "old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FedbenchError, match=r"file\.txt: cannot write: No space left on device; free some space"):
        io.write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "folder"

    def fail_midway():
        with io.writing_folder(target, FOLDER) as folder:
            (folder / "half").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_midway()
    assert os.listdir(tmp_path) == []
    for text in ("first", "second"):
        with io.writing_folder(target, FOLDER) as folder:
            (folder / "whole").write_text(text)
        assert (target / "whole").read_text() == text
    assert os.listdir(tmp_path) == ["folder"]


def test_a_file_in_the_way_of_a_folder_is_one_line(tmp_path):
    (tmp_path / "results").write_text("x")
    with pytest.raises(FedbenchError, match="a file stands where a folder is needed"):
        io.write_text(tmp_path / "results" / "file.txt", "x")


def test_csv_keeps_every_digit_and_leaves_missing_values_empty(tmp_path):
    path = tmp_path / "t.csv"
    io.write_csv(path, ["a", "b", "c"], [{"a": 0.1 + 0.2, "b": None}, {"a": float("nan"), "b": 3, "c": "x"}])
    assert path.read_text() == "a,b,c\n0.30000000000000004,,\n,3,x\n"
    with pytest.raises(ValueError, match="not in the table"):
        io.write_csv(path, ["a"], [{"b": 1}])


def test_json_has_no_nan(tmp_path):
    io.write_json(tmp_path / "j.json", {"a": float("inf"), "b": [np.float32("nan"), 1.5], "c": np.int64(3)})
    assert io.read_json(tmp_path / "j.json") == {"a": None, "b": [None, 1.5], "c": 3}


def test_arrays_are_never_unpickled(tmp_path):
    path = tmp_path / "a.npz"
    io.write_arrays(path, x=np.arange(3))
    np.testing.assert_array_equal(io.read_arrays(path)["x"], np.arange(3))
    np.savez(path, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(FedbenchError, match=r"a\.npz: damaged"):
        io.read_arrays(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(FedbenchError, match=r"a\.npz"):
        io.read_arrays(path)


def test_sealed_object_comes_back_and_any_other_byte_is_damage(tmp_path):
    path, values = tmp_path / "s.json", {"b": [1, 2.5, None], "a": {"sha256": "inner"}}
    io.write_sealed(path, values)
    assert io.read_sealed(path) == values
    assert io.read_json(path)["a"] == values["a"], "plain JSON to everyone else"
    text = path.read_text()
    for other in (text.replace("2.5", "2.6"), text.replace("\n", " "), text[:-1], "{}", '{"sha256": "x"}', "[]", "3"):
        path.write_text(other)
        with pytest.raises(FedbenchError, match="damaged"):
            io.read_sealed(path)
