"""One graph for all batch sizes: torch.compile with dynamic shapes, and torch.export."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import penex
from penex import functional as F
from penex import registry

from strategies import make

CLASSES = 5


class Plain(nn.Module):
    """The functional loss behind a module's interface, which torch.export asks for."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.penex(input, target, 0.1, 0.2)


CASES: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda name=name: make(name, CLASSES) for name in registry.LOSSES},  # type: ignore[misc]
    "functional": Plain,
    "evaluated": lambda: penex.PENEX().eval(),
    "accumulated": lambda: penex.PENEX(accumulate=3),
    "smoothed": lambda: penex.PENEX(
        label_smoothing=0.1, weight=torch.linspace(0.5, 2, CLASSES), reduction="none"
    ),
}
SOFT = [("penex", True), ("functional", True)]
# The others are written in the same way as one of these.
EXPORTED = [
    "penex",
    "functional",
    "evaluated",
    "smoothed",
    "unnormalised",
    "conex_lagrangian",
    "elr",
]


def batch(rows: int, soft: bool) -> tuple[Tensor, Tensor]:
    """Logits of which one is beyond the limit: it depends on the size, and must not be lost."""
    generator = torch.Generator().manual_seed(rows)
    logits = torch.randn(rows, CLASSES, generator=generator)
    logits[0, 0] = 90.0
    if soft:
        return logits, torch.rand(rows, CLASSES, generator=generator).softmax(1)
    return logits, torch.randint(1, CLASSES, (rows,), generator=generator)


@pytest.mark.parametrize(("name", "soft"), [*((name, False) for name in CASES), *SOFT])
def test_one_compilation_does_twenty_sizes(name: str, soft: bool) -> None:
    torch.compiler.reset()
    graphs: list[Any] = []

    def counted(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph

    traced, plain = CASES[name](), CASES[name]()
    compiled: Any = torch.compile(traced, fullgraph=True, dynamic=True, backend=counted)
    for rows in range(6, 26):
        logits, target = batch(rows, soft)
        ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        value, expected = compiled(ours, target), plain(theirs, target)
        value.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert len(graphs) == 1
    for key, state in traced.state_dict().items():
        torch.testing.assert_close(state, plain.state_dict()[key])


@pytest.mark.parametrize(("name", "soft"), [*((name, False) for name in EXPORTED), *SOFT])
def test_one_export_does_any_size(name: str, soft: bool) -> None:
    plain = CASES[name]()
    rows = torch.export.Dim("rows")
    shapes = {"input": {0: rows}, "target": {0: rows}}
    exported = torch.export.export(CASES[name](), batch(6, soft), dynamic_shapes=shapes).module()
    for size in (2, 7, 64):
        torch.testing.assert_close(exported(*batch(size, soft)), plain(*batch(size, soft)))


def test_a_symbolic_limit_is_the_plain_one() -> None:
    """To the last bit, for any size: the compiled loss saturates where the plain one does."""
    limit = torch.compile(F._limit, fullgraph=True, dynamic=True, backend="eager")
    for rows in (0, 2, 7, 640, 8192 * 500):
        for dtype in (torch.float32, torch.float64):
            logits = torch.zeros((), dtype=dtype).expand(rows)
            expected = torch.tensor(F.exp_limit(rows, dtype), dtype=dtype)
            assert torch.equal(torch.as_tensor(limit(logits)), expected)
