"""The loss in ignite: a trainer that moves rho and an evaluator that does not, by frozen()."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import penex

pytest.importorskip("ignite")
from ignite.engine import (
    Events,
    create_supervised_evaluator,
    create_supervised_trainer,
)
from ignite.handlers import Checkpoint, DiskSaver
from ignite.metrics import Loss

pytestmark = pytest.mark.frameworks

X = torch.randn(28, 5, generator=torch.Generator().manual_seed(0))
Y = torch.arange(28) % 3
BATCHES = [*zip(torch.split(X, 4), torch.split(Y, 4), strict=True)]


def parts(steps: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss = penex.PENEX(0.4, accumulate=steps, scale="paper")
    return {"model": model, "optimizer": optimizer, "loss": loss}


def run(
    steps: int, made: dict[str, Any], folder: Path, epochs: int, resumes: bool = False
) -> list[float]:
    """Seven batches, one or two to a step; ignite carries a window over the end of an epoch."""
    seen: list[float] = []
    trainer = create_supervised_trainer(
        made["model"], made["optimizer"], made["loss"], gradient_accumulation_steps=steps
    )
    held = Loss(made["loss"].frozen())
    evaluator = create_supervised_evaluator(made["model"], metrics={"loss": held})
    everything = {**made, "trainer": trainer}
    if resumes:
        Checkpoint.load_objects(everything, torch.load(next(folder.glob("*.pt"))))

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate() -> None:
        seen.append(evaluator.run(BATCHES).metrics["loss"])

    saver = Checkpoint(everything, DiskSaver(folder, require_empty=False), n_saved=1)
    trainer.add_event_handler(Events.COMPLETED, saver)
    trainer.run(BATCHES, max_epochs=epochs)
    return seen


@pytest.mark.parametrize("steps", [1, 2])
def test_ignite_is_a_plain_loop_and_resumes(steps: int, tmp_path: Path) -> None:
    run(steps, parts(steps), tmp_path, 2)
    made = parts(steps)
    seen = run(steps, made, tmp_path, 4, resumes=True)
    assert len(seen) == 2
    twin = parts(steps)
    for number, (x, y) in enumerate(BATCHES * 4, 1):
        (twin["loss"](twin["model"](x), y) / steps).backward()
        if number % steps == 0:
            twin["optimizer"].step()
            twin["optimizer"].zero_grad()
    torch.testing.assert_close(made["loss"].rho, twin["loss"].rho)
    torch.testing.assert_close(made["model"].state_dict(), twin["model"].state_dict())
    with torch.no_grad():
        expected = twin["loss"].eval()(twin["model"](X), Y)
    assert seen[-1] == pytest.approx(expected.item(), rel=1e-5)
