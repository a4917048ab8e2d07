"""Evidence of a "found something" kind: an OR over searches, pooled into a few numbers.

Each search (a stage, or a part of one that a field's `search` names) moves only for its own kinds
of trigger, so a regression on raw fields gives a kind that was not in the fit no weight. Here every
field is first scored against clean models alone (`tails`), then pooled:

    s_k = mean or largest score of the fields of search k, 0 where it was not made
    f   = (strongest s_k, second strongest s_k, sum of s_k), on the scale of the cap
    log-odds = b + w f + g + m (share of the usual searches that is missing),     w, m >= 0

`g` is a sum over all fields, of a shape for each that rises with its value (`tails.Tail.lean`):
where no search alone finds much, many fields that all lean to one side say something too. Pool and
sum are regressions of their own, and b, w and g are shares of theirs: a mean of the two log-odds
(`pooling.POOL_SHARES`). The sum errs less, and they err on different networks (docs/history.md).

Signs that other things than a trigger leave too (examples that are not drawn as the training
pictures were) form the search `SUPPORT`, whose score is cut to that of the strongest other search,
and whose part of the sum is cut to that of all others: they can support what another search found,
and never decide alone. Where examples are known to be drawn as the training pictures were, they are
a search like any other (`Scheme.trusts_examples`).

A trigger that no model of the fit had is seen as long as its own search sees it. All weights and
rises are at least 0 and every part rises with every score, so a larger field never lowers the
probability, and a search that was not made counts at least as much as one whose fields lie at the
median of clean models: with m > 0, more.
`share missing` is the share of the searches that pictures of a model's size can get and that were
not made, also where its network has no batch norms to be looked at: less was looked for, so a quiet
answer says less. What pictures of its size do not get is not missed: some searches are too dear for
large pictures, which the models of the fit may not have had. Where nobody knows the size, it is
the least share of a set of searches that is usual among the models of the fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxtroj.calibration.pooled_reasons import pooled_reasons
from jaxtroj.calibration.searches import made_searches, missing_share, pooled, summed
from jaxtroj.calibration.tails import Tail
from jaxtroj.numerics import logit

TRACES = ("weights", "statistics")
"""Stages that look at what training left in a network, and search for nothing."""


@dataclass(frozen=True)
class FewClasses:
    """How networks of few classes are scored, see `few_classes`; log score in nats."""

    tails: tuple[Tail, ...]
    """Of the same fields in the same order."""
    most: int
    """Classes of such a network."""
    clean: int
    """Clean ones that the tails were fitted on."""
    models: int
    """Labelled ones that were at hand."""
    log_score: float
    """Of these, each by tails that have met neither it nor its twin."""


@dataclass(frozen=True)
class LargePictures:
    """How the parts of the log-odds count for large pictures, see `large_pictures`."""

    above: int
    """Pixels of the longest side, above which a picture is large."""
    intercept: float
    pool: float
    """Factor of the pool and of missing searches, >= 0."""
    traces: float
    """Of what the fields of `TRACES` add to the sum, >= 0."""
    searches: float
    """Of what the other fields add, >= 0."""
    models: int
    """Labelled ones that were at hand."""
    log_score: float
    """Of these, each by factors that have met none of its group, nats."""


@dataclass(frozen=True)
class PooledModel:
    """The fitted model. Values are [n, fields], float64, NaN where missing."""

    tails: tuple[Tail, ...]
    """Fields in the order of gathering."""
    usual: tuple[tuple[str, ...], ...]
    """Sets of searches that were made of many models of the fit."""
    way: str
    """One of `searches.WAYS`."""
    cap: float
    """Decades that one field can say at most."""
    weights: tuple[float, float, float]
    """Of `searches.PARTS`, log-odds, >= 0."""
    missing: float
    """Log-odds for all usual searches missing, >= 0."""
    intercept: float
    rate: float
    """Share of poisoned models in training, in (0, 1)."""
    low: float
    """Smallest probability given at that rate, in (0, 0.5)."""
    high: float
    """Largest, in (0.5, 1)."""
    penalty: float
    models: int
    """Labelled models it was fitted on."""
    sides: tuple[tuple[str, int, int], ...] = ()
    """Searches that are made for pictures of some sizes only: name, least and most pixels of the
    longest side."""
    few: FewClasses | None = None
    """For networks of few classes; None where no fit was made for them."""
    large: LargePictures | None = None
    """For networks of large pictures; None where no fit was made for them."""

    def for_classes(self, classes: int | None) -> "PooledModel":
        """The same for a network of so many classes; None for nobody knows."""
        few = self.few_for(classes)
        return self if few is None else replace(self, tails=few.tails)

    def few_for(self, classes: int | None) -> FewClasses | None:
        """What there is for so many classes."""
        few = self.few
        return None if few is None or classes is None or classes > few.most else few

    def large_for(self, side: int | None) -> LargePictures | None:
        """What there is for pictures of this longest side, pixels."""
        large = self.large
        return None if large is None or side is None or side <= large.above else large

    def for_side(self, side: int | None) -> "PooledModel":
        """The same for pictures of one size: usual are all searches that such pictures can get.

        A network without batch norms lacks some of them, and that counts: less was looked for.
        Of large pictures, the parts count as `large` says.
        """
        if side is None:
            return self
        large = self.large_for(side)
        own = self if large is None else self._weighed(large)
        if not self.sides:
            return own
        without = {name for name, least, most in self.sides if not least <= side <= most}
        return replace(own, usual=(tuple(n for n in self.searches if n not in without),))

    def _weighed(self, large: LargePictures) -> "PooledModel":
        """The same with its parts weighed anew."""
        first, second, third = (large.pool * weight for weight in self.weights)
        return replace(
            self,
            tails=tuple(_weighed_tail(tail, large) for tail in self.tails),
            weights=(first, second, third),
            missing=large.pool * self.missing,
            intercept=large.intercept,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Evidence fields, in the order of the columns."""
        return tuple(tail.name for tail in self.tails)

    @property
    def searches(self) -> tuple[str, ...]:
        """All searches, in the order of gathering."""
        return tuple(dict.fromkeys(tail.search for tail in self.tails))

    def raw_log_odds(self, values: np.ndarray) -> np.ndarray:
        """Log-odds at the training base rate without the clip, [n]."""
        found = pooled(self.tails, values, self.way, self.cap) @ np.array(self.weights)
        found = found + summed(self.tails, values)
        return self.intercept + found + self.missing * self.missing_share(values)

    def missing_share(self, values: np.ndarray) -> np.ndarray:
        """Share of the nearest usual set of searches that was not made, [n] in 0 to 1."""
        return missing_share(made_searches(self.tails, values), self.searches, self.usual)


