"""Pairs stage: triggers that work from one or two source classes only.

A trigger of one source hardly moves the pictures of other classes, so a search for what moves all
of them finds something else. Here pairs of a source and a target are asked for themselves:

1. A bank (`pair_bank`: one-colour patches, known colour filters) is stamped on a few examples of
   each class. What counts of a pair is how much closer the bank brings the source's pictures to the
   target than it brings those of other classes.
2. For the likeliest pairs a window, and a few single pixels (dots), start from the gradient of the
   source's pictures: the window where it is largest in sum, the dots where it is largest.
3. The best of both take a few steps (`inversion.sign_steps`), each on pictures of its source.
4. Held-out examples of all classes are stamped with what was found.

Blends that are fitted to one source tell nothing: they carry pictures of clean networks as far.

The bank's cost grows with the classes; the number of pairs that go on is fixed.

References:
  Shen et al., K-Arm, https://arxiv.org/abs/2102.05123, 2021: which pairs are worth optimising.
  Papernot et al., Limitations of Deep Learning, https://arxiv.org/abs/1511.07528, 2016: the few
  pixels with the largest gradient.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.evidence.images.pair_bank import (
    bank_answers,
    likely_pairs,
    make_bank,
    parted,
)
from jaxtroj.evidence.images.pair_fields import Crossings, Pairs
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
from jaxtroj.triggers.measure import Candidates, Measured, measure
from jaxtroj.triggers.window import Window

METHOD = "pair search"


@dataclass(frozen=True)
class PairBudget:
    """Examples, pairs and steps of the stage.

    Attributes:
      sources: most classes whose examples are asked.
      per_class: examples of each that the bank and the fits see, at most half of them.
      held_out: examples of each that measure.
      patches: of the bank; radii: of their circles of equal area, shares of the picture's side.
      pairs: that get gradients.
      arms: windows that go on, and as many groups of dots; steps: that they take.
      window: side of a window, share of the picture's side.
      dots: pixels of a group.
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
    dots: int = 12
    standing: float = 0.4


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
    starts = _starts(fit, examples, parts.fit[pairs[:, 0]], pairs[:, 1], at_places)
    rest, origins = examples.at(parts.held), parts.sources[pairs[:, 0]]

    def crossed(masks: np.ndarray) -> Crossings:
        best, arms = _climbed(fit, starts, masks, budget)
        found = _measured(network, rest, origins[best], arms, at_places)
        clean = np.asarray(all_margins(rest.logits), np.float64).T[found.targets]
        return Crossings(found, clean, scale)

    windows, dots = _windows(starts.pulls, at_places, budget), _dots(starts.pulls, budget)
    return Pairs(answers, crossed(windows), crossed(dots))


@dataclass(frozen=True)
class Starts:
    """Where the patterns of all pairs start.

    Attributes:
      bare: a pattern without a pixel for each pair, on its source's examples.
      pulls: `[p, h, w, c]`, mean gradient of the pair's margin over them.
      clean: `[p]`, their mean margin.
    """

    bare: OwnPatterns
    pulls: np.ndarray
    clean: np.ndarray


def _starts(
    fit: Fit, examples: AnchoredExamples, shown: np.ndarray, targets: np.ndarray, at_places: bool
) -> Starts:
    """One gradient for each pair.

    Args:
      fit: see `own_fit`.
      examples: with anchors.
      shown: places `[p, m]` of the source's examples.
      targets: `[p]`.
      at_places: as in `search_pairs`.
    """
    pictures, logits = np.asarray(examples.images)[shown], np.asarray(examples.logits)[shown]
    moves = np.asarray(examples.offsets())[shown] * int(not at_places)
    nothing = np.zeros((len(targets), *fit.images.shape[1:]), np.float32)
    bare = OwnPatterns(targets, nothing[..., :1], nothing, pictures, moves)
    pulls = np.concatenate(
        [bare.take(part).mean_gradient(g) for part, g, _ in image_gradients(fit, bare, logits)]
    )
    return Starts(bare, pulls, margins_of(targets, logits).mean(axis=1))


def _climbed(
    fit: Fit, starts: Starts, masks: np.ndarray, budget: PairBudget
) -> tuple[np.ndarray, OwnPatterns]:
    """Places of the most promising pairs, and their patterns after the steps."""
    patterns = (starts.pulls > 0).astype(np.float32) * (masks > 0)
    first = replace(starts.bare, masks=masks, patterns=patterns)
    # Half of what was reached, half of what was gained: else only neighbours would go on.
    promise = mean_margins(fit, first) - 0.5 * starts.clean
    best = np.argsort(-promise, kind="stable")[: budget.arms]
    return best, climb(fit, first.take(best), budget.steps)[0]


def _dots(pulls: np.ndarray, budget: PairBudget) -> np.ndarray:
    """For each pair `[p, h, w, 1]` the pixels with the largest gradient."""
    count, height, width = pulls.shape[:3]
    sizes = np.abs(pulls).sum(axis=-1).reshape(count, -1)
    order = np.argsort(-sizes, axis=1, kind="stable")[:, : budget.dots]
    masks = np.zeros_like(sizes, dtype=np.float32)
    np.put_along_axis(masks, order, 1.0, axis=1)
    return masks.reshape(count, height, width, 1)


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
    candidates = Candidates(METHOD, found, arms.targets, moves, sources)
    return measure(network, rest, candidates)
