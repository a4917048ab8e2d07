"""Inversion stage: search the trigger by gradients, then measure it on examples it has not seen."""

from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.evidence.images.probes import Probed
from jaxtroj.inversion.driver import Arms, Rung, invert
from jaxtroj.inversion.neural_cleanse import NeuralCleanse
from jaxtroj.inversion.patch_search import PatchSearch
from jaxtroj.network import Network
from jaxtroj.triggers.mask import Trigger, all_margins, mask_l1, share, shift, stamp
from jaxtroj.triggers.patch import Patch, take

_WORKS = 0.6
_MOST_IMAGES = 8


@dataclass(frozen=True)
class InversionBudget:
    """Classes that get arms, examples stamped per class, methods, rounds of successive halving.

    Arms go to the classes that the probe bank reaches best; the others count as unreached.
    """

    classes: int = 3
    per_class: int = 1
    held_out_per_class: int = 3
    patch_search: PatchSearch = field(default=PatchSearch())
    patch_rungs: tuple[Rung, ...] = (Rung(3, 8),)
    neural_cleanse: NeuralCleanse = field(default=NeuralCleanse())
    mask_rungs: tuple[Rung, ...] = (Rung(6, 6), Rung(3, 8))


@dataclass(frozen=True)
class Measured:
    """What one method found for each arm, on held-out examples; arms as `invert` returns them.

    Attributes:
      targets: int `[arms]`; sources: int `[n]`, class of each held-out example.
      scores: `[arms]` mean sigmoid margin; flips: `[arms, n]` bool, per held-out example.
      sizes: `[arms]` mean of the mask, a share of the picture.
      triggers: the arms' triggers, at the picture's centre when anchored.
      anchored: bool `[arms]`.
    """

    method: str
    targets: np.ndarray
    sources: np.ndarray
    scores: np.ndarray
    flips: np.ndarray
    sizes: np.ndarray
    triggers: Trigger
    anchored: np.ndarray


def search_patches(
    network: Network, examples: AnchoredExamples, probed: Probed, budget
) -> Measured:
    """Patch search from the probe bank's best patch for each of the likely classes."""
    method, shape = budget.patch_search, examples.images.shape[1:]
    targets = _likely(probed, budget.classes)
    starts = probed.scores.argmax(axis=0)[targets]
    # How far a start gets is known already: the first rung drops the hopeless ones by it.
    known = jnp.asarray(probed.scores[starts, targets], jnp.float32)
    states = _patch_starts(method, take(probed.patches, jnp.asarray(starts)), known)
    arms = Arms(states, targets, np.ones(len(targets), bool))
    few, rest = _split(examples, budget)
    arms = _furthest(invert(method, network, few, arms, budget.patch_rungs))
    triggers = _patch_triggers(method, arms.states, *shape[:2])
    return _measure("patch search", network, rest, arms, triggers)


def cleanse(
    network: Network, examples: AnchoredExamples, probed: Probed, key: jax.Array, budget
) -> Measured:
    """Neural Cleanse for each likely class, the mask moving to the object and fixed in place."""
    method, shape = budget.neural_cleanse, examples.images.shape[1:]
    likely = _likely(probed, budget.classes)
    targets = np.tile(likely, 2)
    anchored = np.repeat([True, False], len(likely))
    states = _mask_starts(method, shape, key, jnp.asarray(targets), jnp.asarray(anchored))
    few, rest = _split(examples, budget)
    arms = Arms(states, targets, anchored)
    arms = _furthest(invert(method, network, few, arms, budget.mask_rungs))
    triggers = _mask_triggers(method, arms.states)
    return _measure("neural cleanse", network, rest, arms, triggers)


@partial(jax.jit, static_argnums=0)
def _patch_starts(method: PatchSearch, patches: Patch, known: jax.Array):
    return jax.vmap(method.init)(patches, known)


@partial(jax.jit, static_argnums=(0, 2, 3))
def _patch_triggers(method: PatchSearch, states, height: int, width: int) -> Trigger:
    return jax.vmap(lambda state: method.trigger_at(state, height, width))(states)


