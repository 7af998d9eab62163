"""Runs on a Ray cluster: what is lost is trained elsewhere, what is wrong is a sentence."""

import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from penex import cli
from penex.lab import tasks
from penex.lab.ground.errors import Interrupted, LabError
from penex.lab.records import Record
from penex.lab.tasks.own import own
from penex.lab.tasks.runs import LossSpec, Run, plan
from penex.lab.training import Hooks, Place, on_ray, packing
from penex.lab.training.compare import Comparison, compare
from penex.lab.training.place import Portion
from penex.lab.training.sinks import Tracker
from penex.report import results, tables

_OWN_LOSS = """
from penex.baselines import FocalLoss

class Doubled(FocalLoss):
    def values(self, batch):
        return 2 * super().values(batch)
"""
_STORE = 100 * 2**20  # bytes of memory for what travels
_DEATH = {"health_check_period_ms": 500, "health_check_failure_threshold": 2}  # is noticed soon


@contextmanager
def two_nodes() -> Iterator[Any]:
    """A cluster of two nodes with a core each, beside the one that this process belongs to."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": _STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": _DEATH})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=_STORE)
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def own_comparison(folder: Path) -> Comparison:
    """Of a user's own loss, on data of which the nodes have no file."""
    (folder / "loss_on_ray.py").write_text(_OWN_LOSS)
    found = load_digits()
    path = folder / "mine.npz"
    np.savez(path, x_train=found.data[:150], y_train=found.target[:150])
    task, _ = own(path, model="mlp")
    path.unlink()
    losses = ("ce", "loss_on_ray:Doubled")
    return Comparison(task, losses, seeds=2, changes={"epochs": 20, "batch_size": 32})


@pytest.mark.slow
def test_a_comparison_outlives_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table is the local one, and so is every file that a run leaves of its training."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (nodes := tmp_path / "nodes").mkdir()
    monkeypatch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # its sockets need a short path
    monkeypatch.setenv("TMPDIR", str(nodes))
    comparison = own_comparison(tmp_path)
    said: list[str] = []
    killed: list[str] = []
    with one_thread():
        listing = compare(comparison, Place(tmp_path / "local"), pack=2)
        with two_nodes() as cluster:

            def kill(run: Run, line: Any) -> None:
                if not killed:  # the first that took part, and no run is at its end
                    killed.append(next(t.split()[1] for t in said if t.endswith("takes part.")))
                    [node] = [n for n in cluster.worker_nodes if n.node_id.startswith(killed[0])]
                    cluster.remove_node(node, allow_graceful=False)

            hooks = Hooks(epoch=kill, say=said.append)
            place = Place(tmp_path / "ray", hooks=hooks, engine=on_ray.OnRay("auto"))
            assert compare(comparison, place, pack=2)["runs"] == listing["runs"]
            check_what_goes_wrong(place, comparison)
    assert sum(f"lost with node {killed[0]}" in text for text in said) == 2
    shown = []
    for name in ("local", "ray"):
        found = results.load(tmp_path / name / comparison.task.name, listing)
        shown.append(tables.markdown(found))
    assert shown[0] == shown[1]
    for run in comparison.runs:
        one, other = (Record.of(tmp_path / name, run.config) for name in ("local", "ray"))
        for name in ("metrics.jsonl", "model.safetensors"):
            assert one.content(name) == other.content(name)
        other.verify()


def check_what_goes_wrong(place: Place, comparison: Comparison) -> None:
    """On the node that is left: an error is the sentence it is here, and a stop is a stop."""
    run = comparison.runs[0]
    assert place.engine is not None
    wrong = replace(run, recipe=replace(run.recipe, augment="flip"), seed=2)
    with pytest.raises(LabError, match=r"^--augment flip is for images"):
        place.engine([Portion([wrong])], place)
    long = replace(run, recipe=replace(run.recipe, epochs=100_000))
    begun: list[Run] = []
    hooks = Hooks(begin=lambda run, _: begun.append(run), stop=lambda: bool(begun))
    with pytest.raises(Interrupted):
        place.engine([Portion([long])], replace(place, hooks=hooks))
    assert not place.record(long).folder.exists()


class Elsewhere:
    """An engine that is here, and remembers what it was handed."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.portions: list[Portion] = []

    def __call__(self, portions: list[Portion], place: Place) -> None:
        self.portions += portions
        for portion in portions:
            packing.train_portion(portion, replace(place, engine=None))


def test_an_engine_gets_what_is_left_cut_as_it_would_be_here(tmp_path: Path) -> None:
    task = tasks.find("digits")
    changes = {"epochs": 1}
    some = [
        plan(task, LossSpec.parse(loss), seed, 40, changes)
        for seed in range(2)
        for loss in ("ce", "penex")
    ]
    runs = [*some, replace(some[0], train_size=50)]
    done: list[tuple[Run, bool]] = []
    hooks = Hooks(done=lambda run, record, reused: done.append((run, reused)))
    for most, kinds in ((2, [2, 1, 1]), (1, [0, 0, 0, 0])):
        engine = Elsewhere()
        place = Place(tmp_path / str(most), hooks=hooks)
        packing.train(runs[:1], place, most)
        done.clear()
        packing.train(runs, replace(place, engine=engine), most)
        assert [len(portion.names) for portion in engine.portions] == kinds
        assert [run for portion in engine.portions for run in portion.runs] == runs[1:]
        assert done == [(runs[0], True), *((run, False) for run in runs[1:])]


def test_news_of_a_run_that_is_here_is_old(tmp_path: Path) -> None:
    """Nothing has a task's news arrive before its result."""
    runs = [plan(tasks.find("digits"), LossSpec("ce"), seed, 40, {}) for seed in range(2)]
    told: list[tuple[str, int]] = []
    hooks = Hooks(
        begin=lambda run, epochs: told.append(("begin", run.seed)),
        epoch=lambda run, line: told.append(("epoch", run.seed)),
    )
    news = on_ray._News(runs, Place(tmp_path, hooks=hooks))
    news.pass_on([("begin", 0, "a"), ("epoch", 0, {}), ("begin", 1, "a")])
    news.over(runs[:1])
    news.pass_on([("begin", 0, "b"), ("epoch", 0, {}), ("epoch", 1, {})])
    assert told == [("begin", 0), ("epoch", 0), ("begin", 1), ("epoch", 1)]

    tracker = Tracker("tensorboard", tmp_path)
    tracker.begin(runs[0].config)
    tracker.end(runs[0].config)
    tracker.epoch(runs[0].config, {})


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("words", "variables", "sentence"),
    [
        ([], {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "x", "MASTER_PORT": "1"}, "torchrun"),
        (["--device", "cuda:1"], {}, "--device is auto, cpu or cuda; got 'cuda:1'"),
        (["--storage", "postgresql://x/y"], {}, "--engine ray has them trained by the nodes"),
        ([], {"RAY_ADDRESS": f"127.0.0.1:{closed_port()}"}, "No Ray cluster answers at"),
        ([], {}, "--engine ray needs Ray: pip install '.[ray]'"),
    ],
)
def test_what_is_wrong_is_a_sentence(
    words: list[str],
    variables: dict[str, str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if "RAY_ADDRESS" in variables:
        pytest.importorskip("ray")
    else:
        monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit) as ended:
        cli.main(["compare", "--engine", "ray", "--out", str(tmp_path), *words])
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert sentence in line
