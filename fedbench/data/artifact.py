"""Identity of what a stage wrote: the spec that it was made from, and hashes of its contents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.errors import FedbenchError


def check_spec(path: Path, stored: Any, wanted: Mapping[str, Any] | None, command: str) -> None:
    """Refuse an artifact that was made from another spec, naming the first key that differs."""
    if wanted is None:
        return
    wanted = json.loads(json.dumps(wanted))  # tuples become lists, as they did on the way to disk
    if stored == wanted:
        return
    key, old, new = _difference(stored, wanted)
    raise FedbenchError(
        f"{path}: made with {key}={old!r}, but the config says {new!r}; delete this folder and run `{command}` again"
    )


def check_data(path: Path, stored: str | None, wanted: str | None, command: str) -> None:
    """Refuse an artifact that was made from a data set of the same spec, but with other contents.

    Parameters
    ----------
    stored : the data set's hash when the artifact was made; None if it depends on no data
    wanted : its hash today; None checks nothing
    """
    if None not in (stored, wanted) and stored != wanted:
        raise FedbenchError(
            f"{path}: made before the data set was prepared again from other files; delete this folder and run "
            f"`{command}` again"
        )


def _difference(old: Any, new: Any, key: str = "spec") -> tuple[str, Any, Any]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            if name not in old or name not in new or old[name] != new[name]:
                return _difference(old.get(name), new.get(name), f"{key}.{name}".removeprefix("spec."))
    return key, old, new


def hashes(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """SHA-256 of each array's bytes in C order, and of them together under the key ``all``."""
    result = {
        name: hashlib.sha256(memoryview(np.ascontiguousarray(array))).hexdigest() for name, array in arrays.items()
    }
    result["all"] = hashlib.sha256("".join(f"{name}:{value}\n" for name, value in result.items()).encode()).hexdigest()
    return result
