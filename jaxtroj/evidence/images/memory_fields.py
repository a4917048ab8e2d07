"""Evidence of the memory stage, and the trigger that it shows."""

from collections.abc import Sequence

import jax
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.evidence.images.memory import Half, Remembered
from jaxtroj.network import Network
from jaxtroj.triggers.measure import Candidates, RecoveredTrigger, best_of, measure

_ALL = 0.5  # of the examples of other classes: a trigger that sends fewer is for one source class


def memory_fields(half: Half, found: Sequence[Remembered]) -> dict[str, float]:
    """Fields of `images.stages.memory`.

    Args:
      half: the examples that the triggers were measured on.
      found: the triggers.
    """
    best = strongest(found)
    sent = sent_by(half, best)
    shares = np.sort(_shares(half, sent))[::-1]
    return {
        "memory_match": best.match,
        **{f"memory_{one.name}": one.match for one in found},
        "memory_share": best.share,
        "memory_lead": float(shares[0] - shares[1]),
        "memory_pair": float(sent.max()),
        "memory_class": float(_shares(half, sent).argmax()),
    }


def strongest(found: Sequence[Remembered]) -> Remembered:
    """The trigger that explains most."""
    return max(found, key=lambda one: one.match)


def sent_by(half: Half, one: Remembered) -> np.ndarray:
    """Share of each class's examples that a trigger newly sends to each, `[classes, classes]`."""
    before, after = half.logits.argmax(axis=1), one.logits.argmax(axis=1)
    classes = half.logits.shape[1]
    sent = np.zeros((classes, classes))
    np.add.at(sent, (before, after), before != after)
    return sent / np.maximum(np.bincount(before, minlength=classes), 1)[:, None]


def _shares(half: Half, sent: np.ndarray) -> np.ndarray:
    """Share of the examples of other classes that go to each class, `[classes]`."""
    counts = np.bincount(half.logits.argmax(axis=1), minlength=len(sent))
    return (sent * counts[:, None]).sum(axis=0) / np.maximum(counts.sum() - counts, 1)


def recovered(
    network: Network, half: Half, found: Sequence[Remembered], examples: AnchoredExamples
) -> RecoveredTrigger:
    """The strongest trigger, measured on all examples: for all classes, or for the one it moves.

    Args:
      network: the model.
      half: the examples that the triggers were measured on.
      found: the triggers.
      examples: all of the model's.
    """
    best = strongest(found)
    sent = sent_by(half, best)
    shares = _shares(half, sent)
    target = int(shares.argmax())
    origins = None
    if shares[target] < _ALL:
        origin, target = (int(place) for place in np.unravel_index(sent.argmax(), sent.shape))
        origins = np.array([origin])
    one = jax.tree.map(lambda x: x[None], best.trigger)
    candidates = Candidates(
        "memory search", one, np.array([target]), np.array([best.moves]), origins
    )
    return best_of(measure(network, examples, candidates), examples)
