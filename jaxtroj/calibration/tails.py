"""How far a field of evidence lies beyond what clean models show, in decades of rarity.

Every field is turned by its direction and tamed, z = asinh(direction (x - centre) / scale), with
the median and `safe_mad` of the clean models. Above the clean quantile q, at z = start, the tail of
clean models is taken as exponential in z (a power of x, far out):

    P(clean model above z) = (1 - q) exp(-(z - start) / length)

`length` is the clean models' mean excess, with a few pseudo-models so that a handful of them cannot
make it tiny. The score is log10 of (1 - q) over that chance, 0 below the quantile and capped above:

    s = worth clip((z - start) / (length ln 10), 0, cap)

So a field says only what it can say: a small value is no evidence of clean, and one that is beyond
all clean models counts the same whether it is .95 or .99. Only clean models are needed to fit it:
a field that no trigger of the fit has ever moved can still speak. How loudly, `worth` says: 1 for
a field that surely tells some kind of trigger from clean models, down to a floor for one that tells
none (`power_of`); the floor may be 1, see `pooling`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj.numerics import LARGEST_STEP, safe_mad

QUANTILE = 0.75
"""Of the clean models, below which a value says nothing."""
PSEUDO_MODELS = 4.0
USUAL_LENGTH = 0.35
"""Of a normal field beyond that quantile, in z."""
KNOTS = tuple(np.linspace(-1.0, 3.5, 10).tolist())
"""z between which the shape of a field is a straight line, and beyond which it is flat."""
PIECES = len(KNOTS) - 1
LEAST_OF_A_KIND = 3
DECADE = float(np.log(10.0))


@dataclass(frozen=True)
class Tail:
    """One field against the clean models it was fitted on."""

    name: str
    label: str
    """The field in words, for reasons."""
    stage: str
    search: str
    """What it is the result of; the fields of one search move together."""
    direction: int
    """+1: larger is more poisoned, -1: smaller is."""
    centre: float
    """Median of the clean models, in the field's own unit, as `scale` and `poisoned`."""
    scale: float
    """Their spread; 0 for a field that never varied, which has no say."""
    start: float
    """z above which the score begins."""
    length: float
    """Of the clean models' tail, in z."""
    poisoned: float
    """Median of the poisoned models, for reasons."""
    worth: float = 1.0
    """What its decades count, 0 to 1."""
    rises: tuple[float, ...] = ()
    """Log-odds by which its shape rises from each of `KNOTS` to the next, >= 0; () for none."""

    def score(self, values: np.ndarray, cap: float) -> np.ndarray:
        """Decades that count of values in the field's own unit, in 0 to `worth * cap`."""
        return self.worth * self.decades(values, cap)

    def decades(self, values: np.ndarray, cap: float) -> np.ndarray:
        """Decades in [0, cap] of values in the field's own unit, any shape; NaN stays NaN."""
        if self.scale == 0:
            return np.asarray(values, dtype=np.float64) * 0.0
        return np.clip((self._tamed(values) - self.start) / (self.length * DECADE), 0.0, cap)

    def lean(self, values: np.ndarray) -> np.ndarray:
        """Log-odds that values [n] add to the sum over fields; 0 at the median of clean models."""
        if not self.rises:
            return np.zeros(np.shape(values))
        return self.passed(values) @ np.array(self.rises)

    def passed(self, values: np.ndarray) -> np.ndarray:
        """Share of each interval between `KNOTS` that values [n] passed, [n, intervals].

        Less what the median of clean models passed: in -1 to 0 below it, in 0 to 1 above it, and 0
        where a value is missing.
        """
        if self.scale == 0:
            return np.zeros((*np.shape(values), PIECES))
        z = np.nan_to_num(self._tamed(values))  # 0 where missing: finite by `LARGEST_STEP`
        return _shares(z) - _shares(np.zeros(1))

    def _tamed(self, values: np.ndarray) -> np.ndarray:
        """z of values in the field's own unit; NaN stays NaN."""
        distance = self.direction * (np.asarray(values, dtype=np.float64) - self.centre)
        return np.arcsinh(np.clip(distance / self.scale, -LARGEST_STEP, LARGEST_STEP))

    def rarity(self, value: float) -> float:
        """Decades of rarity among clean models beyond which a value lies, without the cap."""
        return float(self.decades(np.array(value), np.inf) - np.log10(1 - QUANTILE))


@dataclass(frozen=True)
class Searched:
    """What is known of a field beforehand: its name, words, stage, search and direction."""

    name: str
    label: str
    stage: str
    search: str
    direction: int


def _shares(z: np.ndarray) -> np.ndarray:
    """Share of each interval between `KNOTS` that lies below z [n], [n, intervals] in 0 to 1."""
    lower, upper = np.array(KNOTS[:-1]), np.array(KNOTS[1:])
    return np.clip((z[:, None] - lower) / (upper - lower), 0.0, 1.0)


def fit_tail(known: Searched, values: np.ndarray, poisoned: np.ndarray) -> Tail:
    """The tail of one field; values [n] with NaN where missing, labels [n].

    With fewer than two clean values nothing is known of clean models, and it has no say.
    """
    present = np.isfinite(values)
    clean, bad = values[present & ~poisoned], values[present & poisoned]
    centre = float(np.median(clean)) if len(clean) else 0.0
    scale = _scale(clean, values[present])
    start, length = 0.0, USUAL_LENGTH
    if scale > 0:
        z = np.arcsinh(known.direction * (clean - centre) / scale)
        start = float(np.quantile(z, QUANTILE))
        excess = z[z > start] - start
        length = float(excess.sum() + PSEUDO_MODELS * USUAL_LENGTH) / (len(excess) + PSEUDO_MODELS)
    typical = float(np.median(bad)) if len(bad) else centre
    return Tail(**vars(known), centre=centre, scale=scale, start=start, length=length,
                poisoned=typical)  # fmt: skip


def power_of(direction: int, values: np.ndarray, poisoned: np.ndarray, kinds: np.ndarray) -> float:
    """How well a field tells poisoned from clean models, 0 (not) to 1 (always).

    (2 A - 1)^3 of the largest area A under the ROC curve, of all poisoned models or of one kind of
    trigger, less one standard error: among many kinds of few models each, some area is large by
    chance. Kinds of fewer than `LEAST_OF_A_KIND` models and fields of as few clean ones count as
    not told. `values` [n] with NaN where missing, `kinds` [n], one word for all where nobody knows
    them.
    """
    present, turned = np.isfinite(values), direction * values
    clean, bad = turned[present & ~poisoned], present & poisoned
    groups = [bad, *(bad & (kinds == kind) for kind in set(kinds[bad].tolist()))]
    areas = [_sure_area(turned[group], clean) for group in groups]
    return (2 * max(0.5, *areas) - 1) ** 3


def _sure_area(bad: np.ndarray, clean: np.ndarray) -> float:
    """Area under the ROC curve less its standard error where nothing is told (Mann and Whitney)."""
    if min(len(bad), len(clean)) < LEAST_OF_A_KIND:
        return 0.5
    above, tied = bad[:, None] > clean, bad[:, None] == clean
    error = np.sqrt((len(bad) + len(clean) + 1) / (12 * len(bad) * len(clean)))
    return float((above + 0.5 * tied).mean() - error)


def _scale(clean: Sequence[float] | np.ndarray, everyone: np.ndarray) -> float:
    """Spread of the clean models; of all, where the clean ones are all equal."""
    if len(clean) < 2:
        return 0.0
    return safe_mad(clean) or safe_mad(everyone)
