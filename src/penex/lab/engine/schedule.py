"""The learning rate of every step, known before the first one."""

import torch
from torch import Tensor

from penex.lab.engine.recipe import Recipe
from penex.lab.ground.errors import LabError


def rates(recipe: Recipe, steps_per_epoch: int) -> Tensor:
    """The learning rate of each step of a run, in float64.

    The rate rises over the warm-up to its full value at the warm-up's last step; then it stays,
    or falls as half a cosine or as a line, to reach 0 one step after the last.

    >>> rates(Recipe(epochs=4, lr=1.0, schedule="linear"), steps_per_epoch=1)
    tensor([1.0000, 0.7500, 0.5000, 0.2500], dtype=torch.float64)
    """
    total = recipe.epochs * steps_per_epoch
    warmup = round(recipe.warmup_epochs * steps_per_epoch)
    if warmup >= total and warmup > 0:
        raise LabError(
            f"A warm-up of {recipe.warmup_epochs:g} epochs leaves nothing of {recipe.epochs}."
        )
    step = torch.arange(total, dtype=torch.float64)
    rate = torch.full_like(step, recipe.lr)
    done = (step - warmup) / (total - warmup)
    if recipe.schedule == "cosine":
        rate *= (1 + torch.cos(torch.pi * done)) / 2
    elif recipe.schedule == "linear":
        rate *= 1 - done
    if warmup:
        rate[:warmup] = recipe.lr * (step[:warmup] + 1) / warmup
    return rate
