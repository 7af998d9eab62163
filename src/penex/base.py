"""The manners every loss has: cross-entropy's options, its inputs, and a way to predict."""

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypedDict, Unpack

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penex import targets
from penex.legal import NON_NEGATIVE as NON_NEGATIVE
from penex.legal import POSITIVE as POSITIVE
from penex.legal import POSITIVE_OR_NONE as POSITIVE_OR_NONE
from penex.legal import Legal as Legal
from penex.legal import Settings as Settings
from penex.predictor import Predictor as Predictor

# None: the default group where torch.distributed is initialised; False: no one.
Group: TypeAlias = dist.ProcessGroup | Literal[False] | None

_HALF = (torch.float16, torch.bfloat16)

_NONE = math.inf  # every setting is finite


class Options(TypedDict, total=False):
    """The keyword arguments that every loss shares with torch.nn.CrossEntropyLoss."""

    weight: Tensor | None
    ignore_index: int
    label_smoothing: float
    reduction: str


class Trained:
    """What a loss may ask of whoever trains with it: which examples a batch has.

    A loss that keeps something of each example says `wants_index`; its forward then takes the
    examples' numbers as ``index``, in the shape of class indices.
    """

    wants_index: ClassVar[bool] = False

    def remember(self, examples: int, classes: int) -> None:
        """Make room for what is kept of each example, once before training.

        Args:
            examples: how many there are to train on; ``index`` numbers them from 0.
            classes: how many there are.
        """

    def asked(self, index: Tensor) -> dict[str, Tensor]:
        """What forward is to be given of the examples' numbers, by name."""
        return {"index": index} if self.wants_index else {}


def _lasting(change: Callable[..., Tensor], *given: object) -> Tensor:
    """What a change makes, such that training can write to it, though it be in inference mode."""
    if torch.compiler.is_compiling():
        return change(*given)
    with torch.inference_mode(False):
        return change(*given)


def _is_in_backward() -> bool:
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


