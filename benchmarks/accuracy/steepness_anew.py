"""Evidence of heads told beside clean ones as scans do it since revision 1, from earlier evidence.

    python -m benchmarks.accuracy.steepness_anew EVIDENCE OUT [--beside EVIDENCE]

The networks and banks of 2026-11-23 are gone; their raw fields are kept. `against_*` follows from
the raw fields of a head and of the clean heads that it is compared with, and
`jacobian_steepness` from two raw fields. A bank held 18 to 30 clean heads of a population, and
which ones is not on file: here all clean heads of it are compared with, the head itself left out.
Those of another dataset ("A beside B") are taken from `--beside`, as they were told beside their
own kind.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.accuracy.round5_accuracy import HeadRow
from benchmarks.accuracy.text_transfer import BETWEEN, read_rows
from converters.files import write_atomic
from jaxtroj.evidence.texts.comparison import SIZE, STEEPNESS, Comparison
from jaxtroj.evidence.texts.sensitivity import steepness
from jaxtroj.evidence.texts.stages import against, beside
from jaxtroj.evidence.texts.standard import FEWEST, Standard, make_standard

COMPARISONS = (beside.COMPARISON, against.COMPARISON)


def main() -> int:
    """Read, tell anew, write; returns the exit status."""
    parser = argparse.ArgumentParser(description="Evidence beside clean heads, told anew.")
    parser.add_argument("evidence", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--beside", type=Path, help="evidence with the clean heads of populations B"
    )
    args = parser.parse_args()
    rows = read_rows(str(args.evidence), Path())
    others = rows if args.beside is None else read_rows(str(args.beside), Path())
    changed = iter(told_anew(rows, others))
    lines = [
        json.dumps(json.loads(line) | {"evidence": dict(next(changed).evidence)})
        for line in args.evidence.read_text().splitlines()
    ]
    write_atomic(args.out, "".join(f"{line}\n" for line in lines).encode())
    return 0


def told_anew(rows: Sequence[HeadRow], clean: Sequence[HeadRow]) -> list[HeadRow]:
    """Rows with today's fields; `clean` holds the clean heads that they are compared with."""
    return [replace(row, evidence=_fields(row, _beside(row, clean))) for row in rows]


def _beside(row: HeadRow, clean: Sequence[HeadRow]) -> dict[str, Mapping[str, float]]:
    """Clean heads of a row's population, or of that beside which it was scanned, by their names."""
    population = row.population.rpartition(BETWEEN)[2]
    return {
        other.model: other.evidence
        for other in clean
        if other.population == population and not other.poisoned
    }


def _fields(row: HeadRow, clean: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    told = steepness(row.evidence[STEEPNESS], row.evidence[SIZE])
    found = dict(row.evidence) | {"jacobian_steepness": told}
    key = "" if BETWEEN in row.population else row.model
    for comparison in COMPARISONS:
        standard = _standard(comparison, clean)
        if standard is None or not set(comparison.compared) <= row.evidence.keys():
            continue
        raw = {name: row.evidence[name] for name in (*comparison.compared, STEEPNESS, SIZE)}
        told = standard.deviations(raw, key)
        found |= {f"against_{name}": value for name, value in told.items()}
    return found


def _standard(comparison: Comparison, clean: Mapping[str, Mapping[str, float]]) -> Standard | None:
    names = (*comparison.compared, STEEPNESS, SIZE)
    known = {
        key: {n: fields[n] for n in names}
        for key, fields in clean.items()
        if set(names) <= fields.keys()
    }
    if len(known) <= FEWEST:
        return None
    return make_standard(known.items(), STEEPNESS, SIZE)


if __name__ == "__main__":
    raise SystemExit(main())
