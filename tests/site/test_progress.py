"""Progress on terminals and elsewhere."""

import io

import pytest

from fedbench.site.progress import Progress, duration, size

ROW = {"train_loss": 0.5, "test_accuracy_mean": 0.25, "global_accuracy": None, "cumulative_bytes": 5120}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Seconds that tests move by hand."""
    now = [100.0]
    monkeypatch.setattr("fedbench.site.progress.time.monotonic", lambda: now[0])
    return now


def test_plain_lines_are_throttled_but_the_last_is_shown(clock):
    stream = io.StringIO()
    progress = Progress(stream, every=10)
    progress.start(6, "a/run")
    for number in range(7):
        progress.round({"round": number, **ROW})
        clock[0] += 4
    progress.finish()
    assert stream.getvalue().splitlines() == [
        "a/run round 0/6: loss 0.500, accuracy 25.0 %, sent 5.12 kB",
        "a/run round 3/6: loss 0.500, accuracy 25.0 %, sent 5.12 kB, 12 s left",
        "a/run round 6/6: loss 0.500, accuracy 25.0 %, sent 5.12 kB",
    ]


def test_rounds_without_evaluation_keep_the_last_accuracy(clock):
    stream = io.StringIO()
    progress = Progress(stream, every=0)
    progress.start(2, "run")
    progress.round({"round": 1, **ROW})
    progress.round({"round": 2, "train_loss": 0.4, "test_accuracy_mean": None})
    assert stream.getvalue().splitlines()[-1] == "run round 2/2: loss 0.400, accuracy 25.0 %, sent 5.12 kB"


def test_a_resumed_run_estimates_from_its_own_rounds(clock):
    stream = io.StringIO()
    progress = Progress(stream, every=0)
    progress.start(100, "run")
    progress.round({"round": 90})
    clock[0] += 60
    progress.round({"round": 91})
    assert stream.getvalue().splitlines()[-1] == "run round 91/100: 9:00 left"


def test_epochs_of_a_base(clock):
    stream = io.StringIO()
    progress = Progress(stream)
    progress.start(1, "digits/vit", unit="epoch")
    progress.round({"epoch": 1, "train_loss": 2.0, "lr": 0.1})
    assert stream.getvalue() == "digits/vit epoch 1/1: loss 2.000\n"


def test_a_terminal_gets_a_bar_that_ends():
    stream = Terminal()
    progress = Progress(stream)
    progress.start(2, "run")
    progress.round({"round": 1, **ROW})
    progress.round({"round": 2, **ROW})
    progress.finish()
    progress.finish()
    assert "2/2" in stream.getvalue()
    assert "accuracy 25.0 %" in stream.getvalue()


def test_units():
    assert [size(value) for value in (0, 648, 5120, 44.7e6, 3e12)] == ["0 B", "648 B", "5.12 kB", "44.7 MB", "3 TB"]
    assert [duration(value) for value in (0.4, 59, 61, 3725)] == ["0 s", "59 s", "1:01", "1:02:05"]
