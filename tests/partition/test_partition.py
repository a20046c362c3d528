"""The parts that schemes share: tests in proportion, checks, statistics, the artifact and its picture."""

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fedbench.errors import FedbenchError
from fedbench.partition._follow import assign_tests, split_validation
from fedbench.partition._picture import arrange
from fedbench.partition._statistics import gini, jensen_shannon, skew
from fedbench.partition.make_partition import write
from fedbench.partition.partition import check, load_partition


def test_tests_follow_training_proportions_by_class(make, make_store, counts_of):
    store = make_store(train=4000, test=1000, domains=1)
    partition = make(store, scheme="dirichlet", clients=6, alpha=0.3)
    train = counts_of(partition, store)
    tests = np.array([np.bincount(store.labels[part], minlength=10) for part in partition.test])
    quota = train / train.sum(axis=0) * np.bincount(store.labels[np.concatenate(partition.test)], minlength=10)
    assert np.abs(tests - quota).max() < 1


def test_tests_follow_domain_and_class_where_clients_are_bound(make, make_store):
    store = make_store(train=4000, test=1200)
    partition = make(store, scheme="domain-dirichlet", clients=8, alpha=0.3)
    for domain in range(4):
        for label in range(10):
            fits = (store.labels == label) & (store.domains == domain)
            train = np.array(
                [fits[np.r_[a, b]].sum() for a, b in zip(partition.train, partition.validation, strict=True)]
            )
            tests = np.array([fits[part].sum() for part in partition.test])
            assert np.abs(tests - tests.sum() * train / train.sum()).max() < 1


def test_a_client_without_a_test_sample_gets_one_of_its_classes():
    counts = np.array([[1000, 0], [1000, 0], [1, 0], [0, 500]])
    labels = np.repeat([0, 1], [10, 10])
    owner = assign_tests(counts, labels, None, None, 0, "here")
    assert np.bincount(owner, minlength=4)[2] == 1
    assert set(labels[owner == 2]) == {0}
    assert set(labels[owner == 3]) == {1}


def test_too_few_test_samples(make, make_store):
    with pytest.raises(FedbenchError, match=r"clients: 20 clients but 10 test samples"):
        make(make_store(test=10), scheme="iid", clients=20)
    counts = np.array([[5, 0], [5, 0], [0, 5]])
    with pytest.raises(FedbenchError, match=r"client \d gets no test sample, and no other client has one to spare"):
        assign_tests(counts, np.array([0, 1, 1]), None, None, 0, "here")


@given(st.integers(2, 60), st.floats(0, 0.99), st.integers(0, 5))
def test_validation_is_a_share_but_never_all_or_nothing(size, share, client):
    samples = np.arange(size) * 3 + 100
    train, held = split_validation(samples, share, 1, client)
    assert sorted([*train, *held]) == samples.tolist()
    assert len(train) >= 1
    assert (len(held) >= 1) == (share > 0)
    again = split_validation(samples[::-1], share, 1, client)
    assert (again[0] == train).all()


def test_overlaps_are_found(make, make_store):
    store = make_store()
    partition = make(store, scheme="iid", clients=4)
    shared = int(partition.train[0][0])
    partition.train[2] = np.sort(np.r_[partition.train[2], shared])
    message = rf"sample {shared} is in client 0's train samples and in client 2's train samples"
    with pytest.raises(FedbenchError, match=message):
        check(partition, "here")
    partition = make(store, scheme="iid", clients=4)
    partition.test[1] = np.sort(np.r_[partition.test[1], partition.validation[1][0]])
    with pytest.raises(FedbenchError, match=r"client 1's validation samples and in client 1's test samples"):
        check(partition, "here")


def test_left_out_and_foreign_samples_are_found(make, make_store):
    store = make_store()
    partition = make(store, scheme="iid", clients=4)
    partition.train[0] = partition.train[0][1:]
    check(partition, "here")
    with pytest.raises(FedbenchError, match="do not hold exactly the data set's training samples"):
        check(partition, "here", store)
    partition = make(store, scheme="iid", clients=4)
    partition.test[0] = np.r_[partition.test[0], len(store.splits) - 1]  # a public one
    with pytest.raises(FedbenchError, match="do not hold exactly the data set's test samples"):
        check(partition, "here", store)
    partition.test[3] = partition.test[3][:0]
    with pytest.raises(FedbenchError, match="client 3 has no test samples"):
        check(partition, "here")


def test_jensen_shannon_by_hand():
    one, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert jensen_shannon(one, other) == pytest.approx(1)
    assert jensen_shannon(one, one) == 0
    # M = (3/4, 1/4): JS = H(M) - H(1/2, 1/2) / 2 = 0.811278 - 0.5
    assert jensen_shannon(one, np.array([0.5, 0.5])) == pytest.approx(np.sqrt(0.811278 - 0.5), abs=1e-5)


