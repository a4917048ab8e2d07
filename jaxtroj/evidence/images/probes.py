"""Probe bank: random uniform-colour patches stamped on the examples, forward passes only.

A poisoned network answers some patch with one class for nearly every example; a clean one answers
with several classes or none. Two rounds: a wide bank on one example per class, then the best
candidates and their neighbours on more examples.
"""

from dataclasses import dataclass

import jax
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.evidence.images.weights import head_gap
from jaxtroj.margins import share
from jaxtroj.network import Network
from jaxtroj.rows import taken
from jaxtroj.triggers.measure import Candidates, RecoveredTrigger, all_gains, best_of, measure
from jaxtroj.triggers.patch import Patch, random_patches, vary

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


def try_patches(network: Network, examples: AnchoredExamples, patches: Patch):
    """Flip fractions and soft scores, each `[candidates, classes]`."""
    gain = all_gains(network, examples, patches, np.ones(len(patches.radius), bool))
    others = (np.asarray(examples.sources)[:, None] != np.arange(examples.classes))[None]
    flips = share((np.asarray(gain) > 0).astype(np.float32), others, axis=1)
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
    close = vary(jax.random.fold_in(key, 1), taken(patches, best), budget.copies)
    more = examples.first(examples.fitted(budget.close_per_class))
    flips, scores = try_patches(network, more, close)
    order = np.argsort(-scores.max(axis=1), kind="stable")
    return Probed(taken(close, order), flips[order], scores[order], wide_scores)


def probe_trigger(
    network: Network, probed: Probed, budget: ProbeBudget, examples: AnchoredExamples
) -> RecoveredTrigger:
    """The bank's best patch for its best class, measured on examples that the bank has not seen.

    Args:
      network: the model.
      probed: the bank's answers.
      budget: that the bank had.
      examples: of the model, with anchors.
    """
    target = _best_class(probed)
    place = int(probed.scores[:, target].argmax())
    patch = taken(probed.patches, np.array([place]))
    rest = examples.after(examples.fitted(budget.close_per_class))
    found = Candidates("probe", patch, np.array([target]), np.ones(1, bool))
    return best_of(measure(network, rest, found), examples)


def _best_class(probed: Probed) -> int:
    return int(_top(probed.scores).argmax())


def _top(scores: np.ndarray) -> np.ndarray:
    """Mean of each class's best few candidates: one lucky candidate is not a trigger."""
    return np.sort(scores, axis=0)[-_TOP:].mean(axis=0)


def probe_fields(
    probed: Probed, head: np.ndarray | None = None, frequent: np.ndarray | None = None
) -> dict[str, float]:
    """Evidence of the bank; `images.stages.probes` says what each field means.

    Args:
        probed: result of the bank.
        head: rows `[classes, features]` of the network's last layer, if it has one.
        frequent: see `weights.weight_fields`.
    """
    top, wide, target = _top(probed.scores), np.sort(_top(probed.wide_scores)), _best_class(probed)
    return {
        "probe_score": float(top[target]),
        "probe_gap": float(top[target] - np.delete(top, target).max()),
        "probe_agreement": float((probed.scores.argmax(axis=1) == target).mean()),
        "probe_wide_gap": float(wide[-1] - wide[-2]),
        "probe_head_gap": head_gap(head, target, frequent),
    }
