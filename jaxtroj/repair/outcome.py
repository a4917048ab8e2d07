"""What a repair did: clean accuracy, and what triggers still do, on held-out examples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from converters.model import Model
from jaxtroj.errors import RepairError
from jaxtroj.network import Network
from jaxtroj.repair.data import Labelled
from jaxtroj.repair.training import Stamp
from jaxtroj.triggers.measure import goals

_SEED = 1


@dataclass(frozen=True)
class Attack:
    """A trigger that is measured: its stamp, the class it forces, those it works from (() all).

    `triggers.measure.NO_TARGET` stands for one that sends each class to the next.
    """

    stamp: Stamp
    target_class: int
    source_classes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """Measured on held-out examples, all in [0, 1].

    Attributes:
        accuracy: share of the clean pictures whose class is right.
        recovered: attack success rate of each recovered trigger.
        planted: attack success rate of the planted one; None where the truth is not known.
    """

    accuracy: float
    recovered: tuple[float, ...]
    planted: float | None = None

    @property
    def worst(self) -> float:
        """The largest attack success rate of a recovered trigger; 0 without any."""
        return max(self.recovered, default=0.0)


def outcome(
    model: Model, held: Labelled, attacks: Sequence[Attack], planted: Attack | None = None
) -> Outcome:
    """Measure a model; equal arguments give equal figures."""
    rates = tuple(success(model, held, attack) for attack in attacks)
    known = None if planted is None else success(model, held, planted)
    return Outcome(accuracy(model, held), rates, known)


def accuracy(model: Model, examples: Labelled) -> float:
    """Share of the pictures whose class is right."""
    return float((_classes(model, examples.images) == examples.labels).mean())


def success(model: Model, examples: Labelled, attack: Attack) -> float:
    """Attack success rate: share of triggered pictures of the source classes at the target.

    0 without a picture of those classes.
    """
    return _reached(model, examples, attack, lambda images: _stamped(attack, images))


def _stamped(attack: Attack, images: np.ndarray) -> np.ndarray:
    return attack.stamp.on(images, np.random.default_rng(_SEED))


def mistaken(model: Model, examples: Labelled, attack: Attack) -> float:
    """The share that `success` would give without any trigger: clean pictures taken for the
    target."""
    return _reached(model, examples, attack, lambda images: images)


def _reached(
    model: Model,
    examples: Labelled,
    attack: Attack,
    change: Callable[[np.ndarray], np.ndarray],
) -> float:
    """Share of the changed pictures that an attack is for at the class that it sends them to."""
    meant = _meant(examples, attack)
    if not meant.any():
        return 0.0
    wanted = goals(attack.target_class, examples.labels[meant], model.num_classes)
    return float((_classes(model, change(examples.images[meant])) == wanted).mean())


def _meant(examples: Labelled, attack: Attack) -> np.ndarray:
    """Which pictures an attack is for: bool `[n]`."""
    others = examples.labels != attack.target_class
    if attack.source_classes:
        others &= np.isin(examples.labels, attack.source_classes)
    return others


def _classes(model: Model, images: np.ndarray) -> np.ndarray:
    """Raises RepairError of logits that are no numbers: their largest would be a class by luck."""
    logits = np.asarray(Network(model).logits(images))
    odd = int((~np.isfinite(logits).all(axis=1)).sum())
    if odd:
        raise RepairError(
            f"the network's logits of {odd} of {len(logits)} pictures are not finite; give pictures"
            " like those that it was trained on, or more of them, and fewer --steps"
        )
    return logits.argmax(axis=1)
