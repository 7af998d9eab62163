"""penex reproduce: the paper's tables, with real results beside its own."""

import tempfile
from pathlib import Path
from typing import Annotated, Literal

import tyro

from penex.cli import given
from penex.cli.benchmarking import bench
from penex.cli.options import Size, choice, hinted, task_default
from penex.lab.data.noise import Kind
from penex.lab.ground.errors import LabError
from penex.paper.reproduction import reproduce as carry_out
from penex.paper.request import Request

_Tasks = Annotated[tuple[str, ...], hinted("TASK [TASK ...]", "(default: all)")]


def reproduce(
    what: Annotated[
        Literal[
            "all",
            "table1",
            "resnet",
            "fair",
            "floor",
            "rho",
            "alpha",
            "gap",
            "ablations",
            "sensitivity",
            "size",
            "tuned",
            "imagenet",
            "costs",
            "figures",
            "runtime",
        ],
        tyro.conf.Positional,
    ],
    /,
    task: _Tasks = (),
    losses: Annotated[tuple[str, ...], hinted("LOSS [LOSS ...]", "(default: the table's)")] = (),
    seeds: Annotated[int | None, hinted("N", "(default: 5; resnet: 3; imagenet: 1)")] = None,
    tuned: bool = False,
    authors: bool = False,
    read_only: bool = False,
    plan: bool = False,
    smoke: bool = False,
    epochs: Size = None,
    trial_epochs: Annotated[int | None, hinted("N", "(default: as the runs)")] = None,
    only: Annotated[tuple[str, ...], hinted("NAME [NAME ...]", "(default: all)")] = (),
    train_size: Size = None,
    augment: Annotated[str | None, task_default("flip|crop|flip,crop")] = None,
    noise_kind: Annotated[Kind | None, task_default(choice(Kind))] = None,
    data: Annotated[Path | None, hinted("DIR", "(default: PENEX_DATA, or ./data)")] = None,
    encoder: Annotated[str | None, hinted("NAME | DIR", "(default: all-MiniLM-L6-v2)")] = None,
    device: str = "auto",
    out: Path = Path("runs"),
    slim: Annotated[Path | None, hinted("DIR")] = None,
    save_seconds: float = 60.0,
    pack: str = "auto",
) -> None:
    """Make the paper's table again: read the records, train what is missing, print both.

    all makes everything below but imagenet and runtime: it says what is there, what is missing and
    how long that takes, trains it, and ends in one page (paper.html, paper.md) with every claim of
    the paper and what became of it. table1 is the main table's vision tasks under its five losses
    and two of ours (and bbc_news, if --task names it); it lies in OUT as Markdown, LaTeX, CSV and a
    page. resnet is the appendix's table of ResNet-18. fair tunes rate and parameter of twelve
    losses with twelve trials each and compares them at their best, with clean and with wrong
    labels. floor holds rho of PENEX at 1e-3 to 1e-8 on each task, beside Algorithm 1 and the
    numbers that the paper prints. rho varies the average and the bounds of rho on CIFAR-10, alpha
    the sensitivity on CIFAR-100, gap what its authors' code has besides. ablations trains the
    exponential loss without PENEX's penalty, sensitivity PENEX with alpha up to 3.2, size
    CIFAR-10's losses on 500 to 40,000 images. tuned puts the values of our own studies (penex tune)
    beside the authors'. imagenet trains a small vision transformer on Tiny-ImageNet, PENEX at two
    rates. costs puts the records' seconds and a timing of the losses here beside the appendix on
    resources and runtime. figures draws the paper's figures from the records in OUT, those that
    need none by training small models for two minutes, and a page that judges their captions.
    runtime is `penex bench` with its defaults. All but runtime also run as `python -m penex.paper`,
    which needs torch, numpy, Pillow and safetensors alone (figures and pages need more, and are
    left out with a sentence).

    Args:
        what: all, a table (table1, resnet, fair, costs), a sweep (floor to imagenet), figures or
            runtime.
        task: which of its tasks.
        losses: other losses for table1, resnet, fair or imagenet, such as all that a GPU can train
            at once.
        seeds: how many; the paper has one.
        tuned: fill table1 with the values of our own studies, where there are some.
        authors: take the values in the authors' configurations, as it does unless told otherwise.
        read_only: train nothing, show what is there: --out results shows what we have measured.
        plan: of all: say what is there, what is missing and how long that takes, and stop.
        smoke: try all of it in two minutes, on tiny files of noise in the official formats.
        epochs: passes over the training data.
        trial_epochs: of fair: passes in a trial, if these are to be shorter.
        only: of figures: adaboost, margins, shape, curves_cifar100, ablations, curves, sensitivity,
            size or imagenet; of all: which parts.
        train_size: how many training examples.
        augment: of resnet: train with images changed at random; the paper does not.
        noise_kind: of cifar10_noisy: flip as the paper has it, resample as its authors' code.
        data: the folder with the official files.
        encoder: of bbc_news: what is fine-tuned; the paper has roberta-base.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        out: the folder for records.
        slim: a folder for the small form of the records, which is written as they finish.
        save_seconds: how often to save a checkpoint while training.
        pack: how many models to train at once: a number, off, or auto for what pays.
    """
    from penex.cli import progress

    if what == "runtime":
        unused = (task, losses, seeds, tuned, authors, read_only, plan, epochs, trial_epochs, only)
        elsewhere = (train_size, augment, noise_kind, data, encoder, slim)
        if any(one not in ((), False, None) for one in (*unused, *elsewhere)):
            raise LabError("penex reproduce runtime takes --device, --out and --smoke only.")
        with tempfile.TemporaryDirectory() as name:
            place = Path(name) if smoke else out / "bench"
            bench(device=device, out=place, seconds=0.02 if smoke else 1.0)
        return
    carry_out(
        Request(
            what,
            given.command_line(),
            progress.watcher,
            task=task,
            losses=losses,
            seeds=seeds,
            tuned=tuned,
            authors=authors,
            read_only=read_only,
            plan=plan,
            smoke=smoke,
            epochs=epochs,
            trial_epochs=trial_epochs,
            only=only,
            train_size=train_size,
            augment=augment,
            noise_kind=noise_kind,
            data=data,
            encoder=encoder,
            out=out,
            slim=slim,
            device=device,
            save_seconds=save_seconds,
            pack=pack,
        )
    )
