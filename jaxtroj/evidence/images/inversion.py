"""Inversion stage: search the trigger by gradients, then measure it on examples it has not seen."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from jaxtroj.anchors import AnchoredExamples, fitted_count
from jaxtroj.evidence.images.probes import Probed
from jaxtroj.inversion.neural_cleanse import NeuralCleanse
from jaxtroj.inversion.patch_search import PatchSearch
from jaxtroj.inversion.searches import SEARCHES, Known, SearchPlan, run_search
from jaxtroj.network import Network
from jaxtroj.rows import taken
from jaxtroj.triggers.measure import Measured

_WORKS = 0.6
_MOST_IMAGES = 8


@dataclass(frozen=True)
class InversionBudget:
    """Classes that get arms, examples stamped per class, the searches and their rounds.

    Arms go to the classes that the probe bank reaches best; the others count as unreached.
    """

    classes: int = 3
    per_class: int = 1
    held_out_per_class: int = 3
    searches: tuple[SearchPlan, ...] = SEARCHES

    def fitted(self, classes: int, given: int) -> int:
        """How many of the examples given triggers are fitted to, where there are as many."""
        return min(fitted_count(self.per_class, classes, given), _MOST_IMAGES)


def run_searches(
    network: Network,
    examples: AnchoredExamples,
    probed: Probed,
    key: jax.Array,
    budget: InversionBudget,
) -> tuple[Measured, ...]:
    """Every search of the budget, in its order, measured on held-out examples.

    Args:
      network: the model.
      examples: of it, with anchors.
      probed: the bank's answers, where the searches start.
      key: of random starts.
      budget: see `InversionBudget`.
    """
    targets = _likely(probed, budget.classes)
    starts = probed.scores.argmax(axis=0)[targets]
    patches = taken(probed.patches, starts)
    known = Known(targets, patches, probed.scores[starts, targets], key)
    parts = _split(examples, budget)
    return tuple(run_search(search, network, parts, known) for search in budget.searches)


def _likely(probed: Probed, count: int) -> np.ndarray:
    """The `count` classes that the probe bank reaches best, in their own order."""
    order = np.argsort(-probed.scores.max(axis=0), kind="stable")
    return np.sort(order[:count])


def _split(
    examples: AnchoredExamples, budget: InversionBudget
) -> tuple[AnchoredExamples, AnchoredExamples]:
    """Examples to fit a trigger to, and others to measure it on."""
    count = budget.fitted(examples.classes, len(examples.images))
    return examples.first(count), examples.after(count).spread(budget.held_out_per_class)


def inversion_fields(found: Sequence[Measured], classes: int) -> dict[str, float]:
    """Evidence of the stage; `images.stages.inversion` says what each field means.

    Args:
      found: what the searches found; those of the fields are told by their methods' names.
      classes: of the model.
    """
    by_method = {measured.found.method: measured for measured in found}
    patches, masks = by_method[PatchSearch.name], by_method[NeuralCleanse.name]
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


def _best_by_class(
    values: np.ndarray, targets: np.ndarray, classes: int, least: float
) -> np.ndarray:
    """Largest value of each class's arms, `least` for a class without one."""
    return np.array([values[targets == t].max(initial=least) for t in range(classes)])
