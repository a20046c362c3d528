"""What models and adapters start from, and their sizes, by number: A ~ N(0, 1/r) whatever the layer's width."""

import numpy as np
import pytest
import torch
from toy import classifier

from fedbench.models.conv_lora import ConvLoraTask
from fedbench.models.dual_lora import DualLoraTask
from fedbench.models.images import normalise
from fedbench.models.lora import LoraTask
from fedbench.models.mixed_lora import MixedLoraTask
from fedbench.models.task import Batch
from fedbench.randomness import stream
from fedbench.tree import select

VIT = {"patch": 4, "dim": 48, "depth": 2, "heads": 2}
RANK = 4


def vit():
    return classifier("small-vit", **VIT)


STARTS = {
    "lora": (lambda: LoraTask(vit(), RANK, 8.0).init, "lora."),
    "conv-lora": (lambda: ConvLoraTask(classifier("resnet-gn", depth=8), RANK, 8.0).init, "lora."),
    "mixed": (lambda: MixedLoraTask(vit(), RANK, 8.0, 0.5).init_private, "private."),
    "dual": (lambda: DualLoraTask(vit(), 2, 8.0, RANK).init_private, "private."),
}


@pytest.mark.parametrize("task", STARTS)
def test_a_is_drawn_with_the_ranks_variance(task):
    make, prefix = STARTS[task]
    start = make()
    trees = [start(stream(seed, "test")) for seed in range(30)]
    for name in select(trees[0], prefix):
        if name.endswith(".A"):
            values = torch.stack([tree[name] for tree in trees])
            assert values.shape[-1] == RANK != values.shape[-2]
            # the deviation of a deviation of n normal values is 1 / sqrt(2 n) of it
            assert float(values.std()) == pytest.approx(RANK**-0.5, rel=5 / (2 * values.numel()) ** 0.5), name
            assert abs(float(values.mean())) < 5 * (RANK * values.numel()) ** -0.5, name


def test_feddpas_private_b_has_a_hundredth():
    start = MixedLoraTask(vit(), RANK, 8.0, 0.5).init_private(stream(0, "test"))
    values = torch.cat([leaf.flatten() for name, leaf in start.items() if name.endswith(".B")])
    assert float(values.std()) == pytest.approx(0.01, rel=0.1)


def test_fedsdgs_private_b_is_bounded_by_the_outputs_of_its_layer():
    """U(-1/sqrt(d_out), 1/sqrt(d_out)), also where a layer has four times as many inputs."""
    start = DualLoraTask(vit(), RANK, 8.0, RANK).init_private(stream(0, "test"))
    values = start["private.trunk.blocks.0.mlp.fc2.B"]
    assert values.shape == (RANK, 48)
    assert 0.9 * 48**-0.5 < float(values.abs().max()) <= 48**-0.5


def test_a_frozen_head_gives_the_logits_under_adapters():
    model = classifier("small-vit", head="frozen-orthogonal", **VIT)
    plain = classifier("small-vit", head="frozen-orthogonal", **VIT)
    task, images = LoraTask(model, RANK, 8.0), torch.randn(3, 1, 8, 8)
    leaves = {name: leaf.unsqueeze(0) for name, leaf in task.init(stream(0, "test")).items()}
    assert not select(leaves, "head.")
    torch.testing.assert_close(task.logits(leaves, images.unsqueeze(0))[0], plain(images))


def test_adapters_sit_on_what_attention_and_ffn_give_back():
    """Where the paper has them: on each block's attention output and second ffn layer."""
    model = vit()
    assert [(site.name, site.in_features, site.out_features) for site in model.sites[:2]] == [
        ("trunk.blocks.0.attn.proj", 48, 48),
        ("trunk.blocks.0.mlp.fc2", 192, 48),
    ]


def test_a_shorter_batch_counts_its_own_samples():
    """Mean cross-entropy over a client's own samples, as if the padding were not there."""
    task = LoraTask(vit(), RANK, 8.0)
    shared = {name: torch.stack([leaf, leaf]) for name, leaf in task.init(stream(0, "test")).items()}
    images = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 5, 1, 8, 8), dtype=np.float32))
    labels = torch.tensor([[0, 1, 2, 3, 0], [3, 2, 1, 0, 0]])
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    losses = task.losses(shared, Batch(images, labels, mask))
    short = task.losses(shared, Batch(images[:, :2], labels[:, :2]))
    full = task.losses(shared, Batch(images, labels))
    torch.testing.assert_close(losses, torch.stack([full[0], short[1]]))
    assert abs(float(full[1] - short[1])) > 1e-3


def test_models_weights_and_frozen_heads_follow_their_seed():
    from fedbench.config.reading import parse_entry
    from fedbench.models.make_model import make_model

    entry = parse_entry("models", "mlp", {"backbone": "mlp", "head": "frozen-orthogonal"})
    first, again, other = (make_model(entry, (1, 8, 8), 4, seed) for seed in (1, 1, 2))
    assert torch.equal(first.head.weight, again.head.weight)
    assert not torch.equal(first.head.weight, other.head.weight)
    assert not torch.equal(first.trunk[1].weight, other.trunk[1].weight)


@pytest.mark.parametrize("backbone", ["mlp", "resnet-gn"])
def test_inputs_have_roughly_unit_size(backbone):
    """Without statistics of its own a backbone takes (x - 1/2) / (1/4) of images in 0..1."""
    model = classifier(backbone)
    assert (model.mean, model.std) == ((0.5,), (0.25,))


def test_a_residual_trunk_averages_its_maps():
    model = classifier("resnet-gn", depth=8)
    maps = []
    model.trunk.stages.register_forward_hook(lambda module, inputs, output: maps.append(output))
    features = model.trunk(torch.randn(3, 1, 8, 8))
    torch.testing.assert_close(features, maps[0].flatten(2).sum(2) / 4)  # 8 x 8 halved twice


def test_he_initialisation_is_by_the_layers_outputs():
    model = classifier("resnet-gn", depth=18)
    weight = model.trunk.stages[1][0].conv1.weight  # 64 -> 128 channels
    assert float(weight.detach().std()) == pytest.approx((2 / (9 * 128)) ** 0.5, rel=0.02)


def test_the_ffns_width_and_the_heads_are_the_options():
    model = classifier("small-vit", patch=4, dim=12, depth=1, heads=3, mlp_ratio=2.0)
    assert model.trunk.blocks[0].mlp.fc1.out_features == 24
    assert model.trunk.blocks[0].attn.num_heads == 3


def test_shrinking_sees_every_pixel():
    """One bright column of four: a quarter is left, whichever column it is; unfiltered it would be all or nothing."""
    for column in range(4):
        image = torch.zeros(1, 1, 16, 64, dtype=torch.uint8)
        image[..., column::4] = 255
        small = normalise(image, (0.0,), (1.0,), (4, 16))
        assert float(small.mean()) == pytest.approx(0.25, abs=0.02)
