"""Fixed stage: free patterns at fixed places of small pictures, by steps along gradients' signs.

Poisoned networks for small pictures mostly carry a trigger that lies at one place of the picture
and has a colour of its own in each pixel. The patch search looks for one colour on the object, and
a free mask finds perturbations of a few pixels for every class of a small network. So here the mask
is given and the pattern is free:

- **windows**: opaque squares all over the picture (patches, groups of pixels);
- **blends**: the whole picture at low weight (blended patterns, waves, scattered pixels).

A pattern takes a few steps (`inversion.sign_steps`) from the gradient of the clean examples.

References:
  Brown et al., Adversarial Patch, https://arxiv.org/abs/1712.09665, 2017: a free pattern in a given
  place. Differs: sign steps (Goodfellow et al., https://arxiv.org/abs/1412.6572), all places tried.
  Moosavi-Dezfooli et al., Universal adversarial perturbations, https://arxiv.org/abs/1610.08401.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.evidence.images.reachable import ReachBudget, free_step, ranked_classes
from jaxtroj.inversion.sign_steps import (
    Fit,
    Patterns,
    climb,
    image_gradients,
    joined,
    logits_of,
    mean_margins,
    pull_of,
    split,
)
from jaxtroj.network import Network
from jaxtroj.triggers.blend import Blend
from jaxtroj.triggers.measure import Candidates, Measured, measure
from jaxtroj.triggers.window import Window

_GAP = 2  # pixels between the places that a window is tried at before its neighbours are


@dataclass(frozen=True)
class FixedBudget:
    """Examples, windows and steps of the stage.

    Attributes:
      classes: most target classes tried, those that the gradients reach best.
      reach: which of very many classes get a gradient.
      wide: examples that every window is tried on; located: those that tell where the best lies.
      fit: examples that patterns are fitted to; the rest of `held_out` measure them.
      held_out: examples to measure on, per class.
      window: side of a window, and stride: from one to the next, shares of the picture's side.
      kept: windows per class that go on; steps: of their patterns and of blends.
      moved: classes whose patterns then try all places: a network that sums over places answers
        to its trigger elsewhere too, but most where it was taught.
      moved_steps: more steps at the new places.
      weight: of a blend.
    """

    classes: int = 10
    reach: ReachBudget = field(default_factory=ReachBudget)
    wide: int = 2
    located: int = 4
    fit: int = 8
    held_out: int = 3
    window: float = 0.13
    stride: float = 0.1
    kept: int = 2
    steps: int = 8
    moved: int = 2
    moved_steps: int = 3
    weight: float = 0.05


def search_fixed(
    network: Network, examples: AnchoredExamples, key: jax.Array, budget: FixedBudget
) -> tuple[Measured, Measured, float]:
    """Windows and blends on held-out examples, and the mean margin of the clean ones.

    Args:
      network: the model.
      examples: of it.
      key: of what very many classes are chosen by.
      budget: what may be spent.
    """
    fit, rest = split(network, examples, budget.fit, budget.held_out)
    pulls = _mean_gradients(fit, examples.classes, _asked(fit, examples.classes, key, budget))
    reach = np.abs(pulls).mean(axis=(1, 2, 3))
    targets = np.sort(np.argsort(-reach, kind="stable")[: budget.classes])
    masks = _window_masks(fit.images.shape[1:3], budget)
    starts = _window_starts(fit, pulls, targets, masks, budget)
    # Both kinds go on in common batches: alone neither fills one.
    arms, reached = climb(fit, joined(starts, _blend_starts(pulls, targets, budget)), budget.steps)
    count = len(starts)
    windows = arms.take(np.arange(count))
    moved = _moved(fit, windows, reached[:count], masks, budget)
    windows = _best_of_each_class(fit, joined(windows, moved))
    blends = _best_of_each_class(fit, arms.take(np.arange(count, len(arms))))
    return (
        measure(network, rest, _as_windows(windows)),
        measure(network, rest, _as_blends(blends)),
        fit.scale,
    )


def _asked(fit: Fit, classes: int, key: jax.Array, budget: FixedBudget) -> np.ndarray:
    """Classes that get a gradient, by number: all, or of very many those that are reached most."""
    if classes <= budget.reach.classes:
        return np.arange(classes)
    draw = free_step(fit.images.shape[1:])
    ranked = ranked_classes(fit.network, fit.images, draw, key, budget.reach)
    return np.sort(ranked[: budget.reach.classes])


def _mean_gradients(fit: Fit, classes: int, asked: np.ndarray) -> np.ndarray:
    """Mean gradient `[classes, h, w, c]` of each class's margin on the clean examples; 0 of those
    that are not asked."""
    height, width, channels = fit.images.shape[1:]
    shape = (len(asked), height, width)
    arms = Patterns(asked, np.zeros((*shape, 1)), np.zeros((*shape, channels)))
    found = image_gradients(fit, arms, logits_of(fit, arms))
    gradients = np.concatenate([gradients.mean(axis=1) for _, gradients, _ in found])
    pulls = np.zeros((classes, *gradients.shape[1:]), gradients.dtype)
    pulls[asked] = gradients
    return pulls


def _window_starts(fit: Fit, pulls, targets: np.ndarray, masks, budget: FixedBudget) -> Patterns:
    """The best windows of each class, after all places were tried by one step."""
    starts = _starts(pulls, np.repeat(targets, len(masks)), np.tile(masks, (len(targets), 1, 1, 1)))
    few = fit.first(budget.wide)
    found = pull_of(few, starts, logits_of(few, starts)).reshape(len(targets), len(masks))
    best = np.argsort(-found, axis=1, kind="stable")[:, : budget.kept]
    return starts.take((np.arange(len(targets))[:, None] * len(masks) + best).ravel())


def _blend_starts(pulls, targets: np.ndarray, budget: FixedBudget) -> Patterns:
    shape = (len(targets), *pulls.shape[1:3], 1)
    return _starts(pulls, targets, np.full(shape, budget.weight, np.float32))


def _moved(fit: Fit, arms: Patterns, reached, masks, budget: FixedBudget) -> Patterns:
    """The windows of the leading classes at the places where they pull hardest, improved there."""
    ranked = arms.targets[np.argsort(-reached, kind="stable")]
    leaders = ranked[ranks_within(ranked) == 0][: budget.moved]
    chosen = arms.take(np.flatnonzero(np.isin(arms.targets, leaders)))
    best = _at_best_places(fit.first(budget.wide), chosen, masks)
    return climb(fit, best, budget.moved_steps)[0]


def _window_masks(size: tuple[int, int], budget: FixedBudget) -> np.ndarray:
    """Squares all over the picture, the last ones at its far edges: `[places, h, w, 1]`."""
    side = max(3, round(budget.window * min(size)))
    stride = max(1, round(budget.stride * min(size)))
    rows, columns = (sorted({*range(0, s - side + 1, stride), s - side}) for s in size)
    masks = np.zeros((len(rows), len(columns), *size, 1), np.float32)
    for i, top in enumerate(rows):
        for j, left in enumerate(columns):
            masks[i, j, top : top + side, left : left + side] = 1.0
    return masks.reshape(-1, *size, 1)


def _starts(pulls: np.ndarray, targets: np.ndarray, masks: np.ndarray) -> Patterns:
    """Patterns one step along the clean examples' gradient: every value at one of its ends."""
    return Patterns(targets, masks, (pulls[targets] > 0).astype(np.float32) * (masks > 0))


