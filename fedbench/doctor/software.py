"""Versions of Python and of the packages."""

import importlib.metadata
import platform
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from fedbench.doctor.finding import Finding

TESTED = ((3, 11), (3, 13))
INSTALL = "make install, or pip install -c envs/constraints.txt -e ."


def python() -> Finding:
    """This interpreter, beside the versions that the tests run with."""
    text = f"{platform.python_version()} in {sys.prefix}"
    first, last = (".".join(map(str, version)) for version in TESTED)
    if sys.version_info[:2] < TESTED[0]:
        return Finding("missing", "python", text, f"make install PYTHON=python{first}, or any of {first} to {last}")
    if sys.version_info[:2] > TESTED[1]:
        return Finding("warning", "python", text, f"tested with {first} to {last}: use one of them if something breaks")
    return Finding("ok", "python", text)


def packages(root: Path) -> Iterator[Finding]:
    """Packages that are missing, too old or other than the tests' own; one line for all the others."""
    minima, pins = requirements(root), constraints(root / "envs/constraints.txt")
    good = 0
    for name, minimum in minima.items():
        version, pin = installed(name), pins.get(normal(name))
        if version is None:
            yield Finding("missing", name, "not installed", INSTALL)
        elif numbers(version) < numbers(minimum):
            yield Finding("missing", name, f"{version} is older than {minimum}", INSTALL)
        elif pin is not None and version.partition("+")[0] != pin:  # +cpu, +cu130: builds of one version
            yield Finding("warning", name, f"{version}, tested with {pin}", f"{INSTALL}, for the tested version")
        else:
            good += 1
    if not pins:
        fix = "use the source tree, whose envs/constraints.txt has the tested versions"
        yield Finding("warning", "packages", f"{good} of {len(minima)} recent enough, tested versions not known", fix)
    else:
        yield Finding("ok", "packages", f"{good} of {len(minima)} as tested")


def requirements(root: Path) -> dict[str, str]:
    """Package -> smallest version, from the source tree or else from the installed package's own metadata."""
    if (root / "pyproject.toml").exists():
        lines = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    else:
        lines = [line for line in importlib.metadata.requires("fedbench") or () if "extra ==" not in line]
    found = (re.match(r"([A-Za-z0-9._-]+)(?:>=([0-9.]+))?", line) for line in lines)
    return {match[1]: match[2] or "0" for match in found if match}


def constraints(path: Path) -> dict[str, str]:
    """Package -> tested version; empty where the file is not there."""
    if not path.exists():
        return {}
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines) if version}


def installed(name: str) -> str | None:
    """Version of an installed package, which is not imported."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def normal(name: str) -> str:
    """A package's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``2.5.1+cpu`` is (2, 5, 1)."""
    return tuple(int(part) for part in re.match(r"[\d.]*", version)[0].split(".") if part)
