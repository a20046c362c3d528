"""The workflow as a module of another one: two configs side by side, and the other workflow's rules are left alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]

OTHER = f"""
shell.prefix("export OUR_PREFIX=yes; ")

configfile: "config.yaml"

module first:
    snakefile: "{ROOT}/Snakefile"
    config: config["first"]

use rule * from first as first_*

module second:
    snakefile: "{ROOT}/Snakefile"
    config: config["second"]

use rule * from second as second_*

rule all:
    default_target: True
    input:
        "ours/a b/c.txt",
        "results/one/partitions/digits/iid/seed0/partition.json",
        "results/two/partitions/digits/iid/seed0/partition.json",

rule report:
    output: "ours/{{dataset}}.txt"
    shell: "echo $OUR_PREFIX > {{output:q}}; ! type logged 2> /dev/null"
"""


def config(name: str, clients: int) -> dict:
    return {
        "name": name,
        "results": f"results/{name}",
        "seeds": [0],
        "training": {"rounds": 1, "learning_rate": "1e-3"},  # as Snakemake reads 1e-3
        "datasets": {"digits": {"source": "digits"}},
        "partitions": {"iid": {"scheme": "iid", "clients": clients}},
        "models": {"mlp": {"backbone": "mlp"}},
        "methods": {"fedavg": {"method": "fedavg"}},
        "experiments": {
            "small": {
                "title": "Small",
                "cells": [{"dataset": "digits", "partition": "iid", "model": "mlp", "method": "fedavg"}],
            }
        },
    }


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "Snakefile").write_text(OTHER)
    configs = {"first": config("one", clients=3), "second": config("two", clients=5)}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(configs))
    return tmp_path


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "1", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "FEDBENCH_DEVICE": "cpu"},
    )


def test_each_module_has_its_own_config_and_the_other_rules_their_own_shell(folder):
    done = snakemake(folder)
    assert done.returncode == 0, done.stderr
    for name, clients in (("one", 3), ("two", 5)):
        facts = json.loads((folder / f"results/{name}/partitions/digits/iid/seed0/partition.json").read_text())
        assert facts["clients"] == clients
    # a wildcard of the same name matches more here, and neither module's prefix or functions are seen
    assert (folder / "ours/a b/c.txt").read_text() == "yes\n"
    again = snakemake(folder)
    assert "Nothing to be done" in again.stderr + again.stdout


def test_the_targets_of_both_workflows_are_found_by_name(folder):
    done = snakemake(folder, "-n", "first_all")
    assert done.returncode == 0, done.stdout
    assert "rule first_run:" in done.stdout
    assert "rule second_" not in done.stdout
    assert "localrules directive" not in done.stdout + done.stderr
    unknown = snakemake(folder, "-n", "nothing.txt")  # for the other workflow to complain about
    assert unknown.returncode != 0
    assert "MissingRuleException" in unknown.stdout + unknown.stderr


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('    config: config["first"]\n', "", "this module has no config"),
        (
            '    config: config["first"]\n',
            '    config: config["first"]\n    prefix: "sub"\n',
            "say `results:` in its config",
        ),
    ],
)
def test_what_a_module_cannot_do_ends_with_one_line(folder, old, new, complaint):
    assert old in OTHER
    (folder / "Snakefile").write_text(OTHER.replace(old, new))
    done = snakemake(folder, "-n")
    assert done.returncode != 0
    assert complaint in done.stdout + done.stderr
