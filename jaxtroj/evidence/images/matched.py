"""Examples made as light, as rich in contrast and as sharp as what a network was trained on.

Example pictures often went another way than the training pictures: through another camera, resizing
or compression. A network without a trojan looks poisoned then, since its batch norms remember other
pictures than these. But a change of light or sharpness explains nearly all of that difference,
where a trojan's triggers are explained by none: on 14 networks the best change left 0.66 to 1.00 of
what batch norms see, and 0.02 to 0.14 on eight whose examples were darkened, flattened and blurred.
So where one change explains most of a large difference, it is made to all examples, before
anything is searched.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import gaussian_filter

from converters.batch_norms import has_batch_norms
from converters.model import Model
from jaxtroj.evidence.images.statistics import (
    StatisticsBudget,
    difference,
    norm_layers,
    places_in_turn,
)
from jaxtroj.network import Network
from jaxtroj.rounds.examples import Examples

_LEAST = 0.005
"""Difference below which nothing is tried."""
_LEFT = 0.3
"""Share of the difference that is left, at most, where a change explains it."""
_PROMISING = (0.9, 0.6)
"""The same after a first look, and half-way there: of more, nothing further is tried."""
_LOST = 0.02
"""Share of right answers that a change may cost."""
_FEWEST = 16
"""Examples; of fewer the mean light differs by chance."""
_BLUR = 0.7  # pixels: deviation of the blur that sharpness is measured by
_GAINS = (0.6, 0.7, 0.8, 0.9, 1.12, 1.25, 1.45, 1.7)
_CONTRASTS = (0.7, 0.85, 1.2, 1.4)
_SHARPNESSES = (-1.0, -0.5, 0.6, 1.2)
_FINER = (0.94, 1.06)
_FIRST = {"gain": (0.8, 1.25), "contrast": (0.8, 1.25), "sharpness": (-0.5, 0.6)}


@dataclass(frozen=True)
class Look:
    """A change of all pictures.

    Attributes:
        gain: factor of all values.
        contrast: factor of distances from each picture's mean.
        sharpness: what is added of a picture less its blurred self; below 0 it is blurred.
    """

    gain: float = 1.0
    contrast: float = 1.0
    sharpness: float = 0.0

    def of(self, images: np.ndarray) -> np.ndarray:
        """Pictures `[n, h, w, c]` in [0, 1] with this change."""
        blurred = gaussian_filter(images, (0, _BLUR, _BLUR, 0))
        sharp = images + self.sharpness * (images - blurred)
        means = images.mean(axis=(1, 2, 3), keepdims=True)
        changed = self.gain * (means + self.contrast * (sharp - means))
        return np.clip(changed, 0, 1).astype(np.float32)

    def __str__(self) -> str:
        return (
            f"{self.gain:.2f} times as light, {self.contrast:.2f} times the contrast,"
            f" sharpness {self.sharpness:+.1f}"
        )


@dataclass(frozen=True)
class Match:
    """The change that examples need, and the difference of batch norms before and after it."""

    look: Look
    before: float
    after: float

    def __str__(self) -> str:
        return (
            "the examples are not as light or sharp as what the network was trained on: changed as"
            f" batch norms remember that ({self.look}), which explains"
            f" {1 - self.after / self.before:.0%} of the difference; all searches see them so"
        )


def match(model: Model, examples: Examples) -> Match | None:
    """The change of examples that explains most of what batch norms see differently.

    None where they see little, or no change explains nearly all of it, or it costs right answers;
    nor where examples are few.

    Args:
        model: as it was opened, over pictures in [0, 1].
        examples: clean pictures that fit it.
    """
    if len(examples.images) < _FEWEST or not has_batch_norms(model):
        return None
    images, labels = _some(examples)

    def seen(look: Look) -> float:
        return difference(norm_layers(model, look.of(images)))

    before = difference(norm_layers(model, images))
    if not before >= _LEAST:  # a NaN is none
        return None
    after, look = _best(seen, before)
    if after > _LEFT * before or _lost(model, images, labels, look) > _LOST:
        return None
    return Match(look, before, after)


def matched(examples: Examples, found: Match) -> Examples:
    """All examples with the change that was found."""
    return replace(examples, images=found.look.of(np.asarray(examples.images, np.float32)))


def _some(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    budget = StatisticsBudget()
    chosen = places_in_turn(examples, budget.least, budget.most)
    return np.asarray(examples.images[chosen], np.float32), examples.labels[chosen]


def _best(seen: Callable[[Look], float], before: float) -> tuple[float, Look]:
    """Least difference and its change: one number after the other, twice, then more finely."""
    first = [Look(**{name: value}) for name, values in _FIRST.items() for value in values]
    if min(map(seen, first)) > _PROMISING[0] * before:
        return before, Look()
    found = before, Look()
    for moves in (_coarse, _coarse, _fine):
        for looks in moves(found[1]):
            found = min((found, *((seen(look), look) for look in looks)), key=lambda one: one[0])
        if found[0] > _PROMISING[1] * before:
            break
    return found


def _coarse(look: Look) -> Iterator[list[Look]]:
    yield [replace(look, gain=gain) for gain in _GAINS]
    yield [replace(look, sharpness=sharpness) for sharpness in _SHARPNESSES]
    yield [replace(look, contrast=contrast) for contrast in _CONTRASTS]


def _fine(look: Look) -> Iterator[list[Look]]:
    yield [replace(look, gain=look.gain * by) for by in _FINER]
    yield [replace(look, contrast=look.contrast * by) for by in _FINER]


def _lost(model: Model, images: np.ndarray, labels: np.ndarray, look: Look) -> float:
    """Share of labelled pictures that were right and are not, less those that became right."""
    network, known = Network(model), labels >= 0
    if not known.any():
        return 0.0
    own, changed = (
        float((np.asarray(network.logits(one[known])).argmax(axis=-1) == labels[known]).mean())
        for one in (images, look.of(images))
    )
    return own - changed