def _at_best_places(fit: Fit, arms: Patterns, masks: np.ndarray) -> Patterns:
    """Each arm's pattern at the place where it pulls hardest."""
    tops, lefts = (_first(masks, axis) for axis in (1, 2))
    rolled = []
    for place in range(len(arms)):
        one = arms.take(np.array([place]))
        top, left = int(_first(one.masks, 1)[0]), int(_first(one.masks, 2)[0])
        moves = zip(tops - top, lefts - left, strict=True)
        rolled += [np.roll(one.patterns[0], move, axis=(0, 1)) for move in moves]
    count = len(masks)
    everywhere = Patterns(
        np.repeat(arms.targets, count), np.tile(masks, (len(arms), 1, 1, 1)), np.stack(rolled)
    )
    found = mean_margins(fit, everywhere).reshape(len(arms), count)
    return everywhere.take(np.arange(len(arms)) * count + found.argmax(axis=1))


def _first(masks: np.ndarray, axis: int) -> np.ndarray:
    """First row (axis 1) or column (axis 2) of each mask."""
    other = 2 if axis == 1 else 1
    return masks[..., 0].any(axis=other).argmax(axis=1)


def ranks_within(groups: np.ndarray) -> np.ndarray:
    """How many earlier entries have the same value.

    >>> ranks_within(np.array([3, 3, 1, 3])).tolist()
    [0, 1, 0, 2]
    """
    return np.array([(groups[:place] == group).sum() for place, group in enumerate(groups)], int)