@dataclass(frozen=True)
class PooledStage:
    """A pooled model asked after one of its stages; see `judge.Judge`."""

    model: PooledModel
    stage: str

    @property
    def names(self) -> tuple[str, ...]:
        """Fields of this stage and those before it."""
        stages = list(dict.fromkeys(tail.stage for tail in self.model.tails))
        until = stages[: stages.index(self.stage) + 1]
        return tuple(tail.name for tail in self.model.tails if tail.stage in until)

    @property
    def rate(self) -> float:
        """Share of poisoned models in training."""
        return self.model.rate

    def for_network(self, side: int | None, classes: int | None) -> "PooledStage":
        """The same for pictures of this longest side, pixels, and so many classes.

        None for nobody knows.
        """
        return replace(self, model=self.model.for_classes(classes).for_side(side))

    def usable(self, values: np.ndarray) -> bool:
        """Whether any of the stage's own fields is there, in values [1, names]."""
        own = [tail.stage == self.stage for tail in self.model.tails[: values.shape[1]]]
        return bool(np.isfinite(values[0, own]).any())

    def is_familiar(self, values: np.ndarray) -> bool:
        """Scores are capped at both ends: no evidence lies outside what was met."""
        return True

    def log_odds(self, values: np.ndarray, architectures: Sequence[str | None]) -> np.ndarray:
        """Clipped log-odds at the training base rate, [n], from values [n, names]."""
        found = self.model.raw_log_odds(self._all_columns(values))
        return np.clip(found, float(logit(self.model.low)), float(logit(self.model.high)))

    def at_clip(self, values: np.ndarray, architectures: Sequence[str | None]) -> np.ndarray:
        """-1 where the answer lies at the lower clip, +1 at the upper, else 0: int [n]."""
        found = self.model.raw_log_odds(self._all_columns(values))
        low, high = logit(self.model.low), logit(self.model.high)
        return np.where(found >= high, 1, np.where(found <= low, -1, 0))

    def reasons(
        self, values: np.ndarray, architecture: str | None, most: int = 3
    ) -> tuple[str, ...]:
        """The fields that carried the pool, the strongest of each search, and then the sum.

        Or that no search found anything, where the answer is clean.
        """
        poisoned = self.log_odds(values, [architecture])[0] > logit(self.rate)
        tails = self.model.tails[: values.shape[1]]
        return pooled_reasons(tails, values, self.model.cap, bool(poisoned))[:most]

    def _all_columns(self, values: np.ndarray) -> np.ndarray:
        """The values with those of later stages missing."""
        later = len(self.model.tails) - values.shape[1]
        return np.pad(values, ((0, 0), (0, later)), constant_values=np.nan)


def _weighed_tail(tail: Tail, large: LargePictures) -> Tail:
    factor = large.traces if tail.stage in TRACES else large.searches
    return replace(tail, rises=tuple(factor * rise for rise in tail.rises))
