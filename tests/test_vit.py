"""Vision transformers against a plain formula, and computed twice to save memory."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import penex
from penex.lab.data import Data, Part
from penex.lab.engine import compiling
from penex.lab.engine.learner import Learner
from penex.lab.engine.recipe import Recipe
from penex.lab.engine.step import HISTORY, step
from penex.lab.ground import chance
from penex.lab.ground.errors import LabError
from penex.lab.models import find
from penex.lab.models.layers import Dropout
from penex.lab.models.vit import Attention, Block, VisionTransformer
from penex.lab.records.identity import as_recorded

CPU = torch.device("cpu")


def tiny(dropout: float = 0.1) -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(
        (3, 8, 8), 5, patch=4, width=16, depth=2, heads=2, dropout=dropout
    ).double()


def _norm(x: Tensor, layer: nn.LayerNorm) -> Tensor:
    x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-6).sqrt()
    return x * layer.weight + layer.bias


def _attend(x: Tensor, layer: Attention) -> Tensor:
    """Head by head, the softmax written out."""
    heads = []
    width = x.shape[-1] // layer.heads
    q, k, v = (x @ layer.qkv.weight.T + layer.qkv.bias).chunk(3, dim=-1)
    for h in range(layer.heads):
        own = slice(h * width, (h + 1) * width)
        scores = q[..., own] @ k[..., own].transpose(1, 2) / math.sqrt(width)
        weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
        heads.append(weights @ v[..., own])
    return torch.cat(heads, dim=-1) @ layer.out.weight.T + layer.out.bias


def _plain(model: VisionTransformer, images: Tensor, patch: int) -> Tensor:
    """The logits as the module's docstring has them."""
    cut = images.unfold(2, patch, patch).unfold(3, patch, patch)  # B, C, rows, columns, p, p
    cut = cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
    assert model.patches.bias is not None
    x = cut @ model.patches.weight.flatten(1).T + model.patches.bias
    x = torch.cat([model.token.expand(len(x), 1, -1), x], dim=1) + model.places
    for block in model.blocks:
        assert isinstance(block, Block)
        norm, attention = block.attention.children()
        assert isinstance(norm, nn.LayerNorm)
        assert isinstance(attention, Attention)
        x = x + _attend(_norm(x, norm), attention)
        norm, first, _, _, second, _ = block.mlp.children()
        assert isinstance(norm, nn.LayerNorm)
        assert isinstance(first, nn.Linear)
        assert isinstance(second, nn.Linear)
        y = _norm(x, norm) @ first.weight.T + first.bias
        y = y * (1 + torch.erf(y / math.sqrt(2))) / 2
        x = x + y @ second.weight.T + second.bias
    return _norm(x, model.norm)[:, 0] @ model.head.weight.T + model.head.bias


def test_the_logits_are_those_of_the_plain_formula() -> None:
    model, images = tiny().eval(), torch.randn(3, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(model(images), _plain(model, images, 4), rtol=1e-12, atol=1e-12)


def test_no_images_have_no_logits() -> None:
    """What a process has of a batch that is too small for all of them."""
    assert tiny()(torch.zeros(0, 3, 8, 8, dtype=torch.float64)).shape == (0, 5)


def test_vit_base_is_the_papers() -> None:
    """The appendix's table: 197 tokens of 768, twelve blocks, 12 heads of 64, 3072, dropout 0.1."""
    with torch.device("meta"):
        model = find("vit_base")((3, 224, 224), 1000)
    assert isinstance(model, VisionTransformer)
    assert sum(p.numel() for p in model.parameters()) == 86_567_656
    assert model.places.shape == (1, 197, 768)
    assert [m.heads for m in model.modules() if isinstance(m, Attention)] == [12] * 12
    wide = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == 3072]
    assert len(wide) == 12
    assert model.head.weight.shape == (1000, 768)
    dropouts = [m for m in model.modules() if isinstance(m, Dropout)]
    assert [one.p for one in dropouts] == [0.1] * 25
    assert not any(isinstance(m, nn.Dropout) for m in model.modules())  # only ours know the step


