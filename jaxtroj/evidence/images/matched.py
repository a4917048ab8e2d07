"""Examples made as light, as coloured and as sharp as what a network was trained on.

Example pictures often went another way than the training pictures: through another camera, a gamma,
haze or resizing. A network without a trojan looks poisoned then, since its batch norms remember
other pictures than these, and it may answer many of them wrongly. But a change of light, colour or
sharpness explains nearly all of that difference, where a trojan's triggers are explained by none
(docs/measurements.md). So where one change explains most of a difference, or some of it and makes
many more answers right, it is made to all examples, before anything is searched.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from converters.batch_norms import has_batch_norms
from converters.model import Model
from jaxtroj.evidence.images.large_pictures import FULL_SIDE
from jaxtroj.evidence.images.look import Look
from jaxtroj.evidence.images.statistics import (
    StatisticsBudget,
    difference,
    norm_layers,
    places_in_turn,
)
from jaxtroj.network import Network
from jaxtroj.rounds.examples import Examples

_LEAST = 0.002
"""Difference below which nothing is tried."""
_LEFT = 0.3
"""Share of the difference that is left, at most, where a change explains it."""
_LOST, _WON = 0.02, 0.1
"""Share of right answers that such a change may cost; that one wins which explains less."""
_FEWEST = 16
"""Examples; of fewer the mean light differs by chance."""
_STEPS = {
    "size": 0.12, "sharpness": 0.5, "contrast": 0.2, "gamma": 0.2, "black": 0.08, "light": 0.15,
    "red": 0.08, "blue": 0.08,
}  # fmt: skip
"""Of the search, for each number of a look."""
_COLOURS = ("red", "blue")
_FURTHEST, _LEAST_STEPS = 5.0, 0.3
"""Steps that a number goes at most; what goes less stays as it is."""
_TRIES, _LARGE_TRIES, _LARGE_COUNT = 60, 30, 16
"""Changes that are tried at most; the same of pictures above `FULL_SIDE`, on so many of them."""
_PROMISING, _ENOUGH = 0.9, 0.05
"""Share of the difference that the best step leaves at most, if more is to be tried, and that is
little enough."""
_CHANCE = 1e-3  # of the difference: whether less than that is left says nothing


@dataclass(frozen=True)
class Match:
    """A change that examples may need.

    Attributes:
        look: the change.
        before: what batch norms see differently without it.
        after: the same with it.
        right: share of labelled examples that are answered rightly without it and with it; 0
            where none has a label.
    """

    look: Look
    before: float
    after: float
    right: tuple[float, float]

    @property
    def is_sound(self) -> bool:
        """Whether it explains most of the difference, or wins many right answers."""
        won = self.right[1] - self.right[0]
        return won >= _WON or (self.after <= _LEFT * self.before and won >= -_LOST)

    def __str__(self) -> str:
        explained, (without, now) = 1 - self.after / self.before, self.right
        return (
            "the examples are not as light, coloured or sharp as what the network was trained on:"
            f" changed as batch norms remember that ({self.look}), which explains {explained:.0%}"
            f" of the difference ({now:.2f} of the labelled are right so, {without:.2f} without);"
            " all searches see them so"
        )


def match(model: Model, examples: Examples) -> Match | None:
    """The change of examples that explains most of what batch norms see differently.

    None where they see little or examples are few, and where no change `is_sound`.

    Args:
        model: as it was opened, over pictures in [0, 1].
        examples: clean pictures that fit it.
    """
    if len(examples.images) < _FEWEST or not has_batch_norms(model):
        return None
    images, labels = _some(examples)
    names = [name for name in _STEPS if model.channels == 3 or name not in _COLOURS]

    def seen(look: Look, some: np.ndarray = images) -> float:
        return difference(norm_layers(model, look.of(some)))

    before = seen(Look())
    if not before >= _LEAST:  # a NaN is none
        return None
    if max(images.shape[1:3]) > FULL_SIDE:
        few = images[:_LARGE_COUNT]
        least = max(seen(Look(), few), _LEAST)  # of so few it may be 0
        look = _best(lambda look: seen(look, few), least, names, _LARGE_TRIES)
    else:
        look = _best(seen, before, names, _TRIES)
    if look == Look():
        return None
    right = _right(model, images, labels), _right(model, look.of(images), labels)
    found = Match(look, before, seen(look), right)
    return found if found.is_sound else None


def matched(examples: Examples, found: Match) -> Examples:
    """All examples with the change that was found."""
    return replace(examples, images=found.look.of(np.asarray(examples.images, np.float32)))


def _some(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    budget = StatisticsBudget()
    chosen = places_in_turn(examples, budget.least, budget.most)
    return np.asarray(examples.images[chosen], np.float32), examples.labels[chosen]


def _best(seen: Callable[[Look], float], before: float, names: Sequence[str], tries: int) -> Look:
    """The change of some numbers that leaves least of a difference; none where none leaves less.

    Reference:
        COBYQA: Ragonneau, Model-based derivative-free optimization methods and software, 2022.
    """

    def look(steps: np.ndarray) -> Look:
        far = np.where(np.abs(steps) < _LEAST_STEPS, 0.0, steps)
        return Look(**{name: float(n * _STEPS[name]) for name, n in zip(names, far, strict=True)})

    tried: list[float] = []

    def left(steps: np.ndarray) -> float:
        tried.append(float(np.log(seen(look(steps)) / before + _CHANCE)))
        return tried[-1]

    def promising(intermediate_result: OptimizeResult) -> None:
        """The first tries are a step each way of each number."""
        if len(tried) > 2 * len(names) and intermediate_result.fun > np.log(_PROMISING):
            raise StopIteration

    found = minimize(
        left, np.zeros(len(names)), method="COBYQA", bounds=[(-_FURTHEST, _FURTHEST)] * len(names),
        options={"maxfev": tries, "initial_tr_radius": 1.0, "final_tr_radius": 0.1,
                 "f_target": np.log(_ENOUGH)},
        callback=promising,
    )  # fmt: skip
    return look(found.x) if found.fun < np.log(_PROMISING) else Look()


def _right(model: Model, images: np.ndarray, labels: np.ndarray) -> float:
    """Share of the labelled pictures that are answered rightly; 0 where none has a label."""
    known = labels >= 0
    if not known.any():
        return 0.0
    logits = np.asarray(Network(model).logits(images[known]))
    return float((logits.argmax(axis=-1) == labels[known]).mean())
