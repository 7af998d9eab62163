"""A finished run travels as bytes: whole, to its own place, and nothing else does."""

import hashlib
import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from penex.lab import tasks, training
from penex.lab.ground import files
from penex.lab.ground.errors import Interrupted, RecordError
from penex.lab.records import Record, identity, parcels
from penex.lab.records.sealing import sealed
from penex.lab.tasks import runs

Files = dict[str, bytes]


def planned(loss: str = "ce") -> runs.Run:
    changes = {"epochs": 3, "batch_size": 8, "lr": 0.1}
    return runs.plan(tasks.find("digits"), runs.LossSpec.parse(loss), 0, 40, changes)


RUN = planned()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Record:
    out = tmp_path_factory.mktemp("trained")
    hooks = training.Hooks(keep_checkpoints=True)
    return training.train(RUN, training.Place(out, hooks=hooks))


@pytest.fixture(scope="module")
def parcel(trained: Record) -> bytes:
    return parcels.pack(trained)


def content(folder: Path) -> Files:
    """What a folder has, but for locks and a checkpoint."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock" and path.parent.name != "checkpoint"
    }


def place(out: Path) -> Path:
    return out / identity.folder_of(RUN.config)


def zipped(found: Files, *more: tuple[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in (*found.items(), *more):
            archive.writestr(name, part)
    return made.getvalue()


def unzipped(made: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_run_is_the_same_after_its_way(trained: Record, parcel: bytes, tmp_path: Path) -> None:
    found = parcels.unpack(parcel, place(tmp_path))
    assert content(found.folder) == content(trained.folder)
    assert "predictions.npz" in content(found.folder)
    assert not found.checkpoint.exists()
    found.verify()
    assert parcels.pack(found) == parcel
    done = found.folder / "done.json"
    done.write_bytes(done.read_bytes() + b"\n")  # a run that is done is left as it is
    kept = content(found.folder)
    parcels.unpack(parcel, found.folder)
    assert content(found.folder) == kept


def test_a_run_that_is_being_trained_there_gives_way(parcel: bytes, tmp_path: Path) -> None:
    asked = iter(range(7))  # in the second epoch
    stop = training.Hooks(stop=lambda: next(asked, None) is None)
    with pytest.raises(Interrupted):
        training.train(RUN, training.Place(tmp_path, hooks=stop))
    begun = Record(place(tmp_path))
    assert begun.checkpoint.exists()

    def arrives(run: runs.Run, line: object) -> None:
        parcels.unpack(parcel, begun.folder)

    with pytest.raises(RecordError, match="nothing more is written there"):
        training.train(RUN, training.Place(tmp_path, hooks=training.Hooks(epoch=arrives)))
    assert content(begun.folder) == unzipped(parcel)
    assert not begun.checkpoint.exists()
    begun.verify()


def test_a_process_that_is_killed_in_between_leaves_a_run_to_train(
    trained: Record, parcel: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    write = files.write

    def cut_short(path: Path, part: bytes) -> None:
        if path.name == "done.json":
            raise KeyboardInterrupt
        written.append(path.name)
        write(path, part)

    monkeypatch.setattr(files, "write", cut_short)
    with pytest.raises(KeyboardInterrupt):
        parcels.unpack(parcel, place(tmp_path))
    monkeypatch.undo()
    assert len(written) == len(unzipped(parcel)) - 1
    record = training.train(RUN, training.Place(tmp_path))
    record.verify()
    assert record.done()["test"] == trained.done()["test"]


def test_only_a_run_that_is_done_and_whole_is_packed(trained: Record, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"done\.json is damaged: it is missing"):
        parcels.pack(Record(tmp_path))
    copied = parcels.unpack(parcels.pack(trained), place(tmp_path))
    (copied.folder / "metrics.jsonl").write_text("")
    with pytest.raises(RecordError, match=r"metrics\.jsonl is damaged"):
        parcels.pack(copied)


def changed(name: str, part: bytes) -> Callable[[Files], bytes]:
    return lambda found: zipped({**found, name: part})


def with_done(**values: object) -> Callable[[Files], bytes]:
    def make(found: Files) -> bytes:
        done = {**files.loads(found["done.json"]), **values}
        return zipped({**found, "done.json": files.dumps(sealed(done)).encode()})

    return make


def without(name: str) -> Callable[[Files], bytes]:
    return lambda found: zipped({k: v for k, v in found.items() if k != name})


def too_long(found: Files) -> bytes:
    """Zeros that become more than anyone wants."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("predictions.npz", "w", force_zip64=True) as member:
            for _ in range(520):
                member.write(bytes(1 << 20))
        for name, part in found.items():
            if name != "predictions.npz":
                archive.writestr(name, part)
    return made.getvalue()


