"""Packs of runs: which fit together, and what is done where they do not."""

import gc
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from penex import registry
from penex.lab import training
from penex.lab.engine import packed, packed_layers
from penex.lab.engine.packed_layers import CannotPack
from penex.lab.ground import ranks
from penex.lab.tasks.runs import Run
from penex.lab.training.packed import name_of, train_members
from penex.lab.training.place import Place, Portion

MOST = {"cuda": 64, "cpu": 16}  # models a pack: more gain little
# Parameters: a larger model keeps the device busy by itself. On a GPU that is said of networks that
# packs compute in the general way, whose convolutions are slow.
_SMALL = {"cuda": 3_000_000, "cpu": 300_000}


def size_for(place: Place, wanted: int | None, run: Run) -> int:
    """How many models a pack may have: what the user wants, or what pays for runs like this."""
    if ranks.world() > 1 or place.data(run).train.stream is not None:
        return 1  # a pack's inputs are in memory
    if wanted is not None:
        return wanted
    device = place.device if place.engine is None else place.engine.device
    most = MOST.get(device.type, 1)
    if device.type in _SMALL:
        with training.settings(run.recipe, place.device):  # an engine's may not be here
            learner = training.learner_of(run, place.data(run), place.device)
        known = device.type == "cuda" and packed_layers.knows(learner.module)
        return most if known or learner.theta.numel() <= _SMALL[device.type] else 1
    return most


def packs(runs: Iterable[Run], most: int) -> Iterator[list[Run]]:
    """Runs that fit together, at most so many at a time: same but in loss, seed and rate."""
    groups: dict[object, list[Run]] = {}
    for run in runs:
        head = registry.find(run.loss.name).zero_sum_head
        recipe = replace(run.recipe, lr=1.0)
        key = (id(run.task), run.train_size, recipe, run.treatment, head)
        groups.setdefault(key, []).append(run)
    for group in groups.values():
        for start in range(0, len(group), most):
            yield group[start : start + most]


def cut(runs: list[Run], place: Place, most: int) -> list[list[Run]]:
    """The packs that `train` makes of runs of which none is begun; one run each if it is alone."""
    alone = runs if most == 1 else _unpackable(runs, place)
    together = packs([run for run in runs if run not in alone], most)
    return [*together, *([run] for run in alone)]


def carry_out(runs: list[Run], place: Place, wanted: int | None) -> None:
    """Carry out runs here, one pack after another.

    Args:
        runs: each once.
        place: where.
        wanted: how many models to train at once; None for what pays on the device.
    """
    train(runs, place, size_for(place, wanted, runs[0]))


def train(runs: list[Run], place: Place, most: int) -> None:
    """Carry out runs, packed where they fit together; what cannot be packed is trained alone.

    Args:
        runs: each once.
        place: where; its engine, if it has one, carries out what is not done.
        most: how many may be in a pack; 1 for one run after another.
    """
    if most == 1 and place.engine is None:  # processes that train one model look in step
        for run in runs:
            training.train(run, place)
        return
    left = [run for run in runs if not place.record(run).is_done]
    for run in runs:
        if run not in left:
            training.train(run, place)  # verifies it
    found = portions(left, place, most)
    if place.engine is not None and left:
        place.engine(list(found), place)
        return
    for portion in found:
        train_portion(portion, place)


def portions(runs: list[Run], place: Place, most: int) -> Iterator[Portion]:
    """How runs that are not done are cut: packs, and what is trained alone."""
    alone = runs if most == 1 else _unpackable(runs, place)
    for names, pack in _begun_or_new([run for run in runs if run not in alone], place, most):
        yield Portion(pack, names)
    for run in alone:
        yield Portion([run])


def train_portion(portion: Portion, place: Place) -> None:
    """Train a portion in this process."""
    if portion.names:
        _train_pack(portion.runs, portion.names, place)
        return
    for run in portion.runs:
        training.train(run, place)


def _unpackable(runs: list[Run], place: Place) -> list[Run]:
    """The runs that cannot be in a pack, by their loss or their network; says which and why."""
    known: dict[tuple[object, ...], str] = {}
    losses: dict[str, dict[str, None]] = {}  # by the reason, each once
    for run in runs:
        if _kind(run) not in known:
            data = place.data(run)
            with training.settings(run.recipe, place.device):
                learner = training.learner_of(run, data, place.device)
            known[_kind(run)] = packed.why_not(learner, len(data.classes))
        losses.setdefault(known[_kind(run)], {})[str(run.loss)] = None
    for reason, names in losses.items():
        if reason:
            place.hooks.say(f"Not packed ({', '.join(names)}): {reason}.")
    return [run for run in runs if known[_kind(run)]]


def _kind(run: Run) -> tuple[object, ...]:
    return id(run.task), str(run.loss), run.recipe.accumulate, run.treatment.class_weights


def _begun_or_new(
    runs: list[Run], place: Place, most: int
) -> Iterator[tuple[list[str], list[Run]]]:
    """The packs of runs that are not done, with the names of all that are, or were, in each.

    A pack that was begun stays the same to the end, though members may have left it: what a kernel
    adds up in which order may depend on the number of models. (Seen for one against several; the
    rest is up to the library.)
    """
    begun: dict[tuple[str, ...], list[Run]] = {}
    new = []
    for run in runs:
        names = place.record(run).pack()
        if len(names) <= most and name_of(run) in names:
            begun.setdefault(tuple(names), []).append(run)
        else:
            new.append(run)
    for run in list(new):  # one whose pack was killed while its members joined
        if not place.record(run).pack():
            known = next((names for names in begun if name_of(run) in names), None)
            if known is not None:
                begun[known].append(run)
                new.remove(run)
    for known, pack in begun.items():
        yield list(known), pack
    for pack in packs(new, most):
        yield [name_of(run) for run in pack], pack


def _train_pack(runs: list[Run], names: list[str], place: Place) -> None:
    reason = ""
    try:
        train_members(runs, names, place)
    except CannotPack as error:
        reason = str(error)
    except torch.OutOfMemoryError:
        if len(names) == 1:  # alone it needs no second copy of everything
            reason = "not even one model fits the GPU's memory twice"
    # Errors hold on to a pack's memory: from here on they are gone.
    if reason:
        place.hooks.say(f"Not packed: {reason}.")
        _free(place.device)
        for run in runs:
            training.train(run, place)
        return
    left = [run for run in runs if not place.record(run).is_done]
    for run in runs:
        if run not in left:
            place.hooks.done(run, place.record(run), False)
    if not left:
        return
    half = max(1, math.ceil(len(left) / 2))
    place.hooks.say(f"{len(names)} models do not fit the GPU's memory: {half} now.")
    for part in packs(left, half):
        _free(place.device)
        _train_pack(part, [name_of(run) for run in part], place)


def _free(device: torch.device) -> None:
    """Give back the memory of what is gone."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
