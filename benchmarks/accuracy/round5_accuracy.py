"""How well poisoned sentiment heads are told from clean ones: out-of-fold log score and ROC AUC.

    python -m benchmarks.accuracy.round5_accuracy DATASET [DATASET ...] --bank DIR --work DIR
        [--out FILE]

Each DATASET is a folder made by `jaxtroj generate round5` or `round6`, or the `.evidence.jsonl` of
an earlier run. All heads are scanned into run folders under `--work`, resumable; then every head
is judged by a calibrator that has not seen it, once with random folds, once with all heads of one
half of the triggers left out (unseen triggers), and once by calibrators of 48 heads (as many as
Round 6 had for training). What a field is worth that is shown and not judged by is told by adding
it. The bank's references must not be among the heads. With a bank of the official triggers the
result says "list": "known"; it goes into a file of its own.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import RESULTS, provenance, write_evidence
from converters.files import write_atomic
from jaxtroj import scoring
from jaxtroj.calibration import Calibrator, Labelled, Origin, Scheme, out_of_fold
from jaxtroj.calibration.transfer import Traits
from jaxtroj.cli.options import keep_compiled
from jaxtroj.evidence.stages import TEXTS
from jaxtroj.evidence.texts.bank import open_bank
from jaxtroj.numerics import is_above, sigmoid
from jaxtroj.rounds import iter_models
from jaxtroj.scan import scan
from jaxtroj.schemas import FEW_HEADS
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore

FACTORS = (
    "model_architecture",
    "triggers_0_type",
    "triggers_0_condition",
    "triggers_0_fraction",
    "trigger_organization",
    "adversarial_training_method",
)
SMALL_TRAINING, SMALL_REPEATS = 48, 20


@dataclass(frozen=True)
class HeadRow:
    """One labelled head with its evidence; `factors` from METADATA.csv, texts of its triggers."""

    population: str
    model: str
    architecture: str
    poisoned: bool
    targets: Sequence[int]
    found_target: int | None
    found_text: str
    trigger: str
    factors: Mapping[str, str]
    evidence: Mapping[str, float]
    seconds: Mapping[str, float]
    triggers: Sequence[str] = ()


def main() -> int:
    """Scan, judge, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    rows = [row for source in args.datasets for row in labelled_rows(source, args.work, args.bank)]
    result = {"provenance": provenance(), "schema": TEXTS.version, "bank": _bank(args.bank)}
    result |= {
        "list": "known" if result["bank"]["known_list"] else "free",
        "scan_seconds": _all_seconds(rows),
    }
    result |= judge(rows, args.seed)
    fresh = [row for source in args.test for row in labelled_rows(source, args.work, args.bank)]
    if fresh:
        result["fresh"] = _fresh(rows, fresh, args.seed)
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    write_evidence(args.out, [*rows, *fresh])
    print(_text(result))
    if args.calibrator is not None:
        _fit(rows, args).save(args.calibrator)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Out-of-fold accuracy on generated text rounds.")
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET")
    parser.add_argument("--bank", type=Path, required=True, help="probe bank with references")
    parser.add_argument("--work", type=Path, required=True, help="run folders go here")
    parser.add_argument("--out", type=Path, default=RESULTS / "round5_accuracy.json")
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    parser.add_argument("--calibrator", type=Path, help="also fit on all heads and write here")
    parser.add_argument(
        "--test",
        nargs="*",
        type=Path,
        default=[],
        metavar="DATASET",
        help="heads that nothing was chosen by: judged once, by a calibrator of all the others",
    )
    parser.add_argument("--population", default="", help="what the heads are, in words")
    return parser.parse_args()


def _bank(folder: Path) -> dict[str, Any]:
    plan = open_bank(folder).plan
    kinds = [candidate.kind for candidate in plan.candidates]
    return {
        "candidates": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        "carriers": len(plan.carriers),
        "known_list": plan.known_list,
        "digest": plan.digest,
    }


