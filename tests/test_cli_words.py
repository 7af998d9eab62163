"""The command line's words: one sentence for each that is wrong, help, and nothing secret."""

import io
import sys
from pathlib import Path

import pytest

from command_line import child, run, sentence
from penex import cli
from penex.lab.training.session import Lines

from pictures import write_class


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "digit"], "There is no task 'digit'. Did you mean 'digits'?"),
        (["compare", "nothere/"], "There is no task and no file or folder 'nothere/'."),
        (["suspects", "nothere.csv"], "There is no task and no file or folder 'nothere.csv'."),
        (["compare", "digits", "--data", "t.csv", "--label-column", "y"], "or --data, not both"),
        (["compare", "cifar10", "--data", "t.csv", "--label-column", "y"], "without the task"),
        (
            ["tune", "--loss", "penex", "--range", "beta=0:1"],
            "There is no parameter to tune 'beta'. The parameters to tune are alpha.",
        ),
        (["tune", "--loss", "penex", "--with", "momentum"], "The parts of the recipe to tune are"),
        (["compare", "--momentum", "0.9"], "momentum is of sgd alone"),
        (
            ["compare", "--losses", "ce", "penex@momentum=0.9"],
            "penex@momentum=0.9 is trained by adam",
        ),
        (["compare", "--lease-seconds", "3"], "it needs --storage postgresql://; got 3."),
        (["tune", "--loss", "penex", "--lease-seconds", "3"], "--storage postgresql://; got 3."),
        (["compare", "--losses", "focl"], "There is no loss 'focl'. Did you mean 'focal'?"),
        (["compare", "--losses", "penex:alpha"], "write name:argument=value"),
        (["compare", "--losses", "penex:alpha=1,alpha=2"], "each argument once"),
        (["compare", "--losses", "penex:reduction=none"], "has no argument 'reduction' here"),
        (["compare", "--losses", "ce:label_smoothing=2"], "does not work: label_smoothing must"),
        (["compare", "--seeds", "9" * 20], "at most 10000"),
        (["compare", "--batch-size", "9" * 20], "at most 1,000,000"),
        (["compare", "--device", "meta"], "penex trains on cpu, cuda, cuda:1, mps, or auto"),
        (["compare", "--device", "gpu"], "There is no device 'gpu'. Did you mean cuda?"),
        (["compare", "--dtype", "float64", "--autocast", "True"], "choose one of them"),
        (
            ["compare", "--losses", "penex:alpha=-1"],
            "alpha must be a finite number above -1 and not 0",
        ),
        (["compare", "--losses", "penex:beta=1"], "beta"),
        (["compare", "--losses", "ce", "ce"], "ce is there twice"),
        (["compare", "--losses", "penex", "penex:alpha=0.1"], "is there twice"),
        (["compare", "--losses", "penex", "penex:ema=0.1"], "is there twice"),
        (["compare", "--seeds", "0"], "at least 1 seed"),
        (["compare", "--train-size", "5000"], "There are 900 examples to train on"),
        (["compare", "--epochs", "0"], "epochs must be at least 1"),
        (["compare", "--device", "abacus"], "There is no device 'abacus'."),
        (["compare", "--track", "tensorbord"], "Did you mean 'tensorboard'?"),
        (["train", "digits", "--loss", "pennex"], "Did you mean 'penex'?"),
        (["train", "digits", "--loss", "ce", "--seed", "-1"], "A seed must be at least 0"),
        (["compare", "--save-seconds", "nan"], "save_seconds must be a number of at least 0"),
    ],
)
def test_a_wrong_word_is_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(*arguments, "--out", tmp_path / "out", code=2)
    assert words in sentence(capsys)
    assert not list(tmp_path.rglob("done.json"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["comapre"], "There is no command 'comapre'. Did you mean 'compare'?"),
        (["--verison"], "There is no option --verison. Did you mean --version?"),
        (["compare", "--nonsense"], "There is no option --nonsense."),
        (["cache", "--nonsense", "x"], "There is no option --nonsense."),
        (["report", "--retur", "x"], "There is no option --retur."),
        (["compare", "--epoch", "3"], "There is no option --epoch. Did you mean --epochs?"),
        (["compare", "--see=3"], "There is no option --see. Did you mean --seeds?"),
        (["compare", "--losses", "penex,ce"], "separated by spaces, as in penex ce;"),
        (["tune", "--loss", "penex,ce"], "separated by spaces, as in penex ce;"),
        (["compare", "--seeds", "1.5"], "--seeds takes a whole number; got '1.5'."),
        (["compare", "--seeds=1.5"], "--seeds takes a whole number; got '1.5'."),
        (["compare", "--train-size", "10", "20,30"], "--train-size takes a whole number;"),
        (
            ["compare", "--label-noise", "10%"],
            "--label-noise takes a number; got '10%'. Write 0.1.",
        ),
        (
            ["compare", "--optimizer", "adamm"],
            "takes adam, adamw or sgd; got 'adamm'. Did you mean",
        ),
        (["train", "--loss", "ce", "--autocast", "yes"], "--autocast takes True or False;"),
        (["bench", "--dtype", "float"], "Did you mean float32?"),
        (["bench", "--seconds"], "Missing value for argument '--seconds'."),
        (["data", "chek"], "penex data takes list, get or check; got 'chek'. Did you mean check?"),
        (["train", "digits"], "--loss"),
        (["compare", "digits", "cifar10"], "penex compare does not know what 'cifar10' is for"),
    ],
)
def test_a_wrong_command_option_or_value_is_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(*arguments, code=2)
    text = sentence(capsys)
    assert said in text
    assert len(text) < 250


