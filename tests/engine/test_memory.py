"""A device whose memory runs out: fewer clients at once, or fewer images, in training and in evaluation."""

import pytest
import torch
from support import make_spec, play, run_cell

from fedbench.engine.chunk import Chunk
from fedbench.models.task import WeightTask


@pytest.fixture
def small_device(monkeypatch):
    """Let passes of more than so many clients, or so many images in all, run out of memory."""

    def limit(clients=100, images=10_000):
        real = WeightTask.logits

        def logits(self, stacked, batch):
            if batch.shape[0] > clients or batch.shape[0] * batch.shape[1] > images:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return real(self, stacked, batch)

        monkeypatch.setattr(WeightTask, "logits", logits)

    return limit


@pytest.mark.parametrize(
    "training", [{"rounds": 0, "fine_tune_epochs": 1}, {"rounds": 1}, {"rounds": 1, "fine_tune_epochs": 1}]
)
def test_clients_at_once_halve_in_training_and_in_evaluation(training, tmp_path, digits, ragged, small_device):
    spec = make_spec("fedavg", "mlp", learning_rate=0.1, **training)
    expected = run_cell(tmp_path / "three", digits, ragged, spec, chunk=3)
    small_device(clients=3)
    found = run_cell(tmp_path / "six", digits, ragged, spec, chunk=6)
    assert found.numbers() == expected.numbers()
    assert found.summary["chunk"] == 3, "what training learned, evaluation keeps, and the other way round"
    log = (found.folder / "log.txt").read_text()
    assert log.count("out of memory with 6 clients at once; going on with 3") == 1


def test_images_of_one_pass_halve(tmp_path, digits, ragged, small_device):
    run = play(digits, ragged, make_spec("fedper", "mlp", method_options={"trainable": "full"}), chunk=6)
    clients = list(range(ragged.clients))
    expected = run.evaluator.evaluate(run.state.shared, run.private, clients)
    small_device(images=40)
    found = run.evaluator.evaluate(run.state.shared, run.private, clients)
    assert (found.personal == expected.personal).all()
    assert (found.shared == expected.shared).all()
    assert found.global_loss == pytest.approx(expected.global_loss, rel=1e-5)
    assert run.evaluator.images.size <= 40
    assert run.chunk.size == 6, "fewer images were enough"


def test_a_device_too_small_for_one_client_is_an_error(tmp_path, digits, ragged, small_device):
    small_device(clients=0)
    with pytest.raises(torch.OutOfMemoryError):
        run_cell(tmp_path, digits, ragged, make_spec("fedavg", "mlp"))


def test_what_an_item_counts_for():
    """Twelve columns of four images each, of which five fit: every one is done once, in order."""
    lines = []

    def work(part):
        if len(part) > 5:
            raise torch.OutOfMemoryError
        return sum(part)

    chunk = Chunk(100, lines.append, "images")
    done = chunk.each(range(12), work, width=4)
    assert done == [(range(0, 3), 3), (range(3, 6), 12), (range(6, 9), 21), (range(9, 12), 30)]
    assert chunk.size == 12
    assert lines == [
        f"out of memory with {many} images at once; going on with {few}" for many, few in [(48, 24), (24, 12)]
    ]
