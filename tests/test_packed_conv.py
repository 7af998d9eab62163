"""The Triton convolution of a pack against torch's own layers, model by model.

It needs Triton, and a GPU or its interpreter: `make test-triton` installs it and runs this here.
"""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from penex.lab import tasks, training
from penex.lab.engine import packed_layers
from penex.lab.engine.packed import Pack
from penex.lab.engine.packed_layers import How
from penex.lab.models.cnn import cnn
from penex.lab.tasks import runs

from triton_here import DEVICE, MARKS, check_compiles

pytest.importorskip("triton", reason="needs Triton: make test-triton")
pytestmark = MARKS

# The interpreter multiplies bfloat16 as if it were integers.
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16
# models, channels, filters, batch, height, width
SHAPES = [
    (2, 3, 32, 3, 8, 8),
    (2, 32, 64, 2, 8, 8),
    (1, 64, 128, 2, 4, 4),
    (3, 1, 16, 5, 7, 9),
    (1, 16, 32, 65, 2, 3),
    (1, 7, 16, 1, 3, 2),
]
LAYOUTS = {
    "batch first": (0, 2, 1, 3, 4),
    "channels first": (0, 1, 2, 3, 4),
    "channels last": (0, 2, 3, 4, 1),
}


def laid_out(x: Tensor, layout: str) -> Tensor:
    """The same numbers in another order in memory."""
    order = LAYOUTS[layout]
    back = [order.index(k) for k in range(5)]
    return x.permute(order).contiguous().permute(back)


