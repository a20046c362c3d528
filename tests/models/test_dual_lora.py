"""FedSDG's forward pass against the paper's formulas, computed by hand in float64."""

import numpy as np
import pytest
import torch

from fedbench.config.reading import parse_entry
from fedbench.models.dual_lora import ALIGNMENTS, DualLoraTask
from fedbench.models.lora import LoraTask
from fedbench.models.make_model import make_model
from fedbench.models.task import Batch
from fedbench.randomness import stream
from fedbench.tree import count, expand, rows, select, stack

CLIENTS, SAMPLES, RANK, PRIVATE_RANK, ALPHA = 3, 2, 4, 3, 8.0


def small_vit(classes=5, shape=(1, 8, 8)):
    entry = parse_entry("models", "vit", {"backbone": "small-vit", "patch": 4, "dim": 12, "depth": 2, "heads": 2})
    return make_model(entry, shape, classes).double()


def build(alignment, **options):
    task = DualLoraTask(small_vit(), RANK, ALPHA, PRIVATE_RANK, alignment, **options)
    shared = {name: leaf.double() for name, leaf in task.init(stream(0, "shared")).items()}
    for name in select(shared, "lora."):  # B = 0 would hide the shared branch
        shared[name] = torch.from_numpy(stream(1, name).standard_normal(shared[name].shape)) * 0.3
    private = stack([task.init_private(stream(0, "private", client)) for client in range(CLIENTS)])
    private = {name: leaf.double() for name, leaf in private.items()}
    for position, name in enumerate(select(private, "gate.")):  # distinct gates for clients and sites
        private[name] = torch.linspace(-2.0, 1.0, CLIENTS, dtype=torch.float64) + 0.3 * position
    return task, expand(shared, CLIENTS), private


def rms(z):
    return np.sqrt(np.mean(z**2) + 1e-6)


def by_hand(alignment, x, base, down, up, private_down, private_up, gate):
    """out = b + g + m * p_align for one sample; x [T, d_in], base [T, d_out]."""
    g = ALPHA / RANK * x @ down @ up
    p = ALPHA / PRIVATE_RANK * x @ private_down @ private_up
    target = {
        "base": rms(base),
        "global": rms(g),
        "geomean": np.sqrt(rms(base) * rms(g)),
        "floor": max(rms(g), 0.1 * rms(base)),
    }
    aligned = p if alignment == "none" else p / rms(p) * target[alignment]
    return base + g + gate * aligned


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("gate_value", [None, 0.5])
def test_site_output_equals_the_hand_computation(alignment, gate_value):
    task, shared, private = build(alignment, gate_value=gate_value)
    rng = np.random.default_rng(3)
    for site in task.classifier.sites:
        x = rng.standard_normal((CLIENTS * SAMPLES, 5, site.in_features))
        base = rng.standard_normal((CLIENTS * SAMPLES, 5, site.out_features)) * 2.5
        out = task.adapt(site, torch.from_numpy(x), torch.from_numpy(base), {**shared, **private}).numpy()
        for client in range(CLIENTS):
            leaves = [
                tree[f"{kind}.{site.name}.{part}"][client].numpy()
                for kind, tree in (("lora", shared), ("private", private))
                for part in "AB"
            ]
            m = gate_value
            if gate_value is None:
                m = 1 / (1 + np.exp(-private[f"gate.{site.name}"][client].item()))
            for sample in range(client * SAMPLES, (client + 1) * SAMPLES):
                expected = by_hand(alignment, x[sample], base[sample], *leaves, m)
                np.testing.assert_allclose(out[sample], expected, rtol=1e-11, atol=1e-11)