def labelled_rows(source: Path, work: Path, bank: Path | None) -> Iterator[HeadRow]:
    """Labelled rows of a dataset folder, or of the evidence an earlier run wrote."""
    if source.is_file():
        yield from (HeadRow(**json.loads(line)) for line in source.read_text().splitlines())
        return
    entries = [entry for entry in iter_models(source) if entry.poisoned is not None]
    labels = {entry.model_id: entry for entry in entries}
    settings = Settings(calibrator=None, text_calibrator=None, early_stop=False, bank=bank)
    with RunStore(work / source.name, settings.as_json()) as store:
        for record in scan(entries, settings, store):
            if record.status != "ok":
                print(f"{record.model} {record.status} {record.reason}", file=sys.stderr)
                continue
            entry = labels[record.model]
            yield HeadRow(
                population=source.name,
                model=record.model,
                architecture=record.architecture or "",
                poisoned=bool(entry.poisoned),
                targets=_targets(entry.metadata),
                found_target=record.target_class,
                found_text=str(record.recovered.get("text", "")),
                trigger=next(iter(_triggers(entry)), ""),
                triggers=_triggers(entry),
                factors={name: entry.metadata.get(name, "") for name in FACTORS},
                evidence=record.evidence,
                seconds=record.seconds,
            )


def _targets(metadata: Mapping[str, str]) -> list[int]:
    names = ("triggers_0_target_class", "triggers_1_target_class")
    found = [metadata.get(name, "") for name in names]
    return [int(float(value)) for value in found if value not in ("", "None")]


def _triggers(entry) -> list[str]:
    """Texts of a head's triggers, which Round 5's METADATA does not tell."""
    config = entry.text_config
    return [] if config is None else [trigger.text for trigger in config.triggers or ()]


def judge(rows: Sequence[HeadRow], seed: int) -> dict[str, Any]:
    """Out-of-fold scores by stage and factor, unseen triggers, small training sets, seconds."""
    truth = np.array([row.poisoned for row in rows])
    final = list(_held_out(rows, seed).values())[-1]
    return {
        "models": len(rows),
        "poisoned": int(truth.sum()),
        "stages": by_stage(rows, seed),
        "by_factor": _by_factor(rows, final, truth),
        "shown_only": {
            name: _shown_only(rows, name, seed)
            for name in (f.name for f in TEXTS.fields if not f.is_judged)
        },
        "unseen_triggers": _unseen(rows, seed),
        "small_training": _small(rows, seed),
        "targets": _target_counts(rows, final),
        "texts": _text_counts(rows, final),
        "seconds": _seconds(rows),
        "predictions": {
            f"{row.population}/{row.model}": [float(p), row.poisoned]
            for row, p in zip(rows, final, strict=True)
        },
    }


def by_stage(rows: Sequence[HeadRow], seed: int) -> dict[str, Any]:
    """Out-of-fold scores of every stage that the rows have, the last being the verdict's."""
    truth = np.array([row.poisoned for row in rows])
    found = _held_out(rows, seed)
    return {stage: scoring.score(answer, truth).as_dict() for stage, answer in found.items()}


def _held_out(rows: Sequence[HeadRow], seed: int) -> dict[str, np.ndarray]:
    """Probability of each head by stage, by calibrators of the others."""
    found = out_of_fold(_labelled(rows), Scheme(TEXTS.judged_fields, TEXTS.directions), seed)
    return {stage: sigmoid(answer.log_odds) for stage, answer in found.items()}


def _labelled(rows: Sequence[HeadRow]) -> Labelled:
    return Labelled(
        [row.evidence for row in rows],
        [row.poisoned for row in rows],
        [row.architecture for row in rows],
    )


def _fresh(rows: Sequence[HeadRow], fresh: Sequence[HeadRow], seed: int) -> dict[str, Any]:
    """Scores on heads that neither the fields nor the calibrator were chosen by."""
    calibrator = _calibrator(rows, seed)
    truth = np.array([row.poisoned for row in fresh])
    found = [_probability(calibrator, row) for row in fresh]
    return {
        "populations": sorted({row.population for row in fresh}),
        "targets": _target_counts(fresh, np.array(found)),
        "texts": _text_counts(fresh, np.array(found)),
    } | scoring.score(np.array(found), truth).as_dict()


