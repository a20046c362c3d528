import json
import tracemalloc

import numpy as np
import pytest

from fedbench.config.reading import parse_entry
from fedbench.data.store import PUBLIC, PUBLIC_TEST, TEST, TRAIN, load_store, prepare
from fedbench.errors import FedbenchError


def digits(out, **keys):
    return prepare(parse_entry("datasets", "digits", {"source": "digits", **keys}), out, out.parent)


def test_store_round_trip(tmp_path):
    made = digits(tmp_path / "d")
    read = load_store(tmp_path / "d", made.meta["spec"])
    assert read.shape == (1, 8, 8)
    assert read.classes == 10
    assert read.images.dtype == np.uint8
    assert read.sha256 == made.sha256
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["arrays.npz", "dataset.json", "images.npy"]
    assert read.meta["counts"]["train"] + read.meta["counts"]["test"] == 1797


def test_same_entry_same_bytes_and_other_entry_other_hash(tmp_path):
    first, again = digits(tmp_path / "a"), digits(tmp_path / "b")
    assert first.meta == again.meta
    assert digits(tmp_path / "c", test_fraction=0.3).sha256 != first.sha256
    for name in ("images.npy", "dataset.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_test_split_is_stratified_by_domain_and_class(tmp_path):
    store = digits(tmp_path / "d", rotations=[0, 45], test_fraction=0.25)
    assert store.meta["test_split"] == "stratified"
    assert (store.splits == TEST).sum() == round(0.25 * 1797)
    for domain in range(2):
        for label in range(10):
            member = (store.domains == domain) & (store.labels == label)
            assert abs((store.splits[member] == TEST).sum() - 0.25 * member.sum()) < 1


def test_public_fraction_comes_from_training_samples_of_every_class(tmp_path):
    plain, store = digits(tmp_path / "a"), digits(tmp_path / "b", public={"fraction": 0.3})
    assert ((plain.splits == TEST) == (store.splits == TEST)).all()
    public = store.splits == PUBLIC
    assert public.sum() == round(0.3 * (plain.splits == TRAIN).sum())
    for label in range(10):
        members = (store.labels == label) & (plain.splits == TRAIN)
        assert abs(public[members].sum() - 0.3 * members.sum()) < 1


def test_public_classes_take_their_test_samples_along(tmp_path):
    store = digits(tmp_path / "d", public={"classes": [3, 7]})
    chosen = np.isin(store.labels, [3, 7])
    assert set(store.splits[chosen]) == {PUBLIC, PUBLIC_TEST}
    assert set(store.splits[~chosen]) == {TRAIN, TEST}


def test_public_domains(tmp_path):
    store = digits(tmp_path / "d", rotations=[0, 30], public={"domains": ["rotation-0"]})
    assert (np.isin(store.splits, [PUBLIC, PUBLIC_TEST]) == (store.domains == 0)).all()
    assert store.meta["counts"]["public"] == (store.splits == PUBLIC).sum()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"public": {"classes": [12]}}, "no class 12; classes are numbered 0 to 9"),
        ({"public": {"domains": ["rotation-1"]}}, "no domain 'rotation-1'; did you mean 'rotation-0'"),
        ({"public": {"classes": list(range(10))}}, "no training sample is left for the clients"),
        ({"public": {"classes": []}}, "no training sample is public"),
        ({"public": {"fraction": 1e-6}}, "no training sample is public"),
        ({"test_fraction": 1e-6}, "leaves no test sample"),
        ({"rotations": [30, 30.0]}, "names an angle twice"),
    ],
)
def test_impossible_splits_are_one_line_and_leave_nothing(tmp_path, keys, message):
    with pytest.raises(FedbenchError, match=message) as caught:
        digits(tmp_path / "d", **keys)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_store_of_another_spec_is_refused_by_the_key_that_differs(tmp_path):
    store = digits(tmp_path / "d")
    wanted = {**store.meta["spec"], "test_fraction": 0.5}
    with pytest.raises(
        FedbenchError, match=r"test_fraction=0\.2, but the config says 0\.5; delete this folder and run"
    ):
        load_store(tmp_path / "d", wanted)


