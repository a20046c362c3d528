"""How SIGTERM and Ctrl-C end a command where nothing listens to them: in order, and at once the second time."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Terminated(BaseException):
    """SIGTERM as an exception, so that temporary files and locks go with the process."""


@contextmanager
def ending_in_order(state: dict[str, bool]) -> Iterator[None]:
    """Unwind on SIGTERM and on Ctrl-C, which is noted in `state`; the next Ctrl-C ends the process at once.

    Where training listens to them, it saves and stops instead.
    """

    def terminate(_number, _frame):
        raise Terminated

    def interrupt(_number, _frame):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        state["interrupted"] = True
        raise KeyboardInterrupt

    handlers = {signal.SIGTERM: terminate}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else ignored, or someone else's business
        handlers[signal.SIGINT] = interrupt
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
