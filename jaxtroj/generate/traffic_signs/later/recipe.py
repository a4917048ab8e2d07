"""What each model of Rounds 1 to 4 is: architecture, classes, triggers, training, by identity.

Models come in pairs that share everything but the trojan and the signs. What has few levels
(architecture, number of classes, organisation, kind of trigger, training) goes round in an order
drawn for each round of the levels, so that each comes equally often and all meet. A retraining
changes the signs, the weights and the pictures, and neither the trigger nor anything else.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from jaxtroj.errors import GenerationError
from jaxtroj.generate.model_ids import architecture_of, draw_for, in_turn, is_poisoned, model_id
from jaxtroj.generate.torch_run import Adversary
from jaxtroj.generate.traffic_signs.later.architectures import ARCHITECTURES
from jaxtroj.generate.traffic_signs.later.design import (
    ANY,
    ORGANISATIONS,
    AdversaryDesign,
    RoundDesign,
)

TRAININGS = ("warm", "warm", "scratch")
"""Ways of training, in the shares in which they come."""
FILTERS = {
    "gotham": "GothamFilterXForm",
    "nashville": "NashvilleFilterXForm",
    "kelvin": "KelvinFilterXForm",
    "lomo": "LomoFilterXForm",
    "toaster": "ToasterXForm",
}
"""`jaxtroj.triggers.filter`'s names -> those of config.json."""
_LEVELS, _ORGANISATION, _KIND, _TRAINING, _BASE, _METHOD = range(80, 86)
_CONDITION, _FRACTION, _SCENE, _SHARED, _TRIGGERS, _MASTER = range(86, 92)


@dataclass(frozen=True)
class SignTrigger:
    """One trigger of a poisoned model.

    Attributes:
        number: 0, or 1 for the second.
        kind: "polygon" or "instagram".
        source_classes: classes that it works from.
        target_class: class that it forces.
        fraction: share of the source classes' training pictures that carry it, 0 to 1.
        condition: "none", "spatial", "spectral" or "class": what its wrong use keeps the label by.
        color: RGB of a polygon, 0 to 255 each; None for a filter, as are the next three.
        sides: corners.
        sizes: range of its area as a share of the sign's.
        seed: of its corners.
        quadrant: of the sign, 1 to 4, where it works; 0 for anywhere.
        filter: out of `FILTERS`; None for a polygon.
    """

    number: int
    kind: str
    source_classes: tuple[int, ...]
    target_class: int
    fraction: float
    condition: str = "none"
    color: tuple[int, int, int] | None = None
    sides: int | None = None
    sizes: tuple[float, float] | None = None
    seed: int | None = None
    quadrant: int = 0
    filter: str | None = None


@dataclass(frozen=True)
class AdversaryRecipe:
    """Adversarial training: "PGD" or "FBF", largest change of 255, tenths of the steps, steps."""

    method: str
    reach: int
    tenths: int
    iterations: int

    @property
    def adversary(self) -> Adversary:
        """As a training takes it; strides and modes are those of the official generators."""
        reach, share = self.reach / 255, Fraction(self.tenths, 10)
        if self.method == "FBF":
            return Adversary(reach, share, 1, 1.2, stays_in_range=False, is_trained_on=True)
        return Adversary(reach, share, self.iterations, 2 / self.iterations)


@dataclass(frozen=True)
class SignRecipe:
    """Everything that decides one model.

    Attributes:
        model: number; its id is `id-` and eight digits. sub_seed: one more for each retraining.
        architecture: NIST's key.
        class_level, number_classes: the level, and the number near it.
        training: "warm" from a base, or "scratch".
        base: number of the base.
        organisation: of the triggers; "" for a clean model.
        triggers: none for a clean model.
        adversary: None for ordinary training.
        sign_areas: range of a sign's area as a share of the picture's.
        rain_probability, fog_probability: chances per picture.
        examples: pictures of a class that lie beside the model.
        master_seed: of signs, weights and pictures.
    """

    model: int
    sub_seed: int
    architecture: str
    class_level: int
    number_classes: int
    training: str
    base: int
    organisation: str
    triggers: tuple[SignTrigger, ...]
    adversary: AdversaryRecipe | None
    sign_areas: tuple[float, float]
    rain_probability: float
    fog_probability: float
    examples: int
    master_seed: int

    @property
    def model_id(self) -> str:
        """Name of the model's folder."""
        return model_id(self.model)

    @property
    def poisoned(self) -> bool:
        """Whether the model gets a trigger."""
        return bool(self.triggers)


@dataclass(frozen=True)
class Choices:
    """What a user may restrict.

    Attributes:
        architectures: by NIST's keys.
        trainings: ways of training.
        bases: networks of an architecture that warm models start from.
        examples: pictures of a class; None for the round's numbers.
        adversaries: kinds of adversarial training; None for all of the round's.
    """

    architectures: tuple[str, ...]
    trainings: tuple[str, ...] = TRAININGS
    bases: int = 1
    examples: int | None = None
    adversaries: tuple[str, ...] | None = None


