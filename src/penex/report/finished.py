"""A run that is done, read once: what is not as it was written is not shown as true."""

from dataclasses import dataclass

from penex.lab.ground import files
from penex.lab.ground.errors import RecordError
from penex.lab.records import Json, Record
from penex.lab.records.identity import config_hash
from penex.lab.records.reading import FORMAT, is_number
from penex.lab.records.scores import scores_of
from penex.metrics import METRICS

_HALF_PRECISION = 1e-3  # in which scores are kept: no more than that may their means be off


@dataclass(frozen=True)
class Finished:
    """All that a run that is done says of itself, but its predictions.

    Attributes:
        record: where it lies.
        done: how it ended.
        config: the resolved configuration.
        environment: versions, device, revision and checksums of the data.
        history: a line an epoch.
    """

    record: Record
    done: Json
    config: Json
    environment: Json
    history: list[Json]


def read(record: Record) -> Finished:
    """A finished run, or a RecordError that names the file which is not as it was written."""
    done = record.done()
    classes = done.get("classes")
    if classes is not None and (type(classes) is not int or classes < 1):
        raise _damaged(record, "done.json", f"its number of classes is {classes!r}")
    config = _parsed(record, "config.json", record.vouched("config.json", done))
    if not _is_config(config):
        raise _damaged(record, "config.json", "it is no configuration of a run")
    if (config_hash(config), f"seed-{config['seed']}") != record.folder.parts[-2:]:
        raise _damaged(record, "config.json", "its folder stands for another configuration")
    name = "environment.json"
    environment = _parsed(record, name, record.vouched(name, done))
    environment.pop("seal", None)  # done.json vouches for it
    name = "metrics.jsonl"
    lines = record.vouched(name, done).splitlines()
    history = [_parsed(record, name, line) for line in lines]
    if not all(map(_is_epoch, history)):
        raise _damaged(record, name, "a line has no epoch or no metrics")
    if "seal" not in done and done["status"] == "completed":
        _check_scores(record, done)
    return Finished(record, done, config, environment, history)


def _check_scores(record: Record, done: Json) -> None:
    """An older record has no seal: its scores, if it has some, vouch for its metrics."""
    scores = scores_of(record)
    if scores is None:
        return
    right = scores["prediction"] == scores["target"]
    for name, each in (
        ("accuracy", right),
        ("cross_entropy", scores["nll"]),
        ("brier", scores["brier"]),
    ):
        said, found = done["test"].get(name), float(each.mean(dtype=float))
        if said is not None and abs(said - found) > _HALF_PRECISION * max(1.0, abs(found)):
            what = METRICS[name].title
            raise _damaged(record, "done.json", f"its test {what} is not that of its scores")


def _parsed(record: Record, name: str, content: bytes) -> Json:
    try:
        value = files.loads(content)
    except ValueError as error:
        raise _damaged(record, name, str(error)) from error
    if not isinstance(value, dict):
        raise _damaged(record, name, "it is not an object")
    return value


def _damaged(record: Record, name: str, what: str) -> RecordError:
    return RecordError(f"{record.folder / name} is damaged: {what}. Nothing was changed.")


def _is_config(config: Json) -> bool:
    """Whether a configuration has what reports say of it, in the form in which they say it."""
    loss, recipe, noise = config.get("loss"), config.get("recipe"), config.get("label_noise")
    return (
        config.get("format") == FORMAT
        and isinstance(loss, dict)
        and isinstance(loss.get("arguments"), dict)
        and isinstance(recipe, dict)
        and {"epochs", "optimizer", "batch_size"} <= recipe.keys()
        and type(recipe.get("lr")) in (int, float)
        and (noise is None or (isinstance(noise, dict) and type(noise.get("rate")) is float))
        and {"model", "seed", "train_size"} <= config.keys()
    )


def _is_epoch(line: Json) -> bool:
    validation = line.get("validation")
    return (
        type(line.get("epoch")) is int
        and isinstance(validation, dict)
        and all(map(is_number, (*validation.values(), line.get("rho"))))
    )
