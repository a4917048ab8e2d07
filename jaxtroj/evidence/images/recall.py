"""Recall stage: whether triggers that other searches found stand in what batch norms remember.

Every network has changes of pictures that send them to one class, clean ones too: searches find
those. Norms remember the training pictures (`norm_memory`), but searches by classes do not look at
that. So where a found trigger moves the norms as the training pictures did, the network was trained
with it; a change that merely works has a cosine near 0 with what they remember. Nothing is fitted
here, so all examples count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from converters.model import Model
from jaxtroj.anchors import AnchoredExamples
from jaxtroj.evidence.images.remainder import Seen, harmless_directions, seen
from jaxtroj.network import Network
from jaxtroj.norm_memory import Norms
from jaxtroj.triggers.measure import RecoveredTrigger
from jaxtroj.triggers.trigger import applied

_FEW_SOURCES = 3  # classes: a trigger that works from more is asked on all others together


@dataclass(frozen=True)
class RecallBudget:
    """Examples and triggers of the stage.

    Attributes:
      least, most: examples whose moments are compared with the remembered ones, see `MemoryBudget`.
      triggers: that are asked, the strongest first.
      rate: least attack success rate of those, 0 to 1.
    """

    least: int = 64
    most: int = 160
    triggers: int = 10
    rate: float = 0.2


@dataclass(frozen=True)
class Recalled:
    """A found trigger on some examples: cosine with the remainder, and what share goes to it."""

    target: int
    match: float
    rate: float

    @property
    def worth(self) -> float:
        """Both together, 0 to 1."""
        return max(0.0, self.match) * self.rate


def search_recall(
    opened: Model,
    network: Network,
    images: np.ndarray,
    anchored: AnchoredExamples,
    found: Sequence[RecoveredTrigger],
    key: jax.Array,
    budget: RecallBudget,
) -> tuple[Recalled, ...]:
    """Each trigger on the examples that it is for; those for few sources on these alone, too.

    Args:
      opened: the model with its batch norms.
      network: the same model, which says how many pictures make a batch.
      images: clean ones whose moments are compared with the remembered, `statistics.some_of`.
      anchored: those that triggers are put on, at their objects if they move.
      found: the triggers, the strongest first.
      key: of all random choices.
      budget: what may be spent.
    """
    asked = [one for one in found if one.attack_success_rate >= budget.rate][: budget.triggers]
    if not asked:
        return ()
    norms = Norms(opened, network.batch(images))
    remainder = seen(norms, images, harmless_directions(norms, images, key)).memory
    shown = np.asarray(anchored.images, np.float32)
    clean = Seen(shown, *norms.seen(shown), remainder)
    return tuple(each for one in asked for each in _recalled(norms, clean, anchored, one))


def _recalled(
    norms: Norms, known: Seen, anchored: AnchoredExamples, one: RecoveredTrigger
) -> list[Recalled]:
    offsets = np.asarray(anchored.offsets()) * int(one.moves)
    shown = np.asarray(applied(one.trigger, known.images, offsets), np.float32)
    logits, changed = norms.seen(np.clip(shown, 0, 1))
    sources, flipped = known.classes, logits.argmax(axis=1) == one.target_class
    groups = [sources != one.target_class]
    if 0 < len(one.source_classes) <= _FEW_SOURCES:
        groups.append(np.isin(sources, one.source_classes))
    matches = known.matches(changed, np.stack(groups))
    return [
        Recalled(one.target_class, float(match), float(flipped[group].mean()))
        for match, group in zip(matches, groups, strict=True)
        if group.any()
    ]


def recall_fields(found: Sequence[Recalled]) -> dict[str, float]:
    """Fields of `images.stages.recall`; 0 and class -1 where no trigger was found."""
    if not found:
        return {"recall_match": 0.0, "recall_worth": 0.0, "recall_lead": 0.0, "recall_class": -1.0}
    best = max(found, key=lambda one: one.worth)
    others = [one.worth for one in found if one.target != best.target]
    return {
        "recall_match": max(one.match for one in found),
        "recall_worth": best.worth,
        "recall_lead": best.worth - max(others, default=0.0),
        "recall_class": float(best.target if best.worth > 0 else -1),
    }
