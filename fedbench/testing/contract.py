"""All checks of a case as one test of pytest's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedbench.errors import FedbenchError, nearest
from fedbench.testing.cases import ChannelCase, MethodCase
from fedbench.testing.channels import CHANNEL_CHECKS
from fedbench.testing.methods import METHOD_CHECKS


def checks_of(case: MethodCase | ChannelCase) -> Mapping[str, Callable[[Any], None]]:
    """The checks of a case's kind by their names."""
    return METHOD_CHECKS if isinstance(case, MethodCase) else CHANNEL_CHECKS


def contract(
    *cases: MethodCase | ChannelCase, expected_failures: Mapping[str, str] | None = None
) -> Callable[..., None]:
    """A test function, parametrised over the cases and their checks; give it a name that begins with `test_`.

    Parameters
    ----------
    expected_failures : name of a check -> why the plug-in does not keep to it; one that passes all the same fails

    Raises
    ------
    FedbenchError
        If no check has a name that is expected to fail.
    """
    import pytest

    reasons = dict(expected_failures or {})
    known = {name for case in cases for name in checks_of(case)}
    for name in reasons:
        if name not in known:
            raise FedbenchError(f"expected_failures: no check named {name!r}; {nearest(name, known)}")

    def parameter(case: MethodCase | ChannelCase, name: str, check: Callable[[Any], None]) -> Any:
        marks = [pytest.mark.xfail(reason=reasons[name], strict=True)] if name in reasons else []
        plugin = case.method if isinstance(case, MethodCase) else case.codec
        options = ",".join(f"{key}={value}" for key, value in case.options.items())
        return pytest.param(case, check, marks=marks, id="-".join(filter(None, [plugin, options, name])))

    parameters = [parameter(case, name, check) for case in cases for name, check in checks_of(case).items()]

    @pytest.mark.parametrize(("case", "check"), parameters)
    def test(case: MethodCase | ChannelCase, check: Callable[[Any], None]) -> None:
        check(case)

    return test
