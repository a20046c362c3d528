"""What the SLURM profile asks of a cluster, with a site's own settings laid over it."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedbench.doctor.finding import Finding
from fedbench.errors import FedbenchError, nearest

OWN = "in a folder of your own for --workflow-profile (docs/slurm.md)"
NAMES = re.compile(r"[\w.-]+(,[\w.-]+)*")
GPU_RULES = ("base", "run")  # they ask for a GPU by themselves
FILE = re.compile(r"(?:profile|config)(?:\.v(\d+)\+)?\.yaml")


@dataclass(frozen=True)
class Profile:
    """Merged settings.

    Attributes
    ----------
    settings : Snakemake's options as the profile gives them
    resources : of each rule that asks for GPUs or that the profile names; under an empty name those of all others
    where : the place to change them, for a fix
    level : of what keeps jobs from running: ``missing`` if a site's settings say that the cluster is meant
    """

    settings: dict[str, Any]
    resources: dict[str, dict[str, Any]]
    where: str = OWN
    level: Literal["warning", "missing"] = "warning"

    def partitions(self) -> dict[str, set[str] | None]:
        """Partitions for the same rules: None for the cluster's default, an empty set for an expression's."""
        found: dict[str, set[str] | None] = {}
        for rule, given in self.resources.items():
            text = given.get("slurm_partition")
            found[rule] = None if text is None else set(str(text).split(",") if NAMES.fullmatch(str(text)) else ())
        return found

    def unknown_rules(self, root: Path) -> Iterator[Finding]:
        """Settings for rules that the workflow does not have, which Snakemake passes over without a word."""
        files = [root / "Snakefile", *sorted(root.glob("workflow/rules/*.smk"))]
        text = "".join(file.read_text(encoding="utf-8") for file in files if file.exists())
        rules = re.findall(r"^(?:rule|checkpoint) (\w+):", text, re.MULTILINE)
        for key, separator in (("set-resources", ":"), ("set-threads", "=")):
            for rule in _pairs(self.settings.get(key), separator):
                if rules and rule not in rules:
                    fix = f"correct {key} {self.where}; {nearest(rule, rules)}"
                    yield Finding(self.level, "profile", f"{key} names {rule!r}, which is no rule", fix)


def read(profile: Path, site: Path | None) -> Profile:
    """Read the profile's file, and the folder or file that is laid over it key by key.

    Raises
    ------
    FedbenchError
        If a site's folder has no settings, or one of the files is no profile.
    """
    settings = _mapping(profile) if profile.exists() else {}
    if site is None:
        return Profile(settings, _resources(settings))
    file = _file(site)
    # the repository's own profile, given as a site's, is not the place for a site's settings
    where = OWN if file.resolve() == profile.resolve() else f"in {file}"
    settings |= _mapping(file)
    return Profile(settings, _resources(settings), where, "missing")


def _file(site: Path) -> Path:
    """The file that Snakemake reads: of several, the one for its newest version up to the installed one."""
    if site.is_file():
        return site
    version = int(importlib.metadata.version("snakemake").partition(".")[0])
    names = {file: FILE.fullmatch(file.name) for file in (sorted(site.iterdir()) if site.is_dir() else ())}
    found = {file: int(match[1] or 0) for file, match in names.items() if match and int(match[1] or 0) <= version}
    if not found:
        raise FedbenchError(f"--workflow-profile {site}: no config.yaml there; docs/slurm.md shows how one looks")
    return max(found, key=found.get)


def _mapping(file: Path) -> dict[str, Any]:
    from fedbench.config.plain_yaml import plain_yaml

    try:
        values = plain_yaml(file.read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        raise FedbenchError(f"{file}: cannot read this profile ({error})") from None
    if not isinstance(values, dict):
        raise FedbenchError(f"{file}: a profile is a mapping of Snakemake's options, as in docs/slurm.md")
    return {key: value for key, value in values.items() if value is not None}  # a key without a value sets nothing


def _resources(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    default = _pairs(settings.get("default-resources"), "=")
    own = _pairs(settings.get("set-resources"), ":")
    rules = sorted({*GPU_RULES, *own})
    asked = {rule: {"gpu": 1} if rule in GPU_RULES else {} for rule in rules}
    return {"": default} | {rule: default | asked[rule] | _pairs(own.get(rule), "=") for rule in rules}


def _pairs(given: Any, separator: str) -> dict[str, Any]:
    """A mapping, which profiles may also write as on the command line: ``[run:gpu=1, run:runtime=60]``."""
    if given is None or isinstance(given, dict):
        return given or {}
    pairs: dict[str, Any] = {}
    for item in given if isinstance(given, list) else [given]:
        name, found, value = str(item).partition(separator)
        if not found:
            raise FedbenchError(f"{str(item)!r} is no NAME{separator}VALUE; write it as docs/slurm.md shows")
        if separator == ":":
            pairs.setdefault(name, []).append(value)
        else:
            pairs[name] = value
    return pairs
