"""Bases: training, resuming, published weights, local files."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from fedbench.bases.base import load_base, make_base
from fedbench.bases.central import CHECKPOINT, learning_rate
from fedbench.config.entries import BaseEntry, DatasetEntry, MethodEntry, ModelEntry, PartitionEntry, Training
from fedbench.config.reading import Entry
from fedbench.config.spec import Cell, RunSpec
from fedbench.data.store import PUBLIC, PUBLIC_TEST, TEST, TRAIN, Store
from fedbench.errors import FedbenchError
from fedbench.models.make_model import make_model
from fedbench.models.weights import read_weights, save_weights
from fedbench.registry import BACKBONES


@pytest.fixture
def store():
    """Forty easy images: each class is bright in its own quarter; 20 train, 8 test, 8 public, 4 public test."""
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 4
    images = rng.integers(0, 60, (40, 1, 8, 8), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(label, 2)
        image[0, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 150
    splits = np.repeat([TRAIN, TEST, PUBLIC, PUBLIC_TEST], [20, 8, 8, 4]).astype(np.uint8)
    return Store(
        images=images,
        labels=labels,
        domains=np.zeros(40, dtype=np.int64),
        splits=splits,
        class_names=("a", "b", "c", "d"),
        domain_names=("all",),
        groups=None,
        meta={"sha256": {"all": "0"}},
    )


@pytest.fixture(autouse=True)
def _threads():
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


PRETRAIN = BaseEntry(kind="pretrain", epochs=4, warmup_epochs=1, batch_size=8, learning_rate=0.1, augmentation="none")


def spec_of(base, backbone="mlp", head="trainable", **options):
    entry = ModelEntry(backbone=backbone, base=None if base is None else "b", head=head)
    return RunSpec(
        cell=Cell("d", "p", "m", "x", 0),
        dataset=Entry("d", DatasetEntry(source="digits"), Training(rounds=1)),  # any options: nothing reads them here
        partition=Entry("p", PartitionEntry(scheme="iid", clients=2), Training(rounds=1)),
        model=Entry("m", entry, BACKBONES[backbone].options(**options)),
        base=base,
        method=Entry("x", MethodEntry(method="base"), Training(rounds=1)),
        channel=Entry("dense", MethodEntry(method="base"), Training(rounds=1)),
        training=Training(rounds=1),
    )


class Recorder:
    """Progress that writes down what it is told, and may stop the training after some epoch."""

    def __init__(self, stop_after=None):
        self.stop_after, self.rows, self.finished = stop_after, [], False

    def start(self, total, label, unit):
        self.total, self.unit = total, unit

    def round(self, row):
        self.rows.append(row)
        if row["epoch"] == self.stop_after:
            raise KeyboardInterrupt

    def finish(self):
        self.finished = True


def read(folder):
    return json.loads((folder / "base.json").read_text())


def assert_equal_weights(first, second):
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_training_learns_and_reports(store, tmp_path):
    spec = spec_of(replace(PRETRAIN, epochs=15))
    progress = Recorder()
    make_base(spec, store, tmp_path / "b", tmp_path, progress=progress)
    record = read(tmp_path / "b")
    assert record["train_accuracy"] == record["test_accuracy"] == record["public_test_accuracy"] == 1
    assert record["samples"] == 28
    assert record["parameters"] == 64 * 32 + 32 + 32 * 4 + 4
    assert record["bytes"] == (tmp_path / "b" / "base.safetensors").stat().st_size
    assert record["epochs"][-1]["train_loss"] < record["epochs"][0]["train_loss"]
    assert (progress.total, progress.unit, len(progress.rows), progress.finished) == (15, "epoch", 15, True)
    load_base(tmp_path / "b", spec.base_spec)  # the folder knows its spec
    with pytest.raises(FedbenchError, match="epochs=15"):
        load_base(tmp_path / "b", spec_of(PRETRAIN).base_spec)


def test_public_bases_see_public_samples_only(store, tmp_path):
    spec = spec_of(replace(PRETRAIN, data="public"))
    make_base(spec, store, tmp_path / "one", tmp_path)
    assert read(tmp_path / "one")["samples"] == 8
    store.images[store.splits != PUBLIC] = 0
    make_base(spec, store, tmp_path / "two", tmp_path)
    assert_equal_weights(load_base(tmp_path / "one").weights, load_base(tmp_path / "two").weights)
    store.splits[store.splits == PUBLIC] = TRAIN
    with pytest.raises(FedbenchError, match="no public samples"):
        make_base(spec, store, tmp_path / "three", tmp_path)
    assert not (tmp_path / "three").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"augmentation": "crop-flip"},
        {"optimizer": "sgd", "momentum": 0.0},
        {"optimizer": "adam", "learning_rate": 0.01},
        {"optimizer": "adamw", "learning_rate": 0.01, "precision": "bf16"},
    ],
)
@pytest.mark.parametrize("stop_after", [1, 4])
def test_interrupted_and_resumed_equals_uninterrupted(store, tmp_path, changes, stop_after):
    spec = spec_of(replace(PRETRAIN, **changes), "resnet-gn", "frozen-etf", depth=8, width=0.25)
    make_base(spec, store, tmp_path / "straight", tmp_path)
    with pytest.raises(KeyboardInterrupt):
        make_base(spec, store, tmp_path / "b", tmp_path, progress=Recorder(stop_after), checkpoint=tmp_path / "c")
    assert not (tmp_path / "b").exists()
    assert (tmp_path / "c" / CHECKPOINT).exists()
    progress = Recorder()
    make_base(spec, store, tmp_path / "b", tmp_path, progress=progress, checkpoint=tmp_path / "c")
    assert [row["epoch"] for row in progress.rows] == list(range(stop_after + 1, 5))
    assert not (tmp_path / "c").exists()
    assert_equal_weights(load_base(tmp_path / "straight").weights, load_base(tmp_path / "b").weights)
    straight, resumed = read(tmp_path / "straight"), read(tmp_path / "b")
    straight.pop("seconds"), resumed.pop("seconds")
    assert straight == resumed


def test_checkpoint_of_another_spec_or_data_is_refused(store, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        make_base(spec_of(PRETRAIN), store, tmp_path / "b", tmp_path, progress=Recorder(1), checkpoint=tmp_path / "c")
    other = spec_of(replace(PRETRAIN, learning_rate=0.2))
    with pytest.raises(FedbenchError, match="another base or data set"):
        make_base(other, store, tmp_path / "b", tmp_path, checkpoint=tmp_path / "c")
    (tmp_path / "c" / CHECKPOINT).write_bytes(b"half")
    with pytest.raises(FedbenchError, match="not a whole safetensors file"):
        make_base(spec_of(PRETRAIN), store, tmp_path / "b", tmp_path, checkpoint=tmp_path / "c")


def test_frozen_head_is_its_own_from_the_first_step_to_the_last(store, tmp_path):
    spec = spec_of(PRETRAIN, head="frozen-orthogonal")
    make_base(spec, store, tmp_path / "b", tmp_path)
    start = make_model(spec.model, store.shape, store.classes).state_dict()
    end = load_base(tmp_path / "b").weights
    assert torch.equal(start["head.weight"], end["head.weight"])
    assert not torch.equal(start["trunk.1.weight"], end["trunk.1.weight"])


def test_learning_rate_warms_up_and_ends_at_zero():
    base = replace(PRETRAIN, epochs=10, warmup_epochs=2, learning_rate=0.05)
    rates = [learning_rate(base, step, 5) for step in range(51)]
    np.testing.assert_allclose(rates[:11], [*(0.05 * np.arange(1, 11) / 10), 0.05])
    assert all(later < earlier for earlier, later in pairwise(rates[10:]))
    assert np.isclose(rates[30], 0.025)
    assert np.isclose(rates[50], 0)


def test_impossible_schedules_and_divergence_are_named(store, tmp_path):
    with pytest.raises(FedbenchError, match=r"bases\.b\.warmup_epochs"):
        make_base(spec_of(replace(PRETRAIN, warmup_epochs=4)), store, tmp_path / "b", tmp_path)
    with pytest.raises(FedbenchError, match="diverged in epoch"):
        make_base(spec_of(replace(PRETRAIN, learning_rate=1e30)), store, tmp_path / "b", tmp_path)
    assert not (tmp_path / "b").exists()


def test_no_base_is_a_seeded_random_start(store, tmp_path):
    spec = spec_of(None)
    make_base(spec, store, tmp_path / "b", tmp_path)
    assert_equal_weights(
        load_base(tmp_path / "b", spec.base_spec).weights, make_model(spec.model, store.shape, 4).state_dict()
    )
    assert read(tmp_path / "b")["origin"] == "random"


TINY = {"name": "vit_tiny_patch16_224", "image_size": 32}


def test_failed_download_is_one_line_and_never_random_weights(store, tmp_path, monkeypatch):
    import timm

    create = timm.create_model

    def offline(name, pretrained=False, **options):
        if pretrained:
            raise OSError("name resolution failed\nsecond line")
        return create(name, **options)

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(FedbenchError, match=r"cannot get pretrained weights .*name resolution failed") as caught:
        make_base(spec_of(BaseEntry(kind="pretrained"), "vit", **TINY), store, tmp_path / "b", tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "b").exists()


def test_published_weights_reach_the_base(store, tmp_path, monkeypatch):
    import timm

    create, asked = timm.create_model, []

    def published(name, pretrained=False, **options):
        trunk = create(name, **options)
        if pretrained:
            asked.append(name)
            torch.nn.init.constant_(trunk.cls_token, 7)
        return trunk

    monkeypatch.setattr(timm, "create_model", published)
    make_base(spec_of(BaseEntry(kind="pretrained", tag="augreg_in21k"), "vit", **TINY), store, tmp_path / "b", tmp_path)
    assert asked == ["vit_tiny_patch16_224.augreg_in21k"]
    assert torch.all(load_base(tmp_path / "b").weights["trunk.cls_token"] == 7)
    assert read(tmp_path / "b")["weights"] == "vit_tiny_patch16_224.augreg_in21k"


def test_tags_and_backbones_without_published_weights_are_named(store, tmp_path):
    def message(tag, backbone, **options):
        spec = spec_of(BaseEntry(kind="pretrained", tag=tag), backbone, **options)
        with pytest.raises(FedbenchError) as caught:
            make_base(spec, store, tmp_path / "b", tmp_path)
        return str(caught.value)

    assert "augreg_in21k" in message("augreg_in22k", "vit", **TINY)
    assert "no published weights" in message(None, "mlp")
    # another tag of the same network may want other input statistics than the model was built with
    assert "write name: vit_base_patch16_224.mae" in message(
        "mae", "vit", name="vit_base_patch16_224.augreg_in21k", image_size=32
    )


def test_own_file_brings_its_head_unless_the_classes_differ(store, tmp_path):
    make_base(spec_of(replace(PRETRAIN, epochs=15)), store, tmp_path / "source", tmp_path)
    base = BaseEntry(kind="file", path="source/base.safetensors")
    make_base(spec_of(base), store, tmp_path / "b", tmp_path)
    assert_equal_weights(load_base(tmp_path / "source").weights, load_base(tmp_path / "b").weights)
    assert read(tmp_path / "b")["head"] == "file"
    assert read(tmp_path / "b")["test_accuracy"] == 1
    store.class_names = ("a", "b", "c", "d", "e")
    make_base(spec_of(base), store, tmp_path / "five", tmp_path)
    assert read(tmp_path / "five")["head"] == "new"
    assert load_base(tmp_path / "five").weights["head.weight"].shape == (5, 32)


def test_file_of_another_architecture_or_missing_is_named(store, tmp_path):
    base = BaseEntry(kind="file", path="w.safetensors")
    with pytest.raises(FedbenchError, match="no such weights file"):
        make_base(spec_of(base), store, tmp_path / "b", tmp_path)
    save_weights(tmp_path / "w.safetensors", make_model(spec_of(None, hidden=16).model, store.shape, 4).state_dict())
    with pytest.raises(FedbenchError, match="another architecture"):
        make_base(spec_of(base), store, tmp_path / "b", tmp_path)
    assert not (tmp_path / "b").exists()


def test_file_whose_numbers_mean_nothing_is_refused(store, tmp_path):
    spec = spec_of(BaseEntry(kind="file", path="w.safetensors"))
    good = make_model(spec.model, store.shape, store.classes).state_dict()
    name = list(good)[1]
    for broken, message in (
        (good[name] * float("nan"), "not finite"),
        (good[name] / 0, "not finite"),
        (good[name].to(torch.int8), r"int8 there and torch\.float32 here"),
    ):
        save_weights(tmp_path / "w.safetensors", {**good, name: broken})
        with pytest.raises(FedbenchError, match=rf"w\.safetensors: .*{message}"):
            make_base(spec, store, tmp_path / "b", tmp_path)
        assert not (tmp_path / "b").exists()


def test_a_base_that_was_damaged_or_exchanged_or_trained_on_other_data_is_refused(store, tmp_path):
    spec = spec_of(PRETRAIN)
    make_base(spec, store, tmp_path / "b", tmp_path)
    load_base(tmp_path / "b", spec.base_spec, store.sha256)
    with pytest.raises(FedbenchError, match="prepared again from other files; delete this folder"):
        load_base(tmp_path / "b", spec.base_spec, "another")
    weights, facts = tmp_path / "b" / "base.safetensors", tmp_path / "b" / "base.json"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(FedbenchError, match="weights and their SHA-256 differ"):
        load_base(tmp_path / "b")
    save_weights(weights, {"other": torch.zeros(3)})
    with pytest.raises(FedbenchError, match="weights and their SHA-256 differ"):
        load_base(tmp_path / "b")
    for text in ("", "{", "[]", "null", "3", "{}", '{"spec": 1}'):
        facts.write_text(text)
        with pytest.raises(FedbenchError, match=r"base\.json: (damaged \(no '|not valid JSON)"):
            load_base(tmp_path / "b")


def test_timm_names_load_strictly_with_resampled_positions(store, tmp_path):
    import timm

    large = timm.create_model("vit_tiny_patch16_224", num_classes=5, img_size=64)
    save_weights(tmp_path / "w.safetensors", large.state_dict())
    base = BaseEntry(kind="file", path="w.safetensors")
    make_base(spec_of(base, "vit", **TINY), store, tmp_path / "b", tmp_path)
    found = load_base(tmp_path / "b").weights
    assert torch.equal(found["trunk.blocks.5.mlp.fc2.weight"], large.state_dict()["blocks.5.mlp.fc2.weight"])
    assert found["trunk.pos_embed"].shape == (1, 5, 192)  # 32 px instead of 64: four patches and the class token
    weights = read_weights(tmp_path / "w.safetensors")
    del weights["blocks.3.attn.proj.bias"]
    save_weights(tmp_path / "w.safetensors", weights)
    with pytest.raises(FedbenchError, match=r"another architecture: .*blocks\.3\.attn\.proj\.bias"):
        make_base(spec_of(base, "vit", **TINY), store, tmp_path / "c", tmp_path)
