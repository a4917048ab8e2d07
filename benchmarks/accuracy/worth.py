"""What each stage of evidence is worth: log score lost without it, beside the seconds it takes.

    python -m benchmarks.accuracy.worth SOURCE --work WORK [--out FILE]

SOURCE is a zoo's folder or the evidence of one (`benchmarks.accuracy.zoo`). The general calibrator
is fitted and judged anew on the evidence without one stage after the other, and then on that up to
each stage in turn: the curve of log score against seconds. Every network is judged out of fold, and
once more by fits that have not met its kind of trigger. Seconds are means over networks, as their
scans were timed, so they compare stages and say little of a machine.

Last comes what it costs to end a model's scan early: at the first stage that searches for a kind of
trigger where its probability lies near enough to 0 or 1 (`--enough`), and by the rule that is
always on (`jaxtroj.calibration.stopping`), which here has met the networks that it ends.
"""

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.picture_rows import PictureRow, labelled, read_rows, scheme
from benchmarks.provenance import RESULTS, provenance
from converters.files import write_atomic
from jaxtroj import scoring
from jaxtroj.calibration import Scheme, cross_validate, leave_out
from jaxtroj.calibration.stopping import stop_rule
from jaxtroj.calibration.training import OutOfFold, last_answers, out_of_fold
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.numerics import logit, sigmoid
from jaxtroj.schemas import scheme_for

ENOUGH = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
"""Probabilities at which scans are ended."""


def main() -> int:
    """Judge, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="What each stage of evidence is worth.")
    parser.add_argument("source", type=Path, metavar="SOURCE")
    parser.add_argument("--work", type=Path, required=True, help="run folders go here")
    parser.add_argument("--out", type=Path, default=RESULTS / "worth.json")
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    args = parser.parse_args()
    rows = read_rows(args.source, args.work)
    result: dict[str, Any] = {"provenance": provenance(), "models": len(rows), "sets": []}
    for stages in stage_sets(tuple(_scheme(rows).stages)):
        one = judged(rows, stages, args.seed)
        result["sets"].append(one)
        print(text(one), flush=True)
    result["ends"] = list(ends(rows, args.seed))
    for one in result["ends"]:
        print(end_text(one), flush=True)
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    return 0


def stage_sets(stages: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """All stages, all but each, and then those up to each, from the second on.

    >>> list(stage_sets(("a", "b", "c")))
    [('a', 'b', 'c'), ('b', 'c'), ('a', 'c'), ('a', 'b')]
    """
    sets = [stages]
    sets += [tuple(name for name in stages if name != without) for without in stages]
    sets += [stages[:until] for until in range(2, len(stages))]
    yield from dict.fromkeys(sets)


def judged(rows: Sequence[PictureRow], stages: Collection[str], seed: int) -> dict[str, Any]:
    """Scores by some stages alone, and mean seconds of these and of all."""
    every, models = _scheme(rows), labelled(rows)
    chosen = replace(every, stages={name: every.stages[name] for name in stages})
    said = cross_validate(models, chosen, seed)
    kinds = leave_out(models, chosen, [row.kind for row in rows], seed)
    return {
        "stages": list(stages),
        "without": [name for name in every.stages if name not in stages],
        "seconds": seconds(rows, stages),
        "seconds_of_all": seconds(rows, every.stages),
        "out_of_fold": [scoring.log_score(said, models.truth), scoring.roc_auc(said, models.truth)],
        "kinds_left_out": [kinds.log_score, kinds.roc_auc],
    }


def ends(rows: Sequence[PictureRow], seed: int) -> Iterator[dict[str, Any]]:
    """Scores and seconds where scans end early, every answer out of fold, by order of stages."""
    usual = scheme(rows)
    for title, order in orders(tuple(usual.stages)).items():
        chosen = replace(usual, stages={name: usual.stages[name] for name in order})
        held_out = out_of_fold(labelled(rows), chosen, seed)
        for enough, rule in _rules(held_out).items():
            yield {"order": title, "enough": enough, **_ended(rows, held_out, rule)}


def orders(stages: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """As scans run the stages, and two that ask for all whole pictures earlier.

    >>> orders(("signs", "probes", "other", "whole"))["after probes"]
    ('signs', 'probes', 'whole', 'other')
    """
    rest = tuple(name for name in stages if name != "whole")
    place = rest.index("probes")
    return {
        "usual": stages,
        "after probes": (*rest[: place + 1], "whole", *rest[place + 1 :]),
        "before probes": (*rest[:place], "whole", *rest[place:]),
    }


def _rules(held_out: Mapping[str, OutOfFold]) -> dict[str, Callable[[str, int], bool]]:
    """Name of a rule -> whether a stage's answer ends the scan of a network."""
    last = last_answers(held_out)
    usual = {name: stop_rule(stage, last) for name, stage in held_out.items()}

    def settled(name: str, place: int) -> bool:
        stage = held_out[name]
        return usual[name].allows(float(stage.log_odds[place]), int(stage.at_clip[place]))

    def near(enough: float) -> Callable[[str, int], bool]:
        limit = -float(logit(enough))
        return lambda name, place: abs(held_out[name].log_odds[place]) >= limit

    fixed = {"never": lambda name, place: False, "where nothing can change": settled}
    return fixed | {f"--enough {enough}": near(enough) for enough in ENOUGH}


