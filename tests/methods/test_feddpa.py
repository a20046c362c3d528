"""FedDPA: one step of the mixture by hand, and each sample's weight at inference by a loop over samples."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_hand import VIT, merged_logits
from support import make_spec, play
from torch.nn import functional
from toy import classifier, gradients, make

from fedbench.randomness import stream
from fedbench.tree import expand, select

RATE, DECAY = 0.1, 0.01


def residuals(sites, leaves, weight):
    """s [(1 - w) A B + w A_p B_p] per site, with s = 3."""
    return {
        site.name: 3.0
        * (
            (1 - weight) * leaves[f"lora.{site.name}.A"] @ leaves[f"lora.{site.name}.B"]
            + weight * leaves[f"private.{site.name}.A"] @ leaves[f"private.{site.name}.B"]
        )
        for site in sites
    }


def head_of(leaves):
    return {name.removeprefix("head."): leaf for name, leaf in leaves.items() if name.startswith("head.")}


@pytest.mark.parametrize("weight", [0.5, 0.2])
def test_one_round_by_hand(weight):
    run = make(
        {"method": "feddpa", "rank": 2, "lora_alpha": 6.0, "weight": weight},
        classifier("small-vit", **VIT),
        learning_rate=RATE,
        weight_decay=DECAY,
    )
    plain = classifier("small-vit", **VIT)
    ends = []
    run.round(1)
    for client, own in enumerate(run.population.train_samples):
        private = run.method.init_private(stream(0, "private", client), run.shared)
        leaves = {**run.shared, **private}

        def loss(leaves, own=own):
            logits = merged_logits(
                plain, residuals(plain.sites, leaves, weight), head_of(leaves), run.population.pixels[own]
            )
            return functional.cross_entropy(logits, run.population.targets[own])

        found = gradients(leaves, loss)
        ends.append(
            {
                name: leaf - RATE * (found[name] + (0.0 if name.startswith("private.") else DECAY) * leaf)
                for name, leaf in leaves.items()
            }
        )
        assert run.state.private[client].keys() == private.keys()
        for name, leaf in run.state.private[client].items():
            torch.testing.assert_close(leaf, ends[client][name], rtol=1e-4, atol=1e-6)
            assert not torch.equal(leaf, private[name])
    for name, leaf in run.state.shared.items():
        torch.testing.assert_close(leaf, (ends[0][name] + ends[1][name]) / 2, rtol=1e-4, atol=1e-6)


def test_private_start():
    run = make({"method": "feddpa"}, classifier("small-vit", patch=4, dim=96, depth=2, heads=2))
    private = run.method.init_private(stream(0, "private", 0), run.shared)
    up = torch.cat([leaf.flatten() for name, leaf in private.items() if name.endswith(".B")])
    down = torch.cat([leaf.flatten() for name, leaf in private.items() if name.endswith(".A")])
    assert float(up.std()) == pytest.approx(0.01, rel=0.1)
    assert float(down.std()) == pytest.approx(8**-0.5, rel=0.1)


@pytest.fixture(scope="module")
def trained(digits, ragged):
    """A run after two rounds, its shared and private leaves moved well away from zero."""
    spec = make_spec("feddpa", "vit", method_options={"rank": 2, "lora_alpha": 6.0}, rounds=2)
    run = play(digits, ragged, spec)
    rng = np.random.default_rng(5)

    def moved(tree, size):
        return {n: leaf + size * torch.from_numpy(rng.standard_normal(leaf.shape)).float() for n, leaf in tree.items()}

    shared = moved(run.state.shared, 0.3)
    starts = [run.method.init_private(stream(0, "private", client), shared) for client in range(ragged.clients)]
    private = {client: moved(start, 0.3) for client, start in enumerate(starts)}
    run.state = replace(run.state, shared=shared, private=private)
    return run


def features(model, leaves, images):
    """Features before the head under the shared branch alone."""
    weights = {f"{site.name}.weight": None for site in model.sites}
    parameters = dict(model.named_parameters())
    for site in model.sites:
        residual = 3.0 * leaves[f"lora.{site.name}.A"] @ leaves[f"lora.{site.name}.B"]
        weights[f"{site.name}.weight"] = parameters[f"{site.name}.weight"] + residual.T
    trunk = {name.removeprefix("trunk."): leaf for name, leaf in weights.items()}
    return torch.func.functional_call(model.trunk, trunk, (images,))


def test_every_sample_has_its_own_weight(trained, digits, ragged):
    run, population = trained, trained.trainer.population
    plain = play(digits, ragged, run.spec).method.task.classifier
    evaluation = run.evaluator.evaluate(run.state.shared, run.private, list(range(ragged.clients)))
    used = []
    for client in range(ragged.clients):
        leaves = {**run.state.shared, **run.state.private[client]}
        anchors = stream(0, "context", client).permutation(population.train[client])[:5]
        hits = []
        with torch.no_grad():
            f_anchors = features(plain, leaves, population.images(anchors))
            for sample in population.test[client]:
                image = population.images(np.array([sample]))
                f = features(plain, leaves, image)[0]
                cosines = [float(functional.cosine_similarity(f, anchor, dim=0)) for anchor in f_anchors]
                weight = 0.5 * max(0.0, sum(cosines) / len(cosines))
                used.append(weight)
                logits = merged_logits(plain, residuals(plain.sites, leaves, weight), head_of(leaves), image)[0]
                hits.append(int(logits.argmax()) == int(population.labels(np.array([sample]))[0]))
                stacked = {name: leaf[None] for name, leaf in leaves.items()}
                stacked |= run.evaluator._context(stacked, [client])
                found = run.method.task.logits(stacked, image[None])[0, 0]
                torch.testing.assert_close(found, logits, rtol=1e-3, atol=1e-4)
        assert evaluation.personal[client] == pytest.approx(np.mean(hits))
    assert 0 <= min(used) < max(used) <= 0.5


def test_a_fixed_weight_needs_no_anchors(tmp_path, digits, ragged):
    run = play(digits, ragged, make_spec("feddpa", "vit", method_options={"inference": "fixed"}))
    assert run.method.context_images == 0


def test_anchors_of_a_client_with_few_samples_count_once():
    run = make({"method": "feddpa", "rank": 2}, classifier("small-vit", **VIT))
    task, shared = run.method.task, expand(run.shared, 1)
    images = run.population.pixels[:3][None]
    padded = torch.cat([images, images[:, :1].expand(1, 2, *images.shape[2:])], dim=1)
    mask = torch.tensor([[True, True, True, False, False]])
    expected = torch.nn.functional.normalize(task.features(select(shared, "lora."), images), dim=2).mean(1)
    torch.testing.assert_close(task.anchor(shared, padded, mask), expected)


def test_the_shared_model_is_that_without_private_branch():
    run = make({"method": "feddpa", "rank": 2, "lora_alpha": 6.0}, classifier("small-vit", **VIT))
    run.round(1)
    plain, shared = classifier("small-vit", **VIT), run.state.shared
    expected = {s.name: 3.0 * shared[f"lora.{s.name}.A"] @ shared[f"lora.{s.name}.B"] for s in plain.sites}
    images = run.population.pixels
    stacked = expand(run.method.global_weights(shared), 1)
    torch.testing.assert_close(
        run.method.task.logits(stacked, images[None])[0], merged_logits(plain, expected, head_of(shared), images)
    )
