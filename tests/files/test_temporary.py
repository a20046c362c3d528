"""Temporary neighbours: gone with their process, or at the next start, and never somebody else's."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedbench.errors import FedbenchError
from fedbench.files import io
from fedbench.files.products import Product

FOLDER = Product("a folder", ("whole",), {"whole": Path.exists})
WRITE = """
import os, signal, sys
from pathlib import Path
from fedbench.files import io
from fedbench.files.products import Product

PRODUCT = Product("a folder", ("whole",), {"whole": Path.exists})
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(script: str, folder: Path) -> None:
    """Run Python until it kills itself."""
    done = subprocess.run([sys.executable, "-c", WRITE + script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def write_folder(path: Path, text: str) -> None:
    with io.writing_folder(path, FOLDER) as folder:
        (folder / "whole").write_text(text)


def test_what_a_killed_writer_left_goes_at_the_next_start(tmp_path):
    writing = "with io.writing_folder(Path('folder'), PRODUCT) as new:\n    "
    killed(writing + "(new / 'whole').write_text('x'); die()", tmp_path)
    killed("os.replace = die\nio.write_bytes(Path('file.txt'), b'new')", tmp_path)
    assert len(os.listdir(tmp_path)) == 2, "otherwise this test shows nothing"
    write_folder(tmp_path / "other", "theirs")
    assert os.listdir(tmp_path) == ["other"]


def test_a_product_survives_a_kill_while_it_is_replaced(tmp_path):
    write_folder(tmp_path / "folder", "old")
    killed(
        "replace = os.replace\n"
        "def second(*names):\n    os.replace = die; replace(*names)\n"
        "os.replace = second\n"
        "with io.writing_folder(Path('folder'), PRODUCT) as new:\n    (new / 'whole').write_text('new')",
        tmp_path,
    )
    assert not (tmp_path / "folder").exists(), "otherwise this test shows nothing"
    write_folder(tmp_path / "other", "x")
    assert (tmp_path / "folder/whole").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["folder", "other"]


def test_what_a_living_process_or_somebody_else_writes_stays(tmp_path):
    theirs = [".film.mkv.part", ".folder.abcdefgh.part", ".folder.abcdefgh.old"]
    for name in theirs:
        (tmp_path / name).write_text("x")
    (tmp_path / ".x.fedbench-abcdefgh.part").mkdir()
    (tmp_path / ".x.fedbench-abcdefgh.part/theirs").write_text("x")
    with io.writing_folder(tmp_path / "folder", FOLDER) as folder:
        (folder / "whole").write_text("mine")
        write_folder(tmp_path / "folder", "theirs")
        io.write_text(tmp_path / "file.txt", "x")
        assert (folder / "whole").read_text() == "mine"
    assert (tmp_path / "folder/whole").read_text() == "mine", "both are of the same spec, so the later one stays"
    assert sorted(os.listdir(tmp_path)) == sorted([*theirs, ".x.fedbench-abcdefgh.part", "file.txt", "folder"])


def test_a_file_that_comes_while_a_folder_is_made_stays(tmp_path):
    write_folder(tmp_path / "folder", "old")

    def write():
        with io.writing_folder(tmp_path / "folder", FOLDER) as folder:
            (folder / "whole").write_text("new")
            (tmp_path / "folder/notes").write_text("mine")

    with pytest.raises(FedbenchError, match="folder/notes: no part of a folder"):
        write()
    assert {path.name: path.read_text() for path in (tmp_path / "folder").iterdir()} == {
        "whole": "old",
        "notes": "mine",
    }
    assert os.listdir(tmp_path) == ["folder"]


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    write_folder(tmp_path / "far/folder", "old")
    (tmp_path / "near").symlink_to("far/folder")
    write_folder(tmp_path / "near", "new")
    assert (tmp_path / "near").is_symlink()
    assert (tmp_path / "far/folder/whole").read_text() == "new"


def test_termination_leaves_nothing_half_written(tmp_path):
    config = Path(__file__).parents[2] / "workflow/configs/smoke.yaml"
    script = (
        "import os, signal\nfrom fedbench.cli import commands\nfrom fedbench.data import store\n"
        "store.hashes = lambda arrays: os.kill(os.getpid(), signal.SIGTERM)\n"
        f"commands.main(['prepare', '--config', {str(config)!r}, '--results', 'results', '--dataset', 'digits'])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 143, done.stderr
    assert done.stderr.splitlines()[-1] == "stopped by SIGTERM; nothing half-written is left"
    assert list((tmp_path / "results/data").iterdir()) == []
