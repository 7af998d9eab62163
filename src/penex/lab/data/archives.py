"""Archives: taken apart safely, never to more than they may become, and kept in the cache."""

import hashlib
import stat
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path, PurePosixPath

from penex.lab.data import cache, sizes, unfinished
from penex.lab.ground.errors import LabError

_CHUNK = 1 << 20
_DEEPEST = 100
_UTF_8 = 0x800  # the flag of a member whose name is said to be in UTF-8

# Others are made whole before they are cut, however small they say they are.
_BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def is_archive(path: Path) -> bool:
    """Whether a file is an archive by its name."""
    return path.name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz"))


def opened(archive: Path, *, allow_large: bool = False) -> Path:
    """The folder of an archive's content, taken apart into the cache once."""
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:24]
    name = f"archive-{digest}"
    entry = next((e for e in cache.entries(name) if e.name == name and e.is_whole()), None)
    if entry is None:
        with cache.making() as made:
            (made / "files").mkdir()
            _unpack(archive, made / "files", allow_large)
            facts = {"kind": "an archive, taken apart"}
            entry = cache.keep(made, name, {**facts, "sources": {str(archive.resolve()): ""}})
    entry.touch()
    folder = entry.path / "files"
    inside = [p for p in folder.iterdir() if not p.name.startswith((".", "__MACOSX"))]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def extract(archive: Path, wanted: str, root: Path) -> None:
    """Take one folder out of an archive into another. One that reaches outside is refused."""
    with unfinished.folder(root) as beside:
        _unpack(archive, beside, allow_large=False)
        if not (beside / wanted).is_dir():
            raise LabError(f"{archive} does not contain the folder {wanted}.")
        (beside / wanted).rename(root / wanted)


def _unpack(archive: Path, folder: Path, allow_large: bool) -> None:
    most = sizes.most(archive, allow_large)
    try:
        if archive.name.lower().endswith(".zip"):
            _unzip(archive, folder, most)
        else:
            _untar(archive, folder, most)
    except LabError:
        raise
    except MemoryError as error:
        raise LabError(f"There is not enough memory to take {archive} apart.") from error
    except Exception as error:  # archives break in all kinds of ways
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise LabError(
            f"{archive} cannot be taken apart: {error}. It may be truncated or protected; remove "
            "it and get it again."
        ) from error


def _unzip(archive: Path, folder: Path, most: float) -> None:
    """A member that is longer than it says is cut there by zipfile, and its checksum tells."""
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            member.filename = _name(member)
            check_member(archive, member)
        total = sum(member.file_size for member in file.infolist())
        if total > most:
            raise sizes.too_large(archive, total)
        for member in file.infolist():
            file.extract(member, folder)


def against(opened: zipfile.ZipFile, size: int) -> str:
    """What speaks against reading an archive that nobody vouches for, as a part of a sentence.

    Args:
        opened: the archive.
        size: its own, in bytes.
    """
    members = opened.infolist()
    total = sum(member.file_size for member in members)
    if total > sizes.most_of(size):
        return f"it would become {sizes.shown(total)}"
    if any(member.compress_type not in _BOUNDED for member in members):
        return "it is compressed in a way that penex never uses"
    return ""


def content(opened: zipfile.ZipFile, name: str) -> bytes:
    """A file of an archive, at most as large as the archive says; a BadZipFile if it is larger."""
    with opened.open(name) as file:  # read without a number, it would be made whole first
        return file.read(opened.getinfo(name).file_size + 1)


def check_member(archive: Path, member: zipfile.ZipInfo) -> None:
    """A LabError if a member of a zip is a link, or would be written outside its folder."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    _check(archive, member.filename, plain=kind != stat.S_IFLNK)


def _name(member: zipfile.ZipInfo) -> str:
    """A member's name as its writer meant it.

    Some write UTF-8 and do not say so, for which the standard has an alphabet of 1981; some write
    the other slash.
    """
    name = member.filename
    if not member.flag_bits & _UTF_8:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return name.replace("\\", "/")


def _untar(archive: Path, folder: Path, most: float) -> None:
    # tarfile takes a damaged header for the end; the checksum of the whole stream tells. A tape has
    # no list of its content either, so that what it becomes is counted.
    total = 0
    with tarfile.open(archive) as tape:
        while tape.fileobj is not None and (chunk := tape.fileobj.read(_CHUNK)):
            total += len(chunk)
            if total > most:
                raise sizes.too_large(archive, most, more=True)
    with tarfile.open(archive) as tape:
        members = tape.getmembers()
        for entry in members:
            _check(archive, entry.name, plain=entry.isfile() or entry.isdir())
        total = sum(entry.size for entry in members if entry.isfile())  # those with holes too
        if total > most:
            raise sizes.too_large(archive, total)
        tape.extractall(folder, members=members, filter="data")


def _check(archive: Path, name: str, *, plain: bool) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in (path.parts or ("",))[0]:
        raise LabError(
            f"{archive} is refused: its member {name!r} would be written outside its folder."
        )
    if not plain:
        raise LabError(f"{archive} is refused: its member {name!r} is a link or a device.")
    if len(path.parts) > _DEEPEST:
        raise LabError(
            f"{archive} is refused: its member {name[:40]!r}... lies {len(path.parts)} folders "
            f"deep; at most {_DEEPEST} are read."
        )
