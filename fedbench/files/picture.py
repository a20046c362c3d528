"""How pictures are drawn: by matplotlib as it comes, whatever a user's own settings say.

A user's matplotlibrc and ``MPLBACKEND`` (which every notebook exports) would change pictures or end the program. Names
and labels are text in all pictures, never mathematics. The font comes with matplotlib, so that pictures are the same
everywhere; other fonts are taken for letters that it lacks.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FONT = "DejaVu Sans"


@contextmanager
def drawing(look: Mapping[str, Any] | None = None, names: Iterable[str] = ()) -> Iterator[None]:
    """Draw and save under matplotlib's defaults and a look, without touching matplotlib's global settings.

    Parameters
    ----------
    look : matplotlib's settings that differ from its defaults
    names : texts that may have letters of any script
    """
    _import()
    from matplotlib import rc_context, rcdefaults, rcParams

    with warnings.catch_warnings(), rc_context():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # `missing_letters` says it once
        rcdefaults()
        family = [FONT, *_fallbacks(frozenset("".join(names)))[0]]
        rcParams.update({"font.family": family, "text.parse_math": False, **(look or {})})
        yield


def missing_letters(names: Iterable[str]) -> str | None:
    """One line about the letters that no installed font has, if there are any."""
    _import()
    missing = "".join(sorted(_fallbacks(frozenset("".join(names)))[1]))
    if not missing:
        return None
    return f"no installed font has {missing!r}: pictures show boxes there; install one that has (Noto, for example)"


def printable(name: str) -> str:
    """A name without the characters that cannot be drawn: control characters, and bytes that are no text."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)


@cache
def _import() -> None:
    """Import matplotlib without the settings that it would read, and perhaps refuse, on its way."""
    log, ours = logging.getLogger("matplotlib"), {"MPLBACKEND": "agg"}
    if (found := find_spec("matplotlib")) and found.origin:
        ours["MATPLOTLIBRC"] = str(Path(found.origin).parent / "mpl-data" / "matplotlibrc")
    before, level = {name: os.environ.get(name) for name in ours}, log.level
    os.environ.update(ours)
    log.setLevel(logging.ERROR)  # complaints about a matplotlibrc in the current folder, which is read all the same
    try:
        import matplotlib  # noqa: F401
    finally:
        log.setLevel(level)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@cache
def _fallbacks(letters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Installed families that have what the font lacks, the most useful first; the letters that none has."""
    from matplotlib import get_data_path
    from matplotlib.font_manager import findfont, fontManager

    missing = {letter for letter in letters if letter.isprintable()} - _letters(findfont(FONT))
    families: list[str] = []
    if missing:
        own = get_data_path()  # its other fonts are for mathematics, and one has a box for every letter
        found = [font for font in fontManager.ttflist if not font.fname.startswith(own) and font.style == "normal"]
        found.sort(key=lambda font: (font.weight != 400, font.name))
        has = {font.name: missing & _letters(font.fname) for font in reversed(found)}
        while missing and (best := max(sorted(has), key=lambda name: len(has[name] & missing), default=None)):
            if not has[best] & missing:
                break
            families.append(best)
            missing -= has[best]
    return tuple(families), frozenset(missing)


@cache
def _letters(path: str) -> frozenset[str]:
    """What a font has; nothing if it cannot be read."""
    from matplotlib.font_manager import get_font

    try:
        return frozenset(map(chr, get_font(path).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()
