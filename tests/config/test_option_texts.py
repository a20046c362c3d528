"""Every key says in words what it means, and the page of all keys is in step."""

import re
from pathlib import Path

import pytest

from fedbench.cli import keys
from fedbench.config.schema import schema
from fedbench.options import PositiveInt, json_schema, options

ROOT = Path(__file__).parents[2]
EVERY = [(part, key) for part in keys.parts() for key in part.keys]
# "eta.", "w, the part", "lambda1: the", "s, levels": a symbol stands behind the words that it abbreviates
SYMBOL = re.compile(r"^(\w{1,2}|eta|mu|tau|beta|lambda|sigma|alpha)\d?(_\w)?[.,:;]")


@pytest.mark.parametrize(
    ("part", "key"), EVERY, ids=[f"{part.plugin or part.heading}.{key.name}" for part, key in EVERY]
)
def test_every_key_has_a_text_in_words(part, key):
    assert len(re.findall(r"[A-Za-z]{2,}", key.meaning)) >= 4, key.meaning
    assert not SYMBOL.match(key.meaning), key.meaning
    assert key.meaning[0].isupper() or key.meaning.split(":")[0] in ("pretrain", "pretrained", "file"), key.meaning
    assert key.meaning.endswith((".", ")."))


def test_the_schema_has_the_texts_too():
    methods = {
        entry["title"]: entry["properties"]
        for entry in schema()["properties"]["methods"]["additionalProperties"]["oneOf"]
    }
    assert methods["fedprox"]["rank"]["description"] == methods["fedavg"]["rank"]["description"] != ""
    assert methods["fedprox"]["channel"]["description"]


@options
class First:
    """The class that says it."""

    size: PositiveInt = 1
    """How large
    it is."""
    other: list[int]


@options
class Second(First):
    """A class that changes the default alone."""

    size: PositiveInt = 2
    third: int = 0
    """Comes last."""


def test_inherited_keys_keep_their_texts_and_changed_ones_may_say_another():
    @options
    class Third(Second):
        """A class that says it differently."""

        size: PositiveInt = 3
        """How long it is."""

    assert json_schema(Second)["properties"]["size"] == {
        "default": 2,
        "description": "How large it is.",
        "minimum": 1,
        "title": "Size",
        "type": "integer",
    }
    assert list(json_schema(Second)["properties"]) == ["size", "other", "third"]
    assert json_schema(Second)["required"] == ["other"]
    assert json_schema(Third)["properties"]["size"]["description"] == "How long it is."
    assert json_schema(Third)["properties"]["third"]["description"] == "Comes last."


def test_page_of_all_keys_is_in_step():
    page = (ROOT / "docs/keys.md").read_text(encoding="utf-8")
    assert page == keys.markdown() + "\n", "`fedbench list keys --markdown > docs/keys.md` writes it again"


def test_page_of_all_keys_has_every_section_and_plugin():
    headings = set(re.findall(r"^##+ (.+)$", keys.markdown(), re.MULTILINE))
    assert headings >= {"training", "bases", "experiments", "public", "`method: fedsdg`", "`source: digits`"}