@pytest.mark.parametrize(("side", "tokens"), [(64, 65), (160, 101), (32, 65)])
def test_small_images_have_small_patches(side: int, tokens: int) -> None:
    with torch.device("meta"):
        model = find("vit_tiny")((3, side, side), 7)
    assert isinstance(model, VisionTransformer)
    assert model.places.shape == (1, tokens, 192)


@pytest.mark.parametrize("shape", [(3, 225, 225), (3, 50, 64), (3, 4, 4), (64,)])
def test_images_that_cannot_be_cut_into_patches_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(LabError, match="multiples of its patches"):
        find("vit_tiny")(shape, 5)


def _learner(*, recompute: bool) -> tuple[Learner, Data]:
    images = torch.randint(0, 256, (12, 3, 8, 8), generator=torch.Generator().manual_seed(1))
    part = Part(images.to(torch.uint8), torch.arange(12), torch.arange(12) % 5)
    half = torch.full((3, 1, 1), 127.5)
    data = Data(part, part, part, tuple("abcde"), half, half)
    recipe = Recipe(epochs=1, lr=1e-2, accumulate=3, dtype="float64", recompute=recompute)
    loss = penex.PENEX(alpha=0.1, accumulate=3, scale="paper")
    return Learner(tiny(0.3), loss, recipe, CPU, seed=5), data


def test_recomputed_blocks_change_no_bit_and_move_rho_once() -> None:
    """With dropout, whose masks are drawn twice, and rho, which moves once a batch."""
    kept, found = [], []
    for recompute in (False, True):
        learner, data = _learner(recompute=recompute)
        saved: list[int] = []
        rows = torch.zeros(2, len(HISTORY), dtype=torch.float64)

        def pack(x: Tensor, into: list[int] = saved) -> Tensor:
            into.append(x.numel())
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            for row in rows:
                step(learner, data, torch.arange(12), torch.tensor(1e-2), row)
        kept.append(sum(saved))
        found.append((learner.theta, rows))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert kept[1] < kept[0] / 2


def test_what_only_saves_memory_is_no_part_of_a_runs_name() -> None:
    recorded = as_recorded(Recipe(epochs=1, lr=1.0, recompute=True))
    assert recorded == as_recorded(Recipe(epochs=1, lr=1.0))
    assert "recompute" not in recorded


def test_a_network_without_blocks_cannot_recompute_them() -> None:
    recipe = Recipe(epochs=1, lr=1e-2, recompute=True)
    with pytest.raises(LabError, match="recompute"):
        Learner(nn.Linear(2, 2), penex.PENEX(0.1), recipe, CPU)


