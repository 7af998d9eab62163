"""How long a comparison takes: said early, and right where every epoch costs the same."""

from dataclasses import replace

import pytest

from penex.lab import tasks
from penex.lab.tasks.runs import LossSpec, Run, plan
from penex.lab.training.pace import Pace


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def planned(seeds: int, epochs: int, size: int = 100) -> list[Run]:
    task = tasks.find("digits")
    spec = LossSpec.parse("ce")
    return [plan(task, spec, seed, size, {"epochs": epochs}) for seed in range(seeds)]


def test_one_run_after_another() -> None:
    clock, runs = Clock(), planned(3, epochs=4)
    pace = Pace(runs, clock)
    assert (pace.seconds, pace.words()) == (None, "")
    pace.done(runs[0])  # it was there already
    pace.begin(runs[1], 0)
    assert pace.seconds is None
    clock.now += 5
    pace.epoch(runs[1], 1)
    assert pace.seconds == pytest.approx(5 * 7)
    clock.now += 15
    pace.epoch(runs[1], 4)
    pace.done(runs[1])
    assert pace.seconds == pytest.approx(20)
    pace.begin(runs[2], 2)  # it was stopped half-way
    assert pace.seconds == pytest.approx(10)
    assert pace.words() == "about 10 s left"


def test_the_runs_of_a_pack_count_together() -> None:
    clock, runs = Clock(), planned(4, epochs=10)
    pace = Pace(runs, clock)
    for run in runs[:2]:
        pace.begin(run, 0)
    clock.now += 8
    pace.epoch(runs[0], 1)  # the other one's epoch is over, too
    assert pace.seconds == pytest.approx(8 * 9 + 80)


def test_packs_on_several_machines_go_at_their_own_pace() -> None:
    clock, runs = Clock(), planned(6, epochs=10)
    pace = Pace(runs, clock)
    for run in runs[:4]:  # two packs of two
        pace.begin(run, 0)
    clock.now += 12
    for run in runs[:2]:
        for epoch in range(1, 7):
            pace.epoch(run, epoch)
    for run in runs[2:4]:
        for epoch in range(1, 4):
            pace.epoch(run, epoch)
    # 12 + 6 epochs of 60 are done.
    assert pace.seconds == pytest.approx(12 / 18 * 42)
    for run in runs[:2]:
        pace.done(run)
    assert pace.seconds == pytest.approx(12 / 26 * 34)
    pace.begin(runs[2], 0)  # its machine was lost
    assert pace.seconds == pytest.approx(12 / 23 * 37)


def test_a_larger_training_set_takes_longer() -> None:
    clock, runs = Clock(), [*planned(1, epochs=2), *planned(1, epochs=2, size=300)]
    pace = Pace(runs, clock)
    pace.begin(runs[0], 0)
    clock.now += 10
    pace.epoch(runs[0], 2)
    pace.done(runs[0])
    assert pace.seconds == pytest.approx(30)


def test_what_takes_long_is_said_once_and_what_does_not_is_not() -> None:
    clock, runs = Clock(), planned(2, epochs=100)
    pace = Pace(runs, clock)
    pace.begin(runs[0], 0)
    said = []
    for epoch in range(1, 6):
        clock.now += 10
        said.append(pace.epoch(runs[0], epoch))
    assert [bool(text) for text in said] == [False, True, False, False, False]
    assert "33 min" in said[1]
    assert "--seeds" in said[1]
    quick = Pace(runs, clock)
    quick.begin(runs[0], 0)
    for epoch in range(1, 101):
        clock.now += 1
        assert not quick.epoch(runs[0], epoch)


def test_a_very_long_one_is_said_after_its_first_epoch() -> None:
    clock, runs = Clock(), planned(1, epochs=300)
    pace = Pace(runs, clock)
    pace.begin(runs[0], 0)
    clock.now += 60
    assert "4 h 59 min" in pace.epoch(runs[0], 1)


def test_a_slow_start_is_not_taken_for_the_pace() -> None:
    """Compilers are at work before a GPU's first epoch: 40 s, and then half a second an epoch."""
    clock, runs = Clock(), planned(20, epochs=200)
    pace = Pace(runs, clock)
    for run in runs:
        pace.begin(run, 0)
    clock.now += 40
    for epoch in (1, 2, 3):
        clock.now += 0.5
        for run in runs:
            assert not pace.epoch(run, epoch)
    assert pace.seconds == pytest.approx(197 * 0.5)


def test_nobody_knows_what_is_not_planned() -> None:
    run = planned(1, epochs=3)[0]
    pace = Pace([])
    pace.begin(run, 0)
    assert not pace.epoch(run, 2)
    assert pace.seconds is None
    assert replace(run) == run
