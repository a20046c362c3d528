"""How a table is shown: the columns people read, as Markdown, LaTeX and (through the report) HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

import pandas as pd

from fedbench.analysis.collect import ExperimentData
from fedbench.analysis.text import human_bytes, percent, signed

WIDE = 9  # columns from which on a table does not fit a page at its own size

LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "[": "{[}",  # behind a rule or a line's end it would begin an option, and a star would belong to it
    "*": "{*}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "·": r"$\cdot$",
    "•": r"$\bullet$",
    "†": r"\textdagger{}",
    "‡": r"\textdaggerdbl{}",
    "–": "--",
    "Δ": r"$\Delta$",
    "α": r"$\alpha$",
    "λ": r"$\lambda$",
    "×": r"$\times$",
}

# Brackets and angles mean something in front of these only, so that intervals and "<0.001" stay readable.
MARKDOWN = re.compile(r"[\\`*_|~$]|\[(?=[^\]]*\][(\[])|<(?=[A-Za-z/!?])|&(?=[#A-Za-z])")


@dataclass(frozen=True)
class TableCell:
    """One cell of a shown table."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class TableGroup:
    """Rows of one task."""

    title: str
    rows: list[list[TableCell]]


@dataclass(frozen=True)
class Layout:
    """A table as it is read: the first column is text, the others are numbers."""

    columns: list[str]
    groups: list[TableGroup]
    caption: str
    notes: list[str]


def lay_out(data: ExperimentData, rows: pd.DataFrame) -> Layout:
    """Choose columns (those that have something to say), format numbers and write the caption."""
    reference = data.experiment.reference
    columns = {
        "Method": _method,
        "n": lambda row: f"{row.n} of {row.n + row.diverged}" if row.diverged else str(row.n),
        "Accuracy, %": _accuracy,
        "Newcomers, %": lambda row: _with_interval(row, "held_out"),
        "Worst": lambda row: percent(row.worst),
        "P10": lambda row: percent(row.p10),
        "P50": lambda row: percent(row.p50),
        "P90": lambda row: percent(row.p90),
        "Gain over base": lambda row: signed(row.gain_over_base_mean),
        "Gain over local": lambda row: signed(row.gain_over_local_mean),
        f"Δ to {data.methods.get(reference, reference)}": lambda row: _difference(row, reference),
        "p (Holm)": lambda row: "" if pd.isna(row.difference_p_holm) else _p(row.difference_p_holm),
        "Up / client / round": lambda row: human_bytes(row.bytes_uplink_per_client_round),
        "Down / client / round": lambda row: human_bytes(row.bytes_downlink_per_client_round),
        "Per client": lambda row: human_bytes(row.bytes_per_client),
        "Up": lambda row: human_bytes(row.bytes_uplink),
        "Down": lambda row: human_bytes(row.bytes_downlink),
        "Total": lambda row: human_bytes(row.bytes_total),
        "To target": _to_target,
        "Frontier": lambda row: "•" if row.frontier else "",
    }
    if reference is None:
        columns = {name: show for name, show in columns.items() if not name.startswith(("Δ", "p (", "To target"))}
    groups, filled = [], set()
    for task in data.tasks:
        part = task.of(rows)
        best = part.accuracy_mean.max()
        lines = []
        for row in part.itertuples():
            texts = [show(row) for show in columns.values()]
            filled |= {name for name, text in zip(columns, texts, strict=True) if text}
            bold = isfinite(row.accuracy_mean) and row.accuracy_mean == best
            lines.append([TableCell(text, bold and place in (0, 2)) for place, text in enumerate(texts)])
        groups.append(TableGroup(data.title(task), lines))
    keep = [place for place, name in enumerate(columns) if name in filled]
    groups = [TableGroup(group.title, [[line[place] for place in keep] for line in group.rows]) for group in groups]
    return Layout([list(columns)[place] for place in keep], groups, caption(data, rows), notes(data, rows))


def caption(data: ExperimentData, rows: pd.DataFrame) -> str:
    """Title, headline selection and metric, and n."""
    counts = sorted(set(rows.n + rows.diverged))
    seeds = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
    noun = "seeds" if counts[-1] > 1 else "seed"
    return f"{data.experiment.title.rstrip('.')}. Headline: {data.headline_text}; {seeds} {noun} per row."


