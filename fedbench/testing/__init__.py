"""What a plug-in has to keep to, as functions: one for each contract, with tiny data of their own.

A check takes a case and raises AssertionError, or FedbenchError where the plug-in itself refuses. Without pytest::

    from fedbench.testing import METHOD_CHECKS, MethodCase

    for check in METHOD_CHECKS.values():
        check(MethodCase("sparse-prox", {"mu": 0.1}))

With pytest, a test for each check::

    test_contract = contract(MethodCase("sparse-prox"), expected_failures={"resumes_exactly": "counts its calls"})
"""

from fedbench.testing.cases import ChannelCase, MethodCase
from fedbench.testing.channels import CHANNEL_CHECKS
from fedbench.testing.contract import checks_of, contract
from fedbench.testing.methods import METHOD_CHECKS

__all__ = ["CHANNEL_CHECKS", "METHOD_CHECKS", "ChannelCase", "MethodCase", "checks_of", "contract"]
