"""What a clean network beside the one that is judged is worth, on networks that no fit has met.

    python -m benchmarks.accuracy.reference [ZOO ...] [--rows EVIDENCE ...] --work WORK [--out FILE]

Each ZOO is a folder that `jaxtroj generate zoo` made. Every network gets a clean one of the same
data set out of another ZOO, drawn by its name, so that the two share neither pictures nor a network
that they started from. Gathers stage `reference` of every network, resumable in WORK, adds it to
the other evidence of the same networks, the rows EVIDENCE, and writes all beside FILE; an EVIDENCE
that has the fields already needs no ZOO, and neither does what an earlier run wrote, which is read
by default. FILE has each population as the general calibrator judges it, and as the one for
networks beside a reference does, with and without the fields; those of `--met` are in its fit,
which `--calibrator` makes again, of them and of the general calibrator's networks.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.accuracy.fresh import probability, scores
from benchmarks.accuracy.picture_rows import PictureRow, once, read_all, read_rows
from benchmarks.accuracy.zoo import fit
from benchmarks.provenance import RESULTS, provenance, write_evidence
from converters.files import write_atomic
from jaxtroj.calibration import Calibrator
from jaxtroj.cli.options import keep_compiled
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.populations import BY_NAME
from jaxtroj.record import digest_file
from jaxtroj.rounds import ModelEntry, iter_models
from jaxtroj.scan import scan_model
from jaxtroj.settings import Settings

_FIELDS = IMAGES.stage_fields["reference"]
_GENERAL = BY_NAME["general"]
_STORED = RESULTS / "reference.evidence.jsonl"
_MET = ("zooH", "zooI", "zooJ", "zooK")
"""Populations in the fit of the calibrator that ships: seeds 61, 67, 71 and 73 of the zoo."""


def main() -> int:
    """Gather, judge, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    rows = read_all(args.rows, args.work)
    folders = {folder.name: folder for folder in args.zoos}
    rows = [row for row in rows if row.population in folders or _FIELDS[0] in row.evidence]
    rows = list(_with_reference(rows, folders, args.work / "reference.jsonl"))
    write_evidence(args.out, rows)
    if args.calibrator is not None:
        _fit(rows, args.met).save(args.calibrator)
    result = {"provenance": provenance(), "met": args.met}
    if _GENERAL.beside_path.is_file():
        result |= {
            "calibrator": digest_file(_GENERAL.beside_path),
            "scores": judged(rows, args.met),
        }
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a clean network beside is worth.")
    parser.add_argument("zoos", nargs="*", type=Path, metavar="ZOO")
    parser.add_argument("--rows", nargs="+", type=Path, default=[_STORED], metavar="EVIDENCE")
    parser.add_argument("--met", nargs="*", default=_MET, help="populations in the fit")
    parser.add_argument("--calibrator", type=Path, help="also fit and write here")
    parser.add_argument("--work", type=Path, required=True, help="what was gathered goes here")
    parser.add_argument("--out", type=Path, default=RESULTS / "reference.json")
    return parser.parse_args()


def _fit(rows: Sequence[PictureRow], met: Sequence[str]) -> Calibrator:
    """Of the general calibrator's networks, and of those beside a reference."""
    own = [row for row in rows if row.population in met]
    general = read_rows(RESULTS / "zoo.evidence.jsonl", Path())
    words = Calibrator.load(_GENERAL.path).provenance.population
    beside = f"with {len(own)} augmented ones ({', '.join(met)}), each beside a clean one"
    return fit(once([*own, *general]), 0, f"{words}; {beside}")


def _with_reference(
    rows: Sequence[PictureRow], folders: dict[str, Path], done: Path
) -> Iterator[PictureRow]:
    """The rows with the fields of stage `reference`; those that have them stay as they are."""
    done.parent.mkdir(parents=True, exist_ok=True)
    lines = done.read_text().splitlines() if done.is_file() else []
    known = {(one["population"], one["model"]): one["fields"] for one in map(json.loads, lines)}
    entries = {name: {e.model_id: e for e in iter_models(p)} for name, p in folders.items()}
    for row in rows:
        if _FIELDS[0] in row.evidence:
            yield row
            continue
        place = (row.population, row.model)
        if place not in known:
            beside = _drawn(row, [one for one in rows if one.population in folders])
            reference = entries[beside.population][beside.model].model_path
            known[place] = _gathered(entries[row.population][row.model], reference)
            line = {"population": row.population, "model": row.model, "fields": known[place]}
            with done.open("a") as file:
                file.write(json.dumps(line | {"reference": f"{beside.population} {beside.model}"}))
                file.write("\n")
        yield replace(row, evidence=dict(row.evidence) | known[place])


def _drawn(row: PictureRow, rows: Sequence[PictureRow]) -> PictureRow:
    """A clean network of the same data set and classes out of another folder."""
    like = [
        one
        for one in rows
        if not one.poisoned
        and one.population != row.population
        and (one.dataset, one.classes) == (row.dataset, row.classes)
    ]
    return Random(f"{row.population} {row.model}").choice(like)


def _gathered(entry: ModelEntry, reference: Path) -> dict[str, float]:
    settings = Settings(
        calibrator=None,
        early_stop=False,
        channel_order="RGB",
        normalization="unit",
        stages=("reference",),
        reference=reference,
    )
    record = scan_model(entry, settings)
    if record.status != "ok":
        raise RuntimeError(f"{entry.model_id}: {record.reason}")
    print(entry.model_path, record.evidence, file=sys.stderr)
    return {name: record.evidence[name] for name in _FIELDS}


def judged(rows: Sequence[PictureRow], met: Sequence[str]) -> dict[str, Any]:
    """Scores of each population, of all fresh ones, and of these by the number of sources."""
    fresh = [row for row in rows if row.population not in met]
    limited = [row for row in fresh if row.sources in ("", "one", "two")]
    parts = {name: [r for r in rows if r.population == name] for name in _populations(rows)}
    parts |= {"fresh": fresh, "fresh, one or two sources, and clean": limited}
    general, beside = map(Calibrator.load, (_GENERAL.path, _GENERAL.beside_path))
    return {
        name: {
            "general": _scores(own, general, alone=True),
            "beside, without the fields": _scores(own, beside, alone=True),
            "beside": _scores(own, beside, alone=False),
            "target": _targets(own),
        }
        for name, own in parts.items()
        if own
    }


def _populations(rows: Sequence[PictureRow]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.population for row in rows))


def _scores(rows: Sequence[PictureRow], calibrator: Calibrator, alone: bool) -> dict[str, Any]:
    gone = _FIELDS if alone else ()
    kept = [{k: v for k, v in row.evidence.items() if k not in gone} for row in rows]
    said = [
        probability(replace(row, evidence=left), calibrator)
        for row, left in zip(rows, kept, strict=True)
    ]
    return scores(np.array(said), np.array([row.poisoned for row in rows]))


def _targets(rows: Sequence[PictureRow]) -> dict[str, int]:
    """How many are poisoned, and of how many of these the lean names the target."""
    own = [row for row in rows if row.poisoned]
    named = [int(row.evidence["reference_lean_class"]) == row.target_class for row in own]
    return {"poisoned": len(own), "leans to the target": int(np.sum(named))}


if __name__ == "__main__":
    sys.exit(main())
