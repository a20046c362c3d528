"""A user's own arrays and data sets as the engine takes them."""

import numpy as np
import pytest
import torch

from fedbench.config.in_code import run_spec
from fedbench.data.store import PUBLIC, TEST, TRAIN
from fedbench.errors import FedbenchError
from fedbench.partition.in_memory import from_arrays, from_dataset

IMAGES = np.arange(10 * 4 * 4, dtype=np.uint8).reshape(10, 4, 4)
LABELS = np.array([0, 1] * 5)


def test_every_sample_is_where_it_was_given():
    store, partition = from_arrays(IMAGES, LABELS, [[3, 0, 1], [5]], test=[[2], [9, 8]])
    assert store.shape == (1, 4, 4)
    assert np.array_equal(store.images[:, 0], IMAGES)
    assert [part.tolist() for part in partition.train] == [[0, 1, 3], [5]]
    assert [part.tolist() for part in partition.test] == [[2], [8, 9]]
    assert [part.tolist() for part in partition.validation] == [[], []]
    kinds = np.full(10, PUBLIC)
    kinds[[0, 1, 3, 5]], kinds[[2, 8, 9]] = TRAIN, TEST
    assert store.splits.tolist() == kinds.tolist()
    assert store.class_names == ("0", "1")


def test_a_share_of_each_clients_samples_is_for_testing():
    _, partition = from_arrays(IMAGES, LABELS, [range(8), [8, 9]], test_share=0.25)
    assert [len(part) for part in partition.train] == [6, 1]
    assert [len(part) for part in partition.test] == [2, 1]
    assert sorted([*partition.train[0], *partition.test[0]]) == list(range(8))
    again = from_arrays(IMAGES, LABELS, [range(8), [8, 9]], test_share=0.25)[1]
    assert partition.sha256 == again.sha256
    assert partition.sha256 != from_arrays(IMAGES, LABELS, [range(7), [8, 9]], test_share=0.25)[1].sha256


def test_floats_are_rounded_to_their_steps():
    store, _ = from_arrays(IMAGES.astype(np.float32) / 255, LABELS, [range(10)])
    assert np.array_equal(store.images[:, 0], IMAGES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": IMAGES.astype(float)}, "uint8, or floats from 0 to 1"),
        ({"images": IMAGES[0]}, "give [N, H, W] or [N, C, H, W]"),
        ({"images": IMAGES.astype(np.int64)}, "uint8, or floats from 0 to 1"),
        ({"labels": LABELS[:9]}, "labels must be 10 integers from 0"),
        ({"labels": LABELS - 1}, "labels must be 10 integers from 0"),
        ({"labels": LABELS / 2}, "labels must be 10 integers from 0"),
        ({"class_names": ["one"]}, "label 1 has no name"),
        ({"clients": [[0, 10]]}, "clients[0] must be indices from 0 to 9"),
        ({"clients": [[0, -1]]}, "clients[0] must be indices from 0 to 9"),
        ({"clients": []}, "0 clients"),
        ({"clients": [[0]]}, "client 0 has no test samples"),
        ({"clients": [[0, 1, 2], [2, 3, 4]], "test_share": 0.3}, "sample 2 is in"),
        ({"test": [[5]]}, "2 clients, but test samples of 1"),
        ({"test": [[0], [9]]}, "sample 0 is in"),
    ],
)
def test_what_does_not_fit_together_is_said_in_one_line(change, message):
    arguments = {"images": IMAGES, "labels": LABELS, "clients": [[0, 1, 2], [3, 4, 5]], **change}
    with pytest.raises(FedbenchError) as error:
        from_arrays(**arguments)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


class Pictures(torch.utils.data.Dataset):
    """Colour images, each as `kind` of thing."""

    def __init__(self, kind):
        self.kind = kind
        self.images = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.kind(self.images[index]), index % 2


@pytest.mark.parametrize("kind", [np.asarray, lambda image: torch.from_numpy(image).permute(2, 0, 1) / 255])
def test_data_sets_of_torch(kind):
    dataset = Pictures(kind)
    store, partition = from_dataset(dataset, [[0, 1, 2], [3, 4, 5]])
    assert store.shape == (3, 5, 4)
    assert np.array_equal(store.images, np.moveaxis(dataset.images, 3, 1))
    assert store.labels.tolist() == [0, 1] * 3
    assert partition.clients == 2


def test_images_of_two_sizes_are_refused():
    with pytest.raises(FedbenchError, match="images of 2 sizes"):
        from_dataset([(np.zeros((4, 4), np.uint8), 0), (np.zeros((4, 5), np.uint8), 1)], [[0, 1]])


def test_a_spec_from_code_is_held_to_the_same_rules():
    model = {"backbone": "mlp"}
    spec = run_spec({"method": "fedprox", "mu": 0.5}, model, clients=3, seed=7, rounds=2)
    assert (spec.method.options.mu, spec.training.rounds, spec.seed, spec.partition.common.clients) == (0.5, 2, 7, 3)
    assert spec.digest != run_spec({"method": "fedprox", "mu": 0.6}, model, clients=3, seed=7, rounds=2).digest
    for arguments, message in (
        (({"method": "fedprox", "nu": 1}, model), "nu"),
        (({"method": "fedporx"}, model), "fedprox"),
        (({"method": "fedsdg"}, model), "LoRA"),
        (({}, model), "method"),
    ):
        with pytest.raises(FedbenchError, match=message):
            run_spec(*arguments, clients=3, rounds=1)
