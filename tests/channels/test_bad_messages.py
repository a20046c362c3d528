"""What channels refuse: numbers that a lossy code would hide, and options that make no sense together."""

import pytest
import torch
from channel_cases import CASES, FEEDBACK, make_channel, name_of, streams, template_of

from fedbench.config.reading import validate
from fedbench.errors import FedbenchError
from fedbench.registry import CHANNELS

LOSSY = {case["codec"]: case for case in CASES if case["codec"] != "dense"}


@pytest.mark.parametrize("codec", LOSSY)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_are_refused(codec, value):
    messages = {"good": torch.ones(2, 3), "bad": torch.ones(2, 4, 4)}
    messages["bad"][1, 2, 2] = value
    channel = make_channel(LOSSY[codec], template_of(messages))
    memory = {name: leaf.expand(2, *leaf.shape) for name, leaf in channel.init_memory().items()}
    with pytest.raises(FedbenchError, match=r"leaf 'bad' holds NaN or infinity; lower the learning rate") as error:
        channel.uplink(messages, torch.tensor([0.5, 0.5]), memory, channel.init_server(), streams)
    assert "\n" not in str(error.value)


def config(**channel):
    return {
        "name": "test",
        "training": {"rounds": 1},
        "datasets": {"digits": {"source": "digits"}},
        "partitions": {"iid": {"scheme": "iid", "clients": 2}},
        "models": {"mlp": {"backbone": "mlp"}},
        "channels": {"tested": channel},
        "methods": {"fedavg": {"method": "fedavg", "channel": "tested"}},
        "experiments": {},
    }


@pytest.mark.parametrize("codec", ["powersgd", "dgc", "signsgd-majority", "qsgd"])
def test_error_feedback_is_refused_where_a_config_is_read(codec):
    with pytest.raises(FedbenchError, match=r"^channels\.tested: .*drop error_feedback") as error:
        validate(config(codec=codec, error_feedback=True))
    assert "\n" not in str(error.value)
    assert validate(config(codec=codec)).channels["tested"].common.codec == codec


@pytest.mark.parametrize("case", FEEDBACK, ids=name_of)
def test_error_feedback_is_accepted_around_the_others(case):
    assert validate(config(**case, error_feedback=True)).channels["tested"].common.error_feedback


def test_every_codec_says_what_it_objects_to():
    for entry in CHANNELS.values():
        assert entry.target.objection(entry.options(), False) is None