def test_missing_and_damaged_stores(tmp_path):
    with pytest.raises(FedbenchError, match="no prepared data set here; run `fedbench prepare`"):
        load_store(tmp_path / "nothing")
    digits(tmp_path / "d")
    whole = (tmp_path / "d" / "images.npy").read_bytes()
    (tmp_path / "d" / "images.npy").write_bytes(whole[:5000])
    with pytest.raises(FedbenchError, match="damaged"):
        load_store(tmp_path / "d")
    (tmp_path / "d" / "images.npy").write_bytes(whole)
    np.savez(tmp_path / "d" / "arrays.npz", labels=np.zeros(3, int), domains=np.zeros(3, int), splits=np.zeros(3, int))
    with pytest.raises(FedbenchError, match="do not fit together"):
        load_store(tmp_path / "d")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", "{}", '{"spec": 1}', "\udcff"])
def test_damaged_facts_are_one_line(tmp_path, text):
    digits(tmp_path / "d")
    (tmp_path / "d" / "dataset.json").write_text(text, errors="surrogateescape")
    with pytest.raises(FedbenchError, match=r"dataset\.json: (damaged \(no '|not valid JSON)"):
        load_store(tmp_path / "d")


def test_any_damaged_byte_of_a_header_is_one_line_or_harmless(tmp_path):
    store, path = digits(tmp_path / "d"), tmp_path / "d" / "images.npy"
    whole, refused = path.read_bytes(), 0
    for place in range(128):
        for bit in (1, 16, 128):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            try:
                assert load_store(tmp_path / "d").shape == store.shape
            except FedbenchError:
                refused += 1
    assert refused > 100


def test_other_files_in_the_place_of_arrays_are_refused(tmp_path):
    store = digits(tmp_path / "d")
    for name, arrays in (("arrays.npz", {}), ("arrays.npz", {"labels": store.labels}), ("images.npy", {})):
        before = (tmp_path / "d" / name).read_bytes()
        with open(tmp_path / "d" / name, "wb") as file:
            np.savez(file, **arrays)
        with pytest.raises(FedbenchError, match=rf"{name}: damaged"):
            load_store(tmp_path / "d")
        (tmp_path / "d" / name).write_bytes(before)


def test_pickles_are_not_loaded(tmp_path):
    digits(tmp_path / "d")
    np.save(tmp_path / "d" / "images.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FedbenchError, match="damaged"):
        load_store(tmp_path / "d")


def test_unwritable_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FedbenchError, match="cannot write"):
        digits(tmp_path / "file" / "d")


def test_dataset_json_is_plain(tmp_path):
    digits(tmp_path / "d", rotations=[0, 90])
    meta = json.loads((tmp_path / "d" / "dataset.json").read_text())
    assert meta["domain_names"] == ["rotation-0", "rotation-90"]
    assert sum(meta["counts"]["classes"]) == sum(meta["counts"]["domains"]) == 1797
    assert set(meta["sha256"]) == {"images", "labels", "domains", "splits", "all"}


def test_a_header_that_claims_gigabytes_is_not_read(tmp_path):
    digits(tmp_path / "d")
    path = tmp_path / "d" / "images.npy"
    path.write_bytes(b"\x93NUMPY\x02\x00" + (1 << 31).to_bytes(4, "little") + b" " * 100)
    with open(path, "r+b") as file:
        file.truncate(1 << 32)  # sparse: all that the header claims could be read
    tracemalloc.start()
    try:
        with pytest.raises(FedbenchError, match=r"images\.npy: damaged \(not a version 1\.0 NPY file\)"):
            load_store(tmp_path / "d")
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()
