"""One line of `fedbench doctor`."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "missing"]


@dataclass(frozen=True)
class Finding:
    """What was found and what to do about it.

    Attributes
    ----------
    level : ``ok``; ``warning`` for what may be meant so; ``missing`` for what the benchmark cannot do without
    what : the part of the machine
    text : what was found
    fix : what to do, empty for ``ok``
    """

    level: Level
    what: str
    text: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{self.level:<7}  {self.what}: {self.text}" + (f"; {self.fix}" if self.fix else "")
        return " ".join(line.splitlines())
