"""Stages that make their inputs: each once, and never from something that has changed since."""

import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock
from PIL import Image

from fedbench.config.places import checkpoint_of
from fedbench.config.plan import Plan
from fedbench.config.reading import load
from fedbench.config.spec import Cell
from fedbench.errors import FedbenchError
from fedbench.stages import Workspace

SMOKE = Path(__file__).parents[1] / "workflow/configs/smoke.yaml"
CELL = Cell("digits", "dirichlet", "tiny-resnet", "fedavg", 0)


def workspace(folder, *assignments):
    """A workspace whose results are below `folder`, and the list of what it says."""
    said = []
    return Workspace(Plan(load([SMOKE], assignments), folder / "results"), folder, "cpu", 1, said.append), said


def test_a_base_that_another_process_makes_is_waited_for_and_not_made_twice(tmp_path):
    work, said = workspace(tmp_path)
    spec, found = work.plan.spec(CELL), []
    made, folder = tmp_path / "made", work.plan.paths.base("digits", "tiny-resnet")
    first = work.get_base(spec, tmp_path / "checkpoints")
    os.replace(folder, made)
    said.clear()
    waiting = threading.Thread(target=lambda: found.append(work.get_base(spec, tmp_path / "checkpoints")))
    place = checkpoint_of(folder, tmp_path / "checkpoints")
    with FileLock(place.with_name(f"{place.name}.lock")):
        waiting.start()
        deadline = time.monotonic() + 30
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        os.replace(made, folder)
    waiting.join()
    assert said == [f"another process is making {folder}; waiting for it"]
    assert all(leaf.equal(found[0].weights[name]) for name, leaf in first.weights.items())


def test_a_place_has_one_checkpoint_however_it_is_spelt(tmp_path, monkeypatch):
    """The default one is where it always was; no two places share one."""
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    monkeypatch.chdir(here)
    (here / "link").symlink_to("results")
    default = Path("checkpoints")
    run = "results/demo/runs/digits/even/mlp/fedavg/seed0"
    assert checkpoint_of(Path(run), default) == Path("checkpoints") / run
    spelt = [Path(run), here / run, Path("sub/..") / run, Path("../here") / run, Path("link") / run[8:]]
    assert {checkpoint_of(place, default) for place in spelt} == {Path("checkpoints") / run}
    places = [Path("results/x"), Path("../results/x"), Path("/results/x"), Path("../x"), Path("."), Path("x")]
    kept = {os.path.realpath(checkpoint_of(place, default)) for place in places}
    assert len(kept) == len(places)
    assert all(Path(place).is_relative_to(here / "checkpoints/") for place in kept)
    assert str(here / "checkpoints") not in kept
    shared = tmp_path / "shared"
    monkeypatch.chdir(here / "sub")
    assert checkpoint_of(Path("../results/x"), shared) == checkpoint_of(here / "results/x", shared)
    assert checkpoint_of(Path("results/x"), shared) != checkpoint_of(here / "results/x", shared)


def test_what_was_made_from_other_files_is_never_mixed_with_data_prepared_again(tmp_path):
    for place in (tmp_path / "images" / name / f"{number}.png" for name in "ab" for number in range(10, 40)):
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), f"#{place.stem}{place.stem}55").save(place)
    work, _ = workspace(
        tmp_path,
        *("datasets.digits={source: image-folder, path: images}", "datasets.digits.public.fraction=0.2"),
        *("partitions.dirichlet.clients=2", "partitions.dirichlet.min_samples=2", "training.rounds=1"),
    )
    results, checkpoints = tmp_path / "results", tmp_path / "checkpoints"

    def train(**keywords):
        return work.train(work.plan.spec(CELL), None, checkpoints, **keywords)

    train()
    (tmp_path / "images/a/10.png").unlink()
    shutil.rmtree(results / "data")
    for stale, command in (("partitions", "partition"), ("bases", "pretrain")):
        with pytest.raises(FedbenchError, match=rf"results/{stale}/.*prepared again .* run `fedbench {command}` again"):
            train()
        shutil.rmtree(results / stale)
    with pytest.raises(FedbenchError, match="holds results made from other data"):
        train()
    train(overwrite=True)
    train()


def test_replaced_raw_data_are_noticed_until_they_are_prepared_again(tmp_path):
    for place in (tmp_path / "images" / name / f"{number}.bmp" for name in "ab" for number in range(10, 40)):
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), f"#{place.stem}{place.stem}55").save(place)
    work, _ = workspace(tmp_path, "datasets.digits={source: image-folder, path: images}")
    spec, changed = work.plan.spec(CELL), tmp_path / "images/a/10.bmp"
    before = work.get_store(spec)
    kept = changed.read_bytes()
    changed.write_bytes(kept)
    fresh, _ = workspace(tmp_path, "datasets.digits={source: image-folder, path: images}")
    assert fresh.get_store(spec).sha256 == before.sha256, "the same contents, written later"
    Image.new("RGB", (8, 8), "white").save(changed)
    fresh, _ = workspace(tmp_path, "datasets.digits={source: image-folder, path: images}")
    with pytest.raises(FedbenchError, match=r"data/digits: the raw data below .* changed .*; run `fedbench prepare`"):
        fresh.get_store(spec)
    assert fresh.make_store(spec).sha256 != before.sha256
    fresh.get_store(spec)


def test_a_replaced_file_of_weights_is_noticed_until_the_base_is_made_again(tmp_path):
    entry = "bases.public={kind: file, path: weights.safetensors}"
    donor, _ = workspace(tmp_path / "donor")
    donor.make_base(donor.plan.spec(CELL), tmp_path / "checkpoints")
    weights = tmp_path / "donor/results/bases/digits/tiny-resnet/base.safetensors"
    shutil.copy(weights, tmp_path / "weights.safetensors")
    work, _ = workspace(tmp_path, entry)
    spec = work.plan.spec(CELL)
    first = work.get_base(spec, tmp_path / "checkpoints").sha256
    data = bytearray(weights.read_bytes())
    data[-2] ^= 1
    (tmp_path / "weights.safetensors").write_bytes(data)
    with pytest.raises(FedbenchError, match=r"weights\.safetensors below .* changed .*; run `fedbench pretrain`"):
        work.get_base(spec, tmp_path / "checkpoints")
    work.make_base(spec, tmp_path / "checkpoints")
    assert work.get_base(spec, tmp_path / "checkpoints").sha256 != first
