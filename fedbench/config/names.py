"""Names that stand in paths, targets and shell commands."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

# Entry names become folder names and Snakemake wildcards.
NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]*"
FOLDER = r"^[\w./+@=,:%-]+$"


def _folder(path: str) -> str:
    """A folder whose name means the same in a rule, in a shell and in a list of targets."""
    if not re.fullmatch(FOLDER, path):
        raise ValueError(
            "a folder's name may have letters, digits and the characters . / _ + @ = , : % - but no others"
        )
    return path


def _name(name: str) -> str:
    """The name of an entry."""
    if not re.fullmatch(NAME, name):
        raise ValueError("a name has letters a to z and digits, and behind the first the characters . _ + - too")
    return name


Name = Annotated[str, AfterValidator(_name), Field(json_schema_extra={"pattern": f"^{NAME}$"})]
Folder = Annotated[str, AfterValidator(_folder), Field(json_schema_extra={"pattern": FOLDER})]
