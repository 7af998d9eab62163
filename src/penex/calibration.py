"""A temperature fitted on data that training has not seen: calibration after the fact.

Every loss here has a temperature of its own, at which its population minimiser gives the true
probabilities. A network that overfits is not that minimiser; one number fitted on the validation
set often mends most of what is left.
"""

import math

import torch
from torch import Tensor

from penex import targets

_HALVINGS = 60  # of an interval of log temperatures: to the last bit of a float64
_WIDEST = math.log(1e4)


def fit_temperature(logits: Tensor, target: Tensor) -> Tensor:
    r"""The temperature T > 0 with the lowest mean negative log-likelihood of softmax(logits / T).

    With b = 1 / T the likelihood is convex, and its slope E[sum_j p_j f_j - f_y] rises in b: where
    it is 0 is found by halving, between 1e-4 and 1e4. Logits that are right every time have no
    minimum, and the lowest temperature would call the next mistake impossible: of n such examples
    each is then taken to be of another class with probability 1 / (n + 2), as Platt (1999) does.
    A logit of -inf rules its class out at any temperature; NaN where a target is ruled out, or a
    logit is NaN or +inf.

    Args:
        logits: (N, C), as the model gives them, of examples that it was not trained on.
        target: their classes, (N).

    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> T = fit_temperature(logits, torch.tensor([0, 0, 1, 1]))
    >>> torch.softmax(logits / T, 1)[0, 0]  # three of four are right
    tensor(0.7500)
    """
    if logits.dim() != 2 or target.shape != logits.shape[:1]:
        raise ValueError(
            f"Expected logits (N, C) and targets (N); got {[*logits.shape]} and {[*target.shape]}."
        )
    if not len(target):
        raise ValueError("A temperature cannot be fitted to no examples.")
    with torch.no_grad():
        wide = torch.float32 if logits.device.type == "mps" else torch.float64
        f = logits.detach().to(wide)
        own = f.gather(1, target.unsqueeze(1)).squeeze(1)
        is_out = f == -math.inf
        allowed = torch.where(is_out, 0, f)
        count = (~is_out).sum(1) - 1
        # Where all other classes are ruled out there is nothing to doubt, at any temperature.
        others = torch.where(count > 0, (allowed.sum(1) - own) / count.clamp(min=1), own)
        doubt = (own == f.amax(1)).all() / (len(own) + 2)
        own = own + doubt * (others - own)
        low = torch.full((), -_WIDEST, dtype=wide, device=f.device)  # of log b
        high = -low
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            p = torch.softmax(f * middle.exp(), dim=1)
            rises = ((p * allowed).sum(1) - own).mean() > 0
            low, high = torch.where(rises, low, middle), torch.where(rises, middle, high)
        found = torch.where(own.isfinite().all() & allowed.isfinite().all(), low + high, math.nan)
        return torch.exp(-found / 2).to(targets.statistics_dtype(logits))
