"""The Triton kernels at awkward shapes, for NVIDIA's checker of memory accesses.

Run it with `compute-sanitizer python -m benchmarks.sanitizer`; it takes a GPU. Targets that are no
class are among them: they must make a NaN, and no access outside of the logits.
"""

import torch

from penex import PENEX
from penex.lab.engine import packed_conv

SHAPES = ((1, 1), (1, 70_001), (3, 7), (64, 10), (65, 1000), (513, 33))
IMAGES = ((2, 3, 32, 3, 8, 8), (1, 1, 16, 5, 7, 9), (2, 32, 64, 2, 5, 4), (1, 64, 128, 3, 4, 4))


def losses() -> int:
    """Every option of the loss at every shape and dtype, forward and backward; how many."""
    count = 0
    for rows, classes in SHAPES:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            logits = torch.randn(classes, rows, device="cuda", dtype=dtype).T.requires_grad_()
            target = torch.randint(classes, (rows,), device="cuda")
            soft = torch.rand(rows, classes, device="cuda").softmax(1)
            weight = torch.rand(classes, device="cuda", dtype=dtype)
            wrong = target.clone()
            wrong[0] = 2**40
            for loss, labels in (
                (PENEX(impl="triton"), target),
                (PENEX(impl="triton", weight=weight, label_smoothing=0.1), target),
                (PENEX(impl="triton"), soft),
                (PENEX(impl="triton", reduction="none"), wrong),
            ):
                value = loss.cuda()(logits, labels)
                value.sum().backward()
                assert value.isnan().any() == (labels is wrong)
                count += 1
            # Where exp is saturated, a row is read twice.
            PENEX(impl="triton").cuda()(100 * logits, target).backward()
            count += 1
    return count


def convolutions() -> int:
    """The packed convolution at every shape, forward and backward; how many."""
    for models, channels, filters, batch, height, width in IMAGES:
        x = torch.randn(models, channels, batch, height, width, device="cuda").bfloat16()
        weight = torch.randn(models, filters, channels, 3, 3, device="cuda").requires_grad_()
        bias = torch.randn(models, filters, device="cuda").requires_grad_()
        found = packed_conv.conv_pool_relu(x.requires_grad_(), weight, bias)
        torch.autograd.grad(found.sum(), (x, weight, bias))
    return len(IMAGES)


def main() -> None:
    """Run them all."""
    print(f"{losses()} losses and {convolutions()} convolutions, forward and backward")
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
