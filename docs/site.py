"""What the site needs beyond the files of docs: README as its first page, and links out of docs."""

import re
from pathlib import Path

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\[[^\]]+\])\((?!https?://|#)(?:\.\./)?([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config) -> Files:
    """Add README as index.md, with its links and pictures seen from docs."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace('"docs/', '"').replace("(docs/", "(")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, page, config, files: Files) -> str:
    """Replace links to files outside docs by their names: the site does not have them, the repository does."""

    def inside(match: re.Match) -> str:
        text, target, _ = match.groups()
        outside = not files.get_file_from_path(target) and (ROOT / target).exists()
        return (
            f"{text[1:-1]} (`{target}`)" if outside and text[1:-1] != target else f"`{target}`" if outside else match[0]
        )

    return LINK.sub(inside, markdown)
