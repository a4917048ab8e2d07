"""Which stage next: the fixed order of stages beside one by expected gain for each second.

    python -m benchmarks.accuracy.order SOURCE --work WORK [--out FILE]

SOURCE is a zoo's folder or the evidence of one (`benchmarks.accuracy.zoo`). Every network is judged
by fits that have not met its folder, with the evidence of every set of its stages. From the other
networks is learnt what each further stage gains at a probability (fall of the log score, in nats)
and what it costs (mean seconds at a size of pictures). Three ways to spend seconds are compared:

- fixed order, ended where the probability is near enough to 0 or 1 (`--enough`);
- fixed order, ended where no further stages gain a rate of nats for each second;
- any order: each time the stage with the largest gain for each second, ended in the same way.

Seconds are those of the scans that gathered the evidence: they compare ways, not machines.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.picture_rows import PictureRow, labelled, read_rows, scheme
from benchmarks.provenance import RESULTS, provenance
from converters.files import write_atomic
from jaxtroj.calibration import Scheme
from jaxtroj.calibration.labelled import make_population, matrix
from jaxtroj.calibration.pooled import PooledModel
from jaxtroj.calibration.pooling import fit_pooled
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.numerics import logit, softplus

ENOUGH = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
RATES = (-np.inf, 0.0, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)
"""Nats for each second below which a scan ends."""
BINS = (-2.2, -1.6, -1.1, -0.6, 0.0, 0.6, 1.2, 2.0, 3.0)
"""Between the log-odds at which gains are learnt apart."""
PSEUDO_NETWORKS = 10
"""With the mean gain at any log-odds, beside those of one bin."""
SMALL = 32  # pixels; stages differ in kind and cost above

Stages = tuple[str, ...]


@dataclass(frozen=True)
class Judged:
    """One network.

    Attributes:
        poisoned, small: what it is, and whether its pictures are of up to `SMALL` pixels.
        seconds: by stage.
        log_odds: by set of stages, each in the fixed order.
    """

    poisoned: bool
    small: bool
    seconds: Mapping[str, float]
    log_odds: Mapping[Stages, float]

    @property
    def stages(self) -> Stages:
        """All of its stages in the fixed order."""
        return max(self.log_odds, key=len)

    def with_stage(self, made: Stages, name: str) -> Stages:
        """A set of stages and one more."""
        return tuple(one for one in self.stages if one in made or one == name)

    def possible(self, made: Stages) -> Stages:
        """Stages that can follow; those that count what others found come after these."""
        return tuple(n for n in self.stages if n not in made and self._earlier(n) <= {*made})

    def _earlier(self, name: str) -> set[str]:
        if name != "agreement":
            return set()
        return {"memory", "fixed", "whole"} & {*self.stages}

    def loss(self, made: Stages) -> float:
        """Its log score after some stages, nats."""
        turned = -self.log_odds[made] if self.poisoned else self.log_odds[made]
        return float(softplus(np.array(turned)))


class Expected:
    """What each further stage gains and costs, learnt from networks."""

    def __init__(self, networks: Sequence[Judged]):
        self._gains: dict[tuple, list[float]] = defaultdict(list)
        self._costs: dict[tuple, list[float]] = defaultdict(list)
        for one in networks:
            for name in one.stages:
                self._costs[one.small, name].append(one.seconds.get(name, 0.0))
            for made, log_odds in one.log_odds.items():
                for name in one.possible(made):
                    gain = one.loss(made) - one.loss(one.with_stage(made, name))
                    for key in _keys(made, name, log_odds):
                        self._gains[key].append(gain)

    def gain(self, made: Stages, name: str, log_odds: float) -> float:
        """Nats by which the log score falls."""
        near, any_odds = (self._gains.get(key, []) for key in _keys(made, name, log_odds))
        usual = PSEUDO_NETWORKS * float(np.mean(any_odds)) if any_odds else 0.0
        return (sum(near) + usual) / (len(near) + PSEUDO_NETWORKS)

    def cost(self, one: Judged, name: str) -> float:
        """Seconds."""
        return max(float(np.mean(self._costs.get((one.small, name), [1.0]))), 0.05)


def _keys(made: Stages, name: str, log_odds: float) -> tuple[tuple, tuple]:
    return (made, name, int(np.digitize(log_odds, BINS))), (made, name)


Choose = Callable[[Expected, Judged, Stages], str | None]
"""The stage that follows a set of stages; None ends the scan."""


def near_enough(enough: float, expected: Expected, one: Judged, made: Stages) -> str | None:
    """The fixed order until the probability is within `enough` of 0 or 1."""
    left = [name for name in one.stages if name not in made]
    is_sure = enough > 0 and abs(one.log_odds[made]) >= -float(logit(enough))
    searched = any(stage.kinds for stage in IMAGES.stages if stage.name in made)
    return None if not left or (is_sure and searched) else left[0]


def fixed_order(rate: float, expected: Expected, one: Judged, made: Stages) -> str | None:
    """The fixed order while the next stages together gain more than `rate` for each second."""
    left = [name for name in one.stages if name not in made]
    gain, seconds, log_odds = 0.0, 0.0, one.log_odds[made]
    for name in left:
        gain += expected.gain(made, name, log_odds)
        seconds += expected.cost(one, name)
        made = one.with_stage(made, name)
        if gain / seconds > rate:
            return left[0]
    return None


def any_order(rate: float, expected: Expected, one: Judged, made: Stages) -> str | None:
    """The stage that gains most for each second, if that is more than `rate`."""
    log_odds, left = one.log_odds[made], one.possible(made)
    worth = [
        (expected.gain(made, name, log_odds) / expected.cost(one, name), name) for name in left
    ]
    best = max(worth, default=(-np.inf, None))
    return best[1] if best[0] > rate else None


def main() -> int:
    """Judge, compare, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="Which stage next.")
    parser.add_argument("source", type=Path, metavar="SOURCE")
    parser.add_argument("--work", type=Path, required=True, help="run folders go here")
    parser.add_argument("--out", type=Path, default=RESULTS / "order.json")
    args = parser.parse_args()
    rows = read_rows(args.source, args.work)
    result: dict[str, Any] = {"provenance": provenance(), "models": len(rows), "ways": []}
    for one in curves([row.population for row in rows], judged(rows, scheme(rows))):
        result["ways"].append(one)
        print(json.dumps(one), flush=True)
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    return 0