def _ended(
    rows: Sequence[PictureRow], held_out: Mapping[str, OutOfFold], ends: Callable[[str, int], bool]
) -> dict[str, Any]:
    """Each network by its first stage that may end it, and does, else by its last."""
    searching = {stage.name for stage in IMAGES.stages if stage.kinds}
    answers, took = np.full(len(rows), np.nan), np.zeros(len(rows))
    for place, row in enumerate(rows):
        has_searched = False
        for name, stage in held_out.items():
            if np.isnan(stage.log_odds[place]):
                continue
            answers[place] = stage.log_odds[place]
            took[place] += row.seconds.get(name, 0.0)
            has_searched |= name in searching
            if has_searched and ends(name, place):
                break
    said, truth = sigmoid(answers), labelled(rows).truth
    return {
        "out_of_fold": [scoring.log_score(said, truth), scoring.roc_auc(said, truth)],
        "seconds": round(float(took.mean()), 2),
        "median_seconds": round(float(np.median(took)), 2),
    }


def end_text(one: Mapping[str, Any]) -> str:
    """One way to end scans for people."""
    score, area = one["out_of_fold"]
    title = f"whole {one['order']}, ended: {one['enough']}"
    times = f"{one['seconds']:.1f} s, median {one['median_seconds']:.1f}"
    return f"{title:50} out of fold {score:.3f} / {area:.3f}  {times}"


def seconds(rows: Sequence[PictureRow], stages: Collection[str]) -> float:
    """Mean over networks of the seconds that these stages took."""
    each = [sum(row.seconds.get(name, 0.0) for name in stages) for row in rows]
    return round(float(np.mean(each)), 2)


def text(one: dict[str, Any]) -> str:
    """One set of stages for people."""
    scores = [
        f"{score:.3f} / {area:.3f}" for score, area in (one["out_of_fold"], one["kinds_left_out"])
    ]
    named = f"without {' '.join(one['without'])}" if one["without"] else "all"
    return (
        f"{named:50} out of fold {scores[0]}  kinds left out {scores[1]}"
        f"  {one['seconds']:.1f} of {one['seconds_of_all']:.1f} s"
    )


def _scheme(rows: Sequence[PictureRow]) -> Scheme:
    """All stages, those too that the general calibrator does not judge by."""
    return replace(scheme_for("image", (row.evidence for row in rows)), is_pooled=True)


if __name__ == "__main__":
    sys.exit(main())