def test_a_path_in_the_place_of_a_task_is_given_with_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my photos").mkdir()
    run("compare", "my photos", code=2)
    assert "--data 'my photos'" in sentence(capsys)


@pytest.mark.parametrize("words", [["--calibrate"], ["--calibrate", "True"], ["--calibrate=True"]])
def test_an_option_of_true_or_false_may_stand_alone(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before another option, at the end, and before a place."""
    place = tmp_path / "nowhere"
    for line in ([place, *words, "--select", "best"], [place, *words], [*words, place]):
        run("report", *line, code=2)
        assert "nowhere" in sentence(capsys)


URL = "postgresql://me:hunter2{}tiger@127.0.0.1:1/studies"


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "--storag", "URL"],
        ["compare", "--storag=URL"],
        ["compare", "--storage", "URL"],
        ["compare", "--seeds", "URL"],
        ["compare", "--losses", "URL"],
        ["compare", "--optimizer=URL"],
        ["compare", "--data", "URL"],
        ["compare", "URL"],
        ["compare", "digits", "URL"],
        ["URL"],
        ["report", "URL"],
        ["compare", "--tuned", "--storage=URL"],
        ["compare", "--storage", "NONE"],
        ["doctor", "--storage", "NONE"],
        ["tune", "--loss", "penex", "--storage", "NONE"],
    ],
)
def test_no_message_has_a_password(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path)] if arguments[0] == "compare" else []
    none = URL.format("@").replace("//", "/")
    words = [word.replace("URL", URL.format("@")).replace("NONE", none) for word in arguments]
    run(*words, *out, code=2)
    shown = capsys.readouterr()
    assert "hunter2" not in shown.out + shown.err
    assert "tiger" not in shown.out + shown.err


@pytest.mark.parametrize("between", ["", "@", "/", ":", "?", "#", "@127.0.0.1:1/@", " ", "%40"])
def test_what_a_driver_says_has_no_part_of_a_password(
    between: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server is not there, and some of these URLs are none."""
    run("tune", "--loss", "penex", "--storage", URL.format(between), "--out", tmp_path, code=2)
    text = sentence(capsys)
    assert "postgresql://me:***@" in text
    assert "hunter2" not in text
    assert "tiger" not in text


def test_a_fault_of_ours_has_no_password_either(tmp_path: Path) -> None:
    first = "import sys; sys.argv = ['penex', 'compare', '--storage', 'x://me:hunter2@tiger@host']"
    code = """
from penex import __main__, cli
def main():
    raise RuntimeError("no host tiger@host in x://me:hunter2@tiger@host")
cli.main = main
__main__.main()
"""
    done = child(tmp_path, "-c", f"{first}{code}")
    assert done.returncode == 1
    assert "RuntimeError: no host ***@host" in done.stderr
    assert "hunter2" not in done.stderr
    assert "tiger" not in done.stderr


def test_names_from_outside_do_not_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("compare", "--data", tmp_path / "a\x1b[2J\u202eb", code=2)
    assert "a\\x1b[2J\\u202eb" in sentence(capsys)
    for label, name in enumerate(("red\x1b[2J", "[bold]green")):
        write_class(tmp_path / "classes" / name, label, 6)
    (tmp_path / "classes" / "[bold]green" / "broken\x1b[2J.png").write_bytes(b"")
    run("data", "check", tmp_path / "classes")
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "red\\x1b[2J" in shown.out
    assert "[bold]green" in shown.out
    lines = io.StringIO()
    Lines(1, lines).say("red\x1b[2J")
    assert lines.getvalue() == "red\\x1b[2J\n"


# Help.


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr()
    assert f"usage: penex {command}" in shown.out
    assert not shown.err


def test_the_options_of_compare_come_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["compare", "--help"])
    text = capsys.readouterr().out
    groups = "--losses|data options|--label-noise|recipe options|--epochs|output options|--out"
    words = groups.split("|")
    places = [text.index(word) for word in words]
    assert places == sorted(places)


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in cli.COMMANDS)


def test_doctor_without_what_a_database_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    run("doctor", "--storage", "postgresql://me@nowhere/name", code=2)
    assert "A database needs SQLAlchemy and psycopg" in sentence(capsys)
