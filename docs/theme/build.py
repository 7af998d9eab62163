"""The documentation site: the pages under docs/, filled in and built; a warning is an error.

    python docs/theme/build.py [--out site]

- `<!-- section: CONTRIBUTING.md#working -->` on a line of its own becomes that section, without its
  heading: a statement stands in one place and is shown in two. Without a # it is the whole file.
- `<!-- numbers: GCE -->` becomes the rows of docs/fair.md that are about these losses (several are
  separated by semicolons), beside cross-entropy's; `<!-- paper numbers: focal loss -->` those of
  docs/reproduction.md.
- `<!-- commands -->` becomes what the commands say of themselves (`penex COMMAND --help`).
- The line below one of these is for those who read the file itself, and goes.
- A link to a file of the repository that is no page leads to a copy of that file in the site.
"""

import argparse
import contextlib
import io
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[2]
# Files above docs/ that pages link to, and the page that shows them.
SHOWN = {
    "README.md": "docs/index.md",
    "CONTRIBUTING.md": "docs/house/index.md",
    "CHANGELOG.md": "docs/house/changes.md",
    "results/README.md": "docs/measured.md",
    "results": "docs/measured.md",
}
FAIR = (
    "values",
    "accuracy, last epoch",
    "cross-entropy, last epoch, fitted",
    "accuracy, best epoch",
    "cross-entropy, best epoch, fitted",
)
PAPER = ("ACC", "-CE", "-BRIER", "-ECE")

_FENCE = re.compile(r"^```.*?^```$", flags=re.DOTALL | re.MULTILINE)
_SECTION = re.compile(r"^<!-- section: ([^\s#]+)(?:#(\S+))? -->(?:\n.+)?$", flags=re.MULTILINE)
_NUMBERS = re.compile(r"^<!-- (paper )?numbers: (.+?) -->(?:\n.+)?$", flags=re.MULTILINE)
_SPREAD = re.compile(r"(\d) ([±/]) (\d)")
_COMMANDS = re.compile(r"^<!-- commands -->(?:\n.+)?$", flags=re.MULTILINE)
_LINK = re.compile(r'(\]\(|(?:src|href)=")(?![a-z]+:|#)([^)"\s#]+)')


class BuildError(Exception):
    """What is wrong with a page, in a sentence."""


def build(out: Path) -> None:
    """Build the site into a folder, in the place of what was there.

    Args:
        out: the folder. It is left as it was if there is a warning, or if it holds no site.
    """
    if out.exists() and not (out / "search.json").exists():
        raise BuildError(f"{out} exists and holds no site: remove it, or choose another --out.")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        shutil.copytree(ROOT / "docs", home / "docs", ignore=shutil.ignore_patterns("*.py"))
        shutil.copy(ROOT / "mkdocs.yml", home)
        (home / "src").symlink_to(ROOT / "src")  # the reference is read from it
        for path in sorted((home / "docs").rglob("*.md")):
            page = path.relative_to(home).as_posix()
            path.write_text(filled(path.read_text(), page, home))
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        result = subprocess.run(command, cwd=home, capture_output=True, text=True)
        said = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout + result.stderr)
        pages = [path.relative_to(home / "docs") for path in (home / "docs").rglob("*.md")]
        # Zensical leaves out, without a word, a page that it cannot make.
        lost = [str(p) for p in pages if not (home / "site" / p.with_suffix(".html")).exists()]
        if result.returncode or "arning" in said or lost:
            words = f"The site has faults:\n{said.partition('Traceback')[0]}"
            raise BuildError(words + f"No page was made of {', '.join(sorted(lost))}." * bool(lost))
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(home / "site", out)


def filled(text: str, page: str, home: Path) -> str:
    """A page with its sections, numbers and commands, and with links that lead to pages.

    Args:
        text: the page as it stands under docs/.
        page: its path in the repository.
        home: the copy of the repository, which gets the files that are linked to.
    """
    text = _with_links(text, page, page, home)
    text = _SECTION.sub(lambda found: _section(found[1], found[2], page, home), text)
    text = _NUMBERS.sub(lambda found: _numbers(found[2].split("; "), bool(found[1])), text)
    text = _COMMANDS.sub(lambda found: _commands(), text)
    # A number and its spread stay on one line, in narrow tables too.
    return _outside_fences(text, lambda part: _SPREAD.sub("\\1\u00a0\\2\u00a0\\3", part))


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    parts = re.split(f"({_FENCE.pattern})", text, flags=_FENCE.flags)
    return "".join(part if k % 2 else change(part) for k, part in enumerate(parts))


def _with_links(text: str, source: str, page: str, home: Path) -> str:
    """A text from a file of the repository, with its links as they are from a page."""

    def turned(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        if not (ROOT / target).exists():  # pages and places in them are checked by zensical
            raise BuildError(f"{source}: {link[2]} does not exist.")
        target = SHOWN.get(target, target)
        if not target.startswith("docs/") and (ROOT / target).is_file():
            copy = home / "docs" / "files" / target
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / target, copy)
            target = f"docs/files/{target}"
        return f"{link[1]}{posixpath.relpath(target, posixpath.dirname(page))}"

    return _outside_fences(text, lambda part: _LINK.sub(turned, part))


