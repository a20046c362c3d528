"""Ways to hold FLITE's factors: they agree with each other, and only some of them take memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedbench.channels.make_channel import make_channel
from fedbench.config.reading import parse_entry
from fedbench.errors import FedbenchError
from fedbench.models import affine_factors
from fedbench.models._chunked_product import ChunkedProduct
from fedbench.models.affine_factors import hash_words, signs
from fedbench.models.affine_map import AffineMapTask
from fedbench.models.make_model import make_model
from fedbench.randomness import key_of, stream

DIMENSION, RANK = 16, 4


@pytest.fixture(autouse=True)
def many_chunks(monkeypatch):
    """Small models get several chunks per tensor, the last one shorter."""
    monkeypatch.setattr(affine_factors, "CHUNK_VALUES", 1000)


def resnet(depth=8, shape=(1, 8, 8), classes=10):
    return make_model(parse_entry("models", "resnet", {"backbone": "resnet-gn", "depth": depth}), shape, classes)


def make(factors, seed=3, **choice):
    return AffineMapTask(resnet(), DIMENSION, RANK, seed, factors=factors, **choice)


def latents(clients=2, layers=9, numbers=DIMENSION):
    return torch.from_numpy(stream(0, "latents").standard_normal((clients, layers, numbers), dtype=np.float32))


def weights_and_gradient(task, z):
    """Generated weights, and the gradient of their product with fixed numbers."""
    z = z.clone().requires_grad_()
    weights = task.weights({"latent": z})
    rng = np.random.default_rng(0)
    product = sum(
        (leaf * torch.from_numpy(rng.standard_normal(leaf.shape, dtype=np.float32))).sum() for leaf in weights.values()
    )
    product.backward()
    return weights, z.grad


@pytest.mark.parametrize("factors", ["seeded", "dense"])
def test_the_same_map_as_the_stored_one(factors):
    stored, other = make("stored"), make(factors)
    assert stored.factors_sha256 == other.factors_sha256
    expected, expected_gradient = weights_and_gradient(stored, latents())
    found, gradient = weights_and_gradient(other, latents())
    for name, leaf in expected.items():
        torch.testing.assert_close(found[name], leaf, rtol=0, atol=1e-6)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-5, atol=1e-5)


def test_half_precision_factors_are_the_rounded_ones():
    stored, half = make("stored"), make("stored-bf16")
    for one, other in zip(stored.projections, half.projections, strict=True):
        assert torch.equal(other.factor, one.factor.bfloat16())
    assert half.factors_bytes * 2 == stored.factors_bytes
    weights, gradient = weights_and_gradient(half, latents())
    for one in half.projections:
        one.factor = one.factor.float()
    wide, wide_gradient = weights_and_gradient(half, latents())
    assert all(torch.equal(weights[name], wide[name]) for name in weights), "products are float32"
    assert torch.equal(gradient, wide_gradient)


@pytest.mark.parametrize("factors", ["stored", "stored-bf16", "seeded", "rademacher", "dense"])
def test_averaging_identity_and_chunked_clients(factors):
    task = make(factors)
    z = latents(4)
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4])
    assert 0 < task.identity_error(z, shares) < 1e-6
    together = task.weights({"latent": z})
    for client in range(4):
        for name, leaf in task.weights({"latent": z[client : client + 1]}).items():
            torch.testing.assert_close(leaf[0], together[name][client], rtol=0, atol=1e-6)


@pytest.mark.parametrize("factors", ["stored", "seeded", "rademacher"])
def test_only_y_reaches_the_weights(factors):
    task, short = make(factors), make(factors, latent="y")
    y = torch.einsum("kld,ldr->klr", latents(), task.right)
    found = short.weights({"latent": y})
    for name, leaf in task.weights({"latent": latents()}).items():
        torch.testing.assert_close(found[name], leaf, rtol=0, atol=1e-6)
    assert short.init(stream(0, "shared"))["latent"].shape == (9, RANK)


@pytest.mark.parametrize(("channel", "size"), [({"codec": "dense"}, 2560), ({"codec": "affine", "bits": 4}, 328)])
def test_bytes_of_y_on_resnet18(channel, size):
    message = {"latent": torch.ones(20, 32)}
    built = make_channel(parse_entry("channels", "tested", channel), message)
    assert len(built.pack(message, np.random.default_rng(0))) == size


def test_gradient_of_the_chunked_product():
    matrix = torch.from_numpy(np.random.default_rng(0).standard_normal((7, 3)))
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, 3))).requires_grad_()
    torch.testing.assert_close(ChunkedProduct.apply(x, lambda: iter(matrix.split(2)), 7), x @ matrix.T)
    assert torch.autograd.gradcheck(lambda x: ChunkedProduct.apply(x, lambda: iter(matrix.split(2)), 7), x)


def mixed(word):
    """One pass of the hash, in Python's integers."""
    word ^= word >> 16
    word = word * 0x7FEB352D % 2**32
    word ^= word >> 15
    word = word * 0x846CA68B % 2**32
    return word ^ word >> 16


