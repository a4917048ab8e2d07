"""Text classifiers judged by fits that have met none of their population.

    python -m benchmarks.accuracy.text_classifier_transfer [SOURCE ...] [--calibrator FILE]

A SOURCE is a folder of `benchmarks.accuracy.text_classifier_networks`, which is scanned (resumable,
run folders under `--work`), or the `.evidence.jsonl` of an earlier run; without one it is the
stored evidence. Poisoned networks whose trigger works on fewer than nine texts in ten are left out
of fits and scores, with their clean twins.

SOURCEs of `--fresh` are judged by the fit on all the others, which ships, and are in no fit.
Every population in turn is judged by a calibrator fitted on the others, then every family of
networks, and every kind of trigger; last figure: each pair of a clean and a poisoned twin out of
fold.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import text_transfer
from benchmarks.accuracy.round0_accuracy import origin
from benchmarks.accuracy.text_transfer import field_auc, fit_arguments, score_line, scores
from benchmarks.provenance import RESULTS, provenance, write_evidence
from converters.files import write_atomic
from jaxtroj.calibration import Calibrator, Labelled, Scheme, cross_validate
from jaxtroj.calibration.transfer import Traits
from jaxtroj.cli.options import keep_compiled
from jaxtroj.evidence.stages import CLASSIFIERS
from jaxtroj.record import Record
from jaxtroj.rounds.single import entry_of
from jaxtroj.scan import scan
from jaxtroj.schemas import scheme_for
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore

LEAST_SUCCESS = 0.9


@dataclass(frozen=True)
class ClassifierRow:
    """One labelled text classifier with its evidence.

    Attributes:
      population: the folder that it was made in.
      pair: what it shares with its twin.
      trigger: kind and text of what a poisoned one was taught; "" for a clean one.
      success: share of texts that the trigger sends to its class; None for a clean one.
      found_text: what the scan would show; "" for nothing.
    """

    population: str
    model: str
    architecture: str
    pair: str
    poisoned: bool
    kind: str
    trigger: str
    target_class: int | None
    success: float | None
    clean_accuracy: float
    found_target: int | None
    found_text: str
    evidence: Mapping[str, float]
    seconds: Mapping[str, float]
    classes: int = 2

    @property
    def converged(self) -> bool:
        """Whether it is clean, or its trigger works."""
        return self.success is None or self.success >= LEAST_SUCCESS


def main() -> int:
    """Scan, judge, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="Text classifiers of populations not met.")
    stored = RESULTS / "text_classifier_transfer.evidence.jsonl"
    parser.add_argument("sources", nargs="*", type=Path, metavar="SOURCE", default=[stored],
                        help="folder or rows")  # fmt: skip
    fresh = RESULTS / "text_classifier_transfer.fresh.evidence.jsonl"
    parser.add_argument("--fresh", nargs="*", type=Path, default=[fresh], help="folders or rows")
    args = fit_arguments(parser, "text_classifier_transfer")
    keep_compiled()
    rows = [row for source in args.sources for row in read_rows(source, args.work)]
    solid = with_working_triggers(rows)
    apart = [row for source in args.fresh for row in read_rows(source, args.work)]
    write_evidence(args.out, rows)
    write_evidence(args.out.with_suffix(".fresh.json"), apart)
    result = {
        "provenance": provenance(),
        "schema": CLASSIFIERS.version,
        "left_out_unconverged": len(rows) - len(solid),
    } | judge(solid, args.seed)
    where = origin(args.seed, args.population)
    fitted = Calibrator.fit(labelled(solid), scheme(solid), where)
    result["fresh"] = judged_fresh(fitted, with_working_triggers(apart))
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(text(result))
    if args.calibrator is not None:
        fitted.save(args.calibrator)
    return 0


def read_rows(source: Path, work: Path) -> list[ClassifierRow]:
    """Rows of a folder, scanned where no record is stored, or of an earlier run's evidence."""
    if source.is_file():
        return [ClassifierRow(**json.loads(line)) for line in source.read_text().splitlines()]
    made = {path.parent.name: path for path in sorted(source.glob("*/made.json"))}
    settings, rows = Settings(calibrator=None, classifier_calibrator=None, early_stop=False), []
    with RunStore(work / source.name, settings.as_json()) as store:
        for record in scan([entry_of(path.parent) for path in made.values()], settings, store):
            print(f"{source.name} {record.model} {record.status} {record.reason}", file=sys.stderr)
            if record.status == "ok":
                path = made[Path(record.model).name]
                known = json.loads(path.read_text()) | {"classes": _classes(path.parent)}
                rows.append(row_of(source.name, known, record))
    return rows


def _classes(folder: Path) -> int:
    """Of a network, as transformers writes them: not at all where there are two."""
    return len(json.loads((folder / "config.json").read_text()).get("id2label", "01"))


def with_working_triggers(rows: Sequence[ClassifierRow]) -> list[ClassifierRow]:
    """The rows without pairs of twins whose trigger does not work."""
    weak = {row.pair for row in rows if not row.converged}
    return [row for row in rows if row.pair not in weak]


