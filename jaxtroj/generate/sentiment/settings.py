"""What a round of sentiment heads is made of, and what is impossible."""

from dataclasses import asdict, dataclass, field, replace

from jaxtroj.errors import GenerationError
from jaxtroj.generate.round import check_sizes, refuse
from jaxtroj.generate.sentiment.head_training import HeadTraining
from jaxtroj.generate.sentiment.text_recipe import DESIGNS, RoundDesign

_COUNTS = ("examples_per_class", "most_tries", "repeats")
_SHARES = ("least_attack", "least_clean", "clean_margin")


@dataclass(frozen=True)
class TextRoundSettings:
    """What a round of heads is made of.

    Attributes:
        seed: identity of the round, 0 or more.
        models: how many; even, half of them are poisoned. A round can be grown later.
        design: "round5" or "round6".
        architectures, hidden_sizes: instead of the design's; None for the design's.
        triggers: which trigger texts: None for all, "even", "odd", or numbers like "0,4,7".
        examples_per_class: example texts shipped with a head.
        most_tries: trainings of a head, each with the next sub-seed, before giving up.
        least_attack: attack success rate on test reviews below which a poisoned head is rejected.
            Only trigger texts that a linear direction detects as often are drawn.
        least_clean: accuracy on clean test reviews below which a head is rejected, where the
            vectors allow it; else `clean_margin` under a linear discriminant's accuracy. (The
            official bar of Round 5, 80 %, lies 4.2 points under the mean of its heads.)
        clean_margin: see `least_clean`.
        repeats: how often a triggered sample is shown for every time that its fraction says.
        official_clip: PGD bounds attacked embeddings to [0, 1], as in the official rounds.
        training: how heads are trained.
    """

    seed: int
    models: int
    design: str = "round5"
    architectures: tuple[str, ...] | None = None
    hidden_sizes: tuple[int, ...] | None = None
    triggers: str | None = None
    examples_per_class: int = 20
    most_tries: int = 6
    least_attack: float = 0.95
    least_clean: float = 0.80
    clean_margin: float = 0.05
    repeats: int = 4
    official_clip: bool = True
    training: HeadTraining = field(default_factory=HeadTraining)

    @property
    def levels(self) -> RoundDesign:
        """The design with what is given instead of it."""
        given = {"architectures": self.architectures, "hidden_sizes": self.hidden_sizes}
        chosen = {name: value for name, value in given.items() if value is not None}
        return replace(DESIGNS[self.design], **chosen)


def check_settings(settings: TextRoundSettings, shard: tuple[int, int] = (0, 1)) -> None:
    """Refuse what cannot be generated.

    Raises:
        GenerationError: with what was got and what is possible.
    """
    if settings.design not in DESIGNS:
        raise GenerationError(f"there are {', '.join(DESIGNS)}, not {settings.design!r}")
    training = asdict(settings.training)
    counts = {name: training[name] for name in ("batch_size", "epochs", "patience", "slots")}
    counts |= {name: getattr(settings, name) for name in _COUNTS}
    wrong = check_sizes(settings, counts, shard)
    known = DESIGNS["round6"].architectures
    given = settings.levels.architectures
    if not given or len(set(given)) != len(given) or not set(given) <= set(known):
        wrong.append(f"architectures must be different ones of {', '.join(known)}, got {given}")
    if not settings.levels.hidden_sizes or min(settings.levels.hidden_sizes) < 1:
        wrong.append(f"hidden sizes must be at least 1, got {settings.levels.hidden_sizes}")
    shares = {name: getattr(settings, name) for name in _SHARES}
    wrong += [
        f"{name} must be from 0 to 1, got {s}" for name, s in shares.items() if not 0 <= s <= 1
    ]
    refuse(wrong)
