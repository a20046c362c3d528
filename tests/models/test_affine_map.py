"""FLITE's map: orthonormal seeded factors, theta = theta_pre + U V^T z, and the averaging identity."""

import numpy as np
import pytest
import torch

from fedbench.channels.dense import Dense, DenseOptions
from fedbench.config.reading import parse_entry
from fedbench.errors import FedbenchError
from fedbench.models import affine_factors
from fedbench.models.affine_factors import gaussian_chunks, latent_directions, orthonormal
from fedbench.models.affine_map import AffineMapTask
from fedbench.models.make_model import make_model
from fedbench.randomness import stream


def resnet(depth, shape=(3, 32, 32), classes=100):
    return make_model(parse_entry("models", "resnet", {"backbone": "resnet-gn", "depth": depth}), shape, classes)


@pytest.fixture(scope="module")
def resnet18():
    torch.manual_seed(0)
    return AffineMapTask(resnet(18), dimension=64, rank=32, seed=0)


@pytest.mark.parametrize("rank", [1, 8, 32])
def test_factors_have_orthonormal_columns(rank):
    factor = orthonormal(0, 3, 70_001, rank).astype(np.float64)
    np.testing.assert_allclose(factor.T @ factor, np.eye(rank), atol=2e-7)
    right = latent_directions(0, 3, 64, rank).astype(np.float64)
    np.testing.assert_allclose(right.T @ right, np.eye(rank), atol=2e-7)


def test_factor_is_the_gaussian_times_the_inverse_of_its_own_triangle():
    gaussian = np.concatenate(list(gaussian_chunks(7, 1, 5000, 16))).astype(np.float64)
    factor, triangle = np.linalg.qr(gaussian)  # Householder, another route to the same factorisation
    expected = factor * np.sign(np.diag(triangle))
    np.testing.assert_allclose(orthonormal(7, 1, 5000, 16), expected, atol=1e-7)


def test_chunks_do_not_depend_on_what_was_drawn_before(monkeypatch):
    monkeypatch.setattr(affine_factors, "CHUNK_VALUES", 64)
    whole = list(gaussian_chunks(0, 0, 100, 8))
    assert [len(chunk) for chunk in whole] == [8] * 12 + [4]
    again = stream(0, "affine-map", 0, 5).standard_normal((8, 8), dtype=np.float32)
    np.testing.assert_array_equal(whole[5], again)
    for threads in (2, 3, 100):
        for ours, theirs in zip(gaussian_chunks(0, 0, 100, 8, threads), whole, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert not np.array_equal(whole[0], next(gaussian_chunks(0, 1, 100, 8)))
    assert not np.array_equal(whole[0], next(gaussian_chunks(1, 0, 100, 8)))


def test_resnet18_has_20_latents_of_64_values_and_5120_bytes(resnet18):
    shared = resnet18.init(stream(0, "shared"))
    assert {name: tuple(leaf.shape) for name, leaf in shared.items()} == {"latent": (20, 64)}
    assert sum(weight.numel() for weight in resnet18.base) == 11_159_232
    payload = Dense(DenseOptions(), shared).pack(shared, np.random.default_rng(0))
    assert len(payload) == 5_120
    assert 11_159_232 // (len(payload) // 4) == 8_718


@pytest.mark.parametrize("weights", [np.full(8, 1 / 8), np.arange(1, 9) / 36])
def test_averaging_identity_on_resnet18_shapes(resnet18, weights):
    latents = torch.from_numpy(stream(0, "latents").standard_normal((8, 20, 64), dtype=np.float32)) * 0.05
    error = resnet18.identity_error(latents, torch.from_numpy(weights))
    assert 0 < error <= 1e-7


def test_weights_equal_the_formula_in_float64():
    task = AffineMapTask(resnet(8, shape=(1, 8, 8), classes=10), dimension=16, rank=4, seed=5)
    latent = torch.from_numpy(stream(1, "latents").standard_normal((2, len(task.names), 16), dtype=np.float32))
    weights = task.weights({"latent": latent})
    for layer, name in enumerate(task.names):
        left = orthonormal(5, layer, task.base[layer].numel(), 4).astype(np.float64)
        right = latent_directions(5, layer, 16, 4).astype(np.float64)
        for client in range(2):
            theta = task.base[layer].double().flatten().numpy() + left @ (
                right.T @ latent[client, layer].double().numpy()
            )
            np.testing.assert_allclose(weights[name][client].flatten().numpy(), theta, rtol=0, atol=2e-6)


def test_a_zero_latent_is_the_base():
    classifier = resnet(8, shape=(1, 8, 8), classes=10)
    task = AffineMapTask(classifier, dimension=16, rank=4, seed=0)
    images = torch.rand(1, 5, 1, 8, 8)
    shared = {name: leaf.unsqueeze(0) for name, leaf in task.init(stream(0, "shared")).items()}
    torch.testing.assert_close(task.logits(shared, images)[0], classifier(images[0]))


def test_identity_error_sees_a_map_that_is_not_affine():
    task = AffineMapTask(resnet(8, shape=(1, 8, 8), classes=10), dimension=16, rank=4, seed=0)
    latents = torch.from_numpy(stream(0, "latents").standard_normal((4, len(task.names), 16), dtype=np.float32))
    weights = torch.full((4,), 0.25)
    assert task.identity_error(latents, weights) < 1e-6
    assert task.identity_error(latents, torch.tensor([0.25, 0.25, 0.25, 0.3])) > 1e-2


def test_factor_identity_depends_on_the_seed_only():
    tasks = [AffineMapTask(resnet(8, (1, 8, 8), 10), 16, 4, seed=seed) for seed in (0, 0, 1)]
    assert tasks[0].factors_sha256 == tasks[1].factors_sha256 != tasks[2].factors_sha256


def test_rank_above_the_smallest_tensor_is_refused():
    with pytest.raises(FedbenchError, match=r"rank 400 exceeds the smallest mapped tensor \(144 values\)"):
        AffineMapTask(resnet(8, (1, 8, 8), 10), 512, 400, seed=0)
