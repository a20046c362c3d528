"""The one exception a user is meant to read."""

LISTED = 30  # names in one message: all methods, but not all runs of a large config


class FedbenchError(Exception):
    """What is wrong, where, and what to do about it, in one line.

    The command line prints the message without a traceback and exits with status 1;
    everything else that escapes is a bug and keeps its traceback.
    """

    def __init__(self, message: str):
        # what a message quotes (file names, other libraries' errors) may have line breaks, or bytes that are no text
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    """Text without line breaks that any terminal or file takes, also where a file's name is not UTF-8."""
    return " ".join(text.splitlines()).encode(errors="backslashreplace").decode()


def nearest(name: str, valid, otherwise: str | None = None) -> str:
    """Say which valid name `name` was probably meant to be, or else list them all or say `otherwise`."""
    import difflib

    names = sorted(map(str, valid))
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    if otherwise is not None:
        return otherwise
    if not names:
        return "none is defined"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"valid names: {', '.join(names[:LISTED])}{more}"
