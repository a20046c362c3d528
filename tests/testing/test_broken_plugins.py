"""Each check finds what it is for: a method or channel that is broken in this one way."""

import types

import numpy as np
import pytest

from fedbench import registry
from fedbench.channels.dense import Dense, DenseOptions
from fedbench.errors import FedbenchError
from fedbench.methods.ditto import Ditto, DittoOptions
from fedbench.methods.fedavg import FedAvg, TrainableOptions
from fedbench.methods.local_only import LocalOnly
from fedbench.testing import CHANNEL_CHECKS, METHOD_CHECKS, ChannelCase, MethodCase, checks_of, contract

CALLS = []  # what a method should not remember outside of itself


class Entangled(FedAvg):
    """Everyone sends what the first client of its chunk has learnt."""

    def finish(self, result):
        message, private = super().finish(result)
        return {name: leaf[:1].expand_as(leaf) for name, leaf in message.items()}, private


class Counting(FedAvg):
    """Its step depends on how often this process has called it."""

    def aggregate(self, shared, mean_message, server, share):
        CALLS.append(1)
        return {name: leaf + mean_message[name] / len(CALLS) for name, leaf in shared.items()}, server


class Forgetful(FedAvg):
    """Its step depends on how often this object was called, which no checkpoint holds."""

    calls = 0

    def aggregate(self, shared, mean_message, server, share):
        self.calls += 1
        return {name: leaf + mean_message[name] / self.calls for name, leaf in shared.items()}, server


class Boastful(LocalOnly):
    """Says that it communicates, and sends nothing."""

    communicates = True


class Leaking(Ditto):
    """Sends its own copy, too."""

    def finish(self, result):
        message, private = super().finish(result)
        return {**message, **private}, private


class Welcoming(Ditto):
    """Newcomers get other leaves than clients that took part."""

    def newcomer(self, received, private):
        return {f"new {name}": leaf for name, leaf in private.items()}


class Undeclared(FedAvg):
    """Has a column that means nothing."""

    columns = types.MappingProxyType({"spread": ""})


class Silent(FedAvg):
    """Declares a column that it never fills."""

    columns = types.MappingProxyType({"spread": "how far the messages lie apart"})


class Overwriting(FedAvg):
    """Adds in place."""

    def aggregate(self, shared, mean_message, server, share):
        return {name: leaf.add_(mean_message[name]) for name, leaf in shared.items()}, server


METHODS = {
    "chunk_size_changes_nothing_but_rounding": [(Entangled, TrainableOptions)],
    "resumes_exactly": [(Forgetful, TrainableOptions)],
    "equal_specs_give_equal_tables": [(Counting, TrainableOptions)],
    "bytes_are_lengths_of_payloads": [(Boastful, TrainableOptions)],
    "private_leaves_never_travel": [(Leaking, DittoOptions)],
    "newcomers_stay_outside": [(Welcoming, DittoOptions)],
    "columns_are_declared": [(Undeclared, TrainableOptions), (Silent, TrainableOptions)],
    "inputs_stay_as_they_were": [(Overwriting, TrainableOptions)],
}


class Uncounted(Dense):
    """Says that it sends half."""

    def transmit(self, messages, streams):
        arrived, sizes = super().transmit(messages, streams)
        return arrived, [size // 2 for size in sizes]


class Dicing(Dense):
    """Draws from no stream."""

    def pack(self, message, rng):
        return super().pack({name: leaf + np.random.random() for name, leaf in message.items()}, rng)


class Headed(Dense):
    """Begins every payload with a header."""

    def pack(self, message, rng):
        return b"head" + super().pack(message, rng)

    def unpack(self, payload):
        return super().unpack(payload[4:])


class Summing(Dense):
    """Delivers the messages of the first client."""

    def transmit(self, messages, streams):
        arrived, sizes = super().transmit(messages, streams)
        return arrived, sizes[:1]


class Scribbling(Dense):
    """Scales what it was given."""

    def transmit(self, messages, streams):
        for leaf in messages.values():
            leaf.mul_(0.5)
        return super().transmit(messages, streams)


class Dropping(Dense):
    """Reports half of what arrives to its own error feedback, at random."""

    calls = 0

    def transmit(self, messages, streams):
        self.calls += 1
        arrived, sizes = super().transmit(messages, streams)
        return {name: leaf / self.calls for name, leaf in arrived.items()}, sizes


CHANNELS = {
    "payloads_are_what_arrives": Uncounted,
    "payloads_follow_from_message_and_stream": Dicing,
    "empty_messages_are_no_byte": Headed,
    "uplink_delivers_one_mean": Summing,
    "inputs_stay_as_they_were": Scribbling,
    "nothing_is_lost": Dropping,
}


@pytest.fixture
def register(monkeypatch):
    """Register a plug-in under the name `broken` for one test."""

    def add(plugins, options, target):
        plugins.discover()
        monkeypatch.setattr(plugins, "_entries", dict(plugins._entries))
        plugins.register("broken", options)(target)

    return add


@pytest.mark.parametrize(("name", "broken"), [(name, case) for name, cases in METHODS.items() for case in cases])
def test_methods(name, broken, register):
    target, options = broken
    register(registry.METHODS, options, target)
    with pytest.raises((AssertionError, FedbenchError)):
        METHOD_CHECKS[name](MethodCase("broken", {"trainable": "full"}))


@pytest.mark.parametrize(("name", "target"), list(CHANNELS.items()))
def test_channels(name, target, register):
    register(registry.CHANNELS, DenseOptions, target)
    with pytest.raises(AssertionError):
        CHANNEL_CHECKS[name](ChannelCase("broken"))


def test_importing_torch_for_planning_is_found(tmp_path, register, monkeypatch):
    (tmp_path / "heavy_plugin.py").write_text("import torch\n")
    monkeypatch.syspath_prepend(tmp_path)
    register(registry.METHODS, TrainableOptions, type("Heavy", (FedAvg,), {"__module__": "heavy_plugin"}))
    with pytest.raises(AssertionError, match="heavy_plugin imports torch"):
        METHOD_CHECKS["planning_imports_no_torch"](MethodCase("broken"))


def test_every_check_is_shown_to_find_something():
    assert {*METHODS, "planning_imports_no_torch"} == set(METHOD_CHECKS)
    assert {*CHANNELS, "planning_imports_no_torch"} == set(CHANNEL_CHECKS)


def test_expected_failures_are_strict_and_checked():
    case = MethodCase("fedavg")
    test = contract(case, expected_failures={"resumes_exactly": "counts its calls"})
    parameters = {parameter.id: parameter for parameter in test.pytestmark[0].args[1]}
    assert set(parameters) == {f"fedavg-{name}" for name in checks_of(case)}
    (mark,) = parameters["fedavg-resumes_exactly"].marks
    assert (mark.name, mark.kwargs) == ("xfail", {"reason": "counts its calls", "strict": True})
    assert not parameters["fedavg-columns_are_declared"].marks
    with pytest.raises(FedbenchError, match=r"no check named 'resumes'; .*resumes_exactly"):
        contract(case, expected_failures={"resumes": "misspelt"})
