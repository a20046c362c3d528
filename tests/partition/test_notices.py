"""What prepare, partition and doctor say about data and partitions that are not quite what their names say."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedbench.config.plan import Plan
from fedbench.config.reading import load
from fedbench.config.spec import Cell
from fedbench.doctor import inputs
from fedbench.stages import Workspace

SMOKE = Path(__file__).parents[2] / "workflow/configs/smoke.yaml"
CELL = Cell("digits", "dirichlet", "tiny-resnet", "fedavg", 0)


@pytest.fixture
def work(tmp_path):
    """A workspace on 200 images of one size, and what it says; of some clients the first few are below the minimum."""
    rng = np.random.default_rng(0)
    for number in range(200):
        path = tmp_path / f"images/{'train' if number < 160 else 'test'}/{'ab'[number % 2]}/{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(path)

    def make(**partition):
        said = []
        keys = ", ".join(f"{key}: {value}" for key, value in partition.items())
        assignments = [
            "datasets={digits: {source: image-folder, path: images}}",
            f"partitions={{dirichlet: {{{keys}}}}}",
        ]
        plan = Plan(load([SMOKE], assignments), tmp_path / "results")
        return Workspace(plan, tmp_path, "cpu", 1, said.append), said

    return make


def test_images_of_both_splits_are_said_where_they_are_prepared(work, tmp_path):
    for number in range(3):
        (tmp_path / f"images/test/a/{160 + 2 * number}.png").write_bytes(
            (tmp_path / "images/train/a/0.png").read_bytes()
        )
    workspace, said = work()
    workspace.make_store(workspace.plan.spec(CELL))
    assert said[-1] == "  warning: 3 test images equal a training image, pixel by pixel"
    assert workspace.get_partition(workspace.plan.spec(CELL)).meta["duplicates"] == 3


def test_nothing_is_said_where_no_image_is_twice_and_nothing_moves(work):
    workspace, said = work()
    workspace.get_partition(workspace.plan.spec(CELL))
    assert not any("warning" in line or "repair" in line for line in said)
    assert list(inputs.partitions(workspace.plan)) == []


def test_what_repair_moved_is_said_in_the_log_and_by_doctor(work):
    # both classes go to one of 8 clients (30 % of the images are public): the others need 10 of 112 images each
    workspace, said = work(clients=8, alpha=1e-12, min_samples=10, max_moved=0.7)
    assert list(inputs.partitions(workspace.plan)) == []  # not made yet
    workspace.get_partition(workspace.plan.spec(CELL))
    note = "repair moved 70 of 112 training samples (62.5%)"
    assert said[-1] == f"dirichlet: {note}, to give every client 10"
    found = list(inputs.partitions(workspace.plan))
    assert [(finding.level, finding.what, finding.text) for finding in found] == [
        ("warning", "partition dirichlet of digits, seed 0", note)
    ]
