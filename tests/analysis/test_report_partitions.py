"""The report says where clients hold what the scheme did not give them, and test images that are training images."""

import pytest
from fake_runs import make_world, write_runs

from fedbench.analysis.collect import collect
from fedbench.analysis.report import _partitions
from fedbench.config.spec import Paths, cells
from fedbench.files.io import read_json, write_json


@pytest.fixture
def written(tmp_path):
    world, paths = make_world(), Paths(tmp_path)
    write_runs(world, paths)
    return world, paths


def facts(world, paths):
    return [fact for _, facts in _partitions(collect(world.config, paths), paths) for fact in facts]


def test_repair_of_any_seed_and_duplicates(written):
    world, paths = written
    before = facts(world, paths)
    assert not [fact for fact in before if "repair" in fact[1] or "Test images" in fact[0]]
    last = max(cells(world.config), key=lambda cell: cell.seed)
    path = paths.partition(last.dataset, last.partition, last.seed) / "partition.json"
    write_json(path, read_json(path) | {"counts": [[10, 30], [40, 20]], "moved_by_repair": 25})
    for seed in world.config.seeds:
        path = paths.partition(last.dataset, last.partition, seed) / "partition.json"
        write_json(path, read_json(path) | {"duplicates": 1234})
    added = [fact for fact in facts(world, paths) if fact not in before]
    assert added == [
        (f"Seed {last.seed}", "repair moved 25 of 100 training samples (25.0%)"),
        ("Test images that are training images as well", "1,234"),
    ]
