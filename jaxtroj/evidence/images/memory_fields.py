"""Evidence of the memory stage, and the trigger that it shows."""

from collections.abc import Sequence

import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.evidence.images.memory import Remembered
from jaxtroj.network import Network
from jaxtroj.rows import taken
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.measure import Candidates, RecoveredTrigger, best_of, measure
from jaxtroj.triggers.smooth import Smooth

_ALL = 0.5  # of the examples of other classes: a trigger that sends fewer is for one source class
_CARRIES = 0.3  # of memory_worth: that of some clean networks is as large, and costs a search more
_FEW = 2  # added to a class's examples: one of one that flips is no more than chance


def memory_fields(clean: np.ndarray, found: Sequence[Remembered]) -> dict[str, float]:
    """Fields of `images.stages.memory`.

    Args:
      clean: logits `[n, classes]` of the examples.
      found: the triggers.
    """
    explains, best = max(found, key=lambda one: one.match), strongest(clean, found)
    return {
        "memory_match": explains.match,
        **_best_of_families(found),
        "memory_share": explains.share,
        "memory_worth": _worth(clean, best),
        "memory_pair_worth": max(float(_pairs(clean, one).max()) for one in found),
        "memory_class": float(_shares(clean, best).argmax()),
    }


def _best_of_families(found: Sequence[Remembered]) -> dict[str, float]:
    best: dict[str, float] = {}
    for one in found:
        name = f"memory_{one.name}"
        best[name] = max(one.match, best.get(name, -1.0))
    return best


def strongest(clean: np.ndarray, found: Sequence[Remembered]) -> Remembered:
    """The trigger that explains much and sends pictures to one class."""
    return max(found, key=lambda one: (_worth(clean, one), one.match))


def is_shown(clean: np.ndarray, found: Sequence[Remembered]) -> bool:
    """Whether the trigger of `recovered` is one that people can see.

    Fitted masks are speckled and fitted patterns are spread over the picture, as nothing asks them
    to be small or plain: windows of the mask or the searches by classes show better ones.
    """
    return not isinstance(_shown(clean, found)[0].trigger, FreeMask | Smooth)


def carried_class(clean: np.ndarray, found: Sequence[Remembered]) -> int | None:
    """The class that the strongest trigger carries all others to; None where it carries too few."""
    best = strongest(clean, found)
    return int(_shares(clean, best).argmax()) if _worth(clean, best) >= _CARRIES else None


def sent_by(clean: np.ndarray, one: Remembered) -> tuple[np.ndarray, np.ndarray]:
    """Examples of each class that a trigger newly sends to each, `[classes, classes]`, and all."""
    before, after = clean.argmax(axis=1), one.logits.argmax(axis=1)
    classes = clean.shape[1]
    sent = np.zeros((classes, classes))
    np.add.at(sent, (before, after), before != after)
    return sent, np.bincount(before, minlength=classes)


def _shares(clean: np.ndarray, one: Remembered) -> np.ndarray:
    """Share of the examples of other classes that go to each class, `[classes]`."""
    sent, counts = sent_by(clean, one)
    return sent.sum(axis=0) / np.maximum(counts.sum() - counts, 1)


def _worth(clean: np.ndarray, one: Remembered) -> float:
    shares = np.sort(_shares(clean, one))
    return max(0.0, one.match) * float(shares[-1] - shares[-2])


def _pairs(clean: np.ndarray, one: Remembered) -> np.ndarray:
    """Match on each class times the share of it that goes to each, `[classes, classes]`."""
    sent, counts = sent_by(clean, one)
    return np.maximum(0.0, one.of_class)[:, None] * sent / (counts + _FEW)[:, None]


def _shown(clean: np.ndarray, found: Sequence[Remembered]) -> tuple[Remembered, int, int | None]:
    """A trigger, its target, and the only class that it works from; None where it is for all."""
    best = strongest(clean, found)
    shares = _shares(clean, best)
    if shares.max() >= _ALL:
        return best, int(shares.argmax()), None
    best = max(found, key=lambda one: float(_pairs(clean, one).max()))
    pairs = _pairs(clean, best)
    origin, target = (int(place) for place in np.unravel_index(pairs.argmax(), pairs.shape))
    return best, target, origin


def recovered(
    network: Network, clean: np.ndarray, found: Sequence[Remembered], examples: AnchoredExamples
) -> RecoveredTrigger:
    """The strongest trigger, measured on all examples: for all classes, or for the one it moves.

    Args:
      network: the model.
      clean, found: see `memory_fields`.
      examples: all of the model's.
    """
    best, target, origin = _shown(clean, found)
    origins = None if origin is None else np.array([origin])
    one = taken(best.trigger, None)
    candidates = Candidates(
        "memory search", one, np.array([target]), np.array([best.moves]), origins
    )
    return best_of(measure(network, examples, candidates), examples)
