"""What each model of a synthetic Round 0 is: architecture, label, trigger, weather, seeds.

Every draw is keyed by (seed, model id, sub-seed), never by how many models there are, so a round
can be grown, sharded and resumed without changing a model.

Source: the METADATA of NIST's Round 0 (200 models). Two things differ on purpose. Architectures and
labels are balanced exactly. Ids come in pairs of one architecture, one poisoned and one clean in
random order, so that the clean one can be trained for as many steps as its poisoned partner
(see `jaxtroj.generate.training`): nothing but the trigger tells the two populations apart.
"""

from dataclasses import dataclass

import numpy as np

from jaxtroj.errors import GenerationError
from jaxtroj.generate.networks import KNOWN, ROUND0

NUMBER_CLASSES = 5
REFERENCE_SIZE = 224
TRIGGER_SIZES = ((18, 34), (44, 55))
TRIGGERED_FRACTIONS = ((0.05, 0.18), (0.43, 0.57))
RAIN_FOG_PROBABILITIES = (0.05, 0.49)
BLUR_KSIZE = 5

# One number per purpose: a draw for one purpose never moves another.
_PAIR_LABEL, _BLOCK_ORDER, _SCENE, _TRIGGER, _MASTER = range(5)


@dataclass(frozen=True)
class TriggerRecipe:
    """All-to-one trigger: a polygon of one colour on the sign.

    Attributes:
        target_class: label of every triggered picture, 0 to classes - 1.
        triggered_classes: classes the trigger is put on; all of them, the target's too.
        color: RGB, 0 to 255 each.
        size: side of the polygon's bounding box in pixels of a 224 px picture.
        fraction: share of the training pictures that carry the trigger, 0 to 1.
    """

    target_class: int
    triggered_classes: tuple[int, ...]
    color: tuple[int, int, int]
    size: int
    fraction: float


@dataclass(frozen=True)
class Recipe:
    """Everything that decides one model.

    Attributes:
        model: number of the model; its id is `id-` and eight digits.
        sub_seed: 0 for the first try, one more for each retraining.
        architecture: one of `networks.KNOWN`.
        number_classes: how many signs the model tells apart.
        trigger: None for a clean model.
        blur_ksize: width of the Gaussian blur in pixels of a 224 px picture.
        use_fog, use_rain: which weather can occur.
        rain_fog_probability: chance of that weather in a picture, 0 to 1.
        master_seed: 32-bit seed of the signs, weights and pictures of this model.
    """

    model: int
    sub_seed: int
    architecture: str
    number_classes: int
    trigger: TriggerRecipe | None
    blur_ksize: int
    use_fog: bool
    use_rain: bool
    rain_fog_probability: float
    master_seed: int

    @property
    def model_id(self) -> str:
        """Name of the model's folder."""
        return model_id(self.model)

    @property
    def poisoned(self) -> bool:
        """Whether the model gets a trigger."""
        return self.trigger is not None


def model_id(model: int) -> str:
    """`7 -> "id-00000007"`."""
    return f"id-{model:08d}"


def partner(model: int) -> int:
    """The other model of the pair: same architecture, other label."""
    return model ^ 1


def sample_recipe(
    seed: int, model: int, sub_seed: int = 0, architectures: tuple[str, ...] = ROUND0
) -> Recipe:
    """Draw one model's recipe; equal arguments give an equal recipe.

    The sub-seed redraws everything but architecture and label.

    Raises:
        GenerationError: negative numbers or an unknown architecture.
    """
    _check(seed, model, sub_seed, architectures)
    scene = _generator(seed, model, sub_seed, _SCENE)
    master = _generator(seed, model, sub_seed, _MASTER)
    return Recipe(
        model=model,
        sub_seed=sub_seed,
        architecture=architecture_of(seed, model, architectures),
        number_classes=NUMBER_CLASSES,
        trigger=_trigger(seed, model, sub_seed) if is_poisoned(seed, model) else None,
        blur_ksize=BLUR_KSIZE,
        use_fog=bool(scene.integers(2)),
        use_rain=bool(scene.integers(2)),
        rain_fog_probability=round(float(scene.uniform(*RAIN_FOG_PROBABILITIES)), 2),
        master_seed=int(master.integers(2**32)),
    )


def is_poisoned(seed: int, model: int) -> bool:
    """Whether this model is the poisoned one of its pair."""
    pair, place = divmod(model, 2)
    return int(_generator(seed, pair, 0, _PAIR_LABEL).integers(2)) == place


def architecture_of(seed: int, model: int, architectures: tuple[str, ...]) -> str:
    """Architecture of the model's pair: each block of pairs holds every architecture once."""
    block, place = divmod(model // 2, len(architectures))
    order = _generator(seed, block, 0, _BLOCK_ORDER).permutation(len(architectures))
    return architectures[int(order[place])]


def shard_models(
    seed: int, models: int, architectures: tuple[str, ...], index: int, count: int
) -> tuple[int, ...]:
    """Models of shard `index` of `count`, pairs together, one architecture after the other.

    Within a pair the poisoned model comes first: the clean one is trained as long as it was.
    """
    names = [architecture_of(seed, 2 * pair, architectures) for pair in range(models // 2)]
    pairs = sorted(range(models // 2), key=lambda pair: (architectures.index(names[pair]), pair))
    chosen = []
    for pair in pairs[index::count]:
        first = 2 * pair if is_poisoned(seed, 2 * pair) else 2 * pair + 1
        chosen += [first, partner(first)]
    return tuple(chosen)


def _trigger(seed: int, model: int, sub_seed: int) -> TriggerRecipe:
    draw = _generator(seed, model, sub_seed, _TRIGGER)
    low_size, high_size = TRIGGER_SIZES[int(draw.integers(2))]
    fractions = TRIGGERED_FRACTIONS[int(draw.integers(2))]
    red, green, blue = (int(value) for value in draw.integers(256, size=3))
    return TriggerRecipe(
        target_class=int(draw.integers(NUMBER_CLASSES)),
        triggered_classes=tuple(range(NUMBER_CLASSES)),
        color=(red, green, blue),
        size=int(draw.integers(low_size, high_size + 1)),
        fraction=round(float(draw.uniform(*fractions)), 2),
    )


def _generator(seed: int, number: int, sub_seed: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng([seed, purpose, number, sub_seed])


def _check(seed: int, model: int, sub_seed: int, architectures: tuple[str, ...]) -> None:
    for name, value in (("seed", seed), ("model", model), ("sub_seed", sub_seed)):
        if value < 0:
            raise GenerationError(f"{name} must be 0 or more, got {value}")
    unknown = [name for name in architectures if name not in KNOWN]
    if unknown or not architectures or len(set(architectures)) != len(architectures):
        raise GenerationError(
            f"architectures must be different names out of {', '.join(KNOWN)}; "
            f"got {', '.join(architectures) or 'none'}"
        )
