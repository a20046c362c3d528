"""A population of a few float images, and one round of a method on it, for hand computations."""

import numpy as np
import torch

from fedbench.channels.dense import Dense, DenseOptions
from fedbench.config.entries import Training
from fedbench.config.reading import parse_entry
from fedbench.engine.chunk import Chunk
from fedbench.engine.clients import ClientTrainer
from fedbench.engine.record import Record
from fedbench.engine.rows import round_row
from fedbench.engine.server import Server, sample_cohort
from fedbench.engine.state import FederationState
from fedbench.models.make_model import make_model
from fedbench.options import parse
from fedbench.randomness import stream
from fedbench.registry import METHODS

SHAPE, CLASSES = (1, 8, 8), 4
SAMPLES = (3, 5)  # training samples of the two clients; one batch each, so one local step per epoch


class Toy:
    """Two clients' images in memory, already normalised."""

    def __init__(self, samples=SAMPLES):
        rng = np.random.default_rng(0)
        self.pixels = torch.from_numpy(rng.standard_normal((sum(samples), *SHAPE), dtype=np.float32))
        self.targets = torch.from_numpy(rng.integers(0, CLASSES, sum(samples)))
        self.train_samples = np.split(np.arange(sum(samples)), np.cumsum(samples)[:-1])
        self.test = self.validation = self.train = self.train_samples
        self.device, self.pad, self.held_out = torch.device("cpu"), 1, ()

    @property
    def clients(self):
        return len(self.test)

    def images(self, indices, crops=None):
        return self.pixels[torch.from_numpy(indices)]

    def labels(self, indices):
        return self.targets[torch.from_numpy(indices)]


def classifier(backbone, double=False, **options):
    entry = parse_entry("models", "toy", {"backbone": backbone, **options})
    model = make_model(entry, SHAPE, CLASSES)
    return model.double() if double else model


class Played:
    """A server with the state and the record that its rounds lead to."""

    def __init__(self, server, state):
        self.server, self.state, self.record = server, state, Record()
        self.shared, self.trainer = state.shared, server.trainer
        self.method, self.population = server.method, server.trainer.population

    def round(self, number):
        """Run a round; returns its row."""
        result = self.server.round(self.state, number)
        row = round_row(result, self.record)
        self.state = result.state
        self.record.add(row, None)
        return row


def make(method, model, population=None, channel=None, sampler=sample_cohort, **training):
    """About to run rounds of `method` (a config entry) on the toy population."""
    population = population or Toy()
    options = METHODS.parse(method["method"], {k: v for k, v in method.items() if k != "method"}, "toy")
    training = parse(Training, {"rounds": 1, "batch_size": 8, "learning_rate": 0.1, **training}, "training")
    built = METHODS[method["method"]].target(options, model, training, 0)
    if built.pooled:
        population.train_samples = [np.concatenate(population.train_samples)]
    shared = built.init_shared(stream(0, "shared"))
    channel = channel or Dense(DenseOptions(), shared)

    def private(client):
        return built.init_private(stream(0, "private", client), shared)

    trainer = ClientTrainer(built, training, population, 0)
    server = Server(trainer, channel, Chunk(8, print), private, sampler=sampler)
    return Played(server, FederationState(0, shared, built.init_server(shared), {}))


def gradients(leaves, loss):
    """Gradients of a scalar loss by name, and the loss."""
    leaves = {name: leaf.detach().clone().requires_grad_() for name, leaf in leaves.items()}
    value = loss(leaves)
    value.backward()
    return {name: leaf.grad for name, leaf in leaves.items()}


def first_adam_step(gradient, rate, decay=0.0, value=0.0):
    """Change of a leaf in Adam's first step: both moments are the (decayed) gradient itself."""
    gradient = gradient + decay * value
    return -rate * gradient / (gradient.abs() + 1e-8)
