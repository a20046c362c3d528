"""Backbones: sizes, sites, initialisation, heads and weight files."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fedbench.config.entries import ModelEntry
from fedbench.config.reading import Entry
from fedbench.errors import FedbenchError
from fedbench.models.heads import make_head
from fedbench.models.images import crop_flip, draw_crop_flip, normalise, padding
from fedbench.models.make_model import make_model
from fedbench.models.weights import load_weights, read_weights, save_weights
from fedbench.randomness import stream
from fedbench.registry import BACKBONES

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("FEDBENCH_TEST_DATA", ROOT / "../shared/data"))

RGB = (3, 32, 32)
SMALL = {
    "vit": {"name": "vit_tiny_patch16_224", "image_size": 32},
    "small-vit": {"patch": 2, "dim": 16, "depth": 2, "heads": 2},
    "resnet-gn": {"depth": 8},
    "mlp": {},
    "cnn": {"hidden": 16},
}


def model(backbone, head="trainable", **options):
    return Entry("m", ModelEntry(backbone=backbone, head=head), BACKBONES[backbone].options(**options))


def built(backbone, shape=RGB, classes=10, seed=0, head="trainable", **options):
    return make_model(model(backbone, head, **options), shape, classes, seed)


def count(classifier, names=None):
    return sum(leaf.numel() for name, leaf in classifier.named_parameters() if names is None or name in names)


def logits(classifier, shape, images=2):
    height, width = classifier.input_size or shape[1:]
    with torch.no_grad():
        return classifier(torch.randn(images, shape[0], height, width))


def test_vit_tiny_has_the_published_sizes_and_its_own_input_statistics():
    classifier = built("vit", classes=100, name="vit_tiny_patch16_224.augreg_in21k")
    assert count(classifier) == 5_543_716
    assert classifier.mean == classifier.std == (0.5, 0.5, 0.5)
    assert classifier.input_size == (224, 224)
    assert len(classifier.sites) == 24
    assert [(site.block, site.kind) for site in classifier.sites[:3]] == [
        (0, "attention"),
        (0, "ffn"),
        (1, "attention"),
    ]
    # shared LoRA of rank 8 at every site, and the head: what federated LoRA sends
    lora = sum(8 * (site.in_features + site.out_features) for site in classifier.sites)
    assert lora + count(classifier, {"head.weight", "head.bias"}) == 148_324


def test_sites_name_linear_layers_of_the_classifier():
    for backbone in ("vit", "small-vit"):
        classifier = built(backbone, **SMALL[backbone])
        for site in classifier.sites:
            layer = classifier.get_submodule(site.name)
            assert (layer.in_features, layer.out_features) == (site.in_features, site.out_features)


def test_resnet18_maps_twenty_convolutions():
    classifier = built("resnet-gn", classes=100, depth=18)
    assert len(classifier.mapped) == 20
    assert count(classifier, classifier.mapped) == 11_159_232
    assert count(classifier, classifier.norm_affine) == 9_600
    assert {module.num_groups for module in classifier.modules() if isinstance(module, torch.nn.GroupNorm)} == {32}


@pytest.mark.parametrize(("depth", "convolutions"), [(8, 9), (20, 21), (34, 36)])
def test_other_resnets_have_their_depth(depth, convolutions):
    assert (
        len(built("resnet-gn", depth=depth).mapped) == convolutions
    )  # two of the small ones', three of 34's shortcuts


def test_no_group_of_one_channel():
    for width in (1.0, 0.3):
        norms = [m for m in built("resnet-gn", depth=8, width=width).modules() if isinstance(m, torch.nn.GroupNorm)]
        assert norms
        assert all(norm.num_channels // norm.num_groups >= 2 for norm in norms)


def test_small_models_have_their_sizes():
    assert count(built("mlp")) == 3072 * 32 + 32 + 32 * 10 + 10 == 98_666
    conv = 25 * 3 * 32 + 32 + 25 * 32 * 64 + 64
    assert count(built("cnn")) == conv + 64 * 8 * 8 * 512 + 512 + 512 * 10 + 10


@pytest.mark.parametrize("backbone", sorted(BACKBONES))
def test_provides_says_what_the_classifier_has(backbone):
    classifier = built(backbone, **SMALL[backbone])
    has = {
        "lora-sites": classifier.sites,
        "mapped-weights": classifier.mapped,
        "norm-affine": classifier.norm_affine,
    }
    assert BACKBONES[backbone].target.provides == {name for name, found in has.items() if found}
    names = dict(classifier.named_parameters())
    assert all(name in names for name in (*classifier.mapped, *classifier.norm_affine))


@pytest.mark.parametrize("backbone", sorted(BACKBONES))
def test_initial_weights_depend_on_the_seed_alone(backbone):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = built(backbone, seed=3, **SMALL[backbone]).state_dict()
    assert torch.equal(torch.get_rng_state(), before)  # building leaves torch's own stream alone
    torch.manual_seed(2)
    again = built(backbone, seed=3, **SMALL[backbone]).state_dict()
    other = built(backbone, seed=4, **SMALL[backbone]).state_dict()
    frozen = built(backbone, seed=3, head="frozen-orthogonal", **SMALL[backbone]).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
    assert all(torch.equal(first[name], frozen[name]) for name in first if name.startswith("trunk."))


@pytest.mark.parametrize("backbone", sorted(BACKBONES))
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)])
def test_grey_digits_and_colour_images_go_through(backbone, shape):
    classifier = built(backbone, shape, classes=7, **SMALL[backbone])
    assert logits(classifier, shape).shape == (2, 7)
    assert len(classifier.mean) == len(classifier.std) == shape[0]


@pytest.mark.parametrize("backbone", ["resnet-gn", "mlp", "cnn"])
def test_odd_image_sizes_go_through(backbone):
    assert logits(built(backbone, (3, 9, 7), **SMALL[backbone]), (3, 9, 7)).shape == (2, 10)


def test_vit_takes_another_image_size():
    classifier = built("vit", name="vit_small_patch14_dinov2", image_size=98)
    assert classifier.input_size == (98, 98)
    assert classifier.trunk.pos_embed.shape == (1, 50, 384)


@pytest.mark.parametrize(
    ("backbone", "shape", "options", "words"),
    [
        ("vit", RGB, {"name": "vit_tiny_patch16_225"}, "vit_tiny_patch16_224"),
        ("vit", RGB, {"name": "vit_tiny_patch16_224.augreg_in22k"}, "augreg_in21k"),
        ("vit", RGB, {"image_size": 40}, "multiple"),
        ("small-vit", (1, 9, 9), {"patch": 2}, "9x9"),
        ("small-vit", RGB, {"dim": 10, "heads": 4}, "heads 4"),
        ("cnn", (1, 3, 9), {}, "3x9"),
    ],
)
def test_options_that_do_not_fit_are_named(backbone, shape, options, words):
    with pytest.raises(FedbenchError, match=words) as caught:
        built(backbone, shape, **options)
    assert "\n" not in str(caught.value)


def frozen(kind, features, classes):
    head = make_head(kind, features, classes, stream(0, "test"))
    assert not head.weight.requires_grad
    assert not head.bias.requires_grad
    assert torch.all(head.bias == 0)
    return head.weight.double().numpy()


def test_orthogonal_head_has_orthonormal_rows_or_a_tight_frame():
    wide = frozen("frozen-orthogonal", 64, 10)
    np.testing.assert_allclose(wide @ wide.T, np.eye(10), atol=1e-6)
    tall = frozen("frozen-orthogonal", 16, 100)
    np.testing.assert_allclose(tall.T @ tall, np.eye(16) * 100 / 16, atol=1e-5)
    assert np.isclose((tall**2).sum(1).mean(), 1)


@pytest.mark.parametrize(("features", "classes"), [(64, 10), (9, 10), (5, 2)])
def test_etf_head_is_a_simplex(features, classes):
    weight = frozen("frozen-etf", features, classes)
    cosines = np.full((classes, classes), -1 / (classes - 1))
    np.fill_diagonal(cosines, 1)
    np.testing.assert_allclose(weight @ weight.T, cosines, atol=1e-6)


def test_etf_head_that_cannot_exist_is_refused():
    with pytest.raises(FedbenchError, match="frozen-orthogonal"):
        frozen("frozen-etf", 8, 10)


def test_kaiming_head_has_its_variance():
    assert np.isclose(frozen("frozen-kaiming", 512, 100).std(), np.sqrt(2 / 512), rtol=0.02)


@pytest.mark.parametrize("kind", ["frozen-kaiming", "frozen-orthogonal", "frozen-etf"])
def test_frozen_heads_reach_the_model_and_stay_out_of_its_gradients(kind):
    classifier = built("mlp", head=kind)
    assert classifier.head_is_frozen
    logits = classifier(torch.randn(2, *RGB))
    logits.sum().backward()
    assert classifier.head.weight.grad is None
    assert classifier.trunk[1].weight.grad is not None


def test_weights_survive_a_file(tmp_path):
    first, second = built("mlp", seed=0), built("mlp", seed=1)
    size = save_weights(tmp_path / "w.safetensors", first.state_dict())
    assert size == (tmp_path / "w.safetensors").stat().st_size
    load_weights(second, read_weights(tmp_path / "w.safetensors"), tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_weights_of_another_architecture_name_the_first_difference():
    target = built("mlp", hidden=32)
    with pytest.raises(FedbenchError, match=r"file: .*trunk\.1\.weight is \[16, 3072\] there and \[32, 3072\] here"):
        load_weights(target, built("mlp", hidden=16).state_dict(), "file")
    with pytest.raises(FedbenchError, match=r"trunk\.1\.weight \[32, 3072\] is missing"):
        load_weights(target, built("resnet-gn", depth=8).state_dict(), "file")
    with pytest.raises(FedbenchError, match=r"extra \[1\] is not part"):
        load_weights(target, {**target.state_dict(), "extra": torch.zeros(1)}, "file")


def test_missing_damaged_and_pickled_files_are_refused(tmp_path):
    with pytest.raises(FedbenchError, match="no such weights file"):
        read_weights(tmp_path / "none.safetensors")
    save_weights(tmp_path / "w.safetensors", built("mlp").state_dict())
    whole = (tmp_path / "w.safetensors").read_bytes()
    (tmp_path / "w.safetensors").write_bytes(whole[:-100])
    with pytest.raises(FedbenchError, match="not a whole safetensors file"):
        read_weights(tmp_path / "w.safetensors")
    torch.save({"a": torch.zeros(1)}, tmp_path / "w.pt")
    with pytest.raises(FedbenchError, match="only safetensors is read"):
        read_weights(tmp_path / "w.pt")


def test_normalise_matches_its_formula_and_resizes():
    images = torch.from_numpy(stream(0, "images").integers(0, 256, (2, 3, 8, 8), dtype=np.uint8))
    mean, std = (0.1, 0.5, 0.9), (0.2, 0.3, 0.4)
    expected = (images.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(normalise(images, mean, std).double(), expected, atol=1e-5, rtol=0)
    flat = torch.full((1, 3, 8, 8), 51, dtype=torch.uint8)
    large = normalise(flat, mean, std, (20, 28))
    assert large.shape == (1, 3, 20, 28)
    torch.testing.assert_close(large[0, 1], torch.full((20, 28), (0.2 - 0.5) / 0.3), atol=1e-5, rtol=0)


def test_crop_flip_equals_slicing():
    rng = stream(0, "images")
    images = torch.from_numpy(rng.integers(0, 256, (20, 3, 9, 7), dtype=np.uint8))
    pad = 2
    offsets, flips = draw_crop_flip(rng, 20, pad)
    assert offsets.min() == 0
    assert offsets.max() == 2 * pad
    assert 0 < flips.sum() < 20
    found = crop_flip(images, torch.from_numpy(offsets), torch.from_numpy(flips), pad)
    for image, (row, column), flip, result in zip(images, offsets, flips, found, strict=True):
        padded = torch.zeros(3, 9 + 2 * pad, 7 + 2 * pad, dtype=torch.uint8)
        padded[:, pad : pad + 9, pad : pad + 7] = image
        window = padded[:, row : row + 9, column : column + 7]
        assert torch.equal(result, window.flip(-1) if flip else window)
    assert (padding(32, 32), padding(8, 8), padding(4, 40)) == (4, 1, 1)


def test_real_weights_load_at_another_image_size():
    path = DATA / "vit_small_patch14.safetensors"
    if not path.is_file():
        pytest.skip(f"{path} is not there; set FEDBENCH_TEST_DATA to a folder with it")
    from fedbench.bases.published import load_file
    from fedbench.config.entries import BaseEntry

    entry = model("vit", name="vit_small_patch14_dinov2", image_size=98)
    classifier = make_model(entry, RGB, 10)
    record = load_file(classifier, entry, BaseEntry(kind="file", path=path.name), RGB, path.parent)
    weights = read_weights(path)
    name = "blocks.3.attn.proj.weight"
    assert torch.equal(classifier.trunk.get_parameter(name), weights[name].float())
    assert classifier.trunk.pos_embed.shape == (1, 50, 384)
    assert record["head"] == "new"
    assert torch.isfinite(logits(classifier, RGB)).all()
    other = model("vit", image_size=32)
    with pytest.raises(FedbenchError, match="another architecture") as caught:
        load_file(make_model(other, RGB, 10), other, BaseEntry(kind="file", path=str(path)), RGB, Path())
    assert "\n" not in str(caught.value)