def _by_factor(rows, probabilities, truth) -> dict[str, Any]:
    """Scores of the heads that share a value of a factor.

    Only poisoned heads have a trigger: for the ROC AUC those of one kind of trigger are ranked
    among all clean heads; their log score is theirs alone.
    """
    out: dict[str, Any] = {}
    for name in FACTORS:
        values = np.array([row.factors[name] for row in rows])
        out[name] = {str(v): _part(probabilities, truth, values == v) for v in np.unique(values)}
    return out


def _part(probabilities: np.ndarray, truth: np.ndarray, chosen: np.ndarray) -> dict[str, Any]:
    kinds = np.unique(truth[chosen])
    ranked = chosen if len(kinds) == 2 else chosen | (truth != kinds[0])
    return {
        "models": int(chosen.sum()),
        "log_score": scoring.score(probabilities[chosen], truth[chosen]).log_score,
        "roc_auc": scoring.score(probabilities[ranked], truth[ranked]).roc_auc,
    }


def _shown_only(rows: Sequence[HeadRow], name: str, seed: int) -> dict[str, Any]:
    """Out-of-fold scores of what is judged by, of that and one more field, and of that field."""
    judged = tuple(f for fields in TEXTS.judged_fields.values() for f in fields)
    truth = np.array([row.poisoned for row in rows])

    def scores(fields: Sequence[str]) -> dict[str, Any]:
        signs = {field: TEXTS.directions[field] for field in fields if field in TEXTS.directions}
        found = out_of_fold(_labelled(rows), Scheme({"all": fields}, signs), seed)["all"]
        return scoring.score(sigmoid(found.log_odds), truth).as_dict()

    return {
        "without": scores(judged),
        "with": scores((*judged, name)),
        "alone": scores((name,)),
    }


def trigger_halves(rows: Sequence[HeadRow]) -> np.ndarray:
    """0 or 1 of each head: triggers are dealt in alphabetical order, clean heads by turns."""
    names = sorted({row.trigger for row in rows if row.poisoned})
    clean = [row.model for row in rows if not row.poisoned]
    return np.array(
        [(names.index(r.trigger) if r.poisoned else clean.index(r.model)) % 2 for r in rows]
    )


def _unseen(rows: Sequence[HeadRow], seed: int) -> dict[str, Any]:
    """Calibrators fitted without any head of the triggers that they are tested on."""
    names = {row.trigger for row in rows if row.poisoned}
    half, found = trigger_halves(rows), np.zeros(len(rows))
    for part in (0, 1):
        kept = [row for row, own in zip(rows, half, strict=True) if own != part]
        calibrator = _calibrator(kept, seed)
        for place in np.flatnonzero(half == part).tolist():
            row = rows[place]
            found[place] = _probability(calibrator, row)
    truth = np.array([row.poisoned for row in rows])
    return {"triggers": len(names)} | scoring.score(found, truth).as_dict()


def _small(rows: Sequence[HeadRow], seed: int) -> dict[str, Any]:
    """Mean scores of calibrators of 48 heads, drawn many times, on all other heads."""
    scores, areas = [], []
    truth = np.array([row.poisoned for row in rows])
    for repeat in range(SMALL_REPEATS):
        draw = np.random.default_rng([seed, repeat])
        half = SMALL_TRAINING // 2
        chosen = np.concatenate(
            [draw.permutation(np.flatnonzero(truth == kind))[:half] for kind in (True, False)]
        )
        calibrator = _calibrator([rows[i] for i in chosen], seed)
        rest = np.setdiff1d(np.arange(len(rows)), chosen)
        found = [_probability(calibrator, rows[i]) for i in rest]
        score = scoring.score(np.array(found), truth[rest])
        scores.append(score.log_score)
        areas.append(score.roc_auc)
    return {
        "training": SMALL_TRAINING,
        "log_score": statistics.mean(scores),
        "log_score_deviation": statistics.stdev(scores),
        "log_scores": scores,
        "roc_auc": statistics.mean(areas),
    }


