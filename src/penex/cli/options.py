"""Options that commands share."""

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import tyro

from penex.lab.data.noise import Kind, LabelNoise
from penex.lab.engine.recipe import DType, OptimizerName, Precision, ScheduleName
from penex.lab.ground.errors import LabError
from penex.lab.records.views import View
from penex.lab.tasks.runs import Treatment
from penex.lab.training.session import EngineName

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from penex.lab.tasks import Task
    from penex.lab.tasks.runs import Run
    from penex.lab.training.session import Session, Watcher


def separated(losses: tuple[str, ...]) -> tuple[str, ...]:
    """The losses of --losses or --loss; a LabError if commas stand between them.

    >>> separated(("ce@lr=0.1,epochs=3", "penex:alpha=0.1,order=listing"))
    ('ce@lr=0.1,epochs=3', 'penex:alpha=0.1,order=listing')
    """
    for text in losses:
        if "," in text.partition(":")[0].partition("@")[0]:
            words = " ".join(filter(None, text.split(",")))
            raise LabError(f"Losses are separated by spaces, as in {words}; got {text!r}.")
    return losses


def words_of(options: object) -> list[str]:
    """The words of a command line that give these options: those that are not as usual.

    Args:
        options: a dataclass of options.

    >>> words_of(Changes(epochs=3, autocast=True))
    ['--epochs', '3', '--autocast', 'True']
    """
    assert dataclasses.is_dataclass(options)
    found: list[str] = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value != field.default:
            flag = f"--{field.name.replace('_', '-')}"
            found += [flag] if field.type is bool else [flag, str(value)]
    return found


def hinted(metavar: str, hint: str = "") -> Any:
    """An option shown with this word, and this hint instead of its default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=hint)


def choice(kind: object) -> str:
    """How the words of a Literal are shown.

    >>> choice(Literal["a", "b"])
    'a|b'
    """
    return "|".join(get_args(kind))


def task_default(metavar: str) -> Any:
    """An option whose default is the task's."""
    return hinted(metavar, "(default: the task's)")


