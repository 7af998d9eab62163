"""Everything that a comparison leaves besides its records."""

from pathlib import Path

from penex.lab import files
from penex.report import figures, page, tables
from penex.report.results import Results


def write_all(results: Results) -> list[Path]:
    """Write the page, the tables and the figures beside the records; the files."""
    texts = {
        "comparison.md": tables.markdown(results),
        "comparison.csv": tables.as_csv(results),
        "comparison.tex": tables.latex(results),
    }
    for name, text in texts.items():
        files.write_text(results.folder / name, text)
    written = [results.folder / name for name in texts]
    return [page.write(results), *written, *figures.write_all(results)]
