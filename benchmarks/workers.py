"""How many workers one PostgreSQL server bears: python -m benchmarks.workers --write FILE.

Stand-ins take packs, sleep instead of training and hand them over, with penex's own statements and
connections. They are threads of a few processes without torch, on the machine of the server, whose
cores they share: a server of its own bears more. Three kinds of load: looks of workers that wait,
packs of a study's kind (a lease and no more: Optuna's part is timed apart, see
benchmarks.worker_costs), and packs of a comparison, ten records each.
"""

import argparse
import functools
import importlib.metadata
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import penex
from benchmarks import workers_record
from benchmarks._main import positive, run
from benchmarks._postgres import Server, binaries
from penex.lab.ground.errors import LabError
from penex.lab.workers import comparisons, leases, server

PACK = 10  # records
TRAINING = 10.0  # seconds that a pack takes: less than one of digits on two cores
_LIBRARIES = ("optuna", "psycopg", "sqlalchemy")
_JOB = "comparison stand-in 0"
_PROCESSES = 8
_RATE = 60e6  # bytes a second, about: each worker is to hand over two packs or so of records,
_LONGEST = 70.0  # if that does not take longer than this, in seconds
_SPARE = 20_000  # packs that nobody comes to the end of


@dataclass(frozen=True)
class Load:
    """What stand-ins do.

    Attributes:
        name: of this load.
        workers: how many.
        parcel: the bytes of a record; 0 if none is handed over.
        training: how long a pack is slept for, in seconds.
        pooled: whether those of a process share connections; else each question has its own, as
            penex does it.
        waiting: whether all packs are others'.
        seconds: how long to measure.
    """

    name: str
    workers: int
    parcel: int = 0
    training: float = 0.0
    pooled: bool = False
    waiting: bool = False
    seconds: float = 8.0


@dataclass
class Times:
    """What a stand-in saw: how long each call took, in seconds.

    Attributes:
        take: to look for a pack.
        hand_over: a pack.
        refused: how often the server did not answer.
    """

    take: list[float] = field(default_factory=list)
    hand_over: list[float] = field(default_factory=list)
    refused: int = 0


class StandIn:
    """A worker that sleeps instead of training.

    Args:
        load: what it does.
        there: the server.
        until: when to stop, by time.monotonic, which is the machine's.
    """

    def __init__(self, load: Load, there: server.Server, until: float) -> None:
        self.load, self.there, self.until, self.times = load, there, until, Times()
        self._patience = server.Patience(there, self._refused, self._is_over)
        self._record = os.urandom(load.parcel)

    def _refused(self, text: str) -> None:
        self.times.refused += 1

    def _is_over(self) -> bool:
        return time.monotonic() > self.until

    def work(self) -> None:
        """Take packs and hand them over until the time is over."""
        while not self._is_over():
            lease = self._timed(self.times.take, self._look)
            if lease is None:
                continue
            with leases.renewed(lease, self._patience):
                time.sleep(self.load.training)
                self._timed(self.times.hand_over, functools.partial(self._hand_over, lease))

    def _timed(self, times: list[float], act: Callable[[], Any]) -> Any:
        began = time.monotonic()
        found = self._patience.once(lambda: (act(),))
        if found is None:
            time.sleep(1.0)  # as penex does where a server does not answer
            return None
        if time.monotonic() <= self.until:
            times.append(time.monotonic() - began)
        return found[0]

    def _look(self) -> leases.Lease | None:
        with self.there.engine.begin() as connection:
            lease = leases.take(connection, [_JOB], leases.SECONDS)
            if lease is None:
                leases.open_packs(connection, [_JOB])
            return lease

    def _hand_over(self, lease: leases.Lease) -> None:
        with server.transaction(self.there) as connection:
            assert leases.is_held(connection, lease)
            for number in lease.numbers if self.load.parcel else ():
                comparisons.put(connection, _JOB, number, self._record)
            leases.end(connection, lease)


def _process(load: Load, url: str, ready: Any, results: Any) -> None:
    """One of the processes: its share of the workers, as threads."""
    assert "torch" not in sys.modules
    engine = server.engine_of(url)
    if load.pooled:
        import sqlalchemy

        engine = sqlalchemy.create_engine(server.with_driver(url), pool_size=10, max_overflow=0)
    there = server.Server(engine, "the stand-in")
    there.engine.connect().close()
    ready.wait()
    until = time.monotonic() + load.seconds
    standins = [StandIn(load, there, until) for _ in range(load.workers)]
    threads = [threading.Thread(target=one.work) for one in standins]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put([vars(one.times) for one in standins])
    engine.dispose()