@dataclasses.dataclass(frozen=True)
class Changes:
    """What is changed in the task's recipe.

    Attributes:
        epochs: passes over the training data.
        lr: learning rate.
        optimizer: which one.
        batch_size: examples a step.
        schedule: how the learning rate changes; cosine and linear fall to 0.
        warmup_epochs: for how many epochs the learning rate rises at the start.
        clip: largest norm of the gradient; inf for no limit.
        accumulate: how many micro-batches to cut a batch into, to save memory.
        weight_decay: how strongly the parameters are drawn to 0.
        momentum: of sgd alone.
        matmul_precision: of float32 products on a GPU, as torch.set_float32_matmul_precision takes
            it.
        autocast: train the model in bfloat16 where that is safe.
        dtype: of the parameters.
        augment: change images at random while they are trained on: flip, crop or flip,crop.
        recompute: of a vit, compute its blocks twice instead of keeping what they computed: less
            memory, a third more time, the same result.
        shard: under torchrun, have each process keep a part of the parameters, gradients and
            moments (FSDP2), for a network that does not fit into the memory of one.
    """

    epochs: Annotated[int | None, task_default("N")] = None
    lr: Annotated[float | None, task_default("RATE")] = None
    optimizer: Annotated[OptimizerName | None, task_default(choice(OptimizerName))] = None
    batch_size: Annotated[int | None, task_default("N")] = None
    schedule: Annotated[ScheduleName | None, task_default(choice(ScheduleName))] = None
    warmup_epochs: Annotated[float | None, task_default("EPOCHS")] = None
    clip: Annotated[float | None, task_default("NORM")] = None
    accumulate: Annotated[int | None, task_default("N")] = None
    weight_decay: Annotated[float | None, task_default("DECAY")] = None
    momentum: Annotated[float | None, task_default("MOMENTUM")] = None
    matmul_precision: Annotated[Precision | None, task_default(choice(Precision))] = None
    autocast: Annotated[bool | None, task_default("True|False")] = None
    dtype: Annotated[DType | None, task_default(choice(DType))] = None
    augment: Annotated[str | None, task_default("flip|crop|flip,crop")] = None
    recompute: Annotated[bool | None, task_default("True|False")] = None
    shard: Annotated[bool | None, task_default("True|False")] = None

    def given(self) -> dict[str, Any]:
        """What the user gave."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}


def _task(name: str) -> "Task":
    """The task of a name; the error for another name speaks of paths where it is one."""
    from penex.lab import tasks

    try:
        return tasks.find(name)
    except LabError:
        if Path(name).exists():
            raise LabError(
                f"There is no task {name!r}. A path is given with --data: --data "
                f"{shlex.quote(name)}."
            ) from None
        if "/" in name or Path(name).suffix:
            raise LabError(f"There is no task and no file or folder {name!r}.") from None
        raise


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """What to train on, and what is done to it.

    Attributes:
        data: your own data: a folder with a folder of images or .txt files for each class (perhaps
            under train, val and test), an .npz, a .csv, an archive of such a folder, or official
            CIFAR or MedMNIST files.
        image_size: the side of the square that images are brought to.
        label_column: the column of a .csv that holds the class.
        text_column: the column of a .csv that holds texts, if it does.
        encoder: what is fine-tuned on texts: the name of an encoder, or its folder.
        frozen: leave the encoder as it is, and train a small network on its features of each text:
            minutes instead of hours on a CPU.
        allow_large: take a compressed file though it becomes much larger.
        model: cnn, resnet18, mlp, vit_tiny, vit_small, vit_base, or your own as module:factory,
            called with the shape of an input and the number of classes.
        label_noise: the share of labels to make wrong on purpose: 0.1 is a tenth.
        noise_kind: flip draws another class, in training only; resample draws any class, in
            training and validation.
        class_weights: balanced makes rare classes count as much as common ones.
    """

    data: Annotated[Path | None, hinted("PATH")] = None
    image_size: Annotated[int | None, hinted("PIXELS", "(default: 32 or 64, by the files)")] = None
    label_column: Annotated[str | None, hinted("NAME")] = None
    text_column: Annotated[str | None, hinted("NAME")] = None
    encoder: Annotated[str | None, hinted("NAME | FOLDER", "(default: all-MiniLM-L6-v2)")] = None
    frozen: bool = False
    allow_large: bool = False
    model: Annotated[str | None, hinted("MODEL", "(default: by the task or the data)")] = None
    label_noise: Annotated[float | None, hinted("RATE")] = None
    noise_kind: Annotated[Kind | None, hinted(choice(Kind), "(default: flip)")] = None
    class_weights: Annotated[Literal["balanced"] | None, hinted("balanced")] = None

    def task(self, name: str | None, out: Path, device: str) -> "Task":
        """The task that is meant: a named one, or one made of the user's data, with its folder.

        Args:
            name: of the task, if it has one.
            out: the folder of all tasks.
            device: where an encoder that stays as it is reads texts.
        """
        from penex.cli import collecting
        from penex.lab import models

        if self.data is not None and name is None:
            task = collecting.own_task(self, out)
            if not self.frozen:
                return task
        else:
            task = self._named(_task(name or "digits"))
        if self.frozen:
            task = collecting.frozen(task, device)
        if self.model is None:
            return task
        if task.encoder is not None and not task.frozen:
            raise LabError(f"Texts are read by an --encoder, not by a --model; got {self.model}.")
        source = models.source(self.model)
        identity = {**task.identity, **({"model_source": source} if source else {})}
        build = models.find(self.model)
        return dataclasses.replace(task, model=self.model, build=build, identity=identity)

    def _named(self, task: "Task") -> "Task":
        """A task by its name, with its files, its size and its encoder as they were asked for."""
        from penex.lab import tasks

        if self.data is not None:
            task = tasks.placed(task, self.data)
        for option in ("label_column", "text_column"):
            if getattr(self, option) is not None:
                alone = f", without the task {task.name!r}" if self.data is not None else ""
                raise LabError(f"--{option.replace('_', '-')} is for --data with a .csv{alone}.")
        if self.image_size is not None:
            task = tasks.resized(task, self.image_size)
        if self.encoder is not None:
            task = tasks.encoded(task, self.encoder)
        return task

    def treatment(self, task: "Task") -> Treatment:
        """What is done to the data of a task."""
        noise = None
        if self.label_noise is not None:
            noise = LabelNoise(self.label_noise, self.noise_kind or "flip")
        elif self.noise_kind is not None:
            if task.label_noise is None:
                raise LabError("--noise-kind says how labels go wrong; --label-noise, how many.")
            noise = dataclasses.replace(task.label_noise, kind=self.noise_kind)
        return Treatment(noise, self.class_weights)


Tracker = Annotated[str | None, hinted("tensorboard|wandb")]


@dataclasses.dataclass(frozen=True)
class Kept:
    """What is written where.

    Attributes:
        out: the folder for all that is written.
        save_seconds: how often to save a checkpoint, from which a stopped run goes on.
        keep_checkpoints: keep the last one of a run that is done too; nothing needs it.
        track: also log to tensorboard or wandb.
    """

    out: Path = Path("runs")
    save_seconds: float = 30.0
    keep_checkpoints: bool = False
    track: Tracker = None

    def session(
        self,
        watch: "Watcher",
        device: str,
        planned: "Sequence[Run]",
        engine: EngineName = "local",
    ) -> "AbstractContextManager[Session]":
        """What surrounds the training of these runs."""
        from penex.lab.training.session import open_session

        return open_session(
            watch,
            device,
            self.out,
            self.save_seconds,
            self.track,
            planned,
            keep_checkpoints=self.keep_checkpoints,
            engine=engine,
        )


UNCHANGED = Changes()
LAST = View()
NO_DATA = DataOptions()
AS_USUAL = Kept()

# The names are those of their groups in the help; the options have no prefix.
Recipe = Annotated[Changes, tyro.conf.arg(name="recipe")]
OwnData = Annotated[DataOptions, tyro.conf.arg(name="data")]
Judged = Annotated[View, tyro.conf.arg(name="judging")]
Output = Annotated[Kept, tyro.conf.arg(name="output")]
TaskName = Annotated[
    str | None, tyro.conf.Positional, hinted("[TASK]", "(default: digits, unless --data)")
]
LossNames = Annotated[tuple[str, ...], tyro.conf.arg(metavar="LOSS [LOSS ...]")]
Sizes = Annotated[tuple[int, ...], hinted("N [N ...]", "(default: the task's)")]
Size = Annotated[int | None, task_default("N")]
