"""Names of classes, domains and clients, as files and folders spell them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from fedbench.errors import FedbenchError


def natural_order(name: str) -> tuple:
    """Sort key that puts 2 before 10 and w2 before w10."""
    parts = re.split(r"([0-9]+)", name)
    return tuple((int(part), part) if number % 2 else (0, part) for number, part in enumerate(parts))


def require_distinct(names: Iterable[str], kind: str, where: str) -> None:
    """Refuse names that people, tables or file systems would take for one, or that no text file can hold.

    Parameters
    ----------
    kind : what they name, in the singular: class, domain, client
    where : the data's place, for messages

    Raises
    ------
    FedbenchError
        Naming a name that is blank or not UTF-8, or two that are equal after Unicode normalisation (NFC), case folding
        and stripping.
    """
    known: dict[str, str] = {}
    for name in names:
        if not name.strip():
            raise FedbenchError(f"{where}: {kind} {name!r} has a blank name; rename it")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise FedbenchError(f"{where}: the name of {kind} {name!r} is not UTF-8; rename it") from None
        other = known.setdefault(_folded(name), name)
        if other != name:
            raise FedbenchError(
                f"{where}: {kind} names {_shown(other, name)} and {_shown(name, other)} differ only in case, space or "
                "the coding of letters; rename one, or join them"
            )


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold()).strip()


def _shown(name: str, other: str) -> str:
    """A name as a message shows it; with its letters' codes where it looks the same as the other."""
    same = unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other)
    return ascii(name) if same else repr(name)