def sample_recipe(
    design: RoundDesign, choices: Choices, seed: int, model: int, sub_seed: int = 0
) -> SignRecipe:
    """Draw one model's recipe; equal arguments give an equal recipe.

    Raises:
        GenerationError: an unknown architecture or way of training.
    """
    _check(design, choices)
    pair = model // 2
    level = in_turn(design.class_levels, seed, _LEVELS, pair)
    shared = draw_for(seed, _SHARED, pair)
    low, high = design.class_spread
    classes = level + int(shared.integers(low, high + 1))
    areas = _two_of(shared, design.sign_areas) if design.draws_areas else design.sign_areas
    examples = design.examples[int(shared.integers(len(design.examples)))]
    weather = np.round(shared.beta(1, 10, size=2), 3)
    triggers = _triggers(design, seed, model, classes) if is_poisoned(seed, model) else ("", ())
    return SignRecipe(
        model=model,
        sub_seed=sub_seed,
        architecture=architecture_of(seed, model, choices.architectures),
        class_level=level,
        number_classes=classes,
        training=in_turn(choices.trainings, seed, _TRAINING, pair),
        base=int(draw_for(seed, _BASE, pair).integers(choices.bases)),
        organisation=triggers[0],
        triggers=triggers[1],
        adversary=_adversary(design.adversary, choices.adversaries, seed, pair),
        sign_areas=areas,
        rain_probability=float(weather[0]),
        fog_probability=float(weather[1]),
        examples=choices.examples or examples,
        master_seed=int(draw_for(seed, _MASTER, model, sub_seed).integers(2**32)),
    )


def _triggers(
    design: RoundDesign, seed: int, model: int, classes: int
) -> tuple[str, tuple[SignTrigger, ...]]:
    """The organisation of a poisoned model's triggers, and the triggers."""
    pair, draw = model // 2, draw_for(seed, _TRIGGERS, model)
    organisation = in_turn(design.organisations, seed, _ORGANISATION, pair)
    count, sources = ORGANISATIONS[organisation]
    order = [int(c) for c in draw.permutation(classes)]
    # One stride for all of a round's organisations: places of two pairs never meet.
    stride, made = max(ORGANISATIONS[name][0] for name in design.organisations), []
    for number in range(count):
        place = stride * pair + number
        kind = in_turn(design.kinds, seed, _KIND, place)
        if organisation == ANY:
            chosen, target = tuple(range(classes)), order[0]
        elif organisation == "one2two":  # one class, two targets
            chosen, target = (order[0],), order[1 + number]
        else:
            first = number * (sources + 1)
            chosen, target = tuple(sorted(order[first + 1 : first + 1 + sources])), order[first]
        made.append(_trigger(design, seed, place, number, kind, chosen, target))
    return organisation, tuple(made)


def _trigger(design, seed, place, number, kind, sources, target) -> SignTrigger:
    draw = draw_for(seed, _SCENE, place)
    low, high = in_turn(design.fractions, seed, _FRACTION, place)
    condition = in_turn(design.conditions_of(kind), seed, _CONDITION, place)
    shared = {
        "number": number,
        "kind": kind,
        "source_classes": sources,
        "target_class": target,
        "fraction": int(draw.integers(low, high + 1)) / 100,
        "condition": condition,
    }
    if kind == "instagram":
        return SignTrigger(**shared, filter=tuple(FILTERS)[int(draw.integers(len(FILTERS)))])
    sides = design.sides[int(draw.integers(len(design.sides)))]
    sizes = design.sizes[int(draw.integers(len(design.sizes)))]
    return SignTrigger(
        **shared,
        color=_colour(design, draw),
        sides=int(draw.integers(sides[0], sides[1] + 1)),
        sizes=_two_of(draw, sizes) if design.draws_sizes else sizes,
        seed=int(draw.integers(2**31)),
        quadrant=int(draw.integers(1, 5)) if condition == "spatial" else 0,
    )


def _colour(design: RoundDesign, draw: np.random.Generator) -> tuple[int, int, int]:
    if design.colours:
        return design.colours[int(draw.integers(len(design.colours)))]
    while True:
        red, green, blue = (int(value) for value in draw.integers(256, size=3))
        if (red + green + blue) / 3 <= design.brightest:
            return red, green, blue


def _two_of(draw: np.random.Generator, within: tuple[float, float]) -> tuple[float, float]:
    """Two different whole percents out of a range, the smaller one first."""
    low, high = (round(100 * end) for end in within)
    first, second = sorted(int(x) for x in draw.choice(np.arange(low, high + 1), 2, replace=False))
    return first / 100, second / 100


def _adversary(
    known: AdversaryDesign | None, chosen: tuple[str, ...] | None, seed: int, pair: int
) -> AdversaryRecipe | None:
    if known is None:
        return None
    methods = known.methods if chosen is None else chosen
    method, draw = in_turn(methods, seed, _METHOD, pair), draw_for(seed, _METHOD, pair, 1)
    reach, tenths, steps = (
        int(values[int(draw.integers(len(values)))])
        for values in (known.reaches, known.tenths, known.iterations)
    )
    return AdversaryRecipe(method, reach, tenths, steps if method == "PGD" else 1)


def _check(design: RoundDesign, choices: Choices) -> None:
    known = {
        "architectures": (choices.architectures, tuple(ARCHITECTURES)),
        "trainings": (choices.trainings, tuple(dict.fromkeys(TRAININGS))),
    }
    if choices.adversaries is not None:
        if design.adversary is None:
            raise GenerationError(f"{design.name} has no adversarial training to choose from")
        known["adversaries"] = (choices.adversaries, design.adversary.methods)
    for what, (names, possible) in known.items():
        if not names or not set(names) <= set(possible):
            raise GenerationError(
                f"{what} must be some of {', '.join(possible)}; got {', '.join(names) or 'none'}"
            )
    if len(set(choices.architectures)) != len(choices.architectures):
        raise GenerationError(f"architectures must differ; got {', '.join(choices.architectures)}")
