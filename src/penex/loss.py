"""PENEX as a module: the thin shell around `penex.functional` in which rho lives."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from penex import functional as F
from penex import penalty, targets
from penex.base import Group, Legal, Settings
from penex.kernels import head, linear
from penex.kernels.linear import Decided
from penex.shortcuts import IMPLS, Shortcuts

SCALES = ("paper", "cross_entropy")

# What the kernels have written out: a subclass with one of its own is not computed by them.
_FORMULA = ("terms", "gain", "lowest", "divisor", "level", "settle", "reduced", "read", "smoothing")

_ALPHA = Legal(
    low=-1.0,
    above=True,
    instead_of_zero="As alpha tends to 0, PENEX is the loss `unnormalised` "
    "(penex.extras.UnnormalisedLoss).",
)


class PENEX(Shortcuts):
    r"""The penalised exponential loss, wherever torch.nn.CrossEntropyLoss stands.

    L = sign(alpha) E[exp(-alpha f_y)] + rho E[sum_j exp f_j], with rho estimated batch by batch in
    train() (the paper's eq:PEL and alg:penex_training). For predictions use `probabilities`, which
    applies the temperature 1 / (1 + alpha), not a plain softmax.

    The paper has alpha above 0, where the examples that are wrong pull hardest. Between -1 and 0
    (ours) those that are right already do, and a wrong one, whose label may be wrong, costs no more
    than so much (at -inf the limit, which is a finite number); the minimiser is the same,
    P = (rho / |alpha|) exp((1 + alpha) f). The gradient then grows with the target's logit, as
    exp(|alpha| f_y), and so it does while a model learns: at rho* it adds up to 0 over batch and
    classes, so that the target's logit rises with the margin, which has to be 1 / (1 + alpha) times
    cross-entropy's. No estimate of rho stops that, since at rho* all levels of the logits are
    equal; ``scale="cross_entropy"`` takes it out of the gradient. A bound of rho is one of the
    level: the logit of a class with probability P tends to log(|alpha| P / rho) / (1 + alpha).
    Near -1 that is far from 0 on one side or the other: below about -0.7 little is learned.

    A loss has a state, so make one and keep it: as an attribute of the model, whose state_dict and
    device it then shares, or beside it. Metric code takes `frozen`, a view that never moves it.
    What each framework needs is in `penex.integrations`; a transformers model takes no module for
    its `loss_function`: what is assigned there is left unused, without a word.

    Args:
        alpha: the sensitivity, above 0 or between -1 and 0. 0.1 is the paper's default; take one
            below 0, say -0.3, where labels are wrong.
        rho: None to estimate the penalty online; a number above 0 to hold it fixed.
        ema: the weight of a new batch in rho, in (0, 1].
        rho_min: the lower bound of rho; with K above 1000 classes 1000 / K of it, as rho* itself
            goes with 1 / K (`penex.penalty.bound_for`). For alpha below 0 it is at least
            `penex.functional.lowest_penalty`, without which the loss is not bounded below.
        rho_max: the upper bound of rho.
        order: ``algorithm`` averages, then clips (the paper's Algorithm 1); ``listing`` clips,
            then averages (the paper's code).
        weight: a weight for each class.
        ignore_index: the class index that takes an example out.
        label_smoothing: between 0 and 1.
        reduction: ``mean``, ``sum`` or ``none``.
        accumulate: how many micro-batches make one batch. Their sums are pooled and rho moves
            once, after the last; the new value serves from the next batch on. The first batch uses
            its running estimate. After an optimiser step on fewer of them, as frameworks do at the
            end of an epoch, call `end_step`. A micro-batch counts only while gradients are on: one
            under torch.no_grad() in train() is no part of a step, and a warning says so once.
        process_group: whose ranks share a batch, in train(): None for the default group where
            torch.distributed is initialised, False for no one, or a group. Each call then waits
            for the other ranks, so all must call equally often: under DDP's join(), for ranks
            with different numbers of batches, say False, and each rank has its own rho.
        impl: which implementation computes it. ``reference`` is the plain formula, which does
            everything everywhere; ``eager`` a few operations, for class indices on the CPU;
            ``triton`` fused kernels, for (N, C) logits up to float32 on a GPU. ``auto`` takes
            triton or eager where they can do a batch and the plain formula elsewhere;
            `implementation` says which it is. Under triton a target that is no class makes the
            loss NaN, where the others (and torch's cross-entropy) stop with a device-side assert
            on a GPU.
        scale: ``paper`` is the printed loss. Its gradient has about |alpha| EX times the size of
            cross-entropy's: a hundredth at first for alpha = 0.01, half a million times at logits
            of 23 for alpha = -0.6. Adam hardly notices, but SGD's rate and a clipping norm are not
            cross-entropy's then. ``cross_entropy`` divides the gradient by the batch's own
            max(|alpha| EX, rho SE): its absolute values then add up to 2 at most, as
            cross-entropy's do, for every alpha and level of the logits, and a rate that was tuned
            for cross-entropy stays. With `accumulate` each micro-batch has its own size. What is
            left of the loss's value hardly moves, so the value is `progress` instead: log K for
            logits that are all alike, and 0 for a model that is certain and right. It is not what
            the gradient is the slope of, unless rho is rho*: where an optimiser compares values
            (L-BFGS, a line search), take ``paper``. So do for second derivatives (a Hessian, a
            gradient penalty), which take the batch's size for a constant. With ``none`` the values
            of a batch add up to that, so what one of them is depends on the others. In float32 the
            value has few digits left for alpha within 1e-4 of 0 (the gradient has all).
        overwrite_logits: let ``triton`` write the gradient over the logits, which saves their size
            in memory. Only for logits that nobody reads after the backward pass (take the accuracy
            before) and that nothing else needs in its own: there autograd raises an error. Leaves
            and logits with gaps or overlaps are never overwritten.

    Attributes:
        alpha: the sensitivity; it travels in the state_dict.
        rho: the penalty, a 0-dim buffer; 0 until the first usable batch. A batch is unusable when
            its sums are not finite or nothing is left after ignoring: rho then stays as it was.
            It moves in train() with or without gradients, as batch norm's statistics do; a warning
            says so once where there are none.

    >>> loss = PENEX(alpha=0.1)
    >>> loss(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
    tensor(1.0986)
    >>> loss.rho
    tensor(0.0333)
    >>> PENEX(alpha=0.1, scale="paper")(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
    tensor(1.1000)
    >>> PENEX(alpha=1.0).probabilities(torch.tensor([[0.0, 1.0]]))
    tensor([[0.1192, 0.8808]])
    """

    settings: ClassVar[Settings] = {"alpha": _ALPHA, **Shortcuts.settings}
    alpha: float

    def __init_subclass__(cls, **given: object) -> None:
        super().__init_subclass__(**given)
        cls.is_itself = all(getattr(cls, name) is getattr(PENEX, name) for name in _FORMULA)

    def __init__(
        self,
        alpha: float = 0.1,
        *,
        rho: float | None = None,
        ema: float = 0.1,
        rho_min: float = 1e-6,
        rho_max: float = 100.0,
        order: str = "algorithm",
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        accumulate: int = 1,
        process_group: Group = None,
        impl: str = "auto",
        scale: str = "cross_entropy",
        overwrite_logits: bool = False,
    ) -> None:
        super().__init__(
            rho=rho,
            ema=ema,
            rho_min=rho_min,
            rho_max=rho_max,
            order=order,
            weight=weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction,
            accumulate=accumulate,
            process_group=process_group,
        )
        self.configure(alpha=alpha)
        if impl not in IMPLS:
            raise ValueError(f"impl must be one of {', '.join(IMPLS)}; got {impl!r}.")
        if scale not in SCALES:
            raise ValueError(f"scale must be one of {', '.join(SCALES)}; got {scale!r}.")
        self.impl = impl
        self.scale = scale
        self.overwrite_logits = overwrite_logits

    def check_together(self, settings: Mapping[str, float | None]) -> None:
        """Refuse a rho so low that the loss of a negative alpha would not be bounded below."""
        alpha, rho = settings.get("alpha"), settings.get("fixed_rho")
        if alpha is None:
            return
        if rho is not None:
            penalty.check_penalty(alpha, rho)
        elif self.rho_max <= (lowest := penalty.lowest_penalty(alpha)):
            raise ValueError(
                f"With alpha={alpha:g} rho_max must be above {lowest:.3g}, the lowest rho that "
                f"bounds the loss; got {self.rho_max:g}."
            )

    def linear(
        self,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Tensor | None = None,
        *,
        chunk: int | None = None,
    ) -> Tensor:
        """The loss of the logits hidden @ weight.T + bias, which never exist all at once.

        What ``loss(logits, target)`` gives, with the same steps of rho, in memory that grows with
        the hidden states and the weights: for language models, whose logits fill a GPU. See
        `penex.linear_penex` for the arguments and what it cannot do.

        >>> loss, head = PENEX(alpha=0.1), torch.nn.Linear(8, 3)
        >>> target = torch.tensor([0, 1, 2, 0])
        >>> loss.linear(torch.zeros(4, 8), 0 * head.weight, target, 0 * head.bias)
        tensor(1.0986, grad_fn=<_WithGradientsBackward>)
        """
        if not self.is_itself:
            raise ValueError(
                f"{type(self).__name__} has a formula of its own, which linear does not know: give "
                "it the logits, loss(hidden @ weight.T, target)."
            )
        options = head.Options(
            self.alpha, self.weight, self.ignore_index, self.label_smoothing, self.reduction,
            chunk, self.impl,
        )  # fmt: skip
        self.follow(hidden)
        return linear.loss(hidden, weight, target, bias, options, self._decide)

    def _decide(self, sums: Tensor, classes: int) -> Decided:
        """What `linear` is to do, as `settle` and `reduced` have it."""
        rho, divisor, level, total = self.settle(sums, classes)
        if level is None or self.reduction == "mean":
            return Decided(rho, divisor, level)
        return Decided(rho, divisor, level * total)

    def progress(self, logits: Tensor, target: Tensor) -> Tensor:
        """How far a model has come, in cross-entropy's units: log E[EX] / alpha + log E[SE].

        It is log K for logits that are all alike, 0 for a model that is certain and right, and does
        not change when a constant is added to all logits. It is the value of the loss at
        ``scale="cross_entropy"``, and where rho is rho* its gradient is that of the loss; so it
        falls as training goes on, which the printed loss need not do: that of one step has another
        rho than that of the next. No state is read or moved, and no other rank asked.

        Args:
            logits: f, as for the loss.
            target: as for the loss.

        >>> PENEX(alpha=-0.5).progress(torch.full((2, 3), 7.0), torch.tensor([0, 1]))
        tensor(1.0986)
        """
        return F.progress(self.read(logits, target), self.alpha)

    def divisor(self, sums: Tensor, rho: Tensor | float, ranks: int) -> Tensor | None:
        """D as in the paper, or max(|alpha| EX, rho SE) times that."""
        if self.scale == "paper":
            return super().divisor(sums, rho, ranks)
        size = torch.maximum(self.gain * sums[0], rho * sums[1])
        # Of what underflows, or has nothing left in it, the quotient is to be 0 and not NaN.
        size = size.clamp(min=F.smallest_size(size.dtype))
        total, mass = torch.where(sums[3] == 0, 1.0, sums[2:]).unbind()
        # A batch that weighs more pulls more, as in cross-entropy: D is blind to the weights of
        # probabilities that do not add up to 1.
        return size * (total / mass) / ranks if self.reduction == "mean" else size / mass

    def level(self, sums: Tensor) -> Tensor | None:
        """`progress` of a batch, if that is what the loss shows."""
        if self.scale == "paper":
            return None
        ex, se, total, mass = sums.unbind()
        smallest = F.smallest_size(sums.dtype)
        found = (ex / mass).clamp(min=smallest).log() / self.alpha
        found = (found + (se / mass).clamp(min=smallest).log()) * (mass / total)
        return torch.where(mass == 0, torch.zeros_like(found), found)

    def terms(self, batch: targets.Batch) -> tuple[Tensor, Tensor, Tensor]:
        """sign(alpha) EX, SE, and EX: rho tends to |alpha| EX / SE."""
        ex, se = F.terms(batch, self.alpha)
        return F.sign(self.alpha) * ex, se, ex

    @property
    def gain(self) -> float:
        """|alpha|, as rho* = |alpha| EX / SE."""
        return abs(self.alpha)

    @property
    def lowest(self) -> float:
        """The lower bound of rho: rho_min, or what bounds the loss of a negative alpha."""
        # Not super().lowest: torch.compile cannot read a property of that.
        return penalty.lowest_penalty(self.alpha, penalty.bound_for(self.classes, self.rho_min))

    def extra_repr(self) -> str:
        """The numbers that decide the mathematics, and the scale if it is not the usual one."""
        shown = super().extra_repr()
        return shown if self.scale == "cross_entropy" else f"{shown}, scale={self.scale}"

    @property
    def _sharpness(self) -> float:
        return 1 + self.alpha
