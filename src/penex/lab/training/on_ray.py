"""Packs of runs as Ray tasks: on a cluster that is there, or on one of this machine alone.

A task trains one portion (a pack, or a run alone) in a temporary folder of its node and sends back
what its runs leave; this process puts it where local runs lie, so nodes need not share a disk. A
portion whose node is lost starts again on another. What is cut into which packs is decided here, as
it is for this machine: so the results are the same.
"""

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import torch

import penex
from penex.installing import install
from penex.lab import tasks
from penex.lab.ground.errors import Interrupted, LabError
from penex.lab.ground.processes import launched
from penex.lab.ground.sentences import count
from penex.lab.records import Json, Record, parcels
from penex.lab.records.reading import CONFIG
from penex.lab.tasks.runs import Run
from penex.lab.training.packed import name_of
from penex.lab.training.place import Place, Portion
from penex.lab.training.ray_task import Board, Order, carry_out

_TRIES = 5  # how often a portion starts again: more often it is the portion that kills nodes
_LOOK_SECONDS = 0.2  # between two looks at the news
_REACH_SECONDS = 5.0  # a cluster that does not answer by then is not there
_FAREWELL_SECONDS = 10.0  # for tasks that are stopped to clear their folders away


@contextmanager
def joined(device: str) -> Iterator["OnRay"]:
    """The Ray cluster that RAY_ADDRESS or `ray start` says; a local one if there is none.

    Args:
        device: where to train: cpu, cuda, or auto for GPUs if the cluster has any.
    """
    if launched():
        raise LabError(
            "torchrun has several processes train one model, and --engine ray has runs trained on "
            "several nodes: leave one of them out."
        )
    if device not in ("auto", "cpu", "cuda"):
        raise LabError(
            f"Ray decides which GPU trains what: with --engine ray, --device is auto, cpu or cuda; "
            f"got {device!r}."
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would call home
    try:
        import ray
    except ModuleNotFoundError as error:
        raise LabError(f"--engine ray needs Ray: {install('ray')}.") from error
    ours = not ray.is_initialized()
    if ours:
        _check_address(os.environ.get("RAY_ADDRESS", ""))
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        except (OSError, RuntimeError, ValueError) as error:
            raise LabError(f"Ray cannot be started or reached: {error}") from error
    with tempfile.TemporaryDirectory(prefix="penex-ray-") as scratch:
        try:
            # Ray prints what becomes of its nodes, and standard output is for tables.
            with redirect_stdout(sys.stderr):
                yield OnRay(device, scratch)
        finally:
            if ours:
                ray.shutdown()


def _check_address(address: str) -> None:
    """A LabError if nobody answers there: Ray would end this process after a minute."""
    host, _, port = address.partition("//")[2 if "//" in address else 0].rpartition(":")
    if not host or not port.isdecimal():
        return  # auto, local, or none: Ray looks for itself
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise LabError(
            f"No Ray cluster answers at RAY_ADDRESS={address} ({error}): `ray start --head` starts "
            "one; without RAY_ADDRESS this machine is used."
        ) from error


@dataclass
class OnRay:
    """An engine: whoever carries out portions as Ray tasks.

    Args:
        wanted: where to train: auto, cpu or cuda.
        scratch: the folder for what is trained on this machine; empty for the usual one.
    """

    wanted: str
    scratch: str = ""
    device: torch.device = field(init=False)

    def __post_init__(self) -> None:
        import ray

        self._nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = sum(node.get("GPU", 0) for node in self._nodes)
        if self.wanted == "cuda" and not gpus:
            raise LabError("The Ray cluster has no GPU: --device cpu, or add a node that has one.")
        self.device = torch.device("cuda" if gpus and self.wanted != "cpu" else "cpu")
        # As many threads as here, for the same last bits; no node has to have more than it has.
        most = int(max((node.get("CPU", 0) for node in self._nodes), default=0))
        if not most:
            raise LabError("The Ray cluster has no CPU for a task.")
        self._threads = min(torch.get_num_threads(), most) if self.device.type == "cpu" else 1

    def __str__(self) -> str:
        kind = "GPU" if self.device.type == "cuda" else "CPU"
        nodes = [node for node in self._nodes if node.get(kind, 0)]
        cores = "" if kind == "GPU" else f", {count(self._threads, 'core')} a pack"
        return (
            f"{count(len(nodes), 'node')} of Ray's with "
            f"{count(int(sum(node[kind] for node in nodes)), kind)}{cores}"
        )

    def __call__(self, portions: list[Portion], place: Place) -> None:
        """Carry portions out; their records lie in the place's folder as they arrive."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        gpus = float(self.device.type == "cuda")
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        board = ray.remote(Board).options(num_cpus=0, scheduling_strategy=here).remote()
        task = ray.remote(carry_out).options(
            num_cpus=self._threads, num_gpus=gpus, max_retries=_TRIES
        )
        runs = [run for portion in portions for run in portion.runs]
        news = _News(runs, place)
        shared = ray.put(runs)  # once: with a user's own data, which travel along
        order = self._order()
        under_way = {}
        for portion in portions:
            known = {id(run): number for number, run in enumerate(runs)}
            numbers = [known[id(run)] for run in portion.runs]
            facts = place.facts(portion.runs[0])
            others = _others(portion, place)
            # In a list the runs are not read before the task has followed its order.
            ref = task.remote(order, [shared], numbers, portion.names, others, facts, board)
            under_way[ref] = portion
        try:
            while under_way:
                if place.hooks.stop():
                    raise Interrupted
                ready, _ = ray.wait(list(under_way), timeout=_LOOK_SECONDS)
                news.pass_on(ray.get(board.read.remote()))
                for ref in ready:
                    portion = under_way.pop(ref)
                    _receive(ref, portion, place)
                    news.over(portion.runs)
        finally:
            for ref in under_way:
                ray.cancel(ref)
            if under_way:
                ray.wait(list(under_way), num_returns=len(under_way), timeout=_FAREWELL_SECONDS)
            ray.kill(board)

    def _order(self) -> Order:
        return Order(
            penex.__version__,
            self.device.type,
            self._threads,
            os.getcwd(),
            [entry for entry in sys.path if entry],
            str(tasks.data_root().resolve()),
            self.scratch,
        )


def _others(portion: Portion, place: Place) -> dict[str, Json]:
    """The configurations of those in a pack that are done already: others stand in for them."""
    ours = {name_of(run) for run in portion.runs}
    records = {name: Record(place.out / name) for name in portion.names if name not in ours}
    return {name: record.config() for name, record in records.items() if record.has(CONFIG)}


@dataclass
class _News:
    """What is told of the tasks, as the hooks of a local run would be told it."""

    runs: list[Run]
    place: Place
    _begun: dict[int, str] = field(default_factory=dict)
    _nodes: set[str] = field(default_factory=set)
    _over: set[int] = field(default_factory=set)

    def over(self, runs: list[Run]) -> None:
        """The records of these are here: what is told of them later is old."""
        self._over |= {id(run) for run in runs}

    def pass_on(self, news: list[tuple[Any, ...]]) -> None:
        """Tell the hooks."""
        hooks = self.place.hooks
        for kind, *what in news:
            if kind == "say":
                hooks.say(*what)
            elif id(self.runs[what[0]]) in self._over:
                continue
            elif kind == "epoch":
                number, line = what
                hooks.epoch(self.runs[number], line)
            else:
                self._begin(*what)

    def _begin(self, number: int, node: str) -> None:
        run, hooks = self.runs[number], self.place.hooks
        hooks.begin(run, 0)
        if node not in self._nodes:
            self._nodes.add(node)
            hooks.say(f"Node {node} takes part.")
        if number in self._begun:
            lost = self._begun[number]
            hooks.say(f"{name_of(run)} was lost with node {lost}: node {node} begins it anew.")
        self._begun[number] = node


def _receive(ref: Any, portion: Portion, place: Place) -> None:
    """Put what a task sent where local runs lie; raise what went wrong there."""
    import ray

    try:
        content = ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        if "failed to import" not in str(error.cause):
            raise
        raise LabError(
            "A node of the Ray cluster cannot import penex: install the same version on all nodes."
        ) from error
    except ray.exceptions.RayError as error:
        more = f" and {count(len(portion.runs) - 1, 'run')} more" if portion.runs[1:] else ""
        raise LabError(
            f"{name_of(portion.runs[0])}{more} went down with {count(_TRIES + 1, 'node')} or "
            f"processes of Ray's, the last time so: {str(error).splitlines()[0]} What arrived is "
            "kept; the same command goes on."
        ) from error
    if isinstance(content, str):
        raise LabError(content)
    if portion.names:
        for run in portion.runs:  # if we are killed between two of them, the pack is still known
            record = place.record(run)
            record.folder.mkdir(parents=True, exist_ok=True)
            record.join(portion.names)
    for run, parcel in zip(portion.runs, content, strict=True):
        record = parcels.unpack(parcel, place.record(run).folder)
        place.hooks.done(run, record, False)
