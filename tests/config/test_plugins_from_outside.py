"""Plug-ins from outside: found by name, path and entry point; refused in one line; part of their runs' identity."""

import hashlib
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedbench import plugins, registry
from fedbench.config.plan import Plan
from fedbench.config.reading import load
from fedbench.errors import FedbenchError
from fedbench.registry import METHODS, import_plugins

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "workflow/configs/smoke.yaml"
METHOD = '''"""A method."""
from fedbench.methods.fedavg import FedAvg, TrainableOptions
from fedbench.registry import METHODS
{more}

@METHODS.register("{name}", TrainableOptions)
class Mine(FedAvg):
    """A method from outside, which is FedAvg."""
'''
FIGURE = '''"""A figure."""
from fedbench.options import options
from fedbench.registry import FIGURES

@options
class Options:
    """None."""

@FIGURES.register("outside", Options)
def draw(data, options):
    """Draws nothing at all."""
'''


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch):
    """What a test registers and imports is gone afterwards."""
    for plugs in registry.REGISTRIES:
        plugs.discover()
        monkeypatch.setattr(plugs, "_entries", dict(plugs._entries))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        # only the test's own: others import theirs once
        if getattr(sys.modules[name], "__file__", None) and "pytest-" in str(sys.modules[name].__file__):
            del sys.modules[name]
    plugins.source_hash.cache_clear()


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def config(folder: Path, plugin: str, method: str = "mine", figure: str | None = None) -> Path:
    """The smoke config with one more method, beside FedAvg."""
    text = SMOKE.read_text().replace(
        "  fedavg: {method: fedavg}\n", f"  fedavg: {{method: fedavg}}\n  mine: {{method: {method}}}\n"
    )
    text = text.replace("method: [base, fedavg,", "method: [base, mine, fedavg,")
    if figure:
        text = text.replace("figures: [pareto, gates]", f"figures: [pareto, {figure}]")
    path = folder / "config.yaml"
    path.write_text(f"plugins: [{plugin}]\n{text}")
    return path


def digests(path: Path, **overrides) -> dict[str, str]:
    plan = Plan(load([path]))
    return {cell.path: plan.run_digest(cell) for cell in plan.cells}


@contextmanager
def refused(*words: str):
    with pytest.raises(FedbenchError) as error:
        yield
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_specs_of_built_in_plugins_keep_their_digests(tmp_path):
    """Recorded before plug-ins from outside existed."""
    pinned = {
        "digits/dirichlet/tiny-vit/fedsdg/seed0": "6abea09ab34b3ebe",
        "digits/dirichlet/tiny-resnet/fedavg-top-10/seed0": "89d571a1faed0896",
    }
    assert pinned.items() <= digests(SMOKE).items()
    write(tmp_path, {"mine.py": METHOD.format(name="mine", more="")})
    beside = digests(config(tmp_path, "mine.py"))
    assert pinned.items() <= beside.items()


def test_the_files_contents_and_not_its_place_are_in_the_digest_of_what_uses_it(tmp_path):
    text = METHOD.format(name="mine", more="")
    first = config(write(tmp_path / "one", {"mine.py": text}), "mine.py")
    plan = Plan(load([first]))
    cell = next(cell for cell in plan.cells if cell.method == "mine")
    full = plan.spec(cell).full
    assert full["method"]["source_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert "source_sha256" not in json.dumps({key: part for key, part in full.items() if key != "method"})
    code = (
        "import sys, json; from fedbench.config.plan import Plan; from fedbench.config.reading import load;"
        "p = Plan(load([sys.argv[1]])); print(json.dumps({c.path: p.run_digest(c) for c in p.cells}))"
    )

    def elsewhere(path):  # another process, as every job is
        return json.loads(
            subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True).stdout
        )

    mine = digests(first)
    moved = config(write(tmp_path / "two", {"mine.py": text}), "mine.py")
    assert elsewhere(moved) == mine
    edited = elsewhere(config(write(tmp_path / "three", {"mine.py": f"{text}# edited\n"}), "mine.py"))
    assert {path for path in mine if mine[path] != edited[path]} == {cell.path}


def test_of_a_package_what_it_imports_of_itself_counts_and_nothing_else(tmp_path, monkeypatch):
    files = {
        "outer/__init__.py": "import outer.method\n",
        "outer/method.py": METHOD.format(name="mine", more="from . import _rates\nfrom outer.deep._sizes import SIZE"),
        "outer/_rates.py": "def later():\n    from ._late import late\n",
        "outer/_late.py": "late = 1\n",
        "outer/deep/__init__.py": "",
        "outer/deep/_sizes.py": "SIZE = 3\n",
        "outer/unrelated.py": "",
    }
    monkeypatch.syspath_prepend(write(tmp_path, files))
    import_plugins(["outer"], "plugins")
    counted = set(plugins._files("outer.method"))
    assert counted == {"outer.method", "outer._rates", "outer._late", "outer.deep._sizes"}
    before = METHODS["mine"].source_sha256
    lines = {
        name: hashlib.sha256((tmp_path / f"{name.replace('.', '/')}.py").read_bytes()).hexdigest() for name in counted
    }
    text = "".join(f"{lines[name]}  {name}\n" for name in sorted(lines))
    assert before == hashlib.sha256(text.encode()).hexdigest()
    assert "outer._late" not in sys.modules, "hashing imports nothing"