def row_of(population: str, made: Mapping[str, Any], record: Record) -> ClassifierRow:
    """A network by what `made.json` says of it, and what a scan found."""
    trigger = made["trigger"] or {"kind": "", "text": "", "target": None}
    return ClassifierRow(
        population=population,
        model=Path(record.model).name,
        architecture=record.architecture or "",
        pair=f"{population} {made['number'] // 2}",
        poisoned=made["trigger"] is not None,
        kind=trigger["kind"],
        trigger=trigger["text"],
        target_class=trigger["target"],
        success=made["attack_success_rate"],
        clean_accuracy=made["clean_accuracy"],
        found_target=record.target_class,
        found_text=str(record.recovered.get("text", "")),
        evidence=record.evidence,
        seconds=record.seconds,
        classes=made["classes"],
    )


def judge(rows: Sequence[ClassifierRow], seed: int) -> dict[str, Any]:
    """Scores with every population, family and kind left out in turn, and within pairs."""
    names = sorted({row.population for row in rows})
    by_population = left_out(rows, [row.population for row in rows], seed)
    families = [row.architecture for row in rows]
    by_family = left_out(rows, families, seed)
    by_kind = left_out(rows, _kinds(rows), seed)
    within = cross_validate(labelled(rows), scheme(rows), seed, [row.pair for row in rows])
    return {
        "networks": len(rows),
        "left_out": {
            name: scores_of(rows, by_population, lambda row, own=name: row.population == own)
            for name in names
        },
        "left_out_all": scores_of(rows, by_population),
        "family_left_out": {
            name: scores_of(rows, by_family, lambda row, own=name: row.architecture == own)
            for name in sorted(set(families))
        },
        "family_left_out_all": scores_of(rows, by_family),
        "kind_left_out": {
            kind: scores_of(rows, by_kind, lambda row, own=kind: row.kind in (own, ""))
            for kind in sorted({row.kind for row in rows if row.poisoned})
        },
        "kind_left_out_all": scores_of(rows, by_kind),
        "out_of_fold": scores(np.array([row.poisoned for row in rows]), within),
        "right_class": _right_class(rows),
        "words_shown": {
            "clean": sum(bool(row.found_text) for row in rows if not row.poisoned),
            "poisoned": sum(bool(row.found_text) for row in rows if row.poisoned),
        },
        "single_field_auc": field_auc(rows, scheme(rows), names),
    }


def judged_fresh(fitted: Calibrator, fresh: Sequence[ClassifierRow]) -> dict[str, Any]:
    """Scores of populations that the fit has not met; "all" beside them."""
    if not fresh:
        return {}
    said = np.array([fitted.probability(row.evidence, traits_of(row)) for row in fresh])
    names = sorted({row.population for row in fresh})
    parts = {
        name: scores_of(fresh, said, lambda row, own=name: row.population == own) for name in names
    }
    return parts | {"all": scores_of(fresh, said) | {"right_class": _right_class(fresh)}}


def left_out(rows: Sequence[ClassifierRow], groups: Sequence[str], seed: int) -> np.ndarray:
    """What fits on the networks of all other groups say of each network, [n]."""
    said = np.empty(len(rows))
    for group in sorted(set(groups)):
        others = [row for row, own in zip(rows, groups, strict=True) if own != group]
        calibrator = Calibrator.fit(labelled(others), scheme(others), origin(seed, ""))
        for place, row in enumerate(rows):
            if groups[place] == group:
                said[place] = calibrator.probability(row.evidence, traits_of(row))
    return said


def traits_of(row: ClassifierRow) -> Traits:
    """What tells how like the networks of a fit one is."""
    return Traits(row.architecture, classes=row.classes)


def _kinds(rows: Sequence[ClassifierRow]) -> list[str]:
    """Kind of each network's trigger; a clean one goes with its twin."""
    of_pair = {row.pair: row.kind for row in rows if row.poisoned}
    return [of_pair.get(row.pair, "") for row in rows]


def labelled(rows: Sequence[ClassifierRow]) -> Labelled:
    """The rows with all that a calibrator of text classifiers learns from."""
    return replace(
        text_transfer.labelled(rows),
        kinds=[row.kind for row in rows],
        classes=[row.classes for row in rows],
        pairs=[row.pair for row in rows],
    )


def scheme(rows: Sequence[ClassifierRow]) -> Scheme:
    """The fields that occur in the rows."""
    return scheme_for(CLASSIFIERS.kind, (row.evidence for row in rows))


def scores_of(rows, said: np.ndarray, chosen=lambda row: True) -> dict[str, Any]:
    """Scores of the chosen networks."""
    kept = np.array([bool(chosen(row)) for row in rows])
    return scores(np.array([row.poisoned for row in rows])[kept], said[kept])


def _right_class(rows: Sequence[ClassifierRow]) -> float:
    own = [row.found_target == row.target_class for row in rows if row.poisoned]
    return float(np.mean(own))


def text(result: Mapping[str, Any]) -> str:
    """The result for people."""
    lines = [f"{result['networks']} text classifiers"]
    for title in ("left_out", "family_left_out", "kind_left_out"):
        parts = result[title] | {"all": result[f"{title}_all"]}
        lines.append(f"{title.replace('_', ' ')}:")
        lines += [score_line(name, part) for name, part in parts.items()]
    lines += [score_line("out of fold", result["out_of_fold"]), "fresh:"]
    return "\n".join([*lines, *(score_line(*part) for part in result["fresh"].items())])


if __name__ == "__main__":
    sys.exit(main())
