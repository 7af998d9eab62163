"""What only a GPU can show; skipped where there is none."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import penex
from penex import registry

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature"),
]

OPTIONS: list[dict[str, Any]] = [
    {},
    {"accumulate": 2, "order": "listing"},
    {"label_smoothing": 0.1, "weight": torch.linspace(0.5, 2, 7)},
    {"rho": 0.05, "reduction": "sum"},
]


@contextmanager
def any_wait_for_the_gpu_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def batches(steps: int, soft: bool = False) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    made = []
    for _ in range(steps):
        logits = 2 * torch.randn(32, 7, generator=generator)
        target = torch.randint(7, (32,), generator=generator)
        target[:3] = -100
        labels = logits.softmax(1) if soft else target
        made.append((logits, labels))
    return made


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_gpu_equals_cpu_without_waiting(options: dict[str, Any], soft: bool) -> None:
    here, there = penex.PENEX(0.1, **options), penex.PENEX(0.1, **options).cuda()
    for logits, target in batches(6, soft):
        expected = here(logits, target)
        on_gpu = logits.cuda().requires_grad_()
        labels = target.cuda()
        with any_wait_for_the_gpu_is_an_error():
            value = there(on_gpu, labels)
            value.backward()
        torch.testing.assert_close(value.cpu(), expected)
        torch.testing.assert_close(there.rho.cpu(), here.rho)


@pytest.mark.parametrize("name", [n for n in registry.LOSSES if n != "ce"])
def test_a_loss_that_was_never_moved_follows_its_logits(name: str) -> None:
    here, there = registry.make(name), registry.make(name)
    for step, (logits, target) in enumerate(batches(3)):
        on_gpu, labels = logits.cuda(), target.cuda()
        if step == 0:
            value = there(on_gpu, labels)
        else:
            with any_wait_for_the_gpu_is_an_error():
                value = there(on_gpu, labels)
        torch.testing.assert_close(value.cpu(), here(logits, target), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_a_captured_step_replays_the_eager_one(options: dict[str, Any], soft: bool) -> None:
    """Forward, backward and the step of rho in one CUDA graph, replayed on new data."""
    eager, captured = penex.PENEX(0.1, **options).cuda(), penex.PENEX(0.1, **options).cuda()
    data = [(logits.cuda(), target.cuda()) for logits, target in batches(8, soft)]
    static_logits = data[0][0].clone().requires_grad_()
    static_target = data[0][1].clone()
    state = {k: v.clone() for k, v in captured.state_dict().items()}
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            captured(static_logits, static_target).backward()
    torch.cuda.current_stream().wait_stream(stream)
    captured.load_state_dict(state)
    static_logits.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = captured(static_logits, static_target)
        value.backward()
    captured.load_state_dict(state)
    for logits, target in data:
        with torch.no_grad():
            static_logits.copy_(logits)
            static_target.copy_(target)
        graph.replay()
        leaf = logits.clone().requires_grad_()
        expected = eager(leaf, target)
        expected.backward()
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(captured.rho, eager.rho)
        torch.testing.assert_close(static_logits.grad, leaf.grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_training_keeps_float32(dtype: torch.dtype) -> None:
    model, loss = nn.Linear(16, 7).cuda(), penex.PENEX(0.1).cuda()
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(32, 16, device="cuda")
    y = torch.randint(7, (32,), device="cuda")
    for _ in range(5):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype):
            logits = model(x)
            value = loss(logits, y)
        assert logits.dtype == dtype
        assert value.dtype == loss.rho.dtype == torch.float32
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
    assert value.isfinite()
    assert loss.rho.item() > 0


def test_compiled_equals_eager() -> None:
    eager, shadow = penex.PENEX(0.1).cuda(), penex.PENEX(0.1).cuda()
    compiled = torch.compile(shadow, fullgraph=True)
    for logits, target in batches(4):
        ours = logits.cuda().requires_grad_()
        theirs = logits.cuda().requires_grad_()
        value, expected = compiled(ours, target.cuda()), eager(theirs, target.cuda())
        value.backward()
        expected.backward()
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(ours.grad, theirs.grad)
        torch.testing.assert_close(shadow.rho, eager.rho)
