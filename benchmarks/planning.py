"""Planning 3,000 runs, beside Snakemake on 3,000 trivial jobs: what the config, the specs and their digests cost.

Two comparisons, in turn: the smallest possible jobs (one output), and the workflow's own job graph (a run's inputs,
outputs, wildcards, log, benchmark and resources, and one job that needs all runs) without any of fedbench's own work.
Times are CPU seconds, because planning uses one core and wall time depends on who else is at work.

    python benchmarks/planning.py [--repeats 5]
"""

import argparse
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
METHODS, SEEDS, DATASETS, PARTITIONS = 50, 10, 2, 3

TRIVIAL = """
rule all:
    input: [f"out/{number}.txt" for number in range(3000)]
rule one:
    output: "out/{number}.txt"
    shell: "touch {output}"
"""


def config() -> str:
    """3,000 cells of the smallest plug-ins."""
    lines = ["name: big", f"seeds: {list(range(SEEDS))}", "training: {rounds: 1}", "datasets:"]
    lines += [f"  d{number}: {{source: digits}}" for number in range(DATASETS)]
    lines += ["partitions:"]
    lines += [f"  p{number}: {{scheme: iid, clients: {4 + number}}}" for number in range(PARTITIONS)]
    lines += ["models: {vit: {backbone: small-vit}}", "methods:"]
    lines += [f"  m{number}: {{method: fa-lora, rank: {number + 1}}}" for number in range(METHODS)]
    axes = {"dataset": ("d", DATASETS), "partition": ("p", PARTITIONS), "method": ("m", METHODS)}
    named = [f"{axis}: [{', '.join(f'{letter}{i}' for i in range(count))}]" for axis, (letter, count) in axes.items()]
    lines += [f"experiments: {{big: {{title: Big, cells: [{{model: vit, {', '.join(named)}}}]}}}}"]
    return "\n".join(lines) + "\n"


def same_shape() -> str:
    """The workflow's own rules, with constants where the specs are asked for, and one job in place of the tables."""
    files = [ROOT / "workflow/rules" / f"{name}.smk" for name in ("data", "partition", "base", "run")]
    names = f"""
RESULTS = "results"
envs = "{ROOT}/envs/fedbench.yaml"
NAME, SEED = "[A-Za-z0-9][A-Za-z0-9._+-]*", "[0-9]+"
RUNS = [
    f"results/runs/d{{d}}/p{{p}}/vit/m{{m}}/seed{{s}}/summary.json"
    for d in range({DATASETS}) for p in range({PARTITIONS}) for m in range({METHODS}) for s in range({SEEDS})
]
rule all:
    input: "results/summary.csv", RUNS
rule aggregate:
    input: RUNS
    output: "results/summary.csv"
    shell: "true"
"""
    text = names + "\n".join(file.read_text() for file in files)
    text = re.sub(r"( {4}input:\n)? {8}renewed_data,\n| {8}renewed_\w+,\n", "", text)
    for name in ("data_spec", "partition_spec", "base_spec", "run_spec"):
        text = text.replace(f"spec={name}", 'spec="x"')
    return text.replace('"../../envs/fedbench.yaml"', "envs").replace('"../report/', f'"{ROOT}/workflow/report/')


def cpu_seconds(folder: Path, snakefile: Path, *arguments: str) -> float:
    """CPU time of one dry run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile), "--directory", str(folder)]
    subprocess.run([*command, "--dry-run", "--quiet", "all", *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "big.yaml").write_text(config())
        (folder / "trivial.smk").write_text(TRIVIAL)
        (folder / "shape.smk").write_text(same_shape())
        cases = {
            "trivial jobs": (folder / "trivial.smk",),
            "the same job graph": (folder / "shape.smk",),
            "fedbench": (ROOT / "Snakefile", "--configfile", str(folder / "big.yaml")),
        }
        times = {case: [] for case in cases}
        for _ in range(repeats):
            for case, arguments in cases.items():
                times[case].append(cpu_seconds(folder, *arguments))
    medians = {case: statistics.median(values) for case, values in times.items()}
    for case, value in medians.items():
        print(f"{case:24} {value:6.2f} s   fedbench takes {medians['fedbench'] - value:+.2f} s")


if __name__ == "__main__":
    main()
