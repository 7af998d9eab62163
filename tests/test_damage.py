"""Records that were edited, cut off or mixed up: one line names the file, the rest is shown."""

import copy
import io
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penex import cli
from penex.lab import records, tasks
from penex.lab.ground.errors import LabError, RecordError
from penex.lab.records import Record, sealing
from penex.lab.records.best import best_run
from penex.lab.records.scores import slim
from penex.lab.training import Place, compare
from penex.report import page, results, tables, terminal
from penex.report.results import Results

FILES = ("config.json", "environment.json", "metrics.jsonl", "done.json")
WRONG: list[Any] = [
    None, True, -1, 1e308, 10**400, float("nan"), float("inf"), "", "x", "\x1b[2J", [], [1], {},
    {"a": None},
]  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of two losses with two seeds, one of them diverging; without logits."""
    whole, folder = (tmp_path_factory.mktemp(name) for name in ("whole", "small"))
    losses = ("ce", "ex:alpha=1000")
    what = compare.Comparison(tasks.find("digits"), losses, 2, (40,), {"epochs": 1})
    listing = compare.compare(what, Place(whole), command="penex compare")
    for run in listing["runs"]:
        slim(Record(whole / "digits" / run["folder"]), folder / run["folder"])
    (folder / "comparison.json").write_text(json.dumps(listing))
    return folder


@pytest.fixture
def copied(small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small, tmp_path / "digits"))


FORMS: Sequence[Callable[[Results], str]] = (
    tables.markdown, tables.latex, tables.as_csv, page.build
)  # fmt: skip


def shown(found: Results, forms: Sequence[Callable[[Results], str]] = FORMS) -> str:
    """Everything that a report says."""
    buffer = io.StringIO()
    terminal.show(found, buffer)
    return buffer.getvalue() + "".join(form(found) for form in forms)


def changed(path: Path, *keys: str, value: Any, seal: bool = False) -> None:
    content = json.loads(path.read_bytes())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    if seal:
        content["seal"] = sealing.seal(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("name", "keys", "value"),
    [
        ("done.json", ("test", "accuracy"), 0.9999),
        ("config.json", ("recipe", "lr"), 0.54321),
        ("environment.json", ("device",), "a supercomputer"),
    ],
)
def test_an_edited_record_is_not_shown_as_true(
    copied: Path, name: str, keys: tuple[str, ...], value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = next(copied.glob("ce/*/seed-1"))
    changed(folder / name, *keys, value=value)
    cli.main(["report", str(copied), "--to", str(copied / "page.html")])
    (line,) = (x for x in capsys.readouterr().out.splitlines() if "is damaged" in x)
    assert line.startswith(f"{folder.relative_to(copied) / name} is damaged: ")
    found = results.load(copied)
    assert [list(row.done) for row in found.rows] == [[0], [0, 1]]
    assert tables.name(found.rows[0]) == "CE (1 of 2 damaged)"
    text = (copied / "page.html").read_text()
    assert f"{folder.relative_to(copied) / name} is damaged" in text
    assert str(value) not in text.replace("data:", "")


def test_a_record_in_another_ones_place_is_not_shown(copied: Path) -> None:
    """Whole and sealed, but of another seed; or of another configuration."""
    first, second = (next(copied.glob(f"ce/*/seed-{seed}")) for seed in (0, 1))
    shutil.rmtree(second)
    shutil.copytree(first, second)
    assert list(results.load(copied).rows[0].damaged) == [1]
    other = first.parent.with_name("0" * 12)
    first.parent.rename(other)
    listing = json.loads((copied / "comparison.json").read_text())
    for run in listing["runs"]:
        run["folder"] = run["folder"].replace(first.parent.name, other.name)
    assert list(results.load(copied, listing).rows[0].damaged) == [0, 1]


@pytest.mark.parametrize(
    ("before", "after"), [('"ex:alpha=1000"', '"ex:alpha=1"'), ('"seed": 1', '"seed": 5')]
)
def test_an_edited_list_of_runs_is_not_shown(copied: Path, before: str, after: str) -> None:
    path = copied / "comparison.json"
    path.write_text(json.dumps(sealing.sealed(json.loads(path.read_text()))))
    assert not results.load(copied).damaged
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(RecordError, match="it was changed after the comparison"):
        results.load(copied)
    with pytest.raises(RecordError, match=r"comparison\.json is damaged"):
        best_run(copied)


def test_a_list_of_runs_is_written_with_a_seal(tmp_path: Path) -> None:
    what = compare.Comparison(tasks.find("digits"), ("ce",), 1, (40,), {"epochs": 1})
    path = tmp_path / "digits" / "comparison.json"
    path.parent.mkdir()
    path.write_text("[" * 10**5)  # someone else's, nested without end: kept, and no reason to fail
    compare.compare(what, Place(tmp_path))
    listing = json.loads(path.read_text())
    assert listing["seal"] == sealing.seal(listing)


def test_an_older_record_has_no_seal(copied: Path) -> None:
    """Its scores vouch for it instead."""
    path = next(copied.glob("ce/*/seed-0")) / "done.json"
    done = json.loads(path.read_text())
    del done["seal"], done["classes"]
    path.write_text(json.dumps(done))
    row = results.load(copied).rows[0]
    assert not row.damaged
    assert row.classes == 10
    changed(path, "test", "accuracy", value=done["test"]["accuracy"] + 0.01)
    (line,) = results.load(copied).damaged
    assert "done.json is damaged: its test accuracy is not that of its scores" in line


def places(value: Any, *keys: Any) -> Iterator[tuple[Any, ...]]:
    """Where something could be changed in a JSON value; of a list, in its first item."""
    yield keys
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for key, item in inner:
        if isinstance(item, dict | list):
            yield from places(item, *keys, key)
        else:
            yield (*keys, key)


def mutations(value: Any) -> Iterator[Any]:
    """The value with one place of a wrong kind, or without it."""
    for number, keys in enumerate(places(value)):
        for wrong in WRONG if number % 7 == 0 else WRONG[number % len(WRONG) :][:2]:
            if not keys:
                yield wrong
                continue
            for remove in (False, True) if wrong is None else (False,):
                content = copy.deepcopy(value)
                inner = content
                for key in keys[:-1]:
                    inner = inner[key]
                if remove:
                    del inner[keys[-1]]
                else:
                    inner[keys[-1]] = wrong
                yield content


def test_every_change_to_how_a_run_ended_is_seen(copied: Path) -> None:
    path = next(copied.glob("ce/*/seed-0/done.json"))
    kept = json.loads(path.read_bytes())
    for content in mutations(kept):
        path.write_text(json.dumps(content))
        seen = bool(results.load(copied).damaged)
        same = isinstance(content, dict) and sealing.seal(content) == sealing.seal(kept)
        assert seen or same or content["seal"] is None


LONG = pytest.param("ce/*/seed-0/done.json", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", ["comparison.json", LONG, "ex/*/*-0/done.json"])
def test_no_wrong_value_breaks_a_report(copied: Path, name: str) -> None:
    """With a seal that fits, as whoever writes records with another tool would make one."""
    path = next(copied.glob(name))
    whole = json.loads(path.read_bytes())
    shown_at_all = 0
    for number, content in enumerate(mutations(whole)):
        if isinstance(content, dict):
            content["seal"] = sealing.seal(content)
        path.write_text(json.dumps(content))
        with suppress(LabError):  # a sentence, for a list of runs that is none
            forms = FORMS if number % 9 == 0 else FORMS[:-1]
            assert "\x1b" not in shown(results.load(copied), forms)
            shown_at_all += 1
    assert shown_at_all > 3


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"null", b"[]", b"\xff\xfe\x00", b"[" * 10**5, b'{"epoch": NaN}', None,
        b'{"format": 1, "deep": ' + b"[" * 400 + b"]" * 400 + b"}",
    ],
)  # fmt: skip
def test_a_file_of_another_kind_is_a_line(copied: Path, name: str, content: bytes | None) -> None:
    path = next(copied.glob("ce/*/seed-0")) / name
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
        if name != "done.json":  # vouched for, and yet of another kind
            sums = json.loads(path.with_name("done.json").read_text())["sha256"]
            sums[name] = records._sha256(path)
            changed(path.with_name("done.json"), "sha256", value=sums, seal=True)
    found = results.load(copied)
    if (name, content) in (("metrics.jsonl", b""), ("environment.json", b'{"epoch": NaN}')):
        assert not found.damaged  # a run of no epochs, a machine of which little is known
        return
    (line,) = found.damaged
    assert line.startswith(str(path.relative_to(copied)))
    assert "\n" not in line
    assert line in tables.markdown(found).replace("&lt;", "<")


@pytest.mark.parametrize("content", [b"x", None])
def test_damaged_scores_leave_a_line_and_the_rest(copied: Path, content: bytes | None) -> None:
    path = next(copied.glob("ce/*/seed-0/scores.npz"))
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    text = page.build(results.load(copied))
    assert f"{path.relative_to(copied)} is damaged" in text
    assert text.count("accuracy against confidence") == 1