def test_jensen_shannon_is_scipys():
    from scipy.spatial.distance import jensenshannon

    first, second = np.random.default_rng(0).dirichlet(np.ones(6), 2)
    assert jensen_shannon(first, second) == pytest.approx(jensenshannon(first, second, base=2))


def test_gini_and_effective_classes_by_hand():
    assert gini(np.array([5, 5, 5])) == 0
    assert gini(np.array([0, 0, 0, 8])) == pytest.approx(3 / 4)
    assert gini(np.array([1, 3])) == pytest.approx(0.25)
    statistics = skew(np.array([[10, 10, 0], [0, 0, 7]]))
    assert statistics["effective_classes"] == pytest.approx([2, 1])
    assert (statistics["smallest"], statistics["largest"]) == (7, 20)


def test_artifact_round_trip(make, make_store, tmp_path):
    partition = make(make_store(), 5, scheme="domain-dirichlet", clients=8, alpha=0.3)
    write(partition, tmp_path / "p")
    read = load_partition(tmp_path / "p", partition.meta["spec"])
    for split in ("train", "validation", "test"):
        for mine, theirs in zip(getattr(partition, split), getattr(read, split), strict=True):
            assert theirs.dtype == np.int64
            assert (mine == theirs).all()
    assert (read.client_domains == partition.client_domains).all()
    assert read.sha256 == partition.sha256
    meta = json.loads((tmp_path / "p" / "partition.json").read_text())
    assert np.array(meta["counts"]).sum() == 1200
    assert meta["sizes"]["test"] == [len(part) for part in partition.test]
    assert {"jensen_shannon_mean", "effective_classes", "gini"} <= meta["statistics"].keys()
    assert meta["spec"]["seed"] == 5


def test_artifacts_of_another_spec_or_damaged_are_refused(make, make_store, tmp_path):
    with pytest.raises(FedbenchError, match="no partition here; run `fedbench partition`"):
        load_partition(tmp_path / "p")
    partition = make(make_store(), scheme="iid", clients=4)
    write(partition, tmp_path / "p")
    with pytest.raises(FedbenchError, match=r"made with seed=0, but the config says 1; delete this folder"):
        load_partition(tmp_path / "p", {**partition.meta["spec"], "seed": 1})
    arrays = dict(np.load(tmp_path / "p" / "partition.npz"))
    arrays["train"] = np.roll(arrays["train"], 1)
    np.savez(tmp_path / "p" / "partition.npz", **arrays)
    with pytest.raises(FedbenchError, match="indices and their SHA-256 differ"):
        load_partition(tmp_path / "p")
    (tmp_path / "p" / "partition.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(FedbenchError, match="damaged"):
        load_partition(tmp_path / "p")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", "{}", '{"spec": 1}'])
def test_damaged_facts_are_one_line(make, make_store, tmp_path, text):
    write(make(make_store(), scheme="iid", clients=4), tmp_path / "p")
    (tmp_path / "p" / "partition.json").write_text(text)
    with pytest.raises(FedbenchError, match=r"partition\.json: (damaged \(no '|not valid JSON)"):
        load_partition(tmp_path / "p")


def test_a_partition_of_other_data_under_the_same_spec_is_refused(make, make_store, tmp_path):
    store = make_store()
    write(make(store, scheme="iid", clients=4), tmp_path / "p")
    load_partition(tmp_path / "p", data_sha256=store.sha256)
    with pytest.raises(
        FedbenchError, match=r"prepared again from other files; delete this folder and run `fedbench par"
    ):
        load_partition(tmp_path / "p", data_sha256="another")


@pytest.mark.parametrize(("clients", "classes"), [(8, 10), (100, 100)])
def test_picture_is_a_picture(make, make_store, tmp_path, clients, classes):
    store = make_store(train=60 * clients, test=10 * clients, classes=classes, domains=1)
    write(make(store, scheme="dirichlet", clients=clients, alpha=0.3), tmp_path / "p")
    image = np.asarray(Image.open(io.BytesIO((tmp_path / "p" / "partition.png").read_bytes())).convert("L"))
    assert min(image.shape) > 600
    assert 0.01 < (image < 160).mean() < 0.5  # bubbles and bars, not a blank or a black page


def test_clients_are_arranged_by_domain_then_commonest_class_then_size():
    counts = np.array([[1, 9], [9, 1], [2, 9], [9, 9]])
    assert arrange(counts, np.array([0, 0, 0, 1]), skewed=True).tolist() == [1, 2, 0, 3]
    assert arrange(counts, np.array([0, 0, 0, 1]), skewed=False).tolist() == [2, 0, 1, 3]