def measured(load: Load, url: str) -> dict[str, Any]:
    """What a load came to."""
    _prepared(load, url)
    count = min(load.workers, _PROCESSES)
    shares = [load.workers // count + (k < load.workers % count) for k in range(count)]
    context = multiprocessing.get_context("fork")  # light: they share what is imported
    ready, results = context.Barrier(count), context.Queue()
    processes = [
        context.Process(target=_process, args=(replace(load, workers=share), url, ready, results))
        for share in shares
    ]
    for process in processes:
        process.start()
    times = [one for _ in processes for one in results.get()]
    for process in processes:
        process.join()
    take = [seconds for one in times for seconds in one["take"]]
    hand_over = [seconds for one in times for seconds in one["hand_over"]]
    calls = take if load.waiting else hand_over
    return {
        "load": load.name,
        "workers": load.workers,
        "pooled": load.pooled,
        "training": load.training,
        "seconds": round(load.seconds, 1),
        "pack": load.parcel * PACK,
        "an_hour": round(3600 * len(calls) / load.seconds),
        "in_database": round(sum(take + hand_over) / (load.workers * load.seconds), 4),
        "take_ms": _quantiles(take),
        "hand_over_ms": _quantiles(hand_over),
        "refused": sum(one["refused"] for one in times),
    }


def _quantiles(seconds: list[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {}
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {f"p{k}": round(1000 * cuts[k - 1], 1) for k in (50, 90, 99)}


def _prepared(load: Load, url: str) -> None:
    """A comparison with packs for all."""
    there = server.Server(server.engine_of(url), "the stand-in")
    with there.engine.begin() as connection:
        leases.prepare(connection)
        comparisons.prepare(connection)
        comparisons.make(connection, _JOB, comparisons.Kept([], PACK, {}))
        packs = 200 if load.waiting else _SPARE
        server.call(
            connection,
            "INSERT INTO penex_leases (job, first, numbers) SELECT :job, :pack * k, ARRAY(SELECT "
            "generate_series(:pack * k, :pack * k + :pack - 1)) FROM generate_series(0, :n - 1) k",
            job=_JOB, pack=PACK, n=packs,
        )  # fmt: skip
        if load.waiting:
            owned = "UPDATE penex_leases SET owner = 'x', version = :version, expires = 'infinity'"
            server.call(connection, owned, version=penex.__version__)
    with there.engine.connect() as connection:  # VACUUM is for no transaction
        alone = connection.execution_options(isolation_level="AUTOCOMMIT")
        server.call(alone, "VACUUM ANALYZE penex_leases")


def loads(parcels: dict[str, int], counts: tuple[int, ...], seconds: float) -> Iterator[Load]:
    """All that is measured."""
    for workers in counts:
        yield Load("waiting", workers, waiting=True, seconds=seconds)
        yield Load("leases", workers, seconds=seconds)
        yield Load("leases", workers, pooled=True, seconds=seconds)
        yield Load("leases", workers, training=TRAINING, seconds=3 * TRAINING)
        for name, size in parcels.items():
            rounds = max(seconds, 2 * workers * PACK * size / _RATE)
            if rounds <= _LONGEST:
                yield Load(f"{name} records", workers, size, seconds=rounds)


@contextmanager
def started() -> Iterator[Server]:
    """A server with the settings that it comes with."""
    found = binaries()
    if found is None:
        raise LabError("This needs PostgreSQL's initdb and pg_ctl: install postgresql.")
    with tempfile.TemporaryDirectory(prefix="penex-") as name:
        there = Server(found, Path(name), durable=True)
        there.start()
        try:
            yield there
        finally:
            there.stop()


def costs(url: str) -> dict[str, Any]:
    """What benchmarks.worker_costs says, in a process of its own: it needs torch."""
    words = [sys.executable, "-m", "benchmarks.worker_costs", "--storage", url]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=positive, nargs="+", default=[10, 50, 100, 200])
    parser.add_argument("--seconds", type=float, default=8.0, help="for each load, at least")
    parser.add_argument("--write", type=Path, help="a file for the record, as JSON")
    options = parser.parse_args()
    with started() as there:
        busy = os.getloadavg()[0]  # of others: what is measured has not begun
        found = costs(there.database("studies"))
        facts = "SELECT current_setting('server_version'), current_setting('max_connections')"
        ((version, most),) = there.execute(facts)
        record = {
            **found,
            "versions": {name: importlib.metadata.version(name) for name in _LIBRARIES},
            "postgresql": {"version": version, "max_connections": int(most)},
            "cores": os.cpu_count(),
            "load_before": round(busy, 2),
            "rows": [],
        }
        for load in loads(found["parcels"], tuple(options.workers), options.seconds):
            row = measured(load, there.database("packs"))
            there.execute("DROP DATABASE packs")
            record["rows"].append(row)
            print(_line(row), flush=True)
    print(workers_record.told(record))
    if options.write is not None:
        options.write.write_text(json.dumps(record, indent=1) + "\n")


def _line(row: dict[str, Any]) -> str:
    kind = row["load"] + (", pooled" if row["pooled"] else "")
    kind += f", {row['training']:.0f} s of training" if row["training"] else ""
    return (
        f"{row['workers']:4} workers, {kind:30} {row['an_hour']:9,} an hour, "
        f"{row['in_database']:6.1%} of their time in the database, take {row['take_ms']} ms, hand "
        f"over {row['hand_over_ms']} ms, refused {row['refused']}"
    )


if __name__ == "__main__":
    run(main)
