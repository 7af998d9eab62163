"""Everything that a comparison leaves besides its records."""

from pathlib import Path

from penex.lab.ground import files
from penex.lab.records import archived
from penex.report import figures, leads, page, tables
from penex.report.results import Results


def pages(folder: Path) -> Path:
    """Where what is made of a task's records goes: beside them, but not beside an archive."""
    only_archived = not folder.is_dir() and archived.names(folder)
    return Path("runs", "report", folder.name) if only_archived else folder


def write_all(results: Results, folder: Path) -> list[Path]:
    """Write the page, the tables and the figures of a comparison into a folder; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    first = page.write(folder / page.NAME, results)  # it reads the logits, and keeps their scores
    texts = {
        "comparison.md": tables.markdown(results),
        "comparison.csv": tables.as_csv(results),
        "comparison.tex": tables.latex(results),
        "leads.csv": leads.as_csv(results),
    }
    for name, text in texts.items():
        files.write_text(folder / name, text)
    written = [folder / name for name in texts]
    return [first, *written, *figures.write_all(results, folder)]