class Loss(Predictor, Trained, nn.Module):
    """A loss with the options and inputs of torch.nn.CrossEntropyLoss.

    A subclass writes `values`, the loss of each position; one that needs the whole batch, or has
    a state, writes `forward`.

    Args:
        weight: a weight for each class.
        ignore_index: the class index that takes an example out.
        label_smoothing: between 0 and 1.
        reduction: ``mean``, ``sum`` or ``none``.
    """

    # The numbers that travel in the state_dict, and the buffers that are never halved.
    settings: ClassVar[Settings] = {}
    statistics: ClassVar[tuple[str, ...]] = ()

    weight: Tensor | None
    process_group: Group = False

    def __init__(self, **options: Unpack[Options]) -> None:
        super().__init__()
        self.ignore_index = options.get("ignore_index", -100)
        self.label_smoothing = options.get("label_smoothing", 0.0)
        self.reduction = options.get("reduction", "mean")
        targets.check_reduction(self.reduction)
        self.register_buffer("weight", options.get("weight"))
        unknown = set(options) - Options.__annotations__.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}.")

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of a batch of logits, under the names of cross-entropy's arguments."""
        batch = self.read(input, target)
        total = targets.divisor(batch.mass.detach().sum(), batch.total)
        return targets.reduce(self.values(batch), total, self.reduction)

    def values(self, batch: targets.Batch) -> Tensor:
        """The loss of each position, before it is reduced."""
        raise NotImplementedError

    def configure(self, **values: float | None) -> None:
        """Set the settings: all of them, or none and a ValueError if one is not legal."""
        checked = {
            name: self.settings[name].checked(name.removeprefix("fixed_"), value)
            for name, value in values.items()
        }
        known = {name: getattr(self, name) for name in self.settings if hasattr(self, name)}
        self.check_together({**known, **checked})
        for name, value in checked.items():
            setattr(self, name, value)

    def check_together(self, settings: Mapping[str, float | None]) -> None:
        """Raise ValueError if settings that are legal by themselves do not go together."""

    def initial(self, statistic: str) -> float:
        """What a statistic is before the first batch."""
        return 0.0

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set the statistics back to what they are at construction.

        A loss that was built on the meta device does this by itself when it is moved to memory
        (`to_empty`, transformers' `from_pretrained`); only class weights that were made on the
        meta device have no values to go back to.
        """
        for name in self.statistics:
            buffer: Tensor = getattr(self, name)
            buffer.fill_(self.initial(name))

    def read(self, logits: Tensor, target: Tensor) -> targets.Batch:
        """The batch as `penex.targets` reads it, with this loss's options."""
        self.follow(logits)
        return targets.read(
            targets.whole(logits),
            targets.whole(target),
            weight=self.weight,
            ignore_index=self.ignore_index,
            label_smoothing=self.smoothing,
        )

    @property
    def smoothing(self) -> float:
        """How much of the targets is spread over all classes."""
        return self.label_smoothing

    def follow(self, logits: Tensor) -> None:
        """Take the statistics to the logits' device.

        So, like cross-entropy, a loss need not be moved, though .to(device) spares the first batch
        that.
        """
        if isinstance(logits, Tensor):
            device = logits.device
            for name in self.statistics:
                kept = self._buffers[name]
                assert kept is not None
                if kept.device != device and device.type != "meta":
                    if kept.is_meta:
                        moved = _lasting(self._begun, name, kept, device)
                    else:
                        moved = _lasting(kept.to, device)
                    self._buffers[name] = moved

    @property
    def moves(self) -> bool:
        """Whether a batch moves the state: in train() mode, the first time that it is computed.

        Activation checkpointing computes it again while the backward pass runs. What was moved by
        then serves it a second time.
        """
        return self.training and not _is_in_backward()

    def shares_batches(self) -> bool:
        """Whether other ranks hold parts of the same batch in train() mode."""
        return self.process_group is not False and dist.is_available() and dist.is_initialized()

    def sum_over_ranks(self, sums: Tensor) -> tuple[Tensor, int]:
        """The sums over the ranks that share the batch in train() mode, and how many these are."""
        if not self.training or not self.shares_batches():
            return sums, 1
        assert self.process_group is not False
        ranks = dist.get_world_size(self.process_group)
        if ranks < 1:
            raise ValueError(
                "This process is not a member of process_group: give the loss a group that it is "
                "in, or process_group=False."
            )
        if ranks > 1:
            dist.all_reduce(sums, group=self.process_group)
        return sums, ranks

    def extra_repr(self) -> str:
        """The numbers that decide the mathematics."""
        shown = {name.removeprefix("fixed_"): getattr(self, name) for name in self.settings}
        return ", ".join(f"{k}={v:g}" for k, v in shown.items() if v is not None)

    def get_extra_state(self) -> Tensor:
        """The settings in float64, so that they survive to the last digit; inf stands for None."""
        values = [getattr(self, name) for name in self.settings]
        values = [_NONE if v is None else v for v in values]
        return torch.tensor(values, dtype=torch.float64, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        """Take the saved settings, if they are legal; a warning says what they change."""
        kind = type(self).__name__
        if len(state) != len(self.settings):
            raise ValueError(
                f"The state is not one of {kind}: it has {len(state)} settings, not "
                f"{len(self.settings)}."
            )
        saved = [
            None if value == _NONE or legal.is_former_none(value) else value
            for value, legal in zip(state.tolist(), self.settings.values(), strict=True)
        ]
        before = {name: getattr(self, name) for name in self.settings}
        try:
            self.configure(**dict(zip(self.settings, saved, strict=True)))
        except ValueError as error:
            raise ValueError(f"The state is not one of {kind}: {error}") from error
        changes = [
            f"{name.removeprefix('fixed_')} is {getattr(self, name)}, not {old}"
            for name, old in before.items()
            if getattr(self, name) != old
        ]
        if changes:
            warnings.warn(
                f"The loaded state has other settings than this {kind} was made with, and they "
                f"hold from now on: {', '.join(changes)}.",
                stacklevel=2,
            )

    def store(self, name: str, value: Tensor) -> None:
        """Write a statistic: in place, so that a captured graph sees it, or wider if it must be.

        float64 logits make a float64 statistic. The buffer is never the value itself, which the
        batch's backward pass may still need when the next batch comes.
        """
        buffer: Tensor = getattr(self, name)
        if value.device.type == "meta" != buffer.device.type:
            return  # a shape has no value to store
        if value.dtype == torch.float64 and buffer.dtype != torch.float64:
            buffer = _lasting(buffer.to, torch.float64)
            setattr(self, name, buffer)
        # Through a flat view: torch.compile (seen in 2.13) takes a 0-dim float64 tensor on the CPU
        # for a Python number and silently drops a plain copy_ into it.
        buffer.view(-1).copy_(value.view(-1))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        memo[id(self.process_group)] = self.process_group  # a group is shared, never copied
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def __setattr__(self, name: str, value: Tensor | nn.Module) -> None:
        if name in self.statistics and isinstance(value, Tensor):
            before = self._buffers.get(name)
            # transformers' from_pretrained puts empty memory in the place of a buffer that is on
            # the meta device and not in the checkpoint; this is its mark for one that is in it.
            loaded = getattr(value, "_is_hf_initialized", False)
            if before is not None and before.is_meta and not (loaded or value.is_meta):
                value = self._begun(name, before, value.device)
            elif value.dtype in _HALF:
                value = value.float()
        super().__setattr__(name, value)

    def _begun(self, name: str, on_meta: Tensor, device: torch.device) -> Tensor:
        """A statistic at its beginning, for one that had a shape and no value."""
        return torch.full_like(on_meta, self.initial(name), device=device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow .to() and its kin, except that statistics never go to half precision.

        What to_empty makes of the meta device is memory as it was found, and no statistic yet.
        """
        before = {name: getattr(self, name) for name in self.statistics}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, kept in before.items():
            moved = getattr(self, name)
            if kept.is_meta and not moved.is_meta:
                self._buffers[name] = self._begun(name, kept, moved.device)
            elif moved.dtype in _HALF:
                setattr(self, name, kept.to(moved.device))
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *args: Any
    ) -> None:
        for name in self.statistics:
            saved = state_dict.get(prefix + name)
            if not isinstance(saved, Tensor):
                continue
            buffer: Tensor = getattr(self, name)
            if saved.dtype == torch.float64:
                # A float32 buffer would round what is copied into it.
                buffer = self._buffers[name] = buffer.double()
            if buffer.is_meta and local_metadata.get("assign_to_params_buffers", False):
                self._buffers[name] = self._begun(name, buffer, saved.device)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)
