"""A pack's step as a CUDA graph: launched as one, compiled where that works."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from penex.lab.engine.packed import Pack
from penex.lab.engine.recording import Recording, in_a_line, unchanged
from penex.lab.engine.step import HISTORY

Step = Callable[[Tensor, Tensor, Tensor], None]

_PARTS = ("compute", "factors", "move", "note")  # what is compiled of a pack's step
_PACKS = 1000  # that a process may compile for; a long study would else fall back to plain steps


def capture(pack: Pack, batch: int) -> Step:
    """The step of a pack for batches of so many rows, recorded."""
    wide = pack.count.dtype
    rows = torch.zeros(len(pack), batch, dtype=torch.int64, device=pack.device)
    rate = torch.zeros(len(pack), 1, dtype=wide, device=pack.device)
    history = torch.zeros(len(pack), len(HISTORY), dtype=wide, device=pack.device)
    with unchanged(pack.tensors()):
        pack.trace(rows)
        return Recording(pack.step, (rows, rate, history))


def compile_parts(pack: Pack, backend: str = "inductor") -> None:
    """Compile what a pack's step consists of, for this pack's sizes: code for any is slower."""
    # Clipping is in place. Of a copy, which the compiler leaves out: it need not write the
    # gradient back.
    move = pack.move
    pack.move = lambda grad, factors: move(grad.clone(), factors)  # type: ignore[method-assign]
    for name in _PARTS:
        setattr(pack, name, torch.compile(getattr(pack, name), dynamic=False, backend=backend))


class Steps:
    """A pack's step for any batch size: captured on CUDA, plain elsewhere or where that fails.

    Args:
        pack: whose step it is.
        say: gets a sentence if it falls back.
        compiled: False to leave torch.compile out.
        fused: False to leave the Triton kernels of `packed_conv` out.
    """

    def __init__(
        self,
        pack: Pack,
        say: Callable[[str], None],
        *,
        compiled: bool = True,
        fused: bool = True,
    ) -> None:
        self.pack, self.say = pack, say
        self.cuda = pack.device.type == "cuda"
        self.captured: dict[int, Step] = {}
        if self.cuda and fused and pack.how.dtype == torch.bfloat16:
            pack.how = pack.how._replace(fused=True)
        if self.cuda and compiled:
            compile_parts(pack)

    def __call__(self, rows: Tensor, rate: Tensor, history: Tensor) -> None:
        """One step, as `Pack.step`."""
        if not self.cuda:
            self.pack.step(rows, rate, history)
            return
        size = rows.shape[1]
        if size not in self.captured:
            self.captured[size] = self._capture(size)
        self.captured[size](rows, rate, history)

    def _capture(self, size: int) -> Step:
        from torch._dynamo import config  # it takes a second

        try:
            with (
                config.patch(recompile_limit=_PACKS, accumulated_recompile_limit=_PACKS),
                warnings.catch_warnings(),
            ):
                # The recipe has chosen the precision.
                warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
                return capture(self.pack, size)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # the compiler and the capture fail in all kinds of ways
            first = in_a_line(error)
            torch.cuda.synchronize()
            if self.pack.how.fused:  # no Triton, a device that it does not know, too large a layer
                self.say(f"Convolutions are not fused: {first}")
                self.pack.how = self.pack.how._replace(fused=False)
                return self._capture(size)
            self.say(f"Steps are not captured: {first}")
            for name in _PARTS:
                self.pack.__dict__.pop(name, None)
            return self.pack.step
