"""What the full fooling matrix says: every foreground on every background."""

from dataclasses import dataclass

import numpy as np

from jaxtroj.backgrounds.challenge import UNTRIED, Pairs
from jaxtroj.backgrounds.layout import CLASSES


@dataclass(frozen=True)
class MatrixSummary:
    """Rates from a full matrix; all shares in [0, 1].

    Attributes:
        vulnerable: share of foregrounds fooled by any background.
        vulnerable_other_classes: the same without backgrounds of the foreground's own class.
        pairs_fooled: share of all pairs.
        pairs_outside: share of pairs that were given none of the nine classes.
        class_to_class: `[foreground class][background class]`, share of pairs fooled.
        fooling_rates: per background, share fooled of the foregrounds of other classes (the
            figure of the original's README).
        most_adversarial: per class of backgrounds, (index of the background, its rate), strongest
            first.
    """

    vulnerable: float
    vulnerable_other_classes: float
    pairs_fooled: float
    pairs_outside: float
    class_to_class: tuple[tuple[float, ...], ...]
    fooling_rates: tuple[float, ...]
    most_adversarial: dict[str, tuple[tuple[int, float], ...]]


def matrix_of(answers: Pairs, foregrounds: int, backgrounds: int) -> np.ndarray:
    """int8 `[foregrounds, backgrounds]` of predicted classes, -1 for none, `UNTRIED` elsewhere."""
    matrix = np.full((foregrounds, backgrounds), UNTRIED, np.int8)
    matrix[answers.foregrounds, answers.backgrounds] = answers.predicted
    return matrix


def summarise(
    predicted: np.ndarray, labels: np.ndarray, background_labels: np.ndarray, top: int = 5
) -> MatrixSummary:
    """Rates of a full matrix.

    Args:
        predicted: int8 `[f, b]`, every pair answered; see `matrix_of`.
        labels, background_labels: classes `[f]` and `[b]`.
        top: how many of the most adversarial backgrounds of each class are named.
    Raises:
        ValueError: some pair has no answer.
    """
    if (predicted == UNTRIED).any():
        raise ValueError(f"{int((predicted == UNTRIED).sum())} pairs have no answer")
    fooled = predicted != labels[:, None]
    other = labels[:, None] != background_labels[None]
    rates = (fooled & other).sum(0) / np.maximum(1, other.sum(0))
    present = range(len(CLASSES))
    table = tuple(
        tuple(_share(fooled[labels == i][:, background_labels == j]) for j in present)
        for i in present
    )
    return MatrixSummary(
        vulnerable=_share(fooled.any(1)),
        vulnerable_other_classes=_share((fooled & other).any(1)),
        pairs_fooled=_share(fooled),
        pairs_outside=_share(predicted == -1),
        class_to_class=table,
        fooling_rates=tuple(map(float, rates)),
        most_adversarial={
            CLASSES[j]: _strongest(rates, np.flatnonzero(background_labels == j), top)
            for j in present
        },
    )


def _strongest(rates: np.ndarray, of_class: np.ndarray, top: int) -> tuple:
    ranked = of_class[np.argsort(-rates[of_class], kind="stable")][:top]
    return tuple((int(i), float(rates[i])) for i in ranked)


def _share(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else 0.0