def test_signs_are_bits_of_a_hash():
    key = key_of(3, "affine-map-signs", 2)
    low, high = key % 2**32, (key >> 32) % 2**32
    words = [mixed((mixed((weight + low) % 2**32) + high) % 2**32) for weight in range(5, 25)]
    assert hash_words(3, 2, 5, 25, torch.device("cpu")).tolist() == words
    expected = [[1.0 if word >> bit & 1 else -1.0 for bit in range(6)] for word in words]
    assert signs(torch.tensor(words), 6).tolist() == expected


def test_signs_are_nearly_orthonormal_and_differ_between_layers():
    size = 50_000
    first = signs(hash_words(0, 0, 0, size, torch.device("cpu")), 32)
    second = signs(hash_words(0, 1, 0, size, torch.device("cpu")), 32)
    for left, right in ((first, first), (first, second)):
        products = left.T @ right / size
        if left is right:
            assert products.diagonal().tolist() == [1.0] * 32
            products = products - torch.eye(32)
        assert float(products.abs().max()) < 5 * size**-0.5
    assert float(first.mean(0).abs().max()) < 5 * size**-0.5


def test_rademacher_weights_by_hand():
    task = make("rademacher", latent="y")
    y = latents(1, 9, RANK)
    found = task.weights({"latent": y})
    for layer, name in enumerate(task.names):
        size = task.base[layer].numel()
        factor = signs(hash_words(3, layer, 0, size, torch.device("cpu")), RANK).double() / size**0.5
        expected = task.base[layer].double().flatten() + factor @ y[0, layer].double()
        torch.testing.assert_close(found[name][0].flatten().double(), expected, rtol=0, atol=1e-6)
    assert task.factors_bytes == 0


def test_a_large_dense_map_is_refused():
    model = resnet(18, (3, 32, 32), 100)
    with pytest.raises(FedbenchError, match=r"11,159,232 weights at dimension 64 takes 2\.9 GB.*stored or seeded"):
        AffineMapTask(model, 64, 32, 0, factors="dense")


IDENTITY = """
import torch
from fedbench.config.reading import parse_entry
from fedbench.models.affine_map import AffineMapTask
from fedbench.models.make_model import make_model
torch.set_num_threads(THREADS)
entry = parse_entry("models", "resnet", {"backbone": "resnet-gn", "depth": 20})
for factors in ("stored", "seeded", "rademacher"):
    print(AffineMapTask(make_model(entry, (3, 32, 32), 10), 64, 32, 0, factors=factors).factors_sha256)
"""


def run_python(code, threads=1, **environment):
    environment |= {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_factors_are_the_same_in_every_process_and_with_any_threads():
    one, two = (run_python(IDENTITY.replace("THREADS", str(threads)), threads) for threads in (1, 2))
    assert one == two
    assert one[0] == one[1] != one[2]


MEMORY = """
import json
from pathlib import Path
import numpy as np, torch
from fedbench.config.reading import parse_entry
from fedbench.models import projections
from fedbench.models.affine_factors import CHUNK_VALUES, chunk_rows
from fedbench.models.affine_map import AffineMapTask
from fedbench.models.make_model import make_model

RANK = 8
def status(key):
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[key].split()[0]) * 1024
def peak(work):
    "The process's bytes at work's peak."
    Path("/proc/self/clear_refs").write_text("5")
    result = work()
    return status("VmHWM"), result
def build(depth):
    entry = parse_entry("models", "resnet", {"backbone": "resnet-gn", "depth": depth})
    return make_model(entry, (3, 32, 32), 100)
def step(task):
    z = torch.zeros(1, len(task.names), 64, requires_grad=True)
    weights = task.weights({"latent": z})
    torch.autograd.backward(list(weights.values()), list(weights.values()))
class Nothing(projections.Seeded):
    "Passes of the same shapes over one chunk that is there already."
    ready = torch.zeros(chunk_rows(RANK), RANK)
    def chunks(self):
        for start in range(0, self.size, len(self.ready)):
            yield self.ready[: self.size - start]
small = AffineMapTask(build(8), 64, RANK, 0, factors="seeded")
step(small)
model = build(18)
before = status("VmRSS")
made, task = peak(lambda: AffineMapTask(model, 64, RANK, 0, factors="seeded"))
seeded = task.projections
task.projections = [Nothing.__new__(Nothing) for _ in seeded]
for one, other in zip(task.projections, seeded):
    one.__dict__.update(other.__dict__)
built = status("VmRSS")
step(task)
own, _ = peak(lambda: step(task))
task.projections = seeded
whole, _ = peak(lambda: step(task))
print(json.dumps({"build": made - before, "own": own - built, "pass": whole - own + 4 * CHUNK_VALUES}))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are read from Linux's /proc")
def test_drawing_factors_takes_at_most_16_mb_on_resnet18_shapes():
    """Peak above the model's own, for building the map and for a pass forwards and backwards."""
    # every large block goes back to the system when it is freed, so that peaks are of what is in use
    returned = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    bytes_of = json.loads("".join(run_python(MEMORY, **returned)))
    assert bytes_of["own"] > 40e6, "the generated weights themselves are seen"
    assert bytes_of["build"] <= 16e6
    assert bytes_of["pass"] <= 16e6, "above a pass of the same shapes that draws nothing (but for one chunk)"
