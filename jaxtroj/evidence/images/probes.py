"""Probe bank: random uniform-colour patches stamped on the examples, forward passes only.

A poisoned network answers some patch with one class for nearly every example; a clean one answers
with several classes or none. Two rounds: a wide bank on one example per class, then the best
candidates and their neighbours on more examples.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.evidence.images.weights import head_gap
from jaxtroj.network import Network
from jaxtroj.triggers.mask import all_margins, share
from jaxtroj.triggers.patch import Patch, patch_mask, random_patches, take, vary

# Round 0's polygons have bounding boxes of 8-15 % and 20-25 % of the picture's side and fill about
# half of them; these are the radii of circles of equal area.
RADII = (0.05, 0.085)
_TOP = 6


@dataclass(frozen=True)
class ProbeBudget:
    """How many candidates are tried on how many examples, first widely, then closely."""

    wide: int = 48
    wide_per_class: int = 1
    kept: int = 4
    copies: int = 2
    close_per_class: int = 2


@dataclass(frozen=True)
class Probed:
    """Result of the bank, candidates best first.

    Attributes:
      patches: the close round's candidates.
      flips: `[candidates, classes]` fraction of examples of other classes sent to each class.
      scores: `[candidates, classes]` mean sigmoid of the margin, the soft form of `flips`.
      wide_scores: `[wide, classes]` of the first round.
    """

    patches: Patch
    flips: np.ndarray
    scores: np.ndarray
    wide_scores: np.ndarray


@jax.jit
def stamped(images: jax.Array, anchors: jax.Array, patches: Patch) -> jax.Array:
    """Every patch at every image's anchor, `[candidates, n, h, w, c]`."""
    height, width = images.shape[1:3]

    def one(patch: Patch, image: jax.Array, centre: jax.Array) -> jax.Array:
        return image + patch_mask(patch, centre, height, width) * (patch.colour - image)

    over_images = jax.vmap(one, in_axes=(None, 0, 0))
    return jax.vmap(over_images, in_axes=(0, None, None))(patches, images, anchors)


def try_patches(network: Network, examples: AnchoredExamples, patches: Patch):
    """Flip fractions and soft scores, each `[candidates, classes]`."""
    count, n = patches.radius.shape[0], len(examples.images)
    chunk = max(1, 4 * network.batch(examples.images) // n)
    gains = []
    for start in range(0, count, chunk):
        part = take(patches, jnp.arange(start, min(start + chunk, count)))
        images = stamped(examples.images, examples.anchors, part)
        logits = network.logits(images.reshape(-1, *images.shape[2:]))
        gains.append(all_margins(logits).reshape(-1, n, examples.classes))
    gain = jnp.concatenate(gains)
    others = (examples.sources[:, None] != jnp.arange(examples.classes))[None]
    flips = share((gain > 0).astype(gain.dtype), others, axis=1)
    return np.asarray(flips, np.float64), np.asarray(
        share(jax.nn.sigmoid(gain), others, axis=1), np.float64
    )


def run_probes(
    network: Network, examples: AnchoredExamples, key: jax.Array, budget: ProbeBudget
) -> Probed:
    """Both rounds of the bank."""
    patches = random_patches(key, budget.wide, examples.images.shape[-1], RADII)
    few = examples.spread(budget.wide_per_class)
    _, wide_scores = try_patches(network, few, patches)
    best = np.argsort(-wide_scores.max(axis=1), kind="stable")[: budget.kept]
    close = vary(jax.random.fold_in(key, 1), take(patches, jnp.asarray(best)), budget.copies)
    more = examples.spread(budget.close_per_class)
    flips, scores = try_patches(network, more, close)
    order = np.argsort(-scores.max(axis=1), kind="stable")
    return Probed(take(close, jnp.asarray(order)), flips[order], scores[order], wide_scores)


def probe_fields(probed: Probed, head: np.ndarray | None = None) -> dict[str, float]:
    """Evidence of the bank; `images.stages.probes` says what each field means.

    Args:
        probed: result of the bank.
        head: rows `[classes, features]` of the network's last layer, if it has one.
    """
    # Averages over the best few candidates: one lucky candidate is not a trigger.
    top = np.sort(probed.scores, axis=0)[-_TOP:].mean(axis=0)
    wide = np.sort(probed.wide_scores, axis=0)[-_TOP:].mean(axis=0)
    target = int(top.argmax())
    return {
        "probe_score": float(top[target]),
        "probe_gap": float(top[target] - np.delete(top, target).max()),
        "probe_agreement": float((probed.scores.argmax(axis=1) == target).mean()),
        "probe_wide_gap": float(np.sort(wide)[-1] - np.sort(wide)[-2]),
        "probe_head_gap": head_gap(head, target),
    }
