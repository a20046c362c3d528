"""Text of `fedbench list keys`: every key that a config may have, section by section."""

from collections.abc import Iterator
from dataclasses import dataclass

from fedbench.cli import listing
from fedbench.cli.listing import Key, keys_of
from fedbench.config.entries import BaseEntry, Experiment, File, Grid, PublicShare, Training
from fedbench.config.reading import FIGURE, KINDS
from fedbench.registry import Registry

HEAD = """# All keys

Every key that a config may have, in the order of a config file. [config.md](config.md) shows how they go together.
`fedbench list keys --markdown` prints this page."""
TABLE = ("| key | type | default | meaning |", "|---|---|---|---|")


@dataclass(frozen=True)
class Part:
    """Keys that stand together.

    Attributes
    ----------
    path : where they stand; NAME is what the config calls the entry
    plugin : the plug-in whose own keys they are, as in ``method: fedsdg``; None for keys of a whole section
    """

    heading: str
    path: str
    about: str
    keys: list[Key]
    plugin: str | None = None


def parts() -> Iterator[Part]:
    """Every key, in the order of a config file."""
    yield Part("Top level", "", "What a config file consists of.", keys_of(File))
    yield Part(
        "training", "training", "How clients train. An entry's own `training` has the same keys.", keys_of(Training)
    )
    yield from _entries("datasets", "datasets.NAME", *KINDS["datasets"])
    about = "Samples that no client holds. Give exactly one key."
    yield Part("public", "datasets.NAME.public", about, keys_of(PublicShare))
    for section in ("partitions", "models"):
        yield from _entries(section, f"{section}.NAME", *KINDS[section])
    yield Part("bases", "bases.NAME", "Where a model's starting weights come from.", keys_of(BaseEntry))
    for section in ("channels", "methods"):
        yield from _entries(section, f"{section}.NAME", *KINDS[section])
    yield Part("experiments", "experiments.NAME", "A question and the cells that answer it.", keys_of(Experiment))
    yield Part("cells", "experiments.NAME.cells", "Every combination of the named entries.", keys_of(Grid))
    yield from _entries("figures", "experiments.NAME.figures", *FIGURE)


def _entries(heading: str, path: str, common: type, key: str, registry: Registry) -> Iterator[Part]:
    yield Part(heading, path, f"All have these keys, and those of their `{key}` besides.", keys_of(common))
    for name, plugin in registry.items():
        if own := keys_of(plugin.options):
            yield Part(heading, path, plugin.summary, own, f"{key}: {name}")


def shown(kind: str, with_options: bool, in_markdown: bool) -> str:
    """What `fedbench list` prints."""
    if kind == "keys":
        return markdown() if in_markdown else text()
    return listing.markdown(kind) if in_markdown else listing.text(kind, with_options)


def text() -> str:
    """One line for each key, below the path of its section."""
    return "\n".join(
        line
        for part in parts()
        for line in (
            f"{part.path or part.heading}{f' ({part.plugin})' if part.plugin else ''}",
            *(f"    {key.line}" for key in part.keys),
        )
    )


def markdown() -> str:
    """The page docs/keys.md."""
    blocks = [HEAD]
    for part in parts():
        blocks.append(f"### `{part.plugin}`" if part.plugin else f"## {part.heading}")
        blocks.append(f"{part.about} Path: `{part.path}.KEY`." if part.path else part.about)
        blocks.append("\n".join([*TABLE, *map(_row, part.keys)]))
    return "\n\n".join(blocks)


def _row(key: Key) -> str:
    default = "required" if key.default is None else f"`{key.default}`"
    cells = (f"`{key.name}`", key.type, default, key.meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