def judged(rows: Sequence[PictureRow], chosen: Scheme) -> list[Judged]:
    """Every network by a fit on the folders of all others."""
    found: dict[int, Judged] = {}
    for folder in dict.fromkeys(row.population for row in rows):
        others = [row for row in rows if row.population != folder]
        model = fit_pooled(make_population(labelled(others)), chosen, 0)
        own = (place for place, row in enumerate(rows) if row.population == folder)
        found |= {place: _judged(rows[place], model) for place in own}
    return [found[place] for place in range(len(rows))]


def _judged(row: PictureRow, model: PooledModel) -> Judged:
    asked = model.for_side(row.side)
    values = matrix([row.evidence], [tail.name for tail in model.tails])
    stage_of = np.array([tail.stage for tail in model.tails])
    made = list(dict.fromkeys(stage_of[np.isfinite(values[0])].tolist()))
    bounds = float(logit(model.low)), float(logit(model.high))
    log_odds = {}
    for count in range(1, len(made) + 1):
        for some in combinations(made, count):
            cut = np.where(np.isin(stage_of, some), values, np.nan)
            log_odds[some] = float(np.clip(asked.raw_log_odds(cut)[0], *bounds))
    return Judged(row.poisoned, row.side <= SMALL, row.seconds, log_odds)


def curves(folders: Sequence[str], networks: Sequence[Judged]) -> Iterator[dict[str, Any]]:
    """Log score and seconds of each way; gains are learnt on the other folders' networks."""
    learnt = {
        folder: Expected([n for n, own in zip(networks, folders, strict=True) if own != folder])
        for folder in dict.fromkeys(folders)
    }
    ways: list[tuple[str, float, Choose]] = [
        *(("fixed order, near enough", e, partial(near_enough, e)) for e in ENOUGH),
        *(("fixed order, expected gain", rate, partial(fixed_order, rate)) for rate in RATES),
        *(("any order, expected gain", rate, partial(any_order, rate)) for rate in RATES),
    ]
    for title, limit, choose in ways:
        ended = [
            spent(choose, learnt[own], one) for one, own in zip(networks, folders, strict=True)
        ]
        losses, seconds = (np.array(column) for column in zip(*ended, strict=True))
        yield {
            "way": title,
            "limit": None if np.isinf(limit) else limit,
            "log_score": round(float(losses.mean()), 4),
            "seconds": round(float(seconds.mean()), 2),
            "median_seconds": round(float(np.median(seconds)), 2),
        }


def spent(choose: Choose, expected: Expected, one: Judged) -> tuple[float, float]:
    """Log score and seconds of one network where a way ends."""
    made = one.stages[:1]
    while (name := choose(expected, one, made)) is not None:
        made = one.with_stage(made, name)
    return one.loss(made), sum(one.seconds.get(name, 0.0) for name in made)


if __name__ == "__main__":
    sys.exit(main())
