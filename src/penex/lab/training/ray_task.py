"""What a Ray task does: train a portion of runs on its node, and send back what they leave."""

import math
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import penex
from penex.lab.ground import environment, files
from penex.lab.ground.errors import LabError
from penex.lab.records import Json, parcels
from penex.lab.records.reading import CONFIG, difference
from penex.lab.tasks.runs import Run
from penex.lab.training import packing
from penex.lab.training.place import Hooks, Place, Portion


@dataclass(frozen=True)
class Order:
    """What a task has to know of the process that asks for it.

    Attributes:
        version: of penex.
        device: where to train.
        threads: how many on a CPU.
        folder: the working directory.
        path: where modules are looked for: a user's own loss or model may be there.
        data: where official files lie.
        scratch: a folder on the machine that asks, which clears it away if a task cannot.
    """

    version: str
    device: str
    threads: int
    folder: str
    path: list[str]
    data: str
    scratch: str

    def follow(self) -> None:
        """Make this process, a worker of Ray's, like the one that asks."""
        if self.version != penex.__version__:
            raise LabError(
                f"A node has penex {penex.__version__}, not {self.version}: install the same "
                "version on all nodes."
            )
        with suppress(OSError):  # it is another machine, without this folder
            os.chdir(self.folder)
        sys.path += [entry for entry in self.path if entry not in sys.path]
        os.environ.setdefault("PENEX_DATA", self.data)
        if self.device == "cpu":
            torch.set_num_threads(self.threads)


class Board:
    """The actor that all tasks tell how they go on, in the order in which they do."""

    def __init__(self) -> None:
        self._news: list[tuple[Any, ...]] = []

    def tell(self, *news: Any) -> None:
        """Add something."""
        self._news.append(news)

    def read(self) -> list[tuple[Any, ...]]:
        """What was told since the last time."""
        news, self._news = self._news, []
        return news


def carry_out(
    order: Order,
    shared: list[Any],
    numbers: list[int],
    names: list[str],
    others: dict[str, Json],
    facts: Json | None,
    board: Any,
) -> list[bytes] | str:
    """The task: train a portion; the parcels of its runs, or a sentence on what went wrong."""
    import ray

    node = ray.get_runtime_context().get_node_id()[:8]
    try:
        order.follow()
        every: list[Run] = ray.get(shared[0])
        runs = [every[number] for number in numbers]
        known = {id(run): number for run, number in zip(runs, numbers, strict=True)}
        hooks = Hooks(
            begin=lambda run, _: board.tell.remote("begin", known[id(run)], node),
            epoch=lambda run, line: board.tell.remote("epoch", known[id(run)], line),
            say=lambda text: board.tell.remote("say", text),
            save_seconds=math.inf,  # a checkpoint would go with the node
        )
        above = order.scratch if os.path.isdir(order.scratch) else None
        with tempfile.TemporaryDirectory(prefix="penex-", dir=above) as folder:
            place = Place(Path(folder), environment.device_of(order.device), hooks)
            for name, config in others.items():
                (place.out / name).mkdir(parents=True)
                files.write_json(place.out / name / CONFIG, config)
            place.data(runs[0])
            if other := difference(facts, place.facts(runs[0])):
                raise LabError(
                    f"Node {node} of the Ray cluster has other data of {runs[0].task.name} than "
                    f"this machine: the checksum{other}."
                )
            packing.train_portion(Portion(runs, names), place)
            return [parcels.pack(place.record(run)) for run in runs]
    except LabError as error:
        return str(error)
    except (OSError, ImportError, ray.exceptions.RaySystemError) as error:
        return f"Node {node} of the Ray cluster has not what it needs: {error}"
