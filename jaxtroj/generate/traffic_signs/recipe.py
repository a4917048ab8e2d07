"""What each model of a round of traffic signs is: architecture, label, trigger, weather, seeds.

What differs between rounds is a value, a `SignDesign`.

Source of Round 0: the METADATA of NIST's (200 models). Two things differ on purpose. Architectures
and labels are balanced exactly. Ids come in pairs of one architecture, one poisoned and one clean
in random order, so that the clean one can be trained for as many steps as its poisoned partner
(see `jaxtroj.generate.training`): nothing but the trigger tells the two populations apart.
"""

from dataclasses import dataclass

from jaxtroj.errors import GenerationError
from jaxtroj.generate import networks
from jaxtroj.generate.model_ids import architecture_of, draw_for, is_poisoned, model_id

REFERENCE_SIZE = 224
_SCENE, _TRIGGER, _MASTER = range(2, 5)


@dataclass(frozen=True)
class SignDesign:
    """What is particular to one round of traffic signs.

    Attributes:
        name: of the round, as in `jaxtroj generate NAME`.
        number_classes: signs that a model tells apart.
        architectures: which are drawn unless others are chosen.
        trigger_sizes: ranges of the polygon's side in pixels of a 224 px picture; one is drawn.
        triggered_fractions: ranges of the share of triggered training pictures; one is drawn.
        rain_fog_probabilities: range of the chance of weather.
        blur_ksize: width of the Gaussian blur in pixels of a 224 px picture.
    """

    name: str
    number_classes: int
    architectures: tuple[str, ...]
    trigger_sizes: tuple[tuple[int, int], ...]
    triggered_fractions: tuple[tuple[float, float], ...]
    rain_fog_probabilities: tuple[float, float]
    blur_ksize: int


ROUND0 = SignDesign(
    name="round0",
    number_classes=5,
    architectures=networks.ROUND0,
    trigger_sizes=((18, 34), (44, 55)),
    triggered_fractions=((0.05, 0.18), (0.43, 0.57)),
    rain_fog_probabilities=(0.05, 0.49),
    blur_ksize=5,
)


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


def sample_recipe(
    seed: int,
    model: int,
    sub_seed: int = 0,
    architectures: tuple[str, ...] | None = None,
    design: SignDesign = ROUND0,
) -> Recipe:
    """Draw one model's recipe; equal arguments give an equal recipe.

    The sub-seed redraws everything but architecture and label.

    Args:
        seed: identity of the round.
        model: number of the model.
        sub_seed: number of the try.
        architectures: instead of the design's.
        design: of the round.

    Raises:
        GenerationError: negative numbers or an unknown architecture.
    """
    names = design.architectures if architectures is None else architectures
    _check(seed, model, sub_seed, names)
    scene = draw_for(seed, _SCENE, model, sub_seed)
    master = draw_for(seed, _MASTER, model, sub_seed)
    poisoned = is_poisoned(seed, model)
    return Recipe(
        model=model,
        sub_seed=sub_seed,
        architecture=architecture_of(seed, model, names),
        number_classes=design.number_classes,
        trigger=_trigger(seed, model, sub_seed, design) if poisoned else None,
        blur_ksize=design.blur_ksize,
        use_fog=bool(scene.integers(2)),
        use_rain=bool(scene.integers(2)),
        rain_fog_probability=round(float(scene.uniform(*design.rain_fog_probabilities)), 2),
        master_seed=int(master.integers(2**32)),
    )


def pairs_by_architecture(
    seed: int, models: int, architectures: tuple[str, ...]
) -> tuple[int, ...]:
    """All pairs, one architecture after the other: each compiles its programs once."""
    names = [architecture_of(seed, 2 * pair, architectures) for pair in range(models // 2)]
    order = sorted(range(models // 2), key=lambda pair: (architectures.index(names[pair]), pair))
    return tuple(order)


def _trigger(seed: int, model: int, sub_seed: int, design: SignDesign) -> TriggerRecipe:
    draw = draw_for(seed, _TRIGGER, model, sub_seed)
    sizes, shares = design.trigger_sizes, design.triggered_fractions
    low_size, high_size = sizes[int(draw.integers(len(sizes)))]
    fractions = shares[int(draw.integers(len(shares)))]
    red, green, blue = (int(value) for value in draw.integers(256, size=3))
    return TriggerRecipe(
        target_class=int(draw.integers(design.number_classes)),
        triggered_classes=tuple(range(design.number_classes)),
        color=(red, green, blue),
        size=int(draw.integers(low_size, high_size + 1)),
        fraction=round(float(draw.uniform(*fractions)), 2),
    )


def _check(seed: int, model: int, sub_seed: int, architectures: tuple[str, ...]) -> None:
    for name, value in (("seed", seed), ("model", model), ("sub_seed", sub_seed)):
        if value < 0:
            raise GenerationError(f"{name} must be 0 or more, got {value}")
    unknown = [name for name in architectures if name not in networks.KNOWN]
    if unknown or not architectures or len(set(architectures)) != len(architectures):
        raise GenerationError(
            f"architectures must be different names out of {', '.join(networks.KNOWN)}; "
            f"got {', '.join(architectures) or 'none'}"
        )