def test_a_figures_source_is_in_its_own_digest_only(tmp_path):
    write(tmp_path, {"shown.py": FIGURE})
    plan = Plan(load([config(tmp_path, "shown.py", method="fedavg", figure="outside")]))
    shown = plan.experiment_digest("personalisation")
    assert plan.figure_digest("personalisation", "pareto") == shown != plan.figure_digest("personalisation", "outside")


def test_paths_are_relative_to_the_config_that_names_them(tmp_path, monkeypatch):
    write(tmp_path / "site", {"mine.py": METHOD.format(name="mine", more="")})
    config(tmp_path / "site", "mine.py")
    monkeypatch.chdir(tmp_path)
    assert "mine" in load(["site/config.yaml"]).methods
    assert METHODS["mine"].target.__module__ == str(tmp_path / "site/mine.py")
    assert not list(tmp_path.rglob("*.pyc")), "nothing is left beside a user's file"


def test_two_of_a_name_are_refused_and_both_named(tmp_path):
    text = METHOD.format(name="fedsdg", more="")
    with refused("plugins.0", "'fedsdg' is registered twice", "fedbench.methods.fedsdg:FedSDG", "mine.py:Mine"):
        load([config(write(tmp_path, {"mine.py": text}), "mine.py", method="fedsdg")])
    twice = (
        METHOD.format(name="same", more="")
        + '\n\n@METHODS.register("same", TrainableOptions)\nclass Other(Mine):\n    """Other."""\n'
    )
    with refused("'same' is registered twice", "mine.py:Mine", "mine.py:Other"):
        load([config(write(tmp_path / "b", {"mine.py": twice}), "mine.py", method="same")])


@pytest.mark.parametrize(
    ("plugin", "text", "words"),
    [
        ("no_such_package", None, ["plugins.0: no module named 'no_such_package'", "install"]),
        ("no_such.part", None, ["plugins.0: no module named 'no_such.part'"]),
        ("absent.py", None, ["plugins.0: cannot read", "absent.py: No such file"]),
        ("mine.py", "x = 1\nimport no_such_module\n", ["mine.py: line 2: ModuleNotFoundError", "no_such_module"]),
        ("mine.py", "x = 1\ny = 1 / 0\n", ["mine.py: line 2: ZeroDivisionError"]),
        ("mine.py", "def f(:\n", ["mine.py: line 1: SyntaxError"]),
        ("mine.py", "raise SystemExit(3)\n", ["mine.py: line 1: SystemExit: 3"]),
        ("[]", None, ["config.plugins.0", "should be text"]),
    ],
)
def test_what_cannot_be_imported_is_one_line(tmp_path, plugin, text, words):
    with refused(*words):
        load([config(write(tmp_path, {"mine.py": text} if text else {}), plugin)])
    assert str(tmp_path / "mine.py") not in sys.modules


def test_a_mistake_inside_a_package_names_its_file(tmp_path, monkeypatch):
    files = {"broken_one/__init__.py": "\nimport broken_one.inner\n", "broken_one/inner.py": "x = 1\n\nnope\n"}
    monkeypatch.syspath_prepend(write(tmp_path, files))
    with refused(f"plugins.0: broken_one: {tmp_path}/broken_one/inner.py: line 3: NameError: name 'nope'"):
        import_plugins(["broken_one"], "plugins")


def test_installed_packages_are_known_everywhere(tmp_path):
    files = {
        "theirs.py": METHOD.format(name="theirs", more=""),
        "theirs-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n",
        "theirs-1.0.dist-info/entry_points.txt": "[fedbench.plugins]\nanything = theirs\n",
    }
    write(tmp_path, files)
    command = [sys.executable, "-m", "fedbench", "list", "methods"]

    def listed():
        return subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path), "PATH": ""})

    assert "theirs" in listed().stdout
    # the same file by its path is the same plug-in
    path = config(tmp_path, "theirs.py", method="theirs")
    command += ["--config", str(path)]
    assert "theirs" in listed().stdout
    (tmp_path / "theirs.py").write_text("import absent\n")
    broken = listed()
    assert broken.returncode == 1
    assert broken.stderr.startswith(f"error: entry point 'anything' of theirs: theirs: {tmp_path}/theirs.py: line 1: ")
    assert broken.stderr.count("\n") == 1


def test_commands_and_workflow_know_them_and_planning_imports_no_torch(tmp_path):
    path = config(
        write(tmp_path, {"mine.py": METHOD.format(name="from-outside", more="")}), "mine.py", method="from-outside"
    )

    def run(*command):
        done = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "A method from outside" in run("fedbench", "list", "methods", "--config", str(path))
    assert '"from-outside"' in run("fedbench", "schema", "--config", str(path))
    assert "mine/seed0" in run("fedbench", "status", "--config", str(path))
    workflow = ("snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "1", "--configfile", str(path))
    assert "tiny-resnet/mine/seed0" in run(*workflow, "--dry-run")
    code = "import sys; from fedbench.config.reading import load; load([sys.argv[1]]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == 0