def _best_of_each_class(fit: Fit, arms: Patterns) -> Patterns:
    """One arm for each target, the furthest first."""
    order = np.argsort(-mean_margins(fit, arms), kind="stable")
    return arms.take(order[ranks_within(arms.targets[order]) == 0])


def _as_windows(arms: Patterns) -> Candidates:
    triggers = Window(jnp.asarray(arms.masks), jnp.asarray(arms.patterns))
    return Candidates("window search", triggers, arms.targets, np.zeros(len(arms), bool))


def _as_blends(arms: Patterns) -> Candidates:
    weights = jnp.asarray(arms.masks[:, 0, 0, 0])
    triggers = Blend(weights, jnp.asarray(arms.patterns))
    return Candidates("blend search", triggers, arms.targets, np.zeros(len(arms), bool))


def fixed_fields(windows: Measured, blends: Measured, scale: float) -> dict[str, float]:
    """Evidence of the stage (`images.stages.fixed`), each field the larger of the two searches."""
    found = [_fields(windows, scale), _fields(blends, scale)]
    return {f"fixed_{name}": max(fields[name] for fields in found) for name in found[0]}


def _fields(found: Measured, scale: float) -> dict[str, float]:
    scores, pulls = np.sort(found.scores), np.sort(found.margins) / scale
    return {
        "score": float(scores[-1]),
        "gap": float(scores[-1] - scores[-2]),
        "pull": float(pulls[-1]),
        "lead": float(pulls[-1] - pulls[-2]),
    }


def locate(
    network: Network, examples: AnchoredExamples, windows: Measured, budget: FixedBudget
) -> Measured:
    """The best window alone, at the place among all pixels where its pattern pulls hardest.

    The places that windows are tried at leave gaps, and a pattern found beside its place may need
    to lie half beyond the edge: what is beyond is cut off. No field depends on this.
    """
    fit, rest = split(network, examples, budget.fit, budget.held_out)
    place = windows.scores.argmax()
    mask, pattern = (np.asarray(x[place]) for x in jax.tree.leaves(windows.found.triggers))
    start = Patterns(windows.targets[[place]], mask[None], pattern[None])
    few = fit.first(budget.located)
    best = _furthest(few, _around(start, max(fit.images.shape[1:3]), _GAP))
    best = _furthest(few, _around(best, _GAP - 1, 1))
    moved, _ = climb(fit, best, budget.moved_steps)
    found = _best_of_each_class(fit, joined(start, moved))
    return measure(network, rest, _as_windows(found))


def placed(
    network: Network, examples: AnchoredExamples, window: Window, target: int, budget: FixedBudget
) -> Measured:
    """A window that comes from elsewhere, for one class, where it pulls hardest; see `locate`."""
    _, rest = split(network, examples, budget.fit, budget.held_out)
    arm = Patterns(
        np.array([target]), np.asarray(window.mask)[None], np.asarray(window.pattern)[None]
    )
    return locate(network, examples, measure(network, rest, _as_windows(arm)), budget)


def _furthest(fit: Fit, arms: Patterns) -> Patterns:
    """The one arm that pulls hardest."""
    return arms.take(np.array([int(mean_margins(fit, arms).argmax())]))


def _around(arm: Patterns, reach: int, gap: int) -> Patterns:
    """One window with its pattern every `gap` pixels up to `reach` away, whole or cut by an edge.

    At most half of it lies beyond an edge, and what does is cut off.
    """
    height, width = arm.masks.shape[1:3]
    rows, columns = np.nonzero(arm.masks[0, ..., 0])
    side = max(int(np.ptp(rows)), int(np.ptp(columns))) + 1
    half = side // 2
    top, left = int(rows.min()), int(columns.min())
    patch = arm.patterns[0, top : top + side, left : left + side]
    tops, lefts = (
        [t for t in range(first - reach, first + reach + 1, gap) if -half <= t <= s - side + half]
        for first, s in ((top, height), (left, width))
    )
    shape = (len(tops) * len(lefts), height + 2 * half, width + 2 * half)
    masks = np.zeros((*shape, 1), np.float32)
    patterns = np.zeros((*shape, patch.shape[-1]), np.float32)
    for place, (t, first) in enumerate((t, first) for t in tops for first in lefts):
        here = place, slice(t + half, t + half + side), slice(first + half, first + half + side)
        masks[here] = 1.0
        patterns[here][: patch.shape[0], : patch.shape[1]] = patch
    inside = slice(None), slice(half, half + height), slice(half, half + width)
    return Patterns(np.repeat(arm.targets, len(masks)), masks[inside], patterns[inside])
