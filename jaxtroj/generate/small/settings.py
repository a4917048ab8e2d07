"""What a round of small networks is made of, and what is impossible."""

from dataclasses import dataclass, field

from jaxtroj.generate.round import check_sizes, refuse
from jaxtroj.generate.small import networks
from jaxtroj.generate.small.labelled_pictures import LabelledPictures
from jaxtroj.generate.small.recipe import KINDS, SmallDesign, sample_recipe
from jaxtroj.generate.small.training import SmallTraining


@dataclass(frozen=True)
class SmallSettings:
    """What a round is made of.

    Attributes:
        seed: identity of the round, 0 or more.
        models: how many; even, half of them are poisoned. A round can be grown later.
        architectures: out of `small.networks.KNOWN`.
        triggers: kinds out of `small.recipe.KINDS`.
        bases: networks per architecture that models start from.
        examples_per_class: example pictures shipped with a model, out of the test pictures.
        most_tries: trainings of a model, each with the next sub-seed, before giving up.
        training: how models are trained.
    """

    seed: int
    models: int
    architectures: tuple[str, ...] = networks.KNOWN
    triggers: tuple[str, ...] = KINDS
    bases: int = 3
    examples_per_class: int = 10
    most_tries: int = 3
    training: SmallTraining = field(default_factory=SmallTraining)


def check_settings(
    settings: SmallSettings, pictures: LabelledPictures, shard: tuple[int, int] = (0, 1)
) -> None:
    """Refuse what cannot be generated.

    Raises:
        GenerationError: with what was got and what is possible.
    """
    counts = {n: getattr(settings, n) for n in ("bases", "examples_per_class", "most_tries")}
    names = ("batch_size", "base_half_steps", "base_steps", "cycle_steps", "most_cycles", "tests")
    counts |= {name: getattr(settings.training, name) for name in names}
    wrong = check_sizes(settings, counts, shard)
    if min(pictures.size) < networks.LEAST_PIXELS:
        wrong.append(f"pictures must have {networks.LEAST_PIXELS} px, got {pictures.size}")
    refuse(wrong)
    sample_recipe(design_of(settings, pictures), settings.seed, 0)  # checks the names


def design_of(settings: SmallSettings, pictures: LabelledPictures) -> SmallDesign:
    """What recipes are drawn from."""
    choices = (settings.architectures, settings.triggers, settings.bases)
    return SmallDesign(*choices, pictures.classes, pictures.size)
