"""Texts a second in fine-tuning: our loop, a plain loop, and the Trainer of transformers.

Run it with `python -m benchmarks.text [--data FOLDER] [--encoder FOLDER]`. All train the same
encoder on the same batches of the same articles (of BBC News, or of random words) by the recipe of
bbc_news: AdamW, two micro-batches of 4, clip 5. Our step is measured as it trains (batches are cut
to their longest text; on a GPU it is recorded), with batches of texts that are alike in length, and
not recorded.
The Trainer needs accelerate and is left out where that is missing. Ways take turns; the middle
round counts. On a CPU it is the processor's time that counts, of all threads: others may use it
meanwhile. `--write FILE` keeps it as JSON with device and versions.
"""

import argparse
import copy
import importlib.util
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks._main import positive, run
from penex.lab import tasks, training
from penex.lab.data import Collection, Data
from penex.lab.data.split import split
from penex.lab.data.texts import Text, Texts, collection
from penex.lab.engine.learner import Learner
from penex.lab.engine.replayed import LONG, Replayed
from penex.lab.engine.step import HISTORY
from penex.lab.ground import chance, environment
from penex.lab.models.encoder import SMALL, Encoder
from penex.lab.tasks import Task, runs

_ROUNDS = 4  # the first warms up
_MICRO = 4  # texts


Way = Callable[[], float]  # trains on every batch; the seconds that it took


@dataclass(frozen=True)
class Setting:
    """What every way trains.

    Attributes:
        run: the task with its recipe.
        data: on the device.
        batches: rows of the training part, 8 each.
        device: where.
    """

    run: runs.Run
    data: Data
    batches: list[Tensor]
    device: torch.device

    def clock(self) -> float:
        """The time in seconds, once all that was begun is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.process_time() if self.device.type == "cpu" else time.perf_counter()

    @property
    def pad(self) -> int:
        """The id that is no token."""
        assert self.run.task.encoder is not None
        return self.run.task.encoder.tokenizer.pad

    @property
    def lengths(self) -> Tensor:
        """The tokens of each training text."""
        return (self.data.train.inputs[self.data.train.index] != self.pad).sum(1)

    def learner(self) -> Learner:
        """A fresh one."""
        with training.settings(self.run.recipe, self.device):
            return training.learner_of(self.run, self.data, self.device)

    def network(self) -> Any:
        """The network of transformers, apart from our engine's flat tensors."""
        network: Any = copy.deepcopy(self.learner().module.network)
        for parameter in network.parameters():
            parameter.data, parameter.grad = parameter.detach().clone(), None
        return network.train()


def words(encoder: Encoder) -> Collection:
    """Articles of random words, about as long as those of BBC News."""
    draw = random.Random(0)
    known = ("rain", "goal", "vote", "film", "share", "chip", "court", "bank", "match", "price")
    made = [
        Text(str(k), str(k % 5), " ".join(draw.choices(known, k=draw.randint(150, 700))))
        for k in range(300)
    ]
    return collection({"train": Texts(tuple(made))}, encoder.tokenizer, {"source": "noise"})


def ours(setting: Setting, batches: Sequence[Tensor], *, recorded: bool = True) -> Way:
    """Our step over some batches; recorded where there is a GPU."""
    learner, data = setting.learner(), setting.data
    learner.train()
    step = Replayed(learner, data, LONG if recorded else 0)
    widths = step.widths([batch.cpu() for batch in batches])
    rate = torch.tensor(setting.run.recipe.lr, dtype=learner.wide, device=setting.device)
    row = torch.zeros(len(HISTORY), dtype=learner.wide, device=setting.device)

    def steps() -> float:
        began = setting.clock()
        for k, (batch, width) in enumerate(zip(batches, widths, strict=True)):
            chance.sow(k)
            step(batch, rate, row, width)
        return setting.clock() - began

    return steps