def _target_counts(rows: Sequence[HeadRow], probabilities: np.ndarray) -> dict[str, int]:
    """Among poisoned heads called poisoned with one trigger: how many with the right target."""
    found = [
        row
        for row, p in zip(rows, probabilities, strict=True)
        if row.poisoned and is_above(p) and len(set(row.targets)) == 1
    ]
    right = sum(row.found_target == row.targets[0] for row in found)
    return {"true_positives_with_one_target": len(found), "right_target": right}


def _text_counts(rows: Sequence[HeadRow], probabilities: np.ndarray) -> dict[str, int]:
    """Among poisoned heads called poisoned: whether the bank's best text is one of the triggers.

    Only a bank that holds the triggers can find them; a list-free one has none of them but words.
    """
    pairs = zip(rows, probabilities, strict=True)
    found = [row for row, p in pairs if row.poisoned and is_above(p)]
    return {
        "true_positives": len(found),
        "a_planted_text": sum(row.found_text in (row.triggers or (row.trigger,)) for row in found),
    }


def _seconds(rows: Sequence[HeadRow]) -> dict[str, float]:
    """Median wall seconds of a head by step."""
    steps = [*("read", "convert", "examples"), *TEXTS.names]
    found = {s: statistics.median(row.seconds.get(s, 0.0) for row in rows) for s in steps}
    return {name: round(value, 4) for name, value in found.items()}


def _all_seconds(rows: Sequence[HeadRow]) -> float:
    """Wall seconds of all steps of all heads; a resumed run counts what its records say."""
    return round(sum(sum(row.seconds.values()) for row in rows), 1)


def _calibrator(rows: Sequence[HeadRow], seed: int, population: str = "", commit: str = ""):
    scheme = Scheme(TEXTS.judged_fields, TEXTS.directions, TEXTS.labels, FEW_HEADS)
    return Calibrator.fit(_labelled(rows), scheme, Origin(seed, population, commit))


def _probability(calibrator: Calibrator, row: HeadRow) -> float:
    return calibrator.probability(row.evidence, Traits(row.architecture))


def _fit(rows: Sequence[HeadRow], args: argparse.Namespace) -> Calibrator:
    return _calibrator(rows, args.seed, args.population, provenance()["commit"])


def _text(result: Mapping[str, Any]) -> str:
    lines = [f"{result['models']} heads, {result['poisoned']} poisoned; out of fold, nats:"]
    lines += [_line(f"up to {stage}", scores) for stage, scores in result["stages"].items()]
    lines.append(_line("unseen triggers", result["unseen_triggers"]))
    if "fresh" in result:
        lines.append(_line("fresh heads", result["fresh"]))
    small = result["small_training"]
    lines.append(
        f"trained on {small['training']}: log score {small['log_score']:.3f}"
        f" (deviation {small['log_score_deviation']:.3f}), AUC {small['roc_auc']:.3f}"
    )
    for name, parts in result["shown_only"].items():
        lines += [_line(f"{kind} {name}", scores) for kind, scores in parts.items()]
    for name, parts in result["by_factor"].items():
        lines += [
            f"{name} {value}: {part['models']} models, log score {part['log_score']:.3f},"
            f" AUC {part['roc_auc']:.3f}"
            for value, part in parts.items()
        ]
    lines.append(f"targets {result['targets']}; texts {result['texts']}")
    lines.append(f"median seconds {result['seconds']}; scan {result['scan_seconds']:.0f} s")
    return "\n".join(lines)


def _line(name: str, scores: Mapping[str, Any]) -> str:
    low, high = scores["log_score_low"], scores["log_score_high"]
    return (
        f"{name:22} log score {scores['log_score']:.3f} ({low:.3f} to {high:.3f})"
        f"  AUC {scores['roc_auc']:.3f}"
    )


if __name__ == "__main__":
    sys.exit(main())
