"""Which pairs to try next: for each foreground, the backgrounds most likely to fool it.

Whether any background fools a foreground does not depend on the order; how many forward passes it
takes to find one does. A batch is chosen at once, so foregrounds of one class would all meet the
same background; noise as wide as the doubt about each share makes them try different ones (Thompson
sampling, with normal instead of beta draws).
"""

import numpy as np

# How many pairs of one class outweigh what a background did to the other classes.
_OTHER_CLASSES = 2.0


class OrderTally:
    """How often each background fooled foregrounds of each class, so far."""

    def __init__(self, classes: int, backgrounds: int):
        self._tried = np.zeros((classes, backgrounds))
        self._fooled = np.zeros((classes, backgrounds))

    def add(self, labels: np.ndarray, backgrounds: np.ndarray, fooled: np.ndarray) -> None:
        """Count pairs: class of the foreground, background, whether it was fooled, each `[n]`."""
        np.add.at(self._tried, (labels, backgrounds), 1)
        np.add.at(self._fooled, (labels, backgrounds), fooled)

    def promise(self) -> tuple[np.ndarray, np.ndarray]:
        """Expected share fooled and its doubt, float32 `[classes, backgrounds]`.

        A background's share within a class is drawn towards its share over all classes, and that
        towards the share of all backgrounds.
        """
        overall = (self._fooled.sum() + 1) / (self._tried.sum() + 2)
        each = (self._fooled.sum(0) + overall) / (self._tried.sum(0) + 1)
        weight = self._tried + _OTHER_CLASSES
        share = (self._fooled + _OTHER_CLASSES * each) / weight
        doubt = np.sqrt(share * (1 - share) / (weight + 1))
        return share.astype(np.float32), doubt.astype(np.float32)


def as_sorted(classes: int, backgrounds: int) -> tuple[np.ndarray, np.ndarray]:
    """A promise without doubt that leads to the published order: as the files are sorted."""
    falling = -np.arange(backgrounds, dtype=np.float32)
    return np.tile(falling, (classes, 1)), np.zeros((classes, backgrounds), np.float32)


def best_free(
    promise: tuple[np.ndarray, np.ndarray],
    labels: np.ndarray,
    taken: np.ndarray,
    shares: np.ndarray,
    random: np.random.Generator,
) -> list[np.ndarray]:
    """For each foreground its next backgrounds.

    Args:
        promise: expected shares and doubts `[classes, backgrounds]`.
        labels: classes of the foregrounds, `[m]`.
        taken: pairs not to be chosen, bool `[m, backgrounds]`.
        shares: how many each foreground gets at most, `[m]`.
        random: where the noise comes from.
    """
    expected, doubt = (part[labels] for part in promise)
    noise = random.standard_normal(expected.shape, np.float32)
    scores = np.where(taken, -np.inf, expected + doubt * noise)
    most, free = int(shares.max()), (~taken).sum(1)
    if most == 1:
        best = scores.argmax(1)[:, None]
    else:
        best = np.argsort(-scores, axis=1, kind="stable")[:, :most]
    return [row[: min(n, m)] for row, n, m in zip(best, shares, free, strict=True)]


def shared_out(live: np.ndarray, tries: np.ndarray, count: int) -> np.ndarray:
    """How many pairs of the next batch each live foreground gets, so that the batch is full.

    Those with the fewest tries come first; when fewer are live than the batch has places, each
    gets several.

    Args:
        live: indices `[m]` of foregrounds with pairs left.
        tries: pairs tried or under way, by foreground.
        count: places in the batch.
    Returns:
        int `[m]`, at most `count` in all.
    """
    shares = np.full(len(live), count // max(1, len(live)))
    first = np.argsort(tries[live], kind="stable")[: count % max(1, len(live))]
    shares[first] += 1
    return shares
