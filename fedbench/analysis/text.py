"""Numbers as people read them, the same in tables, figures and the report."""

from __future__ import annotations

from math import isfinite

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def human_bytes(count: float) -> str:
    """Decimal units and three significant digits, as in 648 B or 5.12 kB; nothing for NaN."""
    if not isfinite(count):
        return ""
    if count < 999.5:
        return f"{count:.0f} {UNITS[0]}" if count else "0"
    unit = 0
    # Stop where three digits suffice after rounding, so that 999,999 bytes are 1 MB and not 1000 kB.
    while count >= 999.5 and unit < len(UNITS) - 1:
        count /= 1000
        unit += 1
    digits = 2 if count < 9.995 else 1 if count < 99.95 else 0
    text = f"{count:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {UNITS[unit]}"


def percent(share: float, digits: int = 1) -> str:
    """A share as a percentage without its sign; nothing for NaN."""
    return f"{100 * share:.{digits}f}" if isfinite(share) else ""


def signed(share: float, digits: int = 1) -> str:
    """A difference of shares in percentage points with its sign (a true minus); nothing for NaN."""
    if not isfinite(share):
        return ""
    text = f"{100 * share:+.{digits}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{digits}f}"
