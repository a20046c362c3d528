"""Every registered method and channel keeps to the contracts that `fedbench.testing` gives to plug-ins from outside."""

from fedbench.registry import CHANNELS, METHODS
from fedbench.testing import ChannelCase, MethodCase, contract

test_methods = contract(*(MethodCase(name) for name in METHODS))
test_channels = contract(*(ChannelCase(name) for name in CHANNELS))
