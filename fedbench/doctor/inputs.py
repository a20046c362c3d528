"""Raw data and weights that a config needs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedbench.config.plan import Plan
from fedbench.config.reading import Entry
from fedbench.config.spec import digest
from fedbench.doctor.finding import Finding
from fedbench.errors import FedbenchError
from fedbench.files.io import read_json

# source -> the official folder, the official archive, the folder of its own that they may lie in
OFFICIAL = {
    "cifar10": ("cifar-10-batches-py", "cifar-10-python.tar.gz", "cifar10"),
    "cifar100": ("cifar-100-python", "cifar-100-python.tar.gz", "cifar100"),
}
WHERE = "or give another --data-root (FEDBENCH_DATA)"


def datasets(plan: Plan, data_root: Path) -> Iterator[Finding]:
    """One line for each data set that a run uses."""
    for name in dict.fromkeys(cell.dataset for cell in plan.cells):
        what = f"data set {name}"
        spec = plan.example(name)
        folder = plan.paths.data(name)
        if _made_from(folder / "dataset.json", spec.data_spec):
            yield Finding("ok", what, f"prepared in {folder}")
        else:
            yield _raw(what, spec.dataset, data_root)


def partitions(plan: Plan) -> Iterator[Finding]:
    """One line for each finished partition in which clients hold samples that the scheme did not give them."""
    from fedbench.partition.partition import repair_text

    for cell in dict.fromkeys((cell.dataset, cell.partition, cell.seed) for cell in plan.cells):
        dataset, name, seed = cell
        spec = plan.example(dataset, partition=name, seed=seed)
        record = plan.paths.partition(*cell) / "partition.json"
        if _made_from(record, spec.partition_spec) and (text := repair_text(read_json(record))):
            fix = "fewer 'clients', a smaller 'min_samples' or milder skew keep to what the scheme says"
            yield Finding("warning", f"partition {name} of {dataset}, seed {seed}", text, fix)


def _raw(what: str, dataset: Entry, data_root: Path) -> Finding:
    source, options = dataset.common.source, dataset.options
    if source in OFFICIAL:
        folder, archive, own = OFFICIAL[source]
        for root in (data_root, data_root / own):
            for path in (root / folder, root / archive):
                if path.exists():
                    return Finding("ok", what, str(path))
        if options.download:
            fix = f"without internet, put {archive} into {data_root}"
            return Finding("warning", what, "not there yet, will be downloaded", fix)
        fix = f"put {archive} there, {WHERE}, or set 'download: true'"
        return Finding("missing", what, f"neither {folder}/ nor {archive} in {data_root}", fix)
    path = getattr(options, "path", None)
    if path is None:
        return Finding("ok", what, f"source {source} needs no files")
    place = data_root / path
    if not place.exists():
        return Finding("missing", what, f"{place} is not there", f"put it there, {WHERE}, or change its 'path'")
    return Finding("ok", what, str(place))


def bases(plan: Plan, data_root: Path) -> Iterator[Finding]:
    """One line for each base that comes from elsewhere and is not made yet."""
    needed: dict[str, list[str]] = {}
    for cell in dict.fromkeys((cell.dataset, cell.model) for cell in plan.cells):
        spec = plan.example(cell[0], model=cell[1])
        made = _made_from(plan.paths.base(*cell) / "base.json", spec.base_spec)
        if spec.base is not None and spec.base.kind != "pretrain" and not made:
            needed.setdefault(spec.model.common.base, []).append(f"{cell[1]} on {cell[0]}")
    for name, users in needed.items():
        base = plan.config.bases[name]
        what, text = f"base {name}", f"for {users[0]}" + (f" and {len(users) - 1} more" if users[1:] else "")
        if base.kind == "pretrained":
            fix = "on nodes without internet, make the bases on one that has it first (targets results/bases/...)"
            yield Finding("warning", what, f"{text}: timm fetches its weights unless it has them", fix)
        elif (data_root / (base.path or "")).is_file():
            yield Finding("ok", what, f"{text}: {data_root / base.path}")
        else:
            fix = f"put it there, {WHERE}"
            yield Finding("missing", what, f"{text}: {data_root / (base.path or '')} is not there", fix)


def _made_from(record: Path, spec: dict[str, Any]) -> bool:
    """Whether a finished input lies there that was made from this spec; one that cannot be read is none."""
    try:
        return digest(read_json(record).get("spec")) == digest(spec)
    except FedbenchError:
        return False
