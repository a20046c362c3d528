"""Raw data that changed after they were prepared are noticed by their contents."""

import os
import shutil

import pytest

from fedbench.data.raw import changed, record


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    (folder / "cat").mkdir(parents=True)
    (folder / "cat/1.png").write_bytes(b"one")
    (folder / "cat/2.png").write_bytes(b"two")
    return folder


@pytest.fixture
def made(tmp_path, raw):
    """A file that is newer than the raw files."""
    path = tmp_path / "dataset.json"
    path.write_text("{}")
    newest = max(file.stat().st_ctime_ns for file in raw.rglob("*"))
    os.utime(path, ns=(newest + 1, newest + 1))
    return path


def backdate(path):
    os.utime(path, (1_000_000_000, 1_000_000_000))


def test_same_files(raw, made):
    recorded = record([raw])
    assert (recorded["files"], recorded["bytes"]) == (2, 6)
    assert not changed(recorded, [raw], made)
    (raw / "cat/1.png").write_bytes(b"one")
    backdate(made)
    assert not changed(recorded, [raw], made), "written again with the same contents"


def test_same_contents_elsewhere(raw, made, tmp_path):
    recorded = record([raw])
    shutil.copytree(raw, tmp_path / "copy")
    backdate(made)
    assert not changed(recorded, [tmp_path / "copy"], made)


def other_contents(folder):
    (folder / "cat/1.png").write_bytes(b"ONE")
    backdate(folder / "cat/1.png")


@pytest.mark.parametrize(
    "change",
    [
        other_contents,
        lambda folder: (folder / "cat/1.png").unlink(),
        lambda folder: (folder / "cat/3.png").write_bytes(b""),
        lambda folder: (folder / "cat/1.png").write_bytes(b"longer"),
        lambda folder: os.rename(folder / "cat/1.png", folder / "cat/0.png"),
        lambda folder: os.rename(folder / "cat", folder / "dog"),
    ],
    ids=["contents", "removed", "added", "size", "renamed", "renamed class"],
)
def test_any_change_is_noticed(raw, made, change):
    recorded = record([raw])
    change(raw)
    backdate(made)  # as if the change had come long after
    assert changed(recorded, [raw], made)


def test_an_old_date_of_contents_hides_nothing(raw, made):
    recorded = record([raw])
    before = made.stat().st_mtime_ns
    while (raw / "cat/1.png").stat().st_ctime_ns < before:  # clocks of file systems tick slowly
        other_contents(raw)
    assert (raw / "cat/1.png").stat().st_mtime_ns < before
    assert changed(recorded, [raw], made)


def test_nothing_to_compare_is_no_statement(raw, made, tmp_path):
    recorded = record([raw])
    assert record([tmp_path / "nowhere"]) is None
    assert not changed(None, [raw], made)
    shutil.rmtree(raw)
    assert not changed(recorded, [raw], made)
    raw.mkdir()
    assert not changed(recorded, [raw], made), "an empty folder is no data"


def test_archives_count_as_files_and_hidden_files_and_loops_do_not_count(raw, tmp_path):
    recorded = record([raw])
    (raw / ".DS_Store").write_bytes(b"x")
    (raw / "cat/up").symlink_to("..")
    (raw / "cat/gone.png").symlink_to("nowhere")
    assert record([raw]) == recorded
    assert record([raw / "cat/1.png"])["files"] == 1
