"""The record of benchmarks.workers as tables: python -m benchmarks.workers_record FILE."""

import argparse
import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def _row(record: Record, load: str, workers: int, **rest: Any) -> Record | None:
    wanted = {"load": load, "workers": workers, "pooled": False, "training": 0.0, **rest}
    found = (row for row in record["rows"] if all(row[k] == v for k, v in wanted.items()))
    return next(found, None)


def _an_hour(row: Record | None) -> str:
    return "–" if row is None else f"{row['an_hour']:,}"


def table(record: Record) -> str:
    """What the server bore, by the number of workers, in Markdown."""
    lines = [
        "| workers | looks an hour, waiting | packs an hour, of 0 s | pooled | ms to take one: "
        "median, 99 % | packs an hour with records: digits | CIFAR-10 | time in the database, "
        "packs of 10 s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for workers in dict.fromkeys(row["workers"] for row in record["rows"]):
        (trained,) = (r for r in record["rows"] if r["workers"] == workers and r["training"])
        leased = _row(record, "leases", workers)
        assert leased is not None
        cells = [
            str(workers),
            _an_hour(_row(record, "waiting", workers)),
            _an_hour(leased),
            _an_hour(_row(record, "leases", workers, pooled=True)),
            f"{leased['take_ms']['p50']:.0f}, {leased['take_ms']['p99']:.0f}",
            _an_hour(_row(record, "digits records", workers)),
            _an_hour(_row(record, "cifar10 records", workers)),
            f"{trained['in_database']:.1%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def optuna_table(record: Record) -> str:
    """What Optuna took, by the number of trials, in Markdown."""
    lines = ["| trials in the study | a pack of ten is asked for in | told in |", "|---|---|---|"]
    for row in record["optuna"]:
        lines.append(f"| {row['trials']:,} | {row['ask']:.2f} s | {row['tell']:.2f} s |")
    return "\n".join(lines)


def facts(record: Record) -> str:
    """What was measured where, and the rate of records, in sentences."""
    rates = [row["an_hour"] * row["pack"] / 3.6e9 for row in record["rows"] if row["pack"]]
    sizes = {name: f"{size / 1e6:.1f} MB" for name, size in record["parcels"].items()}
    return (
        f"PostgreSQL {record['postgresql']['version'].split()[0]} as it comes, "
        f"{record['environment']['device']}; load of others before: {record['load_before']:.0f}. "
        f"A record of digits has {sizes['digits']}, one of CIFAR-10 {sizes['cifar10']}; they came "
        f"in at {min(rates):.0f} to {max(rates):.0f} MB a second."
    )


def told(record: Record) -> str:
    """All that the documents say of a record."""
    return "\n\n".join([facts(record), table(record), optuna_table(record)])


def main() -> None:
    """Print the tables of a record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    record = json.loads(parser.parse_args().record.read_text())
    print(told(record))


if __name__ == "__main__":
    main()