def tensors(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    models, channels, filters, batch, height, width = shape
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(models, channels, batch, height, width, generator=generator)
    weight = torch.randn(models, filters, channels, 3, 3, generator=generator) / channels**0.5
    bias = torch.randn(models, filters, generator=generator)
    # What the products round is rounded before, so that they are all that can differ.
    return x.to(dtype).to(DEVICE), weight.to(dtype).float().to(DEVICE), bias.to(DEVICE)


def expected(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Each model by torch's layers."""
    found = []
    for image, w, b in zip(x, weight, bias, strict=True):
        full = nn.functional.conv2d(image.transpose(0, 1), w, b, padding=1)
        found.append(torch.relu(nn.functional.max_pool2d(full, 2)).transpose(0, 1))
    return torch.stack(found)


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(shape: tuple[int, ...], layout: str, dtype: torch.dtype) -> None:
    """In float64 on the same numbers, norm-wise: rounding, and nothing else, is between them."""
    from penex.lab.engine.packed_conv import conv_pool_relu

    given = tensors(shape, dtype)
    ours = [laid_out(given[0], layout), given[1], given[2]]
    ours = [tensor.detach().requires_grad_() for tensor in ours]
    theirs = [tensor.double().requires_grad_() for tensor in given]
    found, reference = conv_pool_relu(*ours), expected(*theirs)
    assert found.dtype == dtype
    outer = torch.randn(reference.shape, generator=torch.Generator().manual_seed(0))
    outer = outer.to(dtype).to(DEVICE)
    got = [found, *torch.autograd.grad(found, ours, outer)]
    right = [reference, *torch.autograd.grad(reference, theirs, outer.double())]
    allowed = 2e-6 if dtype == torch.float32 else 4e-3
    for one, other in zip(got, right, strict=True):
        assert (one.double() - other).norm() <= allowed * other.norm()


def test_a_model_has_the_same_bits_in_any_company() -> None:
    from penex.lab.engine.packed_conv import conv_pool_relu

    x, weight, bias = (t.requires_grad_() for t in tensors((3, 16, 16, 5, 6, 6), torch.float32))
    whole = torch.autograd.grad(conv_pool_relu(x, weight, bias).square().sum(), (x, weight, bias))
    for k in range(3):
        own = [t[k : k + 1].detach().requires_grad_() for t in (x, weight, bias)]
        alone = torch.autograd.grad(conv_pool_relu(*own).square().sum(), own)
        assert all(torch.equal(a, w[k : k + 1]) for a, w in zip(alone, whole, strict=True))


def test_what_is_not_finite_is_seen() -> None:
    """A model that went bad must not look well because a maximum leaves NaN out."""
    from penex.lab.engine.packed_conv import conv_pool_relu

    x, weight, bias = tensors((2, 3, 16, 2, 4, 4), torch.float32)
    weight[1, 5] = torch.nan
    found = conv_pool_relu(x, weight, bias)
    assert found[0].isfinite().all()
    assert found[1, 5].isnan().all()
    assert found[1, :5].isfinite().all()


def test_a_gradient_that_is_not_finite_stays_in_its_model() -> None:
    from penex.lab.engine.packed_conv import conv_pool_relu

    given = [t.requires_grad_() for t in tensors((2, 16, 16, 2, 4, 4), torch.float32)]
    found = conv_pool_relu(*given)
    outer = torch.ones_like(found)
    outer[1, 3] = torch.nan
    grads = torch.autograd.grad(found, given, outer)
    assert all(grad[0].isfinite().all() for grad in grads)
    assert all(grad[1].isnan().any() for grad in grads)
    assert grads[2][1].isnan().sum() == 1


def test_ties_go_to_the_first_as_in_torch() -> None:
    from penex.lab.engine.packed_conv import conv_pool_relu

    x, weight, bias = tensors((1, 1, 16, 2, 4, 4), torch.float32)
    weight.zero_()
    weight[:, :, :, 1, 1] = 1.0
    x = torch.ones_like(x)
    ours, theirs = x.clone().requires_grad_(), x.double().requires_grad_()
    bias = bias.abs()
    (got,) = torch.autograd.grad(conv_pool_relu(ours, weight, bias).sum(), ours)
    total = expected(theirs, weight.double(), bias.double()).sum()
    assert torch.equal(got.double(), torch.autograd.grad(total, theirs)[0])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The inputs' shapes of every call of the fused convolution."""
    from penex.lab.engine import packed_conv

    seen: list[torch.Size] = []
    whole = packed_conv.conv_pool_relu

    def counted(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        seen.append(x.shape)
        return whole(x, weight, bias)

    monkeypatch.setattr(packed_conv, "conv_pool_relu", counted)
    return seen


def test_the_papers_network_is_fused(calls: list[torch.Size]) -> None:
    """All three blocks of it; float32 here, so that only rounding differs."""
    torch.manual_seed(0)
    models = [cnn((3, 8, 8), 10).eval().to(DEVICE) for _ in range(2)]
    names = [name for name, _ in models[0].named_parameters()]
    stacked = {n: torch.stack([dict(m.named_parameters())[n] for m in models]) for n in names}
    images = torch.randn(2, 5, 3, 8, 8, device=DEVICE)
    found = packed_layers.forward(
        models[0], "", stacked, images.transpose(1, 2), How(torch.float32, fused=True)
    )
    assert len(calls) == 3
    for k, model in enumerate(models):
        right = copy.deepcopy(model).double()(images[k].double())
        torch.testing.assert_close(found[k].double(), right, rtol=1e-4, atol=1e-5)


def test_a_fused_step_is_a_step_of_the_layers(calls: list[torch.Size]) -> None:
    """A whole pack, forward, backward, clip and Adam; float32, so that only rounding differs."""
    device = torch.device(DEVICE)
    names = ("ce", "penex", "unnormalised")
    some = [
        runs.plan(tasks.find("digits"), runs.LossSpec(name), k, 24, {"batch_size": 12})
        for k, name in enumerate(names)
    ]
    data = [*map(training.Place(Path(), device).data, some)]
    ends = []
    for fused in (False, True):
        pairs = zip(some, data, strict=True)
        pack = Pack([training.learner_of(run, one, device) for run, one in pairs], data)
        pack.how = How(torch.float32, stacked=True, fused=fused)
        pack.train(True)
        for k in range(2):
            rows = torch.arange(12 * k, 12 * k + 12, device=device).expand(3, 12).contiguous()
            rate = torch.full((3, 1), 1e-3, dtype=torch.float64, device=device)
            seen = torch.zeros(3, 4, dtype=torch.float64, device=device)
            pack.step(rows, rate, seen)
        ends.append((pack.theta, seen))
    assert len(calls) == 2 * 3
    (plain, plain_seen), (fast, fast_seen) = ends
    # Adam's first steps have the size of the rate whatever the gradient: a few that are all
    # rounding go another way.
    assert ((fast - plain).norm(dim=1) / plain.norm(dim=1)).max().item() <= 1e-4
    torch.testing.assert_close(fast_seen, plain_seen, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize(
    "change",
    [
        {"stride": 2},
        {"padding": 0},
        {"kernel_size": 5, "padding": 2},
        {"bias": False},
        {"out_channels": 24},
    ],
)
def test_other_convolutions_are_left_alone(
    calls: list[torch.Size], change: dict[str, int | bool]
) -> None:
    torch.manual_seed(0)
    options = {"in_channels": 3, "out_channels": 16, "kernel_size": 3, "padding": 1} | change
    net = nn.Sequential(nn.Conv2d(**options), nn.ReLU(), nn.MaxPool2d(2)).to(DEVICE)  # type: ignore[arg-type]
    stacked = {name: value.unsqueeze(0) for name, value in net.named_parameters()}
    images = torch.randn(1, 2, 3, 8, 8, device=DEVICE)
    how = How(torch.float32, fused=True)
    found = packed_layers.forward(net, "", stacked, images.transpose(1, 2), how)
    assert not calls
    right = copy.deepcopy(net)(images[0]).transpose(0, 1).unsqueeze(0)
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [3, 16])
def test_as_operators_they_say_what_they_do(channels: int) -> None:
    """What torch.compile believes of shapes, strides and gradients without running them."""
    from penex.lab.engine import packed_conv

    x, weight, bias = tensors((2, channels, 16, 3, 5, 4), torch.float32)
    rows = weight.permute(0, 3, 4, 2, 1).flatten(1, 3).contiguous()
    given = (laid_out(x, "channels last").requires_grad_(), rows.requires_grad_(), bias)
    torch.library.opcheck(packed_conv._conv_op, given)
    grad, code = (tensor.detach() for tensor in packed_conv._conv_op(*given))
    torch.library.opcheck(packed_conv._input_op, (grad, code, rows.detach(), 5, 4))
    torch.library.opcheck(packed_conv._weight_op, (given[0].detach(), grad, code))


def test_it_compiles_as_one_graph() -> None:
    from penex.lab.engine.packed_conv import conv_pool_relu

    given = [t.requires_grad_() for t in tensors((2, 3, 16, 3, 6, 6), torch.float32)]
    compiled = torch.compile(conv_pool_relu, fullgraph=True, backend="aot_eager")
    ends = [
        (found.detach(), *torch.autograd.grad(found.square().sum(), given))
        for found in (compiled(*given), conv_pool_relu(*given))
    ]
    for ours, plain in zip(*ends, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-6, atol=1e-6)


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from penex.lab.engine import conv_kernels as kernels
from penex.lab.engine import packed_conv as ours

SHARED = {80: 166912, 86: 101376, 90: 232448}  # bytes that a program may have there
STAGES = {
    kernels.forward: 2, kernels.input_gradient: 1, kernels.weight_gradient: 3,
    kernels.narrow_gradient: 2,
}
LARGEST = {"CIN": 64, "COUT": 128, "H": 8, "W": 8, "sc": 1}
for arch in SHARED:
    for sizes in (LARGEST, {**LARGEST, "CIN": 32, "COUT": 64}, {**LARGEST, "CIN": 3, "COUT": 32}):
        narrow = sizes["CIN"] == 3
        for kernel, stages in STAGES.items():
            known = {
                **sizes, "NARROW": narrow,
                "BLOCK_P": 128 if narrow else 32 if "part" in kernel.arg_names else ours._POOLED,
                "BLOCK_K": ours._row(sizes["CIN"]), "BLOCK_C": max(16, sizes["CIN"]),
                "BLOCK_N": min(sizes["COUT"], ours._FILTERS), "CHUNK": 1024 if narrow else 256,
            }
            if kernel is kernels.input_gradient:
                known["BLOCK_K"] = known["BLOCK_N"]
            elif kernel is (kernels.weight_gradient if narrow else kernels.narrow_gradient):
                continue
            signature = {}
            for name in kernel.arg_names:
                pointer = {"bias": "*fp32", "part": "*fp32", "code": "*u8"}
                if name in known:
                    signature[name] = "constexpr"
                elif name in ("x", "weight", "out", "grad"):
                    signature[name] = "*bf16"
                else:
                    signature[name] = pointer.get(name, "i32")
            constants = {k: v for k, v in known.items() if k in kernel.arg_names}
            made = triton.compile(
                ASTSource(kernel, signature, constants), target=GPUTarget("cuda", arch, 32),
                options={"num_warps": 4, "num_stages": stages},
            )
            assert made.asm["cubin"]
            assert made.metadata.shared <= SHARED[arch], (kernel, arch, made.metadata.shared)
print("compiled")
"""


def test_they_compile_and_fit_without_a_gpu() -> None:
    """For Ampere and Hopper; the widest layers that `fits` takes have room in shared memory."""
    check_compiles(COMPILE)