class Explicit(DualLoraTask):
    """The same forward written as in the paper, with both branches materialised and autograd's own gradient."""

    def adapt(self, site, x, base, active):
        clients = len(active[f"lora.{site.name}.A"])
        x, base = (t.view(clients, -1, *t.shape[1:]) for t in (x, base))

        def branch(kind, scale):
            down, up = (active[f"{kind}.{site.name}.{part}"].unsqueeze(1) for part in "AB")
            return scale * (x @ down @ up)

        def size(z):
            return (z.square().mean((2, 3), keepdim=True) + 1e-6).sqrt().detach()

        g, p = branch("lora", ALPHA / RANK), branch("private", ALPHA / PRIVATE_RANK)
        target = {
            "base": size(base),
            "global": size(g),
            "geomean": (size(g) * size(base)).sqrt(),
            "floor": torch.maximum(size(g), 0.1 * size(base)),
            "none": size(p),
        }[self.alignment]
        gate = torch.sigmoid(active[self.gate_name(site)]).view(-1, 1, 1, 1)
        return (base + g + gate * p / size(p) * target).flatten(0, 1)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_gradients_equal_those_of_the_explicit_form(alignment):
    images = torch.from_numpy(np.random.default_rng(0).standard_normal((CLIENTS, SAMPLES, 1, 8, 8)))
    labels = torch.arange(CLIENTS * SAMPLES).view(CLIENTS, SAMPLES) % 5
    gradients = []
    for kind in (DualLoraTask, Explicit):
        task, shared, private = build(alignment)
        task.__class__ = kind
        leaves = {name: leaf.clone().requires_grad_() for name, leaf in {**shared, **private}.items()}
        task.losses(leaves, Batch(images, labels)).sum().backward()
        gradients.append({name: leaf.grad for name, leaf in leaves.items()})
    for name, gradient in gradients[0].items():
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scale", [0.1, 30.0])
@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_scale_of_the_private_branch_is_identifiable_only_without_alignment(alignment, scale):
    task, shared, private = build(alignment)
    images = torch.from_numpy(np.random.default_rng(0).standard_normal((CLIENTS, SAMPLES, 1, 8, 8)))
    for name in select(private, "private."):  # a branch of unit scale, far above epsilon
        if name.endswith(".B"):
            private[name] = private[name] * 30
    scaled = {n: leaf * scale if n.startswith("private.") and n.endswith(".B") else leaf for n, leaf in private.items()}
    before = task.logits({**shared, **private}, images)
    after = task.logits({**shared, **scaled}, images)
    difference = (after - before).abs().max() / before.abs().max()
    if alignment == "none":
        assert difference > 0.01
    else:  # epsilon inside the root is all that is left of the scale
        assert difference < 1e-4


def test_without_private_leaves_the_model_is_the_shared_lora_model():
    task, shared, private = build("base")
    lora = LoraTask(small_vit(), RANK, ALPHA)
    images = torch.from_numpy(np.random.default_rng(0).standard_normal((CLIENTS, SAMPLES, 1, 8, 8)))
    expected = lora.logits(shared, images)
    torch.testing.assert_close(task.logits(shared, images), expected, rtol=0, atol=0)
    assert (task.logits({**shared, **private}, images) - expected).abs().max() > 1e-3


def test_a_fixed_gate_of_zero_is_the_shared_model():
    task, shared, private = build("base", gate_value=0.0)
    images = torch.from_numpy(np.random.default_rng(0).standard_normal((CLIENTS, SAMPLES, 1, 8, 8)))
    torch.testing.assert_close(task.logits({**shared, **private}, images), task.logits(shared, images))
    assert not select(private, "gate.")


def test_block_gates_are_shared_by_the_sites_of_a_block():
    task, _, private = build("base", gate_level="block")
    assert sorted(select(private, "gate.")) == ["gate.block0", "gate.block1"]
    first, second = (site for site in task.classifier.sites if site.block == 0)
    assert task.gate(first, private) is not None
    torch.testing.assert_close(task.gate(first, private), task.gate(second, private), rtol=0, atol=0)


def test_gates_start_at_the_sigmoid_of_minus_three():
    task = DualLoraTask(small_vit(), RANK, ALPHA, PRIVATE_RANK)
    private = {name: leaf.unsqueeze(0) for name, leaf in task.init_private(stream(0, "private", 0)).items()}
    for site in task.classifier.sites:
        assert float(task.gate(site, private)) == pytest.approx(0.04743, abs=1e-5)


def test_sizes_of_vit_tiny_at_100_classes():
    entry = parse_entry("models", "vit", {"backbone": "vit"})
    task = DualLoraTask(make_model(entry, (3, 32, 32), 100), 8, 16.0, 8)
    assert count(task.init(stream(0, "shared"))) == 148_324
    private = task.init_private(stream(0, "private", 0))
    assert count(private) == 129_048
    assert len(select(private, "gate.")) == 24


def test_private_initialisation_follows_the_paper():
    task = DualLoraTask(small_vit(shape=(1, 32, 32)), 8, 16.0, 8)
    site = task.classifier.sites[0]
    trees = stack([task.init_private(stream(seed, "private", 0)) for seed in range(200)])
    assert float(trees[f"private.{site.name}.A"].std()) == pytest.approx(8**-0.5, rel=0.05)
    bound = site.out_features**-0.5
    up = trees[f"private.{site.name}.B"]
    assert float(up.abs().max()) <= bound
    assert float(up.std()) == pytest.approx(bound / 3**0.5, rel=0.05)
    unaligned = DualLoraTask(small_vit(shape=(1, 32, 32)), 8, 16.0, 8, alignment="none")
    trees = stack([unaligned.init_private(stream(seed, "private", 0)) for seed in range(200)])
    assert float(trees[f"private.{site.name}.B"].std()) == pytest.approx(0.01, rel=0.05)
    assert rows(trees, 0)[f"private.{site.name}.A"].shape == (site.in_features, 8)
