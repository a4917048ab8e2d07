"""Text heads judged by fits that have met none of their population: the headline of text.

    python -m benchmarks.accuracy.text_transfer SOURCE [SOURCE ...] [--work DIR] [--out FILE]

A SOURCE is DATASET=BANK, a folder of `jaxtroj generate round5 | round6` and the bank of its encoder
with clean heads of the same folder (`jaxtroj bank --references DATASET`; no head is compared with
itself), or the `.evidence.jsonl` of an earlier run. Heads are scanned into run folders under
`--work`, resumable. Populations differ in reviews, encoder's pooling, heads' width and depth,
triggers and adversarial training, see docs/text.md.

Every population in turn is judged by a calibrator fitted on the others: log score, ROC AUC, mean
probability of clean and of poisoned heads. Second figure: every head out of fold among all.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.accuracy.round0_accuracy import origin
from benchmarks.accuracy.round5_accuracy import HeadRow, labelled_rows
from benchmarks.accuracy.zoo import ranks_of
from benchmarks.provenance import RESULTS, provenance, write_evidence
from converters.files import write_atomic
from jaxtroj import scoring
from jaxtroj.calibration import Calibrator, Labelled, Origin, Scheme, cross_validate
from jaxtroj.calibration.transfer import Traits
from jaxtroj.cli.options import keep_compiled
from jaxtroj.evidence.stage import Stage
from jaxtroj.evidence.stages import TEXTS
from jaxtroj.evidence.texts.stages.beside import BESIDE
from jaxtroj.evidence.texts.stages.directions import DIRECTIONS
from jaxtroj.schemas import scheme_for

BETWEEN = " beside "
"""Between the names of heads and of the dataset that their clean heads come from."""


def main() -> int:
    """Scan, judge, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    rows = [row for source in args.sources for row in read_rows(source, args.work)]
    write_evidence(args.out, rows)
    result = {"provenance": provenance(), "schema": TEXTS.version} | judge(rows, args.seed)
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(text(result))
    if args.calibrator is not None:
        where = origin_of_heads(args.seed, args.population)
        Calibrator.fit(labelled(rows), scheme(rows), where).save(args.calibrator)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Text heads of populations that no fit has met.")
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="DATASET=BANK or evidence")
    return fit_arguments(parser, "text_transfer")


def fit_arguments(parser: argparse.ArgumentParser, name: str) -> argparse.Namespace:
    """What benchmarks that may fit a calibrator of heads are asked, after their own arguments."""
    parser.add_argument("--work", type=Path, default=Path("text_runs"), help="run folders go here")
    parser.add_argument("--out", type=Path, default=RESULTS / f"{name}.json")
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    parser.add_argument("--calibrator", type=Path, help="also fit on all heads and write here")
    parser.add_argument("--population", default="", help="what the heads are, in words")
    return parser.parse_args()


def read_rows(source: str, work: Path) -> list[HeadRow]:
    """Labelled rows of DATASET=BANK, or of the evidence that an earlier run wrote."""
    dataset, _, bank = source.partition("=")
    return list(labelled_rows(Path(dataset), work, Path(bank) if bank else None))


def judge(rows: Sequence[HeadRow], seed: int) -> dict[str, Any]:
    """Scores with every population left out in turn, and out of fold among all."""
    models, fields = labelled(rows), scheme(rows)
    populations = np.array([row.population for row in rows])
    within = cross_validate(models, fields, seed)
    names = sorted(set(populations.tolist()))
    held_out = within if len(names) == 1 else left_out(rows, seed)
    left = {name: _scores(rows, held_out, populations == name) for name in names}
    return {
        "models": len(rows),
        "poisoned": int(models.truth.sum()),
        "left_out": left,
        "left_out_mean": float(np.mean([one["log_score"] for one in left.values()])),
        "left_out_worst": max(one["log_score"] for one in left.values()),
        "out_of_fold": {name: _scores(rows, within, populations == name) for name in names},
        "out_of_fold_all": scoring.score(within, models.truth).as_dict(),
        "single_field_auc": field_auc(rows, fields, names),
    }


def left_out(
    rows: Sequence[HeadRow],
    seed: int,
    asked: Sequence[HeadRow] | None = None,
    last: Stage = BESIDE,
) -> np.ndarray:
    """What calibrators of all other populations say of each head, [n], as they answer in use.

    Args:
        rows: fitted on, less those that share a population with the head that is judged.
        seed: of the folds.
        asked: the heads that are judged, where they are not those rows.
        last: see `scheme`.
    """
    asked = rows if asked is None else asked
    said = np.empty(len(asked))
    for name in {row.population for row in asked}:
        others = [row for row in rows if not parts_of(row.population) & parts_of(name)]
        calibrator = Calibrator.fit(labelled(others), scheme(others, last), origin(seed, ""))
        for place, row in enumerate(asked):
            if row.population == name:
                traits = Traits(row.architecture or None)
                said[place] = calibrator.probability(row.evidence, traits)
    return said


