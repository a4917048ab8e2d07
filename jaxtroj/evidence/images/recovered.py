"""Triggers that were recovered from image classifiers, and candidates as they become some."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.evidence.images.inversion import Measured
from jaxtroj.evidence.images.probes import Probed, try_patches
from jaxtroj.network import Network
from jaxtroj.triggers.mask import Trigger, shift
from jaxtroj.triggers.patch import patch_trigger, take

_TOP = 6  # best patches of a class that the bank's target is chosen by


@dataclass(frozen=True)
class RecoveredTrigger:
    """A candidate trigger and how well it works on examples it was not fitted to.

    Attributes:
      target_class: the class it serves.
      source_classes: classes of which it flips more than half of the examples.
      mask: `[h, w, 1]` and pattern `[h, w, c]` in [0, 1], where the first example that is not of
        the target class has its object.
      attack_success_rate: fraction of held-out examples of other classes that it flips.
      mask_l1: size in pixels.
      method: what found it.
    """

    target_class: int
    source_classes: tuple[int, ...]
    mask: np.ndarray
    pattern: np.ndarray
    attack_success_rate: float
    mask_l1: float
    method: str


TriggerCandidate = Callable[[Network, AnchoredExamples], RecoveredTrigger]
"""What a stage hands over: measured and put in place only once all stages have run."""


def best_of(measured: Measured, network: Network, examples: AnchoredExamples) -> RecoveredTrigger:
    """The best arm of a search, as a trigger."""
    place = int(measured.scores.argmax())
    target = int(measured.targets[place])
    trigger = jax.tree.map(lambda x: x[place], measured.triggers)
    sources, flips = measured.sources, measured.flips[place]
    others = sources != target
    rate = float(flips[others].mean()) if others.any() else 0.0
    by_class = [c for c in np.unique(sources[others]) if flips[sources == c].mean() > 0.5]
    if measured.anchored[place]:
        trigger = _on_example(trigger, examples, target)
    return _recovered(measured.method, target, rate, tuple(int(c) for c in by_class), trigger)


def probe_trigger(
    probed: Probed, per_class: int, network: Network, examples: AnchoredExamples
) -> RecoveredTrigger:
    """The best patch of the probe bank, measured on examples that the bank has not seen.

    Args:
      probed: the bank's answers.
      per_class: examples of each class that its close round saw.
      network: the model.
      examples: of it, with anchors.
    """
    target = int(np.sort(probed.scores, axis=0)[-_TOP:].mean(axis=0).argmax())
    place = int(probed.scores[:, target].argmax())
    patch = take(probed.patches, jnp.asarray([place]))
    rest = examples.after(len(examples.spread(per_class).images))
    rate = float(try_patches(network, rest, patch)[0][0, target])
    height, width = examples.images.shape[1:3]
    centre = jnp.asarray([height // 2, width // 2], jnp.float32)
    trigger = patch_trigger(jax.tree.map(lambda x: x[0], patch), centre, height, width)
    sources = tuple(c for c in range(examples.classes) if c != target) if rate > 0.5 else ()
    return _recovered("probe", target, rate, sources, _on_example(trigger, examples, target))


def _on_example(trigger: Trigger, examples: AnchoredExamples, target: int) -> Trigger:
    """Moved to the object of the first example that is not of the target class."""
    shown = np.flatnonzero(np.asarray(examples.sources) != target)
    return shift(trigger, examples.offsets()[int(shown[0]) if shown.size else 0])


def _recovered(
    method: str, target: int, rate: float, sources: tuple[int, ...], trigger: Trigger
) -> RecoveredTrigger:
    mask, pattern = np.asarray(trigger.mask), np.asarray(trigger.pattern)
    return RecoveredTrigger(target, sources, mask, pattern, rate, float(mask.sum()), method)