def slug(heading: str) -> str:
    """The place of a heading, as GitHub and the site name it.

    >>> slug("Change → files")
    'change--files'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower().strip()).replace(" ", "-")


def _section(name: str, place: str | None, page: str, home: Path) -> str:
    """A file, or one section of it, without its heading; that of the first ends at the next one."""
    text = (ROOT / name).read_text()
    covered = _FENCE.sub(lambda block: re.sub("(?m)^#", " ", block[0]), text)
    headings = list(re.finditer(r"^(#+) (.*)\n", covered, flags=re.MULTILINE))
    if place is None:
        return _with_links(text[headings[0].end() :].strip("\n"), name, page, home)
    for k, heading in enumerate(headings):
        if slug(heading[2]) == place:
            level = len(heading[1]) if k else 9
            later = (other.start() for other in headings[k + 1 :] if len(other[1]) <= level)
            body = text[heading.end() : next(later, len(text))]
            return _with_links(body.strip("\n"), name, page, home)
    raise BuildError(f"{page}: {name} has no section #{place}.")


def _numbers(losses: list[str], paper: bool) -> str:
    """A table: tasks and losses, with what a document has of them already."""
    document = "reproduction.md" if paper else "fair.md"
    wanted = PAPER if paper else FAIR
    rows: list[list[str]] = []
    plain: list[str] = []  # cross-entropy's row, which comes first in its table
    columns: list[int] = []
    task = ""
    for line in (ROOT / "docs" / document).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("#"):
            task = line.lstrip("# ")
        if not line.startswith("|"):
            columns = []
        elif set(wanted) <= set(cells):
            columns = [cells.index(name) for name in wanted]
        loss = cells[0].partition(" (")[0] if paper else cells[0]
        if columns and loss in ("CE", *losses):
            # The spread of one test set and the paper's number are in the document.
            shown = [re.sub(r" \[[^]]*\]| \([^)]*\)", "", cells[k]) for k in columns]
            if loss == "CE":
                plain = [f"[{task}](../{document}#{slug(task)})", "CE", *shown]
            else:
                rows += [plain] * bool(plain) + [["", f"**{cells[0]}**", *shown]]
                plain = []
    if not rows:
        raise BuildError(f"docs/{document} has no row of {losses}.")
    head = ["task", "loss", *wanted]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _commands() -> str:
    """A section for each command: what its --help says, an option a line."""
    from penex import cli

    shown = []
    # Tyro asks the terminal how wide it is: 100 has no boxes side by side.
    narrow = mock.patch.dict(os.environ, COLUMNS="100")
    for name in cli.COMMANDS:
        said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # tyro draws boxes on such alone
        with narrow, contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            cli.main([name, "--help"])
        said.seek(0)
        shown.append(f"## penex {name}\n\n{unboxed(said.read())}")
    return "\n\n".join(shown)


def unboxed(text: str) -> str:
    r"""A help text in Markdown: its boxes become headings and lists.

    >>> print(unboxed("usage: a [-h]\n\nDoes.\n\n╭─ options ─╮\n│ --b N   how │\n│    many │"))
    ```text
    a [-h]
    ```
    <BLANKLINE>
    Does.
    <BLANKLINE>
    <BLANKLINE>
    **Options**
    <BLANKLINE>
    - `--b N`: how many
    """
    lines: list[str] = []
    for line in text.splitlines():
        words = line.strip("│ ")
        if line.startswith("usage:"):
            lines += ["```text", words.removeprefix("usage: "), "```"]
        elif line.startswith("╭"):
            lines += ["", f"**{line.strip('╭╮─ ').capitalize()}**", ""]
        elif line.startswith("│") and not words.strip("─"):  # above it, words about the whole box
            head = len(lines) - 1 - lines[::-1].index("")
            about = " ".join(part.removeprefix("- ").strip("`") for part in lines[head + 1 :])
            lines[head + 1 :] = [about, ""]
        elif line.startswith("│  "):  # what an option does, below its name
            lines[-1] += (": " if lines[-1].endswith("`") else " ") + _plain(words)
        elif line.startswith("│"):
            name, _, meaning = words.partition("  ")
            lines.append(f"- `{name}`" + (f": {_plain(meaning.strip())}" if meaning else ""))
        elif not line.startswith("╰"):
            lines.append(_plain(words))
    return "\n".join(lines)


def _plain(words: str) -> str:
    """Words that mean nothing in Markdown."""
    return re.sub(r"([*_<\[])", r"\\\1", words)


def main() -> None:
    """Build the site and say how to look at it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("site"))
    out = parser.parse_args().out
    try:
        build(out)
    except BuildError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print(f"The site is in {out}: open {out / 'index.html'} in a browser, or serve it with")
    print(f"    python -m http.server --directory {out}")


if __name__ == "__main__":
    main()