def parts_of(population: str) -> set[str]:
    """The populations that rows of a name rest on, see `text_apart`.

    >>> sorted(parts_of("imdb beside amazon")), parts_of("imdb")
    (['amazon', 'imdb'], {'imdb'})
    """
    return set(population.split(BETWEEN))


class JudgedRow(Protocol):
    """A labelled model's evidence, a head's or a whole classifier's."""

    @property
    def population(self) -> str: ...
    @property
    def poisoned(self) -> bool: ...
    @property
    def architecture(self) -> str: ...
    @property
    def evidence(self) -> Mapping[str, float]: ...


def origin_of_heads(seed: int, population: str) -> Origin:
    """Where a fit on heads comes from, whose evidence is of today's version."""
    return replace(origin(seed, population), evidence=TEXTS.measured)


def labelled(rows: Sequence[JudgedRow]) -> Labelled:
    """The rows with all that a calibrator of text heads learns from."""
    return Labelled(
        rows=[row.evidence for row in rows],
        poisoned=[row.poisoned for row in rows],
        architectures=[row.architecture for row in rows],
        datasets=[row.population for row in rows],
    )


def scheme(rows: Sequence[HeadRow], last: Stage = BESIDE) -> Scheme:
    """One stage, `last`: its fields against clean heads, and the raw ones that it starts from.

    But for the raw share of stage `directions`, which clean heads of one population have at .4 and
    those of another, as the poisoned ones of a third, at .55.
    """
    found = scheme_for("text", (row.evidence for row in rows))
    earlier = {stage.name for stage in last.earlier if stage is not DIRECTIONS}
    parts = [own for name, own in found.stages.items() if name in earlier | {last.name}]
    return replace(found, stages={last.name: tuple(chain.from_iterable(parts))})


def _scores(rows: Sequence[HeadRow], said: np.ndarray, chosen: np.ndarray) -> dict[str, Any]:
    return scores(np.array([row.poisoned for row in rows])[chosen], said[chosen])


def scores(truth: np.ndarray, own: np.ndarray) -> dict[str, Any]:
    """Scores of one population; labels and probabilities [n]."""
    return {
        "models": len(own),
        "poisoned": int(truth.sum()),
        "log_score": scoring.log_score(own, truth),
        "roc_auc": scoring.roc_auc(own, truth),
        "clean_mean": float(own[~truth].mean()),
        "poisoned_mean": float(own[truth].mean()),
        "clean_above_0.9": int((own[~truth] > 0.9).sum()),
    }


def field_auc(
    rows: Sequence[JudgedRow], fields: Scheme, names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """ROC AUC of each field alone in each population, larger values counted as poisoned."""
    found: dict[str, dict[str, float]] = {}
    for field in (field for stage in fields.stages.values() for field in stage):
        for name in names:
            own = [row for row in rows if row.population == name and field in row.evidence]
            truth = np.array([row.poisoned for row in own])
            if len(set(truth.tolist())) == 2:
                values = np.array([row.evidence[field] for row in own])
                area = scoring.roc_auc(ranks_of(values), truth)
                found.setdefault(field, {})[name] = round(area, 3)
    return found


def score_line(name: str, part: Mapping[str, Any]) -> str:
    """What `scores` says of one group, for people."""
    return (
        f"  {name:20} {part['models']:4d} models  log score {part['log_score']:.3f}"
        f"  AUC {part['roc_auc']:.3f}  mean of clean {part['clean_mean']:.3f}, of poisoned"
        f" {part['poisoned_mean']:.3f}; clean above .9: {part['clean_above_0.9']}"
    )


def text(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [f"{result['models']} heads, {result['poisoned']} poisoned; nats, lower is better"]
    for title in ("left_out", "out_of_fold"):
        lines.append(f"{title.replace('_', ' ')}, by population:")
        lines += [score_line(name, part) for name, part in result[title].items()]
    lines.append(
        f"mean over left-out populations {result['left_out_mean']:.3f}, worst"
        f" {result['left_out_worst']:.3f}; out of fold {result['out_of_fold_all']['log_score']:.3f}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
