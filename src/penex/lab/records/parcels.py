"""A finished run as bytes, for the way from the machine that trained it to one that reports it.

A parcel is a zip of done.json and of the files that it vouches for: all that reports, `penex
predict` and `Record.verify` read. A checkpoint that a user had kept stays where it was trained.
"""

import io
import shutil
import zipfile
from pathlib import Path

from penex.lab.data import archives
from penex.lab.ground import files
from penex.lab.ground.errors import RecordError
from penex.lab.records import LASTING, Json, Record, archived, identity
from penex.lab.records.reading import CLOCK, DONE, PACK, Reading


def pack(record: Record) -> bytes:
    """The parcel of a run that is done: the same bytes for the same files."""
    record.verify()
    parcel = io.BytesIO()
    archived.write({name: record.content(name) for name in _names(record.done())}, parcel)
    return parcel.getvalue()


def unpack(content: bytes, folder: Path) -> Record:
    """The run of a parcel, in its folder; a RecordError if it is not whole, or another run.

    Nothing is written before all of it was checked, and done.json last: a process that is killed
    leaves a run that is trained from its start, or one that is done. A run that is done there is
    left as it is; whoever is training it there is too late, and writes nothing more.
    """
    record = Record(folder)
    if not record.is_done:
        found = _opened(content, folder)
        record.evict()
        with record.locked(wait=True):
            _write(record, found)
    return record


def _write(record: Record, found: dict[str, bytes]) -> None:
    if record.is_done:  # another process had the same parcel
        return
    shutil.rmtree(record.checkpoint, ignore_errors=True)
    for name in (CLOCK, PACK):
        (record.folder / name).unlink(missing_ok=True)
    for name, part in sorted(found.items(), key=lambda each: each[0] == DONE):
        (record.folder / name).parent.mkdir(exist_ok=True)
        files.write(record.folder / name, part)


def _names(done: Json) -> list[str]:
    return [*done["sha256"], DONE]


class _Parcel(Reading):
    """A run as it lies in a parcel.

    Args:
        folder: where it will be.
        found: the content of its files, by their names.
    """

    def __init__(self, folder: Path, found: dict[str, bytes]) -> None:
        super().__init__(folder)
        self._found = found

    @property
    def is_done(self) -> bool:
        return True

    def has(self, name: str) -> bool:
        return name in self._found

    def content(self, name: str) -> bytes:
        if name not in self._found:
            raise self._damaged(name, "it is missing")
        return self._found[name]

    def _damaged(self, name: str, what: str) -> RecordError:
        return _refused(self.folder, f"of its {name}, {what}")

    def _tidy(self, done: Json) -> None:
        pass


def _opened(content: bytes, folder: Path) -> dict[str, bytes]:
    """The files of a parcel, every one of them checked, and known to be those of this run."""
    found = _members(content, folder)
    parcel = _Parcel(folder, found)
    parcel.verify()
    if set(_names(parcel.done())) != set(found):
        raise _refused(folder, "it has files that its done.json does not know")
    try:
        place = Path(identity.folder_of(parcel.config()))
    except (LookupError, TypeError, AttributeError) as error:
        raise _refused(folder, "its config.json is none") from error
    if folder.absolute().parts[-len(place.parts) :] != place.parts:
        raise _refused(folder, f"it is that of {place.as_posix()}")
    return found


def _members(content: bytes, folder: Path) -> dict[str, bytes]:
    """The content of the files in a parcel: none but those that a run leaves, each once."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            members = opened.infolist()
            names = {member.filename for member in members}
            if strange := sorted(names - {*LASTING, DONE}):
                raise _refused(folder, f"a run leaves no file {strange[0][:80]!r}")
            if len(names) < len(members):
                raise _refused(folder, "it has a file twice")
            if why := archives.against(opened, len(content)):
                raise _refused(folder, why)
            return {name: archives.content(opened, name) for name in sorted(names)}
    except RecordError:
        raise
    except Exception as error:  # archives break in all kinds of ways
        raise _refused(folder, f"it cannot be opened ({error})") from error


def _refused(folder: Path, why: str) -> RecordError:
    return RecordError(
        f"The parcel for {folder} is refused: {why}. Nothing was written; the run can be trained "
        "here, or packed again where it was trained."
    )