def _plain_half(seed: int, count: int, row: int, column: int) -> int:
    """The 16 bits that decide on an entry, in Python's own integers."""
    word, golden = 0xFFFFFFFF, 0x9E3779B1

    def mixed(x: int) -> int:
        x ^= x >> 16
        x = x * 0x85EBCA6B & word
        x ^= x >> 13
        x = x * 0xC2B2AE35 & word
        return x ^ x >> 16

    key = mixed((mixed(seed) ^ count * golden) & word)
    both = mixed(mixed(key ^ row * golden & word) ^ column // 2 * golden & word)
    return (both >> 16 if column % 2 else both) & 0xFFFF


def test_the_mask_of_wide_rows_is_that_of_the_plain_formula() -> None:
    found = chance.kept(torch.tensor(9), torch.tensor(4.0), 5, 3, 17, CPU, 0.3)
    for row in range(3):
        for column in range(17):
            # As signed numbers: the upper half of them counts as below 0.
            half = (_plain_half(9, 4, 5 + row, column) + 2**15) % 2**16
            assert bool(found[row, column]) == (half >= round(0.3 * 2**16))


@pytest.mark.parametrize("first", [5, torch.tensor(5)])
def test_a_mask_multiplies_no_index_by_more_than_32_bits(first: int | Tensor) -> None:
    """To Inductor arange times a number is an index; past int32 no GPU's code can be made of it."""

    def drawn(seed: Tensor, count: Tensor) -> Tensor:
        return chance.kept(seed, count, first, 3, 17, CPU, 0.3)

    graph = make_fx(drawn)(torch.tensor(9), torch.tensor(4.0)).graph
    products = [node for node in graph.nodes if node.target is torch.ops.aten.mul.Tensor]
    large = [node for node in products if isinstance(node.args[1], int) and node.args[1] >= 2**31]
    assert large
    for node in large:
        assert node.args[0].target in (
            torch.ops.aten.bitwise_and.Scalar,
            torch.ops.aten.bitwise_xor.Tensor,
            torch.ops.aten._to_copy.default,  # of the number of the step
        )


def test_the_mask_of_wide_rows_is_random() -> None:
    """Its rate by row and column, and what neighbours, rows and steps have in common: nothing."""
    seed, rows, columns, p = torch.tensor([3, 4]), 64, 12_480, 0.1
    masks = torch.stack(
        [chance.kept(seed, torch.tensor(float(t)), 0, rows, columns, CPU, p) for t in (1, 2)]
    )
    dropped = 1 - masks.double()  # (steps, models, rows, columns)
    assert abs(dropped.mean().item() - p) < 5 * math.sqrt(p * (1 - p) / dropped.numel())
    spread = math.sqrt(p * (1 - p))
    for axis in range(4):
        means = dropped.mean(axis)
        assert (means - p).abs().max().item() < 6 * spread / math.sqrt(dropped.shape[axis])
        shifted = dropped.roll(1, axis)
        common = ((dropped - p) * (shifted - p)).mean().item() / spread**2
        assert abs(common) < 5 / math.sqrt(dropped.numel() / 2)


def test_wide_rows_draw_alike_however_a_batch_is_cut() -> None:
    layer = Dropout(0.5)
    layer.seed, layer.count = torch.tensor(3), torch.tensor(1.0)
    whole = layer(torch.ones(5, 3, 3001))
    layer.first = 2
    assert torch.equal(layer(torch.ones(2, 3, 3001)), whole[2:4])
    assert not layer._places  # a set for each layer and micro-batch would fill a GPU


@pytest.mark.parametrize("wide", [True, False])
def test_a_compiled_network_gives_the_same_however_a_batch_is_cut(wide: bool) -> None:
    """With one graph for all micro-batches, whose rows have other numbers."""
    from torch._dynamo.utils import counters

    shape, learners = (3, 48, 48) if wide else (3, 8, 8), []
    for _ in range(2):
        torch.manual_seed(0)
        network = VisionTransformer(shape, 5, patch=4, width=64, depth=1, heads=1)
        recipe = Recipe(epochs=1, lr=0.1, batch_size=4, accumulate=2)
        learners.append(Learner(network, penex.PENEX(), recipe, CPU, 3))
        learners[-1].train()
    plain, compiled = learners
    before = compiled.theta.clone()
    compiling.attempt(compiled, torch.zeros(2, *shape), "aot_eager")
    assert torch.equal(compiled.theta, before)
    assert not compiled.grad.any()
    images = torch.randint(256, (4, *shape), dtype=torch.uint8)
    part = Part(images, torch.arange(4), torch.tensor([0, 1, 2, 3]))
    data = Data(part, part, part, tuple("abcde"), torch.zeros(3, 1, 1), torch.ones(3, 1, 1))
    graphs = None
    for _ in range(2):
        rows = [torch.zeros(len(HISTORY), dtype=torch.float64) for _ in learners]
        for learner, row in zip(learners, rows, strict=True):
            step(learner, data, torch.arange(4), torch.tensor(0.1), row)
        assert torch.equal(*rows)
        assert torch.equal(plain.theta, compiled.theta)
        assert graphs in (None, counters["stats"]["unique_graphs"])
        graphs = counters["stats"]["unique_graphs"]


def test_a_network_that_cannot_be_compiled_stays_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    learner = Learner(nn.Linear(3, 2), penex.PENEX(), Recipe(epochs=1, lr=0.1), CPU)
    learner.train()
    compiling.attempt(learner, torch.zeros(4, 3), "none")
    assert not learner.compiled
    assert "not compiled" in capsys.readouterr().err
    learner.logits(torch.zeros(4, 3))
