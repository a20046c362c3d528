"""Base: nothing trains and nothing travels."""

import torch
from toy import classifier, make


def test_base_is_the_classifier_itself():
    model = classifier("mlp", hidden=6)
    run = make({"method": "base"}, model)
    assert run.method.phases() == ()
    assert run.shared == {}
    assert not run.method.communicates
    images = torch.randn(1, 7, 1, 8, 8)
    torch.testing.assert_close(run.method.task.logits({}, images)[0], model(images[0]))
