"""What pairs of a source and a target show: fields of stage pairs, and triggers handed on.

A pair that crosses far, and further than any pair of another target, tells of a trigger of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from jaxtroj.evidence.images.pair_bank import BankAnswers
from jaxtroj.rows import taken
from jaxtroj.triggers.measure import Measured, best_of

_MOST = 0.5  # of the held-out pictures: beyond it a trigger is no source's own


@dataclass(frozen=True)
class Crossings:
    """What one kind of pattern did.

    Attributes:
      found: patterns on held-out examples, each for the source it was fitted to.
      clean: `[a, n]`, the margin of each one's target on the clean held-out examples.
      scale: mean margin of clean examples.
    """

    found: Measured
    clean: np.ndarray
    scale: float


@dataclass(frozen=True)
class Pairs:
    """What the stage found: what the bank did to every pair, what windows did, and what dots."""

    bank: BankAnswers
    windows: Crossings
    dots: Crossings


def pair_fields(pairs: Pairs) -> dict[str, float]:
    """Evidence of the stage; `images.stages.pairs` says what each field means."""
    leads = pairs.bank.leads.max(axis=0)
    leads = np.sort(np.where(np.isfinite(leads), leads, 0.0))
    return {
        "pair_bank": float(leads[-1]),
        "pair_bank_lead": float(leads[-1] - leads[-2]),
        **_fields("pair", pairs.windows),
        **_fields("dots", pairs.dots),
    }


def _fields(name: str, crossed: Crossings) -> dict[str, float]:
    place = _best_place(crossed)
    gains = (crossed.found.gains - crossed.clean) / crossed.scale
    own, others = (_over(gains, of)[place] for of in (_own(crossed.found), _others(crossed.found)))
    return {
        f"{name}_crossing": float(_crossings(crossed)[place]),
        f"{name}_lead": _lead(crossed),
        f"{name}_focus": float(own - others),
    }


def pair_triggers(pairs: Pairs, standing: float) -> tuple[Callable, ...]:
    """The best trigger of a kind whose target stands out; see `evidence.images.context`.

    Args:
      pairs: what the stage found.
      standing: lead in clean margins from which a trigger is handed on.
    """
    return tuple(
        partial(best_of, _alone(crossed.found, _best_place(crossed)))
        for crossed in (pairs.windows, pairs.dots)
        if _lead(crossed) >= standing
    )


def _crossings(crossed: Crossings) -> np.ndarray:
    """`[a]` in clean margins: how far beyond the target's border, and at most how far it was.

    Classes that are alike are near: to cross from one to the other takes no trigger.
    """
    own = _own(crossed.found)
    reached, away = _over(crossed.found.gains, own), _over(-crossed.clean, own)
    return np.minimum(reached, away) / crossed.scale


def _best_place(crossed: Crossings) -> int:
    return int(_crossings(crossed).argmax())


def _lead(crossed: Crossings) -> float:
    """The best crossing less that of the best pair of another target; of one target only, 0."""
    crossings, targets = _crossings(crossed), crossed.found.targets
    others = crossings[targets != targets[crossings.argmax()]]
    return float(crossings.max() - others.max()) if others.size else 0.0


def _own(found: Measured) -> np.ndarray:
    """bool `[a, n]`: held-out examples of the source."""
    assert found.found.origins is not None
    return found.sources == found.found.origins[:, None]


def _others(found: Measured) -> np.ndarray:
    """bool `[a, n]`: those that are neither of the source nor of the target."""
    return ~_own(found) & (found.sources != found.targets[:, None])


def _over(values: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Means `[a]` of values `[a, n]` over the examples counted; 0 without any."""
    return (values * counted).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)


def _alone(measured: Measured, place: int) -> Measured:
    """The arm at `place` alone; one that moves most other pictures too is measured on all."""
    found, rows = measured.found, np.array([place])
    one = replace(
        found,
        triggers=taken(found.triggers, rows),
        targets=found.targets[rows],
        anchored=found.anchored[rows],
        origins=None,
    )
    everywhere = Measured(one, measured.sources, measured.gains[rows], measured.sizes[rows])
    if everywhere.rates[0] > _MOST or found.origins is None:
        return everywhere
    return replace(everywhere, found=replace(one, origins=found.origins[rows]))
