"""Splits by hand: how many of each stratum, which are drawn, and what counts as a duplicate."""

import numpy as np
import pytest

from fedbench.config.entries import PublicShare
from fedbench.data._splits import (
    PUBLIC,
    PUBLIC_TEST,
    TEST,
    TRAIN,
    duplicates,
    public_share,
    strata,
    stratified,
    test_split,
)
from fedbench.data.apportion import apportion
from fedbench.randomness import stream


def counts_of(numbers, picks):
    return np.bincount(numbers[picks], minlength=numbers.max() + 1).tolist()


def test_a_stratum_is_a_domain_with_a_class():
    labels, domains = np.array([0, 1, 0, 1, 0]), np.array([0, 0, 1, 1, 1])
    assert strata(labels, domains).tolist() == [0, 1, 2, 3, 2]


@pytest.mark.parametrize(("share", "expected"), [(0.25, [10, 5, 3]), (0.49, [20, 10, 5]), (0.01, [1, 0, 0])])
def test_strata_give_in_proportion_and_their_sum_is_rounded(share, expected):
    """Of 40, 20 and 11 samples: quotas 10, 5, 2.75, then 19.6, 9.8, 5.4 of 34.8 and 0.4, 0.2, 0.1 of 0.7."""
    numbers = np.repeat([0, 1, 2], [40, 20, 11])
    assert counts_of(numbers, stratified(numbers, share, stream(0, "test"))) == expected


def test_a_stratum_never_gives_all():
    numbers = np.repeat([0, 1, 2], [1, 2, 3])
    assert counts_of(numbers, stratified(numbers, 0.99, stream(0, "test"))) == [0, 1, 2]


def test_samples_of_a_stratum_are_drawn():
    numbers = np.zeros(1000, np.int64)
    picks = stratified(numbers, 0.2, stream(0, "test"))
    assert len(set(picks)) == 200
    # mean 499.5; a mean of 200 of 1000 has standard deviation 289 / sqrt(200) * sqrt(0.8) = 18.3
    assert abs(picks.mean() - 499.5) < 5 * 18.3
    assert (picks != stratified(numbers, 0.2, stream(1, "test"))).any()


def test_natural_clients_are_tested_on_a_share_of_their_own():
    """Client 0 has class 0 alone, twice as many samples as client 1: each gives a quarter, whatever the classes."""
    groups = np.repeat([0, 1, 2], [40, 20, 20])
    labels = np.repeat([0, 1], [44, 36])
    splits = test_split(labels, np.zeros(80, np.int64), groups, 0.25, "here")
    assert counts_of(groups, np.flatnonzero(splits == TEST)) == [10, 5, 5]


def share_of(labels, places, splits, **share):
    """New splits of samples whose domains are `places`."""
    return public_share(labels, places, splits, PublicShare(**share), tuple("abcd"), tuple("xy"), "here")


def test_a_public_fraction_is_of_every_domain_and_class_of_the_training_samples():
    domains, labels = np.repeat([0, 1], [120, 80]), np.tile([0, 1], 100)
    splits = np.where(np.arange(200) % 4 < 2, TRAIN, TEST).astype(np.uint8)
    found = share_of(labels, domains, splits, fraction=0.2)
    assert (found[splits == TEST] == TEST).all()
    public = np.flatnonzero(found == PUBLIC)
    assert counts_of(strata(labels, domains), public) == [6, 6, 4, 4]


def test_test_and_public_samples_are_drawn_apart():
    """Were they drawn alike, the public share would be the neighbours of the test samples."""
    zeros = np.zeros(400, np.int64)
    splits = test_split(zeros, zeros, None, 0.5, "here")
    train = np.flatnonzero(splits == TRAIN)
    public = share_of(zeros, zeros, splits, fraction=0.5)[train] == PUBLIC
    again = np.zeros(200, bool)
    again[stratified(np.zeros(200, np.int64), 0.5, stream(0, "test-split"))] = True
    assert (public != again).any()


def test_public_domains_keep_their_test_samples_from_clients():
    labels, domains = np.tile([0, 1], 4), np.repeat([0, 1], 4)
    splits = np.array([TRAIN, TRAIN, TEST, TEST] * 2, np.uint8)
    assert share_of(labels, domains, splits, domains=["y"]).tolist() == [
        TRAIN, TRAIN, TEST, TEST, PUBLIC, PUBLIC, PUBLIC_TEST, PUBLIC_TEST,
    ]  # fmt: skip


def test_duplicates_are_test_images_that_some_model_may_have_seen():
    """Each test image counts, also two copies of one; public samples are seen and tested too."""
    values = np.array([1, 2, 3, 1, 1, 2, 9, 3, 4, 4], np.uint8)
    splits = np.array([TRAIN, PUBLIC, TRAIN, TEST, TEST, TEST, TEST, PUBLIC_TEST, TEST, PUBLIC_TEST], np.uint8)
    images = np.tile(values[:, None, None, None], (1, 1, 2, 2))
    assert duplicates(images, splits) == 4  # 1, 1, 2 and 3; 9 is new, and two tests may be alike


def test_what_a_full_part_cannot_take_is_divided_like_the_rest():
    """50 over weights 6, 3, 1 with at most 5 for the first: 45 are left for 3 : 1, so 33.75 and 11.25."""
    parts = apportion(np.array([6, 3, 1]), 50, stream(0, "test"), np.array([5, 99, 99]))
    assert parts[0] == 5
    assert (abs(parts[1:] - [33.75, 11.25]) < 1).all()
