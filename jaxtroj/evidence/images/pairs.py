"""Pairs stage: triggers that work from one or two source classes only.

A trigger of one source hardly moves the pictures of other classes, so a search for what moves all
of them finds something else. Here pairs of a source and a target are asked for themselves:

1. A bank (`pair_bank`: one-colour patches, known colour filters) is stamped on a few examples of
   each class. What counts of a pair is how much closer the bank brings the source's pictures to the
   target than it brings those of other classes.
2. For the likeliest pairs a window starts from the gradient of the source's pictures.
3. The best of these take a few steps (`inversion.sign_steps`), each on pictures of its source.
4. Held-out examples of all classes are stamped with what was found.

Blends that are fitted to one source tell nothing: they carry pictures of clean networks as far.

The bank's cost grows with the classes; the number of pairs that go on is fixed.

Reference:
  Shen et al., K-Arm, https://arxiv.org/abs/2102.05123, 2021: which pairs are worth optimising.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.evidence.images.pair_bank import (
    BankAnswers,
    bank_answers,
    likely_pairs,
    make_bank,
    parted,
)
from jaxtroj.inversion.own_arms import OwnPatterns, own_fit
from jaxtroj.inversion.sign_steps import (
    Fit,
    climb,
    image_gradients,
    margins_of,
    mean_margins,
    split,
)
from jaxtroj.margins import all_margins
from jaxtroj.network import Network
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.measure import Candidates, Measured, best_of, measure
from jaxtroj.triggers.window import Window

_MOST = 0.5  # of the held-out pictures: beyond it a trigger is no source's own


@dataclass(frozen=True)
class PairBudget:
    """Examples, pairs and steps of the stage.

    Attributes:
      sources: most classes whose examples are asked.
      per_class: examples of each that the bank and the fits see, at most half of them.
      held_out: examples of each that measure.
      patches: of the bank; radii: of their circles of equal area, shares of the picture's side.
      pairs: that get gradients.
      arms: windows that go on; steps: that they take.
      window: side of a window, share of the picture's side.
      standing: lead in clean margins from which a pair's trigger is handed on; below it, which pair
        is best is chance.
    """

    sources: int = 48
    per_class: int = 2
    held_out: int = 2
    patches: int = 24
    radii: tuple[float, ...] = (0.06, 0.1)
    pairs: int = 90
    arms: int = 12
    steps: int = 8
    window: float = 0.16
    standing: float = 0.4


@dataclass(frozen=True)
class Pairs:
    """What the stage found.

    Attributes:
      bank: what the bank did to every pair.
      found: windows on held-out examples, each for the source it was fitted to.
      clean: `[a, n]`, the margin of each one's target on the clean held-out examples.
      scale: mean margin of clean examples.
    """

    bank: BankAnswers
    found: Measured
    clean: np.ndarray
    scale: float


def search_pairs(
    network: Network,
    examples: AnchoredExamples,
    key: jax.Array,
    order: str,
    at_places: bool,
    budget: PairBudget,
) -> Pairs:
    """The bank, then pairs by gradients.

    Args:
      network: the model.
      examples: with anchors.
      key: of the bank.
      order: of the pictures' channels, "RGB" or "BGR".
      at_places: whether patches and windows lie at places of the picture, not on the object.
      budget: of the stage.
    """
    parts = parted(examples, budget.per_class, budget.held_out, budget.sources)
    scale = split(network, examples, 1, 1)[0].scale
    shape = examples.images.shape[1:]
    bank = make_bank(key, budget.patches, budget.radii, shape[-1], order, at_places)
    answers = bank_answers(network, examples, parts, bank, scale)
    pairs = likely_pairs(answers, budget.pairs)
    fit = own_fit(network, parts.fit.shape[1], shape, scale)
    arms, reached = _starts(fit, examples, parts.fit[pairs[:, 0]], pairs[:, 1], at_places, budget)
    best = np.argsort(-reached, kind="stable")[: budget.arms]
    climbed, _ = climb(fit, arms.take(best), budget.steps)
    rest, sources = examples.at(parts.held), parts.sources[pairs[best, 0]]
    found = _measured(network, rest, sources, climbed, at_places)
    clean = np.asarray(all_margins(rest.logits), np.float64).T[found.targets]
    return Pairs(answers, found, clean, scale)


def _starts(
    fit: Fit,
    examples: AnchoredExamples,
    shown: np.ndarray,
    targets: np.ndarray,
    at_places: bool,
    budget: PairBudget,
) -> tuple[OwnPatterns, np.ndarray]:
    """A window for each pair, one step along its gradient, and how promising it is.

    Args:
      fit: see `own_fit`.
      examples: with anchors.
      shown: places `[p, m]` of the source's examples.
      targets: `[p]`.
      at_places: as in `search_pairs`.
      budget: of the stage.
    """
    pictures, logits = np.asarray(examples.images)[shown], np.asarray(examples.logits)[shown]
    moves = np.asarray(examples.offsets())[shown] * int(not at_places)
    nothing = np.zeros((len(targets), *fit.images.shape[1:]), np.float32)
    bare = OwnPatterns(targets, nothing[..., :1], nothing, pictures, moves)
    pulls = np.concatenate(
        [bare.take(part).mean_gradient(g) for part, g, _ in image_gradients(fit, bare, logits)]
    )
    masks = _windows(pulls, at_places, budget)
    patterns = (pulls > 0).astype(np.float32) * (masks > 0)
    starts = OwnPatterns(targets, masks, patterns, pictures, moves)
    clean = margins_of(targets, logits).mean(axis=1)
    # Half of what was reached, half of what was gained: else only neighbours would go on.
    return starts, mean_margins(fit, starts) - 0.5 * clean


def _windows(pulls: np.ndarray, at_places: bool, budget: PairBudget) -> np.ndarray:
    """A square for each pair `[p, h, w, 1]`: where its gradient is largest, or on the object."""
    count, height, width = pulls.shape[:3]
    side = min(max(3, round(budget.window * min(height, width))), height, width)
    sums = np.abs(pulls).sum(axis=-1).cumsum(axis=1).cumsum(axis=2)
    sums = np.pad(sums, ((0, 0), (1, 0), (1, 0)))
    inside = (
        sums[:, side:, side:] - sums[:, :-side, side:] - sums[:, side:, :-side]
    ) + sums[:, :-side, :-side]  # fmt: skip
    tops, lefts = np.unravel_index(inside.reshape(count, -1).argmax(axis=1), inside.shape[1:])
    if not at_places:
        tops, lefts = ([(size - side) // 2] * count for size in (height, width))
    masks = np.zeros((count, height, width, 1), np.float32)
    for place, (top, left) in enumerate(zip(tops, lefts, strict=True)):
        masks[place, top : top + side, left : left + side] = 1.0
    return masks


def _measured(
    network: Network,
    rest: AnchoredExamples,
    sources: np.ndarray,
    arms: OwnPatterns,
    still: bool,
) -> Measured:
    """Arms on held-out examples, at the same place of all or moved to their objects."""
    kind = Window if still else FreeMask
    found = kind(jnp.asarray(arms.masks), jnp.asarray(arms.patterns))
    moves = np.full(len(arms), not still)
    candidates = Candidates("pair search", found, arms.targets, moves, sources)
    return measure(network, rest, candidates)


def pair_fields(pairs: Pairs) -> dict[str, float]:
    """Evidence of the stage; `images.stages.pairs` says what each field means."""
    leads = pairs.bank.leads.max(axis=0)
    leads = np.sort(np.where(np.isfinite(leads), leads, 0.0))
    crossings, place = _crossings(pairs), _best_place(pairs)
    gains = (pairs.found.gains - pairs.clean) / pairs.scale
    own, others = (_over(gains, of)[place] for of in (_own(pairs.found), _others(pairs.found)))
    return {
        "pair_bank": float(leads[-1]),
        "pair_bank_lead": float(leads[-1] - leads[-2]),
        "pair_crossing": float(crossings[place]),
        "pair_lead": _lead(pairs),
        "pair_focus": float(own - others),
    }


def pair_triggers(pairs: Pairs, budget: PairBudget) -> tuple[Callable, ...]:
    """The best trigger where its target stands out; see `evidence.images.context`."""
    if _lead(pairs) < budget.standing:
        return ()
    return (partial(best_of, _alone(pairs.found, _best_place(pairs))),)


def _crossings(pairs: Pairs) -> np.ndarray:
    """`[a]` in clean margins: how far beyond the target's border, and at most how far it was.

    Classes that are alike are near: to cross from one to the other takes no trigger.
    """
    own = _own(pairs.found)
    reached, away = _over(pairs.found.gains, own), _over(-pairs.clean, own)
    return np.minimum(reached, away) / pairs.scale


def _best_place(pairs: Pairs) -> int:
    return int(_crossings(pairs).argmax())


def _lead(pairs: Pairs) -> float:
    """The best crossing less that of the best pair of another target; of one target only, 0."""
    crossings, targets = _crossings(pairs), pairs.found.targets
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
    found, rows = measured.found, [place]
    one = replace(
        found,
        triggers=jax.tree.map(lambda x: x[jnp.asarray(rows)], found.triggers),
        targets=found.targets[rows],
        anchored=found.anchored[rows],
        origins=None,
    )
    everywhere = Measured(one, measured.sources, measured.gains[rows], measured.sizes[rows])
    if everywhere.rates[0] > _MOST or found.origins is None:
        return everywhere
    return replace(everywhere, found=replace(one, origins=found.origins[rows]))