def another_compression(found: Files) -> bytes:
    """Bytes that say they are few: zipfile makes all of these before it counts them."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("metrics.jsonl", bytes(1 << 20))
    return made.getvalue()


def longer_than_it_says(found: Files) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metrics.jsonl", bytes(1 << 20))
        archive.filelist[0].file_size = 10  # as the list at the end will say
    return made.getvalue()


def other_run(found: Files) -> bytes:
    """The same in all but its configuration, and as if it had always been so."""
    config = files.loads(found["config.json"])
    config["seed"] = 1
    text = files.dumps(config).encode()
    sums = {
        **files.loads(found["done.json"])["sha256"],
        "config.json": hashlib.sha256(text).hexdigest(),
    }
    return with_done(sha256=sums)({**found, "config.json": text})


HOSTILE: dict[str, tuple[Callable[[Files], bytes], str]] = {
    "no archive": (lambda found: b"no zip", "cannot be opened"),
    "empty": (lambda found: b"", "cannot be opened"),
    "cut off": (lambda found: zipped(found)[:-200], "cannot be opened"),
    "leaves its folder": (changed("../evil", b"x"), "no file '../evil'"),
    "absolute": (changed("/tmp/evil", b"x"), "no file '/tmp/evil'"),
    "other slash": (changed("..\\evil", b"x"), "no file"),
    "a checkpoint": (changed("checkpoint/position.json", b"{}"), "no file 'checkpoint"),
    "twice": (lambda found: zipped(found, ("done.json", b"{}")), "has a file twice"),
    "a bomb": (too_long, "would become 550 MB"),
    "another compression": (another_compression, "in a way that penex never uses"),
    "longer than it says": (longer_than_it_says, "Bad CRC-32"),
    "no done.json": (without("done.json"), r"done\.json, it is missing"),
    "no predictions": (without("predictions.npz"), r"predictions\.npz, it is missing"),
    "another network": (changed("model.safetensors", b"x"), "checksum is not the one"),
    "other numbers": (changed("metrics.jsonl", b"{}"), "checksum is not the one"),
    "unknown to done.json": (changed("scores.npz", b"x"), "does not know"),
    "not sealed": (
        lambda found: changed(
            "done.json", found["done.json"].replace(b'"completed"', b'"diverged"')
        )(found),
        "it was changed after the run",
    ),
    "nothing vouched for": (with_done(sha256={}), "checksum is not the one"),
    "vouched for far away": (with_done(sha256={"../x": "1"}), "checksum is not the one"),
    "another format": (with_done(format=99), "record format 99"),
    "another run": (other_run, "it is that of digits/ce/"),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_a_parcel_that_nobody_vouches_for_writes_nothing(
    case: str, parcel: bytes, tmp_path: Path
) -> None:
    make, words = HOSTILE[case]
    with pytest.raises(RecordError, match=words):
        parcels.unpack(make(unzipped(parcel)), place(tmp_path))
    assert not any(tmp_path.iterdir())


def test_a_damaged_parcel_is_refused_or_the_same(parcel: bytes, tmp_path: Path) -> None:
    """Whatever byte is hit: an archive has some that say nothing, as a member's date."""
    chance = random.Random(0)
    refused = 0
    for case in range(300):
        hit = bytearray(parcel)
        for _ in range(chance.choice([1, 3])):
            # The headers of all files are at the end; what is before is nearly all numbers.
            at = len(hit) - 1 - int(chance.random() ** 3 * len(hit))
            hit[at] ^= 1 << chance.randrange(8)
        folder = place(tmp_path / str(case))
        try:
            parcels.unpack(bytes(hit), folder)
        except RecordError:
            refused += 1
            assert not (tmp_path / str(case)).exists()
        else:
            assert content(folder) == unzipped(parcel)
    assert refused > 200


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_arrays_that_would_fill_the_memory_are_refused(
    kind: int, parcel: bytes, tmp_path: Path
) -> None:
    """Though done.json vouches for them: whoever wrote the one wrote the other."""
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", kind) as archive:
        archive.writestr("logits.npy", b"")
        archive.filelist[0].file_size = 10**12 if kind == zipfile.ZIP_DEFLATED else 0
    found = {**unzipped(parcel), "predictions.npz": bomb.getvalue()}
    sums = {
        **files.loads(found["done.json"])["sha256"],
        "predictions.npz": hashlib.sha256(bomb.getvalue()).hexdigest(),
    }
    record = parcels.unpack(with_done(sha256=sums)(found), place(tmp_path))
    with pytest.raises(RecordError, match=r"would become 1 TB|in a way that penex never uses"):
        record.predictions()
