"""What only a GPU can show; skipped where there is none."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import penex
from penex import registry
from penex.lab import models, training
from penex.lab.data import Collection, Examples
from penex.lab.engine import replayed
from penex.lab.engine.captured import Steps
from penex.lab.engine.packed import Pack
from penex.lab.engine.recipe import Recipe
from penex.lab.ground import chance
from penex.lab.models.layers import Cutting
from penex.lab.records import Record
from penex.lab.tasks import Task, runs
from penex.lab.training import packing

from strategies import make

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
    here, there = make(name), make(name)
    for step, (logits, target) in enumerate(batches(3)):
        on_gpu, labels = logits.cuda(), target.cuda()
        if step == 0:
            with torch.inference_mode():  # training goes on with what was moved there
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


def test_losses_in_two_streams_do_not_meet() -> None:
    """Batches of one program and of many, at the same time, each as if it were alone."""
    generator = torch.Generator().manual_seed(0)
    sizes = (64, 10), (1000, 1000)
    data = [torch.randn(size, generator=generator).cuda() for size in sizes]
    labels = [torch.arange(len(one)).cuda() % 10 for one in data]
    ends = []
    for together in (False, True):
        losses = [penex.PENEX(0.1).cuda() for _ in sizes]
        streams = [torch.cuda.Stream() for _ in sizes]  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        seen: list[list[torch.Tensor]] = [[], []]
        for step in range(300):
            for k, loss in enumerate(losses):
                with torch.cuda.stream(streams[k]):
                    seen[k].append(loss(data[k] * (1 + step / 300), labels[k]))
                if not together:
                    torch.cuda.synchronize()
        torch.cuda.synchronize()
        ends.append([torch.stack(one) for one in seen] + [loss.rho for loss in losses])
    for alone, beside in zip(*ends, strict=True):
        assert torch.equal(alone, beside)


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


@pytest.mark.parametrize("options", OPTIONS)
def test_a_linear_layers_loss_equals_the_cpus_without_waiting(options: dict[str, Any]) -> None:
    """Value, gradients and rho; chunks with a rest, and classes that are no multiple of 8."""
    here, there = penex.PENEX(0.1, **options), penex.PENEX(0.1, **options).cuda()
    weight, bias = torch.randn(7, 16), torch.randn(7)
    for _, target in batches(4):
        hidden = torch.randn(32, 16) / 4
        ours = [x.cuda().requires_grad_() for x in (hidden, weight, bias)]
        theirs = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
        expected = here(theirs[0] @ theirs[1].T + theirs[2], target)
        expected.backward()
        labels = target.cuda()
        with any_wait_for_the_gpu_is_an_error():
            value = there.linear(ours[0], ours[1], labels, ours[2], chunk=3)
            torch.autograd.backward(value)
        torch.testing.assert_close(value.cpu(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(there.rho.cpu(), here.rho, rtol=1e-5, atol=0)
        for one, other in zip(ours, theirs, strict=True):
            assert one.grad is not None
            torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("width", "chunk"), [(128, 2048), (2304, 8192)])
def test_a_linear_layers_loss_in_bfloat16_is_no_worse_than_cross_entropy(
    width: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients against float64, and, of a narrow layer, a peak of memory far below the logits.

    On Hopper a wide layer's exponentials are made with their product.
    """
    linear_launch = pytest.importorskip("penex.kernels.linear_launch")
    made: list[bool] = []
    product = linear_launch.product

    def watched(*given: Any) -> bool:
        made.append(product(*given))
        return made[-1]

    monkeypatch.setattr(linear_launch, "product", watched)
    positions, classes = 1024, 20_011
    hidden = torch.randn(positions, width, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(classes, width, device="cuda", dtype=torch.bfloat16) / width**0.5
    target = torch.randint(classes, (positions,), device="cuda")
    given = [hidden.requires_grad_(), weight.requires_grad_()]
    wide = [x.detach().double().requires_grad_() for x in given]
    cross_entropy = nn.functional.cross_entropy
    exact = [
        torch.autograd.grad(cross_entropy(wide[0] @ wide[1].T, target), wide),
        torch.autograd.grad(penex.PENEX(0.1)(wide[0] @ wide[1].T, target), wide),
    ]
    theirs = torch.autograd.grad(cross_entropy(given[0] @ given[1].T, target), given)
    loss = penex.PENEX(0.1).cuda()
    torch.autograd.grad(loss.linear(given[0], given[1], target, chunk=chunk), given)
    loss.reset_parameters()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    ours = torch.autograd.grad(loss.linear(given[0], given[1], target, chunk=chunk), given)
    if width < positions:
        assert torch.cuda.max_memory_allocated() - before < positions * classes * 2
    hopper = torch.cuda.get_device_capability() == (9, 0)
    assert any(made) == (hopper and width >= 2048)
    for k in range(2):
        off, known = (
            ((found.double() - right[k]).norm() / right[k].norm()).item()
            for found, right in ((ours[k], exact[1]), (theirs[k], exact[0]))
        )
        assert off <= 1.1 * known


def test_auto_takes_triton_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from penex.kernels import fused

    loss, (logits, target) = penex.PENEX(), batches(1)[0]
    assert loss.implementation(logits.cuda(), target.cuda()) == "triton"
    assert loss.implementation(logits.double().cuda(), target.cuda()) == "reference"
    monkeypatch.setattr(fused, "works", lambda _: False)
    assert loss.implementation(logits.cuda(), target.cuda()) == "reference"


# The laboratory.


def noise(model: str, **changes: Any) -> Task:
    """A task on random images, which needs no file and no package."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (200, 3, 8, 8), dtype=torch.uint8, generator=generator)
    collection = Collection(Examples(inputs, torch.arange(200) % 10), tuple("0123456789"))
    recipe = Recipe(epochs=1, lr=1e-3, clip=5.0, **changes)
    return Task("noise", "", lambda: collection, 100, model, models.find(model), recipe)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_captured_step_equals_an_eager_one(compiled: bool) -> None:
    """Every loss in one pack, 20 steps in float64 and two batch sizes, norm-wise to 1e-10."""
    device = torch.device("cuda")
    generator = torch.Generator()
    task = noise("cnn", dtype="float64")
    names = [name for name in registry.LOSSES if name != "conex_hard"]
    planned = [runs.plan(task, runs.LossSpec(name), seed) for seed, name in enumerate(names)]
    data = [*map(training.Place(Path(), device).data, planned)]
    ends, said = [], list[str]()
    for captured in (False, True):
        pairs = zip(planned, data, strict=True)
        pack = Pack([training.learner_of(run, one, device) for run, one in pairs], data)
        pack.train(True)
        step = Steps(pack, said.append, compiled=compiled) if captured else pack.step
        rate = torch.full((len(names), 1), 1e-3, dtype=torch.float64, device=device)
        seen = torch.zeros(len(names), 4, dtype=torch.float64, device=device)
        for k in range(20):
            rows = torch.randperm(100, generator=generator.manual_seed(k))[: 64 - k % 2].to(device)
            step(rows.expand(len(names), -1).contiguous(), rate, seen)
            if k % 5 == 0:  # as after an epoch; what it leaves lying about is overwritten
                pack.predict([one.val for one in data])
                junk = [torch.full((len(names),), -1, device=device) for _ in range(100)]
                del junk
        ends.append((pack.theta.clone(), seen.clone()))
    assert not said  # it was captured
    (plain, plain_seen), (fast, fast_seen) = ends
    assert ((fast - plain).norm(dim=1) / plain.norm(dim=1)).max().item() <= 1e-10
    torch.testing.assert_close(fast_seen, plain_seen, rtol=1e-8, atol=1e-10, equal_nan=True)


class Drawing(Cutting):
    """A network that cuts its inputs, and draws from torch's generator."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 10)

    def lengths(self, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs >= 0).sum(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width = self.width or int(self.lengths(x).amax())
        x = x[:, :width].clamp(min=0)
        hidden = torch.stack([x.sum(1), x.square().sum(1), x.sin().sum(1)], dim=1)
        found: torch.Tensor = self.layer(nn.functional.dropout(hidden, 0.3, self.training))
        return found


@pytest.mark.parametrize("name", registry.LOSSES)
def test_a_recorded_step_equals_a_plain_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a learner alone: 20 steps of two batch sizes, two widths, two micro-batches each."""
    monkeypatch.setattr(replayed, "is_known", lambda _: True)
    device = torch.device("cuda")
    inputs = torch.rand(200, 100, generator=torch.Generator().manual_seed(0))
    inputs[::2, 40:] = -1  # nothing; batches of even rows are narrow
    collection = Collection(
        Examples(inputs, torch.arange(200) % 10),
        tuple("0123456789"),
        mean=torch.zeros(1),
        std=torch.ones(1),
    )
    recipe = Recipe(epochs=1, lr=1e-3, clip=5.0, accumulate=2)
    task = Task("rows", "", lambda: collection, 100, "own", lambda _, n: Drawing(), recipe)
    if registry.find(name).zero_sum_head:
        pytest.skip("its head wants one logit less")
    run = runs.plan(task, runs.LossSpec(name), 0)
    data = training.Place(Path(), device).data(run)
    narrow = data.train.index.cpu() % 2 == 0
    some = [narrow.nonzero().flatten()[:16], torch.arange(15)]
    ends = []
    for steps in (0, replayed.LONG):
        learner = training.learner_of(run, data, device)
        learner.train()
        step = replayed.Replayed(learner, data, steps)
        widths = step.widths(some)
        assert widths == ([None, None] if steps == 0 else [64, 100])
        rate = torch.full((), 1e-3, dtype=torch.float64, device=device)
        row = torch.zeros(4, dtype=torch.float64, device=device)
        for k in range(20):
            chance.sow(k)
            step(some[k % 2].to(device), rate, row, widths[k % 2])
        assert len(step._recorded) == (2 if steps else 0)
        ends.append({**learner.tensors(), "row": row})
    for key, value in ends[0].items():
        torch.testing.assert_close(ends[1][key], value, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_fused_step_agrees_with_the_layers(compiled: bool) -> None:
    """Products in bfloat16: the fused step is as near to the exact one as the layers' is.

    In the mean over the losses: which of the two rounds one of them worse is chance.
    """
    pytest.importorskip("triton")
    device = torch.device("cuda")
    task = noise("cnn", optimizer="sgd", matmul_precision="medium")
    names = [name for name in registry.LOSSES if name != "conex_hard"]
    planned = [runs.plan(task, runs.LossSpec(name), seed) for seed, name in enumerate(names)]
    data = [*map(training.Place(Path(), device).data, planned)]
    rows = torch.arange(64, device=device).expand(len(names), -1).contiguous()
    ends, said = {}, list[str]()
    for way in ("exact", "layers", "fused"):
        pairs = zip(planned, data, strict=True)
        pack = Pack([training.learner_of(run, one, device) for run, one in pairs], data)
        pack.train(True)
        if way == "exact":
            pack.how = pack.how._replace(dtype=torch.float32)
        before = pack.theta.clone()
        with training.settings(replace(task.recipe, matmul_precision="highest"), device):
            step = Steps(pack, said.append, compiled=compiled, fused=way == "fused")
            assert pack.how.fused == (way == "fused")
            seen = torch.zeros(len(names), 4, dtype=torch.float64, device=device)
            step(rows, torch.full((len(names), 1), 1e-3, dtype=torch.float64, device=device), seen)
        ends[way] = pack.theta - before, seen[:, :2].clone()
    assert not said
    exact, exact_seen = ends["exact"]
    off = {way: ((end - exact).norm(dim=1) / exact.norm(dim=1)) for way, (end, _) in ends.items()}
    assert off["fused"].mean() <= 1.1 * off["layers"].mean()
    assert (off["fused"] <= 2 * off["layers"] + 1e-3).all()
    assert off["fused"].max().item() <= 0.2  # a pixel that rounding makes the largest moves it
    torch.testing.assert_close(ends["fused"][1], exact_seen, rtol=1e-2, atol=1e-3)


def test_memory_that_runs_out_halves_the_pack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The allocator may have a little; ten models want more."""
    device = torch.device("cuda")
    task = noise("resnet18", batch_size=32)
    planned = [runs.plan(task, runs.LossSpec("ce"), seed) for seed in range(10)]
    training.Place(Path(), device).data(planned[0])
    gc.collect()
    torch.cuda.empty_cache()
    # What earlier tests' CUDA graphs keep, and 16 bytes a parameter.
    allowed = torch.cuda.memory_reserved() + 10 * 11_200_000 * 4 * 4
    torch.cuda.set_per_process_memory_fraction(
        allowed / torch.cuda.get_device_properties(device).total_memory
    )
    try:
        packing.train(planned, training.Place(tmp_path, device, training.Hooks()), 64)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "models do not fit the GPU's memory" in capsys.readouterr().err
    assert all(Record.of(tmp_path, run.config).is_done for run in planned)