def notes(data: ExperimentData, rows: pd.DataFrame) -> list[str]:
    """What a reader has to know to read the numbers, only where it applies."""
    found = []
    if (rows.n > 1).any():
        found.append("± is half of the 95 % t interval over seeds.")
    if (rows.n == 1).any():
        found.append("One seed gives no interval.")
    if rows.worst.notna().any():
        found.append(
            "Worst, P10, P50, P90: the worst client's personalised accuracy and percentiles over clients, of each "
            "seed, averaged over seeds."
        )
    if data.experiment.reference is not None:
        label = data.methods.get(data.experiment.reference, data.experiment.reference)
        found.append(
            f"Δ: mean paired difference to {label} on the same seeds, in percentage points, with its 95 % interval; "
            "p of the paired t test, Holm-corrected over this table. To target: total bytes until the mean test "
            f"accuracy over seeds is within one point of {label}'s headline (–: never)."
        )
    found.append(
        "Bytes, without one-time bytes: per round, what a client of the cohort sends (up) and receives (down); over "
        "the whole run, up, down and their total for all clients together, and per client the total over their number. "
        "Frontier (•): no other row of the same data set, partition and model has at least the accuracy for at most "
        "the total bytes."
    )
    if rows.held_out_mean.notna().any():
        found.append("Newcomers: personalised accuracy of clients held out of training; no other column counts them.")
    if (rows.diverged > 0).any():
        found.append("† diverged (loss not finite): such runs are counted but enter no mean and no frontier.")
    if (rows.at_chance > 0).any():
        found.append("‡ a run ended at chance level.")
    if data.missing:
        found.append(f"{len(data.missing)} of {len(data.missing) + len(data.runs)} runs are missing.")
    return found


def _method(row) -> str:
    marks = ("†" if row.diverged else "") + ("‡" if row.at_chance else "")
    return f"{row.label} {marks}".strip()


def _accuracy(row) -> str:
    if row.n == 0:
        return "diverged"
    return _with_interval(row, "accuracy")


def _with_interval(row, name: str) -> str:
    """Mean and half of its interval, in percent; nothing where nothing was measured."""
    mean, low, high = (getattr(row, f"{name}_{part}") for part in ("mean", "low", "high"))
    return percent(mean) + ("" if pd.isna(low) else f" ± {percent((high - low) / 2)}")


def _difference(row, reference: str | None) -> str:
    if row.method == reference:
        return "reference"
    interval = "" if pd.isna(row.difference_low) else f" [{signed(row.difference_low)}, {signed(row.difference_high)}]"
    return f"{signed(row.difference_mean)}{interval}"


def _to_target(row) -> str:
    if pd.isna(row.target_accuracy) or row.n == 0:
        return ""
    if pd.isna(row.bytes_to_target):
        return "–" if pd.isna(row.rounds_to_target) else ""  # reached, at a cost that nobody counts
    return human_bytes(row.bytes_to_target)


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def to_markdown(table: Layout) -> str:
    """Pipe table with the caption above and notes below; tasks become rows that span nothing but their first cell."""
    lines = [
        f"**{escape_markdown(table.caption)}**",
        "",
        _line(map(escape_markdown, table.columns)),
        _line(["---", *["--:"] * (len(table.columns) - 1)]),
    ]
    for group in table.groups:
        if len(table.groups) > 1:
            lines.append(_line([f"*{escape_markdown(group.title)}*", *[""] * (len(table.columns) - 1)]))
        for row in group.rows:
            lines.append(_line(_bold(escape_markdown(cell.text), cell.bold) for cell in row))
    return "\n".join([*lines, "", *map(escape_markdown, table.notes)]) + "\n"


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def escape_markdown(text: str) -> str:
    """Escape what Markdown reads as structure, emphasis, code, links, mathematics or HTML."""
    return MARKDOWN.sub(r"\\\g<0>", text)


def escape_latex(text: str) -> str:
    """Escape what LaTeX reads as commands and spell out the symbols that tables use."""
    return "".join(LATEX.get(character, character) for character in text)


def to_latex(table: Layout, name: str) -> str:
    """A booktabs table environment, ready for \\input; graphicx shrinks tables of many columns to the text's width."""
    width = len(table.columns)
    wide = width > WIDE
    lines = [
        r"\begin{table}[t]",
        r"\centering\small",
        rf"\caption{{{escape_latex(table.caption)}}}",
        rf"\label{{tab:{name}}}",
        *([r"\resizebox{\textwidth}{!}{%"] if wide else []),
        rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}",
        r"\toprule",
        " & ".join(map(escape_latex, table.columns)) + r" \\",
    ]
    for group in table.groups:
        lines.append(r"\midrule")
        if len(table.groups) > 1:
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{escape_latex(group.title)}}}}} \\")
        for row in group.rows:
            texts = [rf"\textbf{{{escape_latex(cell.text)}}}" if cell.bold else escape_latex(cell.text) for cell in row]
            lines.append(" & ".join(texts) + r" \\")
    notes = r"\par\smallskip\footnotesize " + escape_latex(" ".join(table.notes))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}" + ("}" if wide else ""), notes, r"\end{table}"]) + "\n"
