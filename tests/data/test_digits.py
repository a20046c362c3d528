import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedbench.data.digits import Digits, DigitsOptions, deal, transform
from fedbench.errors import FedbenchError


def load(**keys):
    return Digits().load(DigitsOptions(**keys), None, lambda shape: np.zeros(shape, np.uint8))


def test_pixels_are_the_originals_scaled_to_255():
    raw = load()
    bunch = load_digits()
    assert raw.images.shape == (1797, 1, 8, 8)
    assert raw.images.max() == 255
    assert np.allclose(raw.images[:, 0], bunch.images * 255 / 16, atol=0.5)
    assert (raw.labels == bunch.target).all()


def test_each_image_is_in_one_domain_and_domains_are_balanced():
    raw = load(rotations=[0, 30, 60, 90])
    assert len(raw.images) == 1797
    assert raw.domain_names == ("rotation-0", "rotation-30", "rotation-60", "rotation-90")
    assert np.ptp(np.bincount(raw.domains)) <= 1
    for label in range(10):
        assert np.ptp(np.bincount(raw.domains[raw.labels == label], minlength=4)) <= 1


def test_a_quarter_turn_is_exactly_a_quarter_turn():
    upright, turned = load(), load(rotations=[0, 90])
    rotated = turned.domains == 1
    assert (turned.images[rotated, 0] == np.rot90(upright.images[rotated, 0], axes=(1, 2))).all()
    assert (turned.images[~rotated] == upright.images[~rotated]).all()


def test_other_angles_move_pixels_and_upscaling_enlarges():
    pixels = load().images[0, 0]
    assert (transform(pixels, 8, 30) != pixels).any()
    assert transform(pixels, 16, 0).shape == (16, 16)
    assert load(upscale=12, rotations=[15]).images.shape == (1797, 1, 12, 12)


def test_dealing_is_fixed():
    labels = load_digits().target
    assert (deal(labels, 3) == deal(labels, 3)).all()
    assert (deal(labels, 3) != np.arange(len(labels)) % 3).any()


def test_an_angle_given_twice_is_an_error():
    with pytest.raises(FedbenchError, match="names an angle twice"):
        load(rotations=[10, 10])
