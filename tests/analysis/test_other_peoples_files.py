"""Tables, figures and the report replace and remove what fedbench wrote, and nothing else."""

import io
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from fedbench.analysis.plot import plot
from fedbench.analysis.report import report
from fedbench.analysis.tables import aggregate
from fedbench.errors import FedbenchError
from fedbench.files.products import check_files


def drawn(path: Path, **metadata) -> bytes:
    """A figure that somebody drew with matplotlib."""
    buffer = io.BytesIO()
    Figure().savefig(buffer, format=path.suffix[1:], metadata=metadata or None)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue())
    return buffer.getvalue()


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("name", ["summary.csv", "tables/main.csv", "tables/main.md", "tables/main.tex"])
def test_a_table_that_is_somebody_elses_stays(fresh, name, partial):
    """Neither replaced nor, where an experiment has no run, removed; and the other tables stay as they are."""
    world, paths = fresh()
    aggregate(world.config, paths)
    if partial:
        world.config.training["rounds"] = 7  # no run is of this spec, so every table would go
    (paths.root / name).write_text("method,accuracy\nmine,1.0\n")
    before = {path: path.read_bytes() for path in paths.root.rglob("*") if path.is_file()}
    with pytest.raises(FedbenchError, match=f"{name}: not made by fedbench; it is left as it is"):
        aggregate(world.config, paths, require_all=not partial)
    assert {path: path.read_bytes() for path in paths.root.rglob("*") if path.is_file()} == before


def test_a_report_and_figures_that_are_somebody_elses_stay(fresh):
    world, paths = fresh(figures=["pareto"])
    place = paths.root / "figures/main/pareto.png"
    for path in (place, place.with_suffix(".pdf")):
        theirs = drawn(path)
        with pytest.raises(FedbenchError, match=f"{path.name}: not made by fedbench"):
            plot(world.config, paths)
        assert path.read_bytes() == theirs
        assert [file.name for file in place.parent.iterdir()] == [path.name]
        path.unlink()
    (paths.root / "report.html").write_text("<title>My fedbench page</title>")
    with pytest.raises(FedbenchError, match=r"report\.html: not made by fedbench"):
        report(world.config, paths)
    assert (paths.root / "report.html").read_text() == "<title>My fedbench page</title>"


def test_what_fedbench_wrote_is_known_alone_and_as_it_was_written_before(fresh, tmp_path):
    world, paths = fresh(figures=["pareto"])
    written = [*aggregate(world.config, paths), *plot(world.config, paths)]
    for path in written:
        check_files([path])
    png, pdf = tmp_path / "old/pareto.png", tmp_path / "old/pareto.pdf"
    drawn(png)
    with pytest.raises(FedbenchError):
        check_files([png])
    drawn(pdf, CreationDate=None)
    check_files([png, pdf])
