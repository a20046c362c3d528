"""What the engine is measured against: plain torch, one client after another, written out by hand.

These loops are what one would write for a single experiment. They get advantages that the engine does not have:
images are normalised floats in memory before the clock starts, nothing is serialised, no byte is counted. They draw
the engine's batches, so that both sides compute the same thing, which :func:`difference` checks.
"""

import copy
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional

from fedbench.engine.batches import client_batches
from fedbench.engine.server import sample_cohort
from fedbench.models.images import normalise
from fedbench.randomness import stream


class PlainLoop:
    """Data, cohorts and batches of a sequential federation.

    Parameters
    ----------
    classifier : the global model
    store, partition : the clients' data
    training : the run's training options
    seed : the run's seed
    """

    def __init__(self, classifier, store, partition, training, seed):
        self.model = copy.deepcopy(classifier)
        self.training, self.seed = training, seed
        self.samples = partition.train
        self.images = normalise(torch.from_numpy(store.images), classifier.mean, classifier.std, classifier.input_size)
        self.labels = torch.from_numpy(store.labels)

    def cohort(self, number):
        """Clients of round `number`."""
        return sample_cohort(self.seed, number, len(self.samples), self.training.participation)

    def batches(self, number, client):
        """One client's batches of round `number`, images and labels."""
        samples, size = self.samples[client], min(self.training.batch_size, len(self.samples[client]))
        steps = self.training.local_epochs * -(-len(samples) // size)
        for batch in client_batches(stream(self.seed, "batches", number, 0, client), samples, size, steps):
            chosen = torch.from_numpy(batch[batch >= 0])
            yield self.images[chosen], self.labels[chosen]


def plain_mlp():
    """The MLP 3072-32-10 in torch's own layers, named as the engine names them."""
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(3072, 32), nn.ReLU())
    return nn.Sequential(OrderedDict(trunk=trunk, head=nn.Linear(32, 10)))


def plain_cnn():
    """The CNN of two convolutions, each followed by ReLU and pool, named as the engine names its layers."""
    trunk = OrderedDict(
        conv1=nn.Conv2d(3, 32, 5, padding=2),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(32, 64, 5, padding=2),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        hidden=nn.Linear(4096, 512),
        relu3=nn.ReLU(),
    )
    return nn.Sequential(OrderedDict(trunk=nn.Sequential(trunk), head=nn.Linear(512, 10)))


class PlainFedAvg(PlainLoop):
    """FedAvg of all weights with SGD, of a network as one would write it."""

    def __init__(self, network, classifier, *arguments):
        super().__init__(classifier, *arguments)
        network.load_state_dict(classifier.state_dict())
        self.model = network
        self.shared = {name: leaf.clone() for name, leaf in self.model.state_dict().items()}

    def round(self, number):
        """One communication round."""
        cohort = self.cohort(number)
        total = {name: torch.zeros_like(leaf) for name, leaf in self.shared.items()}
        for client in cohort:
            self.model.load_state_dict(self.shared)
            optimiser = torch.optim.SGD(self.model.parameters(), lr=self.training.learning_rate)
            for images, labels in self.batches(number, client):
                optimiser.zero_grad()
                functional.cross_entropy(self.model(images), labels).backward()
                optimiser.step()
            for name, leaf in self.model.state_dict().items():
                total[name] += leaf
        self.shared = {name: leaf / len(cohort) for name, leaf in total.items()}


class DualLora(nn.Module):
    """A frozen linear layer with FedSDG's shared and private branches, as the paper writes them.

    out = b + g + m p / sg(RMS(p)) sg(RMS(b)),  g = s x A B,  p = s x A_p B_p,  m = sigmoid(a)
    """

    def __init__(self, base, rank, scale):
        super().__init__()
        self.base = base
        self.scale = scale
        self.shared_down, self.private_down = (nn.Parameter(torch.empty(base.in_features, rank)) for _ in range(2))
        self.shared_up, self.private_up = (nn.Parameter(torch.empty(rank, base.out_features)) for _ in range(2))
        self.gate = nn.Parameter(torch.empty(()))

    def forward(self, x):
        base = self.base(x)
        shared = self.scale * (x @ self.shared_down @ self.shared_up)
        private = self.scale * (x @ self.private_down @ self.private_up)
        aligned = private / rms(private) * rms(base)
        return base + shared + torch.sigmoid(self.gate) * aligned


def rms(values):
    """Root mean square over tokens and channels, one constant per sample."""
    return (values.detach().square().mean((1, 2), keepdim=True) + 1e-6).sqrt()


class PlainFedSDG(PlainLoop):
    """FedSDG with Adam; starts from given shared and private leaves, named as the engine names them."""

    def __init__(self, classifier, store, partition, training, seed, shared, private):
        super().__init__(classifier, store, partition, training, seed)
        self.private = private
        self.leaves = {"head.weight": self.model.head.weight, "head.bias": self.model.head.bias}
        self.model.requires_grad_(False)
        self.model.head.requires_grad_(True)
        for site in self.model.sites:
            rank = shared[f"lora.{site.name}.A"].shape[1]
            layer = DualLora(self.model.get_submodule(site.name), rank, 16 / rank)
            self.model.set_submodule(site.name, layer)
            for prefix, down, up in (
                ("lora", layer.shared_down, layer.shared_up),
                ("private", layer.private_down, layer.private_up),
            ):
                self.leaves |= {f"{prefix}.{site.name}.A": down, f"{prefix}.{site.name}.B": up}
            self.leaves[f"gate.{site.name}"] = layer.gate
        self.shared = {name: leaf.clone() for name, leaf in shared.items()}

    def part(self, prefix):
        """The leaves whose names start with `prefix`."""
        return [leaf for name, leaf in self.leaves.items() if name.startswith(prefix)]

    def round(self, number):
        """One communication round."""
        cohort = self.cohort(number)
        total = {name: torch.zeros_like(leaf) for name, leaf in self.shared.items()}
        for client in cohort:
            trained = self.participate(number, client)
            for name in total:
                total[name] += trained[name]
            self.private[client] = {name: leaf for name, leaf in trained.items() if name not in total}
        self.shared = {name: leaf / len(cohort) for name, leaf in total.items()}

    def participate(self, number, client):
        """One client's local training; returns all its leaves."""
        with torch.no_grad():
            for name, value in {**self.shared, **self.private[client]}.items():
                self.leaves[name].copy_(value)
        common, private, gates = self.part(("lora.", "head.")), self.part("private."), self.part("gate.")
        rate, decay = self.training.learning_rate, self.training.weight_decay
        optimiser = torch.optim.Adam(
            [
                {"params": common, "weight_decay": decay},
                {"params": private},
                {"params": gates, "lr": 0.1},
            ],
            lr=rate,
        )
        for images, labels in self.batches(number, client):
            optimiser.zero_grad()
            loss = functional.cross_entropy(self.model(images), labels)
            loss = loss + 0.01 * sum(torch.sigmoid(gate) for gate in gates)
            loss = loss + 0.001 * sum(leaf.square().sum() for leaf in private)
            loss.backward()
            nn.utils.clip_grad_norm_([*common, *private, *gates], self.training.clip)
            optimiser.step()
        return {name: leaf.detach().clone() for name, leaf in self.leaves.items()}


def difference(plain, engine):
    """Largest absolute difference between the leaves of two trees."""
    return max(float((plain[name] - engine[name]).abs().max()) for name in engine)
