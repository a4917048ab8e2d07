"""What besides model and examples changes an answer, and the calibrator it names."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from converters.errors import ConversionError
from converters.opening import InputForm
from jaxtroj import populations
from jaxtroj.calibration import Calibrator
from jaxtroj.errors import CalibrationError, UsageError
from jaxtroj.evidence.stages import TABLES
from jaxtroj.evidence.versions import as_settings, check_fitted
from jaxtroj.input_forms import SaidForm
from jaxtroj.model_files import contents_digest, digest_or_reason, model_digests
from jaxtroj.populations import Asked, Candidates, Choice, choose
from jaxtroj.setting_values import EVEN_ODDS, PATHS, kind_problems, range_problems

DEFAULT_CALIBRATOR = populations.default_calibrator()
SPECIAL_CALIBRATORS = populations.special_calibrators()
ROUND_CALIBRATORS = populations.round_calibrators()
DEFAULT_TEXT_CALIBRATOR = populations.BY_NAME["round5"].path
DEFAULT_CLASSIFIER_CALIBRATOR = populations.BY_NAME["text_classifiers"].path
KINDS = tuple(TABLES)
ANY_MODEL = Asked()

_LISTS = ("stages", "class_counts", "bounds", "mean", "std", "image_size")
_BEFORE = {
    "recover_words": True,
    "enough": None,
    "class_counts": None,
    "resize": None,
    "public_code": None,
    "reference": None,
    "classifier_calibrator": None,
    "special_calibrators": [],
    "round_calibrators": {},
    "apart_calibrator": None,
    "beside_calibrators": None,
    "without_norms_calibrators": [],
    "large_calibrators": [],
}
"""What runs had that say nothing of it: they are from before there was another value."""


@dataclass(frozen=True)
class Settings:
    """Everything besides model and examples that changes an answer.

    Raises:
        UsageError: a value is outside its range; all such values are named.
        CalibrationError: a calibrator cannot be read: hours of scanning would be for nothing.
    """

    stages: tuple[str, ...] | None = None
    """Evidence stages to run, some of one table of `evidence.stages` in their order; models of the
    other kind are not concerned unless their table has all of them too. None takes those that the
    calibrator was fitted on, else those that fit the model by what they need."""
    early_stop: bool = True
    """Leave out later stages once they cannot change the verdict."""
    enough: float | None = None
    """Leave them out, too, at the first stage that searches for triggers and gives a probability of
    at most this, or of at least 1 less this; in (0, 0.5). None for no such end."""
    seed: int = 0
    """Seed of all random choices, from 0 to 2**63 - 1; each is keyed by it, class and
    candidate number."""
    calibrator: Path | None = DEFAULT_CALIBRATOR
    """Calibrator file; None gathers evidence only, and every probability is the base rate."""
    special_calibrators: tuple[Path, ...] = SPECIAL_CALIBRATORS
    """Calibrators that take the place of `calibrator`, unless it is None, for pictures of the sides
    that they note; the first that covers a model's pictures is taken."""
    round_calibrators: tuple[tuple[str, Path], ...] = ROUND_CALIBRATORS
    """Round -> calibrator that takes the place of both for models of a dataset of that round."""
    text_calibrator: Path | None = DEFAULT_TEXT_CALIBRATOR
    """The same as `calibrator` for heads on sentence embeddings."""
    classifier_calibrator: Path | None = DEFAULT_CLASSIFIER_CALIBRATOR
    """The same for whole text classifiers."""
    reference: Path | None = None
    """Model file of a clean network of the same classes, of any architecture: image classifiers of
    as many classes and of pictures of that size are compared with it. What is said of the pixels
    holds for it too; what is not said is found for it by itself."""
    bank: Path | None = None
    """Folder of a probe bank (`jaxtroj bank`) of the encoder that text models stand on; without
    one, text models are judged by their cheaper evidence alone."""
    encoder: Path | None = None
    """Encoder for example texts that come without embeddings; None takes the dataset's own."""
    tokenizer: Path | None = None
    """Its tokenizer; None takes the dataset's own, or the encoder's folder."""
    recover_words: bool = True
    """Search the trigger's words in text models that are called poisoned, where bank and encoder
    are at hand; half a minute for each on a CPU."""
    base_rate: float | None = None
    """P(poisoned) before any evidence, in (0, 1); None takes the calibrator's."""
    threshold: float = 0.5
    """A model with a probability above this counts as poisoned; in (0, 1)."""
    channel_order: str | None = None
    """Channel order that the models expect, BGR or RGB; None takes what their round says, else what
    suits each model's labelled examples (`jaxtroj.form_choice`)."""
    normalization: str | None = None
    """How pixels become [0, 1]: "min-max" per picture, or "unit" (/ 255). None as above; one that
    is said stands for all that happens to pixels, with `bounds`, `mean` and `std` as they are."""
    examples_per_class: int | None = None
    """Use at most this many examples of a class; None uses all of a folder, and as many of
    an archive as `rounds.picture_archive.usual_number` says."""
    class_counts: tuple[float, ...] | None = None
    """How many training pictures each class had, or their shares, in the order of the classes; for
    image classifiers of as many classes. None has the evidence tell which classes were frequent, as
    far as it does."""
    resize: int | None = None
    """Make every example so many pixels on its shorter side, then cut out the middle: `image_size`,
    else what the network takes, else a square of as many. None leaves out those of another size
    than most."""
    layout: str | None = None
    """Order of the axes of a graph's input, NCHW or NHWC; None guesses it. This and the following
    are what a model file does not say, see `converters.opening.InputForm`."""
    bounds: tuple[float, float] | None = None
    """Values that pixels 0 and 1 have for the network; None takes (0, 1)."""
    mean: tuple[float, ...] | None = None
    """Subtracted from pixels within `bounds`, per channel in the network's order; None for
    nothing, or what suits the examples if neither `normalization` nor `bounds` nor `std` is set."""
    std: tuple[float, ...] | None = None
    """What they are divided by then, per channel; None as for `mean`."""
    output: str | None = None
    """Name of the output with the logits; None takes the first."""
    image_size: tuple[int, int] | None = None
    """Height and width in pixels where a file leaves them open; None takes the examples', which
    must have this size, or get it by `resize`."""
    public_code: str | None = None
    """Whose code a state dict is of, a name of `converters.public_codes`, where several have its
    names and shapes. None takes what the labelled examples tell, see `scan.public_code`."""

    def __post_init__(self) -> None:
        values = vars(self)
        problems = kind_problems(values) or [*range_problems(values), *self._form_problems()]
        if problems:
            raise UsageError("settings: " + "; ".join(problems))
        for name in PATHS:
            if isinstance(values[name], str):
                object.__setattr__(self, name, Path(values[name]))
        for path in self._calibrators():
            _cached_calibrator(path)

    def _form_problems(self) -> list[str]:
        try:
            self.input_form()
        except ConversionError as error:
            return [str(error)]
        return []

    def _calibrators(self) -> tuple[Path, ...]:
        """Every file that may answer."""
        named = (self.calibrator, self.text_calibrator, self._apart_calibrator)
        named += (self.classifier_calibrator,)
        others = () if self.calibrator is None else self._other_calibrators()
        instead = (*self._beside_calibrators(), *self._without_norms_calibrators())
        instead += self._large_calibrators()
        found = (path for path in (*named, *others, *instead) if path)
        return tuple(dict.fromkeys(found))

    def _other_calibrators(self) -> tuple[Path, ...]:
        """Those of sizes and rounds."""
        return (*self.special_calibrators, *(path for _, path in self.round_calibrators))

    def _beside_calibrators(self) -> tuple[Path, ...]:
        """Those that answer instead for networks beside a reference, where there is one."""
        return () if self.reference is None else self._instead(populations.beside_from)

    def _without_norms_calibrators(self) -> tuple[Path, ...]:
        """Those that answer instead for networks without batch norms."""
        return self._instead(populations.without_norms_from)

    def _large_calibrators(self) -> tuple[Path, ...]:
        """Those that answer instead for large pictures."""
        return self._instead(populations.large_from)

    def _instead(self, other: Callable[[Path], Path]) -> tuple[Path, ...]:
        """The others of the calibrators of pictures, where they have one."""
        if self.calibrator is None:
            return ()
        usual = dict.fromkeys((self.calibrator, *self._other_calibrators()))
        found = (other(path) for path in usual)
        return tuple(dict.fromkeys(path for path in found if path not in usual))

    @property
    def _apart_calibrator(self) -> Path | None:
        """What answers for heads whose clean heads come from another dataset."""
        found = self.text_calibrator
        return None if found is None else populations.apart_from(found)

    def input_form(self) -> InputForm:
        """What the model files do not say; raises ConversionError if no network has such a form."""
        return InputForm(
            self.layout,
            self.bounds,
            self.mean,
            self.std,
            self.output,
            self.image_size,
            self.public_code,
        )

    def said_form(self) -> SaidForm:
        """What these settings say of how pixels become the network's input."""
        return SaidForm(self.channel_order, self.normalization, self.bounds, self.mean, self.std)

    def stages_named(self, kind: str) -> tuple[str, ...] | None:
        """The stages that are asked for models of a kind, one of `KINDS`; None for no choice."""
        named = self.stages
        return named if named is not None and TABLES[kind].holds(named) else None

    def as_json(self) -> dict[str, Any]:
        """JSON values: the settings, files by their digests, the version of the evidence."""
        values = asdict(self)
        for name in _LISTS:
            values[name] = None if values[name] is None else list(values[name])
        values |= as_settings() | self._digests() | self._calibrator_digests()
        return {
            name: value
            for name, value in values.items()
            if name not in _BEFORE or value != _BEFORE[name]
        }

    def _digests(self) -> dict[str, Any]:
        """What is known of every file but those of calibrators."""
        return {
            "reference": None if self.reference is None else model_digests(self.reference),
            "bank": None if self.bank is None else _bank_digest(self.bank),
            "encoder": None if self.encoder is None else contents_digest(self.encoder),
            "tokenizer": None if self.tokenizer is None else contents_digest(self.tokenizer),
        }

    def _calibrator_digests(self) -> dict[str, Any]:
        """Of the files of calibrators, also of those that answer instead of one that is named."""
        apart, beside = self._apart_calibrator, self._beside_calibrators()
        special = () if self.calibrator is None else self.special_calibrators
        rounds = () if self.calibrator is None else self.round_calibrators
        return {
            "calibrator": _digest(self.calibrator),
            "text_calibrator": _digest(self.text_calibrator),
            "classifier_calibrator": _digest(self.classifier_calibrator),
            "special_calibrators": list(map(_digest, special)),
            "round_calibrators": {name: _digest(path) for name, path in rounds},
            "apart_calibrator": None if apart == self.text_calibrator else _digest(apart),
            "beside_calibrators": None if self.reference is None else list(map(_digest, beside)),
            "without_norms_calibrators": list(map(_digest, self._without_norms_calibrators())),
            "large_calibrators": list(map(_digest, self._large_calibrators())),
        }


