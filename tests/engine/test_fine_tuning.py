"""Fine-tuning before the personal evaluation: on a copy, for every client, for any method."""

import numpy as np
import pytest
import torch
from support import make_spec, play, run_cell
from torch.nn import functional


def test_fine_tuned_accuracy_equals_a_naive_loop(tmp_path, digits, ragged):
    spec = make_spec("fedavg", "mlp", rounds=1, learning_rate=0.2, fine_tune_epochs=3, batch_size=200)
    run = play(digits, ragged, spec)
    shared = run.state.shared
    evaluation = run.evaluator.evaluate(shared, run.private, [])
    for client in range(ragged.clients):
        leaves = {name: leaf.clone().requires_grad_() for name, leaf in shared.items()}
        own = run.trainer.population.train[client]
        for _ in range(3):  # one batch per epoch: the order of samples does not matter
            logits = torch.func.functional_call(
                run.method.task.classifier, leaves, (run.trainer.population.images(own),)
            )
            loss = functional.cross_entropy(logits, run.trainer.population.labels(own))
            gradients = torch.autograd.grad(loss, list(leaves.values()))
            leaves = {
                name: (leaf - 0.2 * gradient).detach().requires_grad_()
                for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
            }
        test = run.trainer.population.test[client]
        logits = torch.func.functional_call(run.method.task.classifier, leaves, (run.trainer.population.images(test),))
        hits = (logits.argmax(1) == run.trainer.population.labels(test)).double().mean()
        assert evaluation.personal[client] == pytest.approx(float(hits))
    assert not np.array_equal(evaluation.personal, evaluation.shared)


@pytest.mark.parametrize("method", ["fedavg", "fedsdg", "local-only", "centralised"])
def test_fine_tuning_changes_personal_accuracies_only(tmp_path, digits, ragged, method):
    tables = []
    for epochs in (0, 2):
        spec = make_spec(method, rounds=2, participation=0.5, learning_rate=0.1, fine_tune_epochs=epochs)
        tables.append(run_cell(tmp_path / str(epochs), digits, ragged, spec).rounds)
    for plain, tuned in zip(*tables, strict=True):
        for column in ("train_loss", "cumulative_bytes", "update_norm", "global_accuracy", "global_loss"):
            assert plain[column] == tuned[column]
    assert any(a["test_accuracy_mean"] != b["test_accuracy_mean"] for a, b in zip(*tables, strict=True))