def plain(setting: Setting) -> Way:
    """The loop that a user of torch would write, around the same network."""
    recipe, part, network = setting.run.recipe, setting.data.train, setting.network()
    parameters = list(network.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay)

    def steps() -> float:
        began = setting.clock()
        for batch in setting.batches:
            for micro in torch.split(batch, _MICRO):
                ids = part.batch(micro)
                kept = ids != setting.pad
                width = int(kept.sum(1).max())
                inputs = {"input_ids": ids[:, :width].long(), "attention_mask": kept[:, :width]}
                loss = network(**inputs, labels=part.targets[micro]).loss
                (loss / 2).backward()
            torch.nn.utils.clip_grad_norm_(parameters, recipe.clip or 0.0)
            optimizer.step()
            optimizer.zero_grad()
        return setting.clock() - began

    return steps


def trainer(setting: Setting, folder: str) -> Way:
    """The Trainer of transformers over the same batches."""
    import transformers

    recipe, part, network = setting.run.recipe, setting.data.train, setting.network()
    rows = [
        {"ids": part.batch(row[None])[0].cpu(), "label": int(part.targets[row])}
        for batch in setting.batches
        for row in batch
    ]

    def collate(some: list[dict[str, Any]]) -> dict[str, Tensor]:
        ids = torch.stack([one["ids"] for one in some])
        kept = ids != setting.pad
        width = int(kept.sum(1).max())
        return {
            "input_ids": ids[:, :width].long(),
            "attention_mask": kept[:, :width].long(),
            "labels": torch.tensor([one["label"] for one in some]),
        }

    class InOrder(transformers.Trainer):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(rows)

    arguments = transformers.TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=_MICRO,
        gradient_accumulation_steps=2,
        num_train_epochs=1,
        learning_rate=recipe.lr,
        weight_decay=recipe.weight_decay,
        lr_scheduler_type="linear",
        max_grad_norm=recipe.clip or 0.0,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        use_cpu=setting.device.type == "cpu",
    )

    class Watch(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:  # it has prepared all by then
            self.began = setting.clock()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.seconds = setting.clock() - self.began

    watch = Watch()
    made = InOrder(
        model=network,
        args=arguments,
        train_dataset=rows,
        data_collator=collate,
        callbacks=[watch],
    )

    def steps() -> float:
        made.train()
        return watch.seconds

    return steps


def ways(setting: Setting, folder: str) -> dict[str, Way]:
    """What is measured, by name; each call trains on every batch once."""
    alike = torch.split(setting.lengths.argsort(), 8)
    found = {
        "ours": ours(setting, setting.batches),
        "ours, batches of like lengths": ours(setting, alike),
        "ours, step by step": ours(setting, setting.batches, recorded=False),
        "a plain loop": plain(setting),
    }
    if importlib.util.find_spec("accelerate") is not None:
        found["transformers.Trainer"] = trainer(setting, folder)
    else:
        print("The Trainer is left out: it needs accelerate.")
    return found


def measure(setting: Setting) -> dict[str, float]:
    """Texts a second of each way."""
    seconds: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        training.settings(setting.run.recipe, setting.device),
    ):
        made = ways(setting, folder)
        for _ in range(_ROUNDS):
            for name, steps in made.items():
                seconds.setdefault(name, []).append(steps())
    texts = sum(map(len, setting.batches))
    return {name: texts / statistics.median(some[1:]) for name, some in seconds.items()}


def setting_of(options: argparse.Namespace) -> Setting:
    """The task of the options, on its device."""
    device, encoder = environment.device_of(options.device), Encoder(options.encoder)
    task: Task = tasks.encoded(tasks.find("bbc_news"), options.encoder)
    found = words(encoder) if options.data is None else task.collect(options.data)
    data = split(found.to(device), 0, 8 * options.steps, val=10, test=10)
    run_ = runs.plan(task, runs.LossSpec("ce"), 0, 8 * options.steps)
    rows = torch.arange(len(data.train), device=device)
    return Setting(run_, data, list(torch.split(rows, 8)), device)


def main() -> None:
    """Print the rates and their ratios to ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--encoder", default=SMALL)
    parser.add_argument("--steps", type=positive, default=25, help="of 8 texts, in a round")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    setting = setting_of(options)
    found = measure(setting)
    for name, rate in found.items():
        print(f"{name:36} {rate:8.1f} texts a second, {rate / found['ours']:.2f} of ours")
    if options.write is not None:
        facts = {**environment.describe(setting.device), "texts_a_second": found}
        options.write.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    run(main)
