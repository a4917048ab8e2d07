"""Whole stage: triggers that change the whole picture, or its frame.

Filters, waves, warps and frames are not found at a place, so no window finds them. Two searches,
for five families of trigger (`FAMILIES`):

- a **bank** of candidates for no class in particular (`whole_banks`), forward passes only;
- **arms** for every class: smooth additive patterns, warps and frames with a free pattern, whose
  values take a few steps along the sign of their gradient, all families in one batch.

Free colour maps are left out of the second: on clean networks too one is soon found that sends
every picture to a class. The best of each class is measured on examples that neither search saw.

References:
  Moosavi-Dezfooli et al., Universal adversarial perturbations, https://arxiv.org/abs/1610.08401.
  Goodfellow et al., Explaining and Harnessing Adversarial Examples, https://arxiv.org/abs/1412.6572.
  Differs: the perturbation is smooth, a warp or a frame.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples, for_few
from jaxtroj.evidence.images.large_pictures import less_for_large
from jaxtroj.evidence.images.reachable import STEP, ReachBudget, ranked_classes
from jaxtroj.evidence.images.whole_banks import BankBudget, bank_of
from jaxtroj.inversion.sign_steps import Fit, climb, split
from jaxtroj.inversion.value_arms import (
    BorderFamily,
    SmoothFamily,
    ValueArms,
    WarpFamily,
    value_arms,
)
from jaxtroj.network import Network
from jaxtroj.rows import taken
from jaxtroj.triggers.fields import linear
from jaxtroj.triggers.measure import Candidates, Measured, gains_together, sizes_of

FAMILIES = ("filter", "sinusoid", "smooth", "warp", "border")
_SEARCHED = ("smooth", "warp", "border")  # in the order of `_families`


@dataclass(frozen=True)
class WholeBudget:
    """Examples, candidates and steps of the stage; lengths are shares of the shorter side.

    Attributes:
      bank: the candidates for no class; bank_examples: examples they are tried on; of large
        pictures half of them and of `fit`.
      classes: most target classes that arms are for.
      reach: which of very many classes get arms of one step, by which those are chosen.
      fit: examples that arms are fitted to; the rest, up to `held_out`, measure what was found.
      held_out: examples to measure on, per class.
      kept: classes of each family that are measured: the fields compare the two best.
      steps: of the arms.
      epsilon: most that a smooth pattern adds; points: its grid's along a side.
      warp: farthest that a control point moves along an axis; warp_points: of them along a side.
      border: width of a frame.
    """

    bank: BankBudget = field(default_factory=BankBudget)
    bank_examples: int = 10
    classes: int = 10
    reach: ReachBudget = field(default_factory=ReachBudget)
    fit: int = 8
    held_out: int = 2
    kept: int = 3
    steps: int = 3
    epsilon: float = 0.06
    points: int = 16
    warp: float = 0.05
    warp_points: int = 5
    border: float = 0.0625

    def on(self, images: np.ndarray) -> "WholeBudget":
        """What is spent on images `[n, h, w, c]` of this size."""
        return less_for_large(self, images, bank_examples=0.5, fit=0.5)


@dataclass(frozen=True)
class Whole:
    """What was found.

    Attributes:
      found: family -> candidates of its kinds, measured on held-out examples.
      sink: lead of the class that the bank's candidates send most examples to.
      scale: mean margin of the clean examples.
    """

    found: Mapping[str, tuple[Measured, ...]]
    sink: float
    scale: float


def search_whole(
    network: Network, examples: AnchoredExamples, key: jax.Array, order: str, budget: WholeBudget
) -> Whole:
    """Both searches.

    Args:
      network: the model.
      examples: of it.
      key: of all random choices.
      order: of the pictures' channels, "RGB" or "BGR".
      budget: what may be spent.
    """
    fit, rest = split(network, examples, budget.fit, budget.held_out)
    candidates, sink = _from_bank(network, examples, key, order, budget)
    searched = _from_arms(fit, examples.classes, key, budget)
    both = {
        name: (*candidates.get(name, ()), *([searched[name]] if name in searched else []))
        for name in FAMILIES
    }
    return Whole(_measured(network, rest, both), sink, fit.scale)


def _from_bank(network, examples, key, order: str, budget: WholeBudget):
    """Family -> the bank's best candidates for the classes they move most; and the sink."""
    bank = bank_of(key, tuple(examples.images.shape[1:]), order, budget.bank)
    count = for_few(budget.bank_examples, examples.classes)
    few = examples.first(max(1, min(count, len(examples.images) // 2)))
    kinds = [kind for family in bank.values() for kind in family]
    gains = gains_together(network, few, kinds)
    others = np.asarray(few.sources)[:, None] != np.arange(few.classes)
    counts = np.maximum(others.sum(axis=0), 1)
    flips = np.concatenate([((own > 0) * others).sum(axis=1) / counts for own in gains])
    pulls = iter([(own * others).sum(axis=1) / counts for own in gains])
    found = {
        name: tuple(_best_of_bank(kind, next(pulls), budget) for kind in family)
        for name, family in bank.items()
    }
    return found, _lead(flips.mean(axis=0))


def _best_of_bank(triggers, pulls: np.ndarray, budget: WholeBudget) -> Candidates:
    """For each of the classes that are moved most `[a, classes]`, the candidate that does it."""
    targets = np.argsort(-pulls.max(axis=0), kind="stable")[: budget.kept]
    chosen = taken(triggers, pulls[:, targets].argmax(axis=0))
    return Candidates(f"{triggers.kind} bank", chosen, targets, np.zeros(len(targets), bool))


def _from_arms(fit: Fit, classes: int, key: jax.Array, budget: WholeBudget):
    """Family -> what the steps found for the classes that they moved most."""
    height, width, channels = fit.images.shape[1:]
    shape = (height, width, channels)
    targets = _targets(fit, classes, key, budget)
    arms = value_arms(_families(budget, min(shape[:2])), targets, shape, key)
    if classes > budget.classes:
        arms = arms.take(_reached_first(fit, arms, budget))
    arms, reached = climb(fit, arms, budget.steps)
    return {
        name: _best_of_arms(arms.take(arms.kinds == kind), reached[arms.kinds == kind], fit, budget)
        for kind, name in enumerate(_SEARCHED)
    }


def _targets(fit: Fit, classes: int, key: jax.Array, budget: WholeBudget) -> np.ndarray:
    """Classes that get arms, by number: all, or of very many those that smooth steps move most."""
    if classes <= budget.reach.classes:
        return np.arange(classes)
    height, width, channels = fit.images.shape[1:]
    points = (min(budget.points, height), min(budget.points, width), channels)

    def smooth_step(own: jax.Array) -> jax.Array:
        signs = STEP * jax.random.rademacher(own, points, jnp.float32)
        return linear(signs, (height, width))[None]

    ranked = ranked_classes(fit.network, fit.images, smooth_step, key, budget.reach)
    return np.sort(ranked[: budget.reach.classes])


def _families(budget: WholeBudget, side: int):
    return (
        SmoothFamily(budget.epsilon, budget.points),
        WarpFamily(budget.warp * side, budget.warp_points),
        BorderFamily(budget.border * side),
    )


def _reached_first(fit: Fit, arms: ValueArms, budget: WholeBudget) -> np.ndarray:
    """Places of each family's arms for the classes that one step on few examples moves most."""
    few = fit.first(max(1, budget.fit // 2))
    _, reached = climb(few, arms, 1)
    places = [
        own[np.argsort(-reached[own], kind="stable")[: budget.classes]]
        for own in (np.flatnonzero(arms.kinds == kind) for kind in range(len(arms.families)))
    ]
    return np.sort(np.concatenate(places))


def _best_of_arms(arms: ValueArms, reached, fit: Fit, budget: WholeBudget) -> Candidates:
    best = arms.take(np.argsort(-reached, kind="stable")[: budget.kept])
    method, triggers = best.triggers(int(best.kinds[0]), fit.images)
    return Candidates(method, triggers, best.targets, np.zeros(len(best), bool))


def _measured(network, rest: AnchoredExamples, candidates) -> dict[str, tuple[Measured, ...]]:
    """All candidates on held-out examples, in common batches."""
    _, height, width, _ = rest.images.shape
    shape, sources = (height, width), np.asarray(rest.sources)
    kinds = [found.triggers for family in candidates.values() for found in family]
    gains = iter(gains_together(network, rest, kinds))

    def one(found: Candidates) -> Measured:
        own = np.asarray(next(gains), np.float64)
        own = np.take_along_axis(own, found.targets[:, None, None], axis=2)[..., 0]
        return Measured(found, sources, own, sizes_of(found.triggers, shape))

    return {name: tuple(one(found) for found in family) for name, family in candidates.items()}


def whole_fields(whole: Whole) -> dict[str, float]:
    """Evidence of the stage (`images.stages.whole`): of each family the larger of its searches.

    What pushes pictures to one class nearly as far as to another tells more of the network, whose
    margins are small, than of that class: so a push counts beside that to the second best.
    """
    fields = {}
    for name in FAMILIES:
        pushes = [found.margins / whole.scale for found in whole.found[name]]
        push, lead = max(float(own.max()) for own in pushes), max(map(_lead, pushes))
        beside = 1 + max(0.0, push - lead)
        fields |= {f"whole_{name}_ratio": push / beside, f"whole_{name}_edge": lead / beside}
    return fields | {"whole_sink": whole.sink}


def _lead(values: np.ndarray) -> float:
    """The largest less the second largest; 0 for one alone."""
    first = np.sort(values)[::-1]
    return float(first[0] - first[1]) if len(first) > 1 else 0.0
