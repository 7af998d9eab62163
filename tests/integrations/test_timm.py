"""The loss beside timm's mixup and a model of its own: soft targets, no adapter."""

from typing import Any

import pytest
import torch

import penex

import vision_here

pytestmark = pytest.mark.frameworks
vision_here.declare()
timm = pytest.importorskip("timm")
from timm.data import Mixup  # noqa: E402
from timm.loss import SoftTargetCrossEntropy  # noqa: E402

CLASSES = 4


def mixed(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    import numpy as np

    np.random.seed(seed)
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=CLASSES)
    result: Any = mixup(images, torch.arange(8) % CLASSES)
    return result  # type: ignore[no-any-return]


def test_mixup_targets_train_a_model_and_resume() -> None:
    """The loss stands where SoftTargetCrossEntropy does; its state continues in another process."""

    def train(model: Any, loss: penex.PENEX, steps: range) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in steps:
            images, soft = mixed(step)
            optimizer.zero_grad()
            loss(model(images), soft).backward()
            optimizer.step()

    def made() -> tuple[Any, penex.PENEX]:
        torch.manual_seed(0)
        model = timm.create_model("test_resnet", num_classes=CLASSES)
        return model, penex.PENEX(0.1, scale="cross_entropy")

    model, loss = made()
    train(model, loss, range(3))
    twin, again = made()
    train(twin, again, range(1))
    third, resumed = made()
    third.load_state_dict(twin.state_dict())
    resumed.load_state_dict(again.state_dict())
    train(third, resumed, range(1, 3))
    torch.testing.assert_close(resumed.rho, loss.rho)
    images, soft = mixed(9)
    before = loss.rho.clone()
    model.eval()
    value = loss.frozen()(model(images), soft)
    assert loss.rho == before
    assert value.isfinite()
    torch.testing.assert_close(loss.probabilities(model(images)).sum(1), torch.ones(8))


def test_soft_targets_mean_what_they_mean_to_timm() -> None:
    """Our cross-entropy of mixed targets is timm's, so its recipes carry over."""
    logits = torch.randn(8, CLASSES)
    _, soft = mixed(0)
    ours = penex.baselines.CrossEntropyLoss()(logits, soft)
    torch.testing.assert_close(ours, SoftTargetCrossEntropy()(logits, soft))