@partial(jax.jit, static_argnums=(0, 1))
def _mask_starts(method: NeuralCleanse, shape, key: jax.Array, targets, anchored):
    def start(target: jax.Array, moves: jax.Array):
        # Keyed by class and placement, so an arm is the same whatever arms run beside it.
        own = jax.random.fold_in(jax.random.fold_in(key, target), moves)
        return method.init(own, shape)

    return jax.vmap(start)(targets, anchored.astype(jnp.int32))


@partial(jax.jit, static_argnums=0)
def _mask_triggers(method: NeuralCleanse, states) -> Trigger:
    return jax.vmap(method.trigger)(states)


def _likely(probed: Probed, count: int) -> np.ndarray:
    """The `count` classes that the probe bank reaches best, in their own order."""
    order = np.argsort(-probed.scores.max(axis=0), kind="stable")
    return np.sort(order[:count])


def _furthest(arms: Arms) -> Arms:
    """Of arms as `invert` returns them the first of each class: the others need no measuring."""
    _, first = np.unique(arms.targets, return_index=True)
    return arms.take(np.sort(first))


def _split(examples: AnchoredExamples, budget) -> tuple[AnchoredExamples, AnchoredExamples]:
    """Examples to fit a trigger to, and others to measure it on."""
    count = min(budget.per_class * examples.classes, _MOST_IMAGES)
    return examples.first(count), examples.after(count).spread(budget.held_out_per_class)


def _measure(name: str, network: Network, rest: AnchoredExamples, arms: Arms, triggers: Trigger):
    chunk = max(1, 4 * network.batch(rest.images) // len(rest.images))
    parts = []
    for start in range(0, len(arms), chunk):
        part = jax.tree.map(lambda x, i=start: x[i : i + chunk], triggers)
        moves = jnp.asarray(arms.anchored[start : start + chunk], jnp.int32)
        images = _stamped(rest.images, part, moves[:, None, None] * rest.offsets())
        logits = network.logits(images.reshape(-1, *images.shape[2:]))
        parts.append(all_margins(logits).reshape(-1, len(rest.images), rest.classes))
    gains = jnp.concatenate(parts)
    gain = jnp.take_along_axis(gains, jnp.asarray(arms.targets)[:, None, None], axis=2)[..., 0]
    others = rest.sources != jnp.asarray(arms.targets)[:, None]
    scores = np.asarray(share(jax.nn.sigmoid(gain), others), np.float64)
    area = triggers.mask.shape[1] * triggers.mask.shape[2]
    sizes = np.asarray(mask_l1(triggers), np.float64) / area
    flips = np.asarray(gain > 0)
    sources = np.asarray(rest.sources)
    return Measured(name, arms.targets, sources, scores, flips, sizes, triggers, arms.anchored)


@jax.jit
def _stamped(images: jax.Array, triggers: Trigger, moves: jax.Array) -> jax.Array:
    """Every trigger on every image, moved by `moves [arms, n, 2]`: `[arms, n, h, w, c]`."""
    return stamp(images, jax.vmap(jax.vmap(shift, in_axes=(None, 0)))(triggers, moves))


def _best_by_class(
    values: np.ndarray, targets: np.ndarray, classes: int, least: float
) -> np.ndarray:
    """Largest value of each class's arms, `least` for a class without one."""
    return np.array([values[targets == t].max(initial=least) for t in range(classes)])


def inversion_fields(patches: Measured, masks: Measured, classes: int) -> dict[str, float]:
    """Evidence of the stage; `images.stages.inversion` says what each field means."""
    patch = np.sort(_best_by_class(patches.scores, patches.targets, classes, 0.0))
    mask = _best_by_class(masks.scores, masks.targets, classes, 0.0)
    # A mask that does not work has no size: it counts as the whole picture.
    sizes = np.where(masks.scores >= _WORKS, masks.sizes, 1.0)
    smallest = np.sort(-_best_by_class(-sizes, masks.targets, classes, -1.0))
    return {
        "patch_score": float(patch[-1]),
        "patch_gap": float(patch[-1] - patch[-2]),
        "patch_area": float(patches.sizes[patches.scores.argmax()]),
        "mask_score": float(mask.max()),
        "mask_size": float(np.log(smallest[0])),
        "mask_ratio": float(np.log(smallest[1] / smallest[0])),
    }