def choice_of(settings: Settings, asked: Asked = ANY_MODEL) -> Choice | None:
    """The calibrator of the settings for a model, and why; None if they ask for evidence only.

    Raises:
        CalibrationError: a file is missing or no calibrator.
    """
    own = settings.text_calibrator if asked.kind == "text" else settings.calibrator
    if asked.kind == "text-classifier":
        path = settings.classifier_calibrator
        return None if path is None else Choice(path, "for text classifiers")
    if own is None:
        return None
    known = Candidates(
        settings.calibrator or own,
        settings.text_calibrator,
        settings.special_calibrators,
        settings.round_calibrators,
    )
    return choose(known, asked, lambda path, size: _cached_calibrator(path).covers(size))


def load_calibrator(settings: Settings, asked: Asked = ANY_MODEL) -> Calibrator | None:
    """The calibrator of `choice_of`.

    Raises:
        CalibrationError: as that, or it was fitted on evidence of another kind or version.
    """
    choice = choice_of(settings, asked)
    if choice is None:
        return None
    calibrator = _cached_calibrator(choice.path)
    try:
        check_fitted(asked.kind, calibrator.provenance.evidence)
    except CalibrationError as error:
        raise CalibrationError(f"{choice.path}: {error}") from error
    return calibrator


def base_rate(settings: Settings, asked: Asked = ANY_MODEL) -> float:
    """P(poisoned) of a model that nothing is known of: as set, or as the calibrator saw it.

    Without a readable calibrator even odds are left; that it cannot be read is the reason of
    every record then.
    """
    if settings.base_rate is not None:
        return settings.base_rate
    try:
        calibrator = load_calibrator(settings, asked)
    except CalibrationError:
        return EVEN_ODDS
    return EVEN_ODDS if calibrator is None else calibrator.base_rate


@lru_cache(maxsize=8)
def _cached_calibrator(path: Path) -> Calibrator:
    return Calibrator.load(path)


def _digest(path: Path | None) -> str | None:
    return None if path is None else digest_or_reason(path)


def _bank_digest(folder: Path) -> str:
    """Of all that is in a bank; imported where there is one, since that loads jax."""
    from jaxtroj.evidence.texts.bank.contents import bank_digest

    return bank_digest(folder)
