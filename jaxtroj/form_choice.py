"""Which input form a network was trained with, by how it classifies labelled examples.

Every usual form is tried on the same examples. They are compared by the log score of the labels at
the temperature that suits each form best: it tells forms apart of equal accuracy, and logits that a
wrong scale has made large gain nothing by it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.model import Model
from converters.preparation import PreparedConfig, prepared
from jaxtroj.answer_shares import log_probabilities
from jaxtroj.input_forms import PixelForm
from jaxtroj.label_shift import LabelShift, clearest, label_shift
from jaxtroj.network import Network, usual_count
from jaxtroj.rounds.examples import Pictures, in_units
from jaxtroj.rounds.turns import in_turn

# Every form is tried on so many examples at least, more where they are small, and
# at most; the best ones on at most so many, of so many pixels together.
_FEW_LEAST, _FEW_MOST, _MANY_MOST, _MANY_PIXELS = 10, 40, 200, 2**22
# The best forms go on to all examples, beside the first one: a quarter, and so many at least.
_SHARE_GOING_ON, _FEWEST_GOING_ON = 4, 3
# Fewer labelled examples, or one class, tell nothing: a network that is stuck on it looks right.
_FEWEST_EXAMPLES, _FEWEST_CLASSES = 6, 2
_ONE_CLASS = "examples of one class only"
# Another form takes the first one's place only if its log score is better by so many standard
# errors; among those that do, two are even within so many.
_ERRORS, _EVEN = 2.5, 1.0
_SAID = {
    "settings": "as was said",
    "round": "as the round has it",
    "folder": "as the folder says",
}


@dataclass(frozen=True)
class Tried:
    """How a network classifies examples in one input form.

    Attributes:
        form: of the pixels.
        scores: `[n]` log score of each example's label, nats; -inf where logits are not finite.
        right: bool `[n]`, whether each is classified as labelled.
        guessing: accuracy of a network that is stuck on one class, or guesses.
        shift: by how much all labels are off; None where they are not.
    """

    form: PixelForm
    scores: np.ndarray
    right: np.ndarray
    guessing: float
    shift: LabelShift | None = None

    @property
    def score(self) -> float:
        """Mean log score, nats; -log(classes) is guessing."""
        return float(self.scores.mean())

    @property
    def accuracy(self) -> float:
        """Fraction of the examples classified as labelled."""
        return float(self.right.mean())


@dataclass(frozen=True)
class FormChoice:
    """The input form that a network is scanned with, and what speaks for it.

    Attributes:
        form: the one taken.
        basis: `examples` where they told it, `settings`, `round` or `folder` where those say it,
            else `assumed`.
        why: of an assumed one, why examples could not tell.
        accuracy: of the network on the labelled examples; None where none was tried.
        examples: how many labelled ones were tried.
        runner_up: the best other form.
        tried: how many forms were.
        shift: by how much all labels are off in the form that shows it best; None where in none.
    """

    form: PixelForm
    basis: str
    why: str = ""
    accuracy: float | None = None
    examples: int = 0
    runner_up: Tried | None = None
    tried: int = 1
    shift: LabelShift | None = None

    def __str__(self) -> str:
        if self.accuracy is None:
            said = _SAID.get(self.basis)
            return f"input form: {said or f'{self.why}: assumed'} {self.form}"
        seen = f"clean accuracy {self.accuracy:.2f} on {self.examples} labelled examples"
        return f"input form: {self.form}, {seen}{self._next()}"

    def _next(self) -> str:
        if self.runner_up is None:
            return ""
        return f"; next {self.runner_up.form}: {self.runner_up.accuracy:.2f}"

    @property
    def shows_one_class(self) -> bool:
        """Whether it was assumed since all labelled examples are of one class."""
        return self.why == _ONE_CLASS

    @property
    def more_accurate(self) -> str:
        """The runner-up, where more examples are right in it, in words; else ""."""
        other = self.runner_up
        if other is None or self.accuracy is None or other.accuracy <= self.accuracy:
            return ""
        return f", though clean accuracy is {other.accuracy:.2f} by {other.form}"

    def as_json(self) -> dict[str, Any]:
        """JSON values for a record."""
        values = {"name": str(self.form)} | self.form.as_json() | {"basis": self.basis}
        if self.accuracy is not None:
            values |= {"accuracy": round(self.accuracy, 4), "examples": self.examples}
        if self.runner_up is not None:
            values |= {"next": str(self.runner_up.form)}
            values |= {"next_accuracy": round(self.runner_up.accuracy, 4)}
        return values


def choose_form(
    network: Network, pictures: Pictures, forms: Sequence[PixelForm], has_front: bool = False
) -> FormChoice:
    """The form in which the network classifies the examples best.

    The first form stays unless another one is better by more than luck would have it.

    Args:
        network: what all forms are tried on.
        pictures: of its size and channels.
        forms: at least two, the preferred first.
        has_front: whether the forms' bounds, mean and deviation stand in front of it already.
    """
    labels = pictures.labels
    order = labelled(pictures, network.model.num_classes)
    problem = cannot_tell(labels[order])
    if problem:
        return FormChoice(forms[0], "assumed", why=problem)

    def attempts(asked: Sequence[PixelForm], chosen: np.ndarray) -> list[Tried]:
        return try_forms(network, pictures.pixels[chosen], labels[chosen], asked, has_front)

    each = usual_count(pictures.pixels) // len(forms)
    few = order[: min(max(each, _FEW_LEAST), _FEW_MOST)]
    many = order[: max(_enough(pictures), len(few))]
    tried = _likeliest(attempts(forms, few))
    if len(many) > len(few):
        tried = attempts([one.form for one in tried], many)
    return _decided(tried, len(many), len(forms))


def try_form(
    network: Network, pictures: Pictures, form: PixelForm, has_front: bool = False
) -> Tried:
    """How the network classifies labelled examples in one form, of which there is one at least.

    As many are taken, and the same ones, as `choose_form` settles a form by.
    """
    order = labelled(pictures, network.model.num_classes)
    chosen = order[: max(_enough(pictures), _FEW_LEAST)]
    pixels, labels = pictures.pixels[chosen], pictures.labels[chosen]
    return try_forms(network, pixels, labels, [form], has_front)[0]


def labelled(pictures: Pictures, classes: int) -> np.ndarray:
    """Indices of the examples whose label is one of so many classes, the labels in turn."""
    known = np.flatnonzero((pictures.labels >= 0) & (pictures.labels < classes))
    return known[in_turn(pictures.labels[known], len(known))]


def _enough(pictures: Pictures) -> int:
    """How many examples settle a form at most."""
    return min(_MANY_PIXELS // pictures.pixels[0, ..., 0].size, _MANY_MOST)


def try_forms(
    network: Network,
    pixels: np.ndarray,
    labels: np.ndarray,
    forms: Sequence[PixelForm],
    has_front: bool = False,
) -> list[Tried]:
    """How the network classifies pictures in each form; see `choose_form`.

    All go through the network together, so that few places of its batches stay empty.

    Args:
        network, forms, has_front: see there.
        pixels: uint8 `[n, h, w, c]`, RGB or grey.
        labels: int `[n]`.
    """
    images = [_as_taken(network.model, pixels, form, has_front) for form in forms]
    logits = np.asarray(network.logits(np.concatenate(images)), np.float64)
    answers = logits.reshape(len(forms), len(labels), -1)
    guessing = max(np.bincount(labels).max() / len(labels), 1 / answers.shape[-1])
    return [
        _tried(form, rows, labels, float(guessing))
        for form, rows in zip(forms, answers, strict=True)
    ]


def _tried(form: PixelForm, logits: np.ndarray, labels: np.ndarray, guessing: float) -> Tried:
    """How logits `[n, classes]` in one form suit the labels."""
    answers, scores = logits.argmax(axis=1), _log_scores(logits, labels)
    return Tried(form, scores, answers == labels, guessing, label_shift(answers, labels))


def _as_taken(model: Model, pixels: np.ndarray, form: PixelForm, has_front: bool) -> np.ndarray:
    """Pictures in a form as the network takes them."""
    images = in_units(pixels, form.channel_order, form.normalization)
    if has_front:
        return images
    config = prepared(model, *form.preparation).config
    if config is model.config or not isinstance(config, PreparedConfig):
        return images
    return np.asarray(config.prepare_here(images))


def cannot_tell(labels: np.ndarray) -> str:
    """Why these labels do not tell forms apart; "" where they may."""
    if not len(labels):
        return "unlabelled"
    if len(labels) < _FEWEST_EXAMPLES:
        return f"only {len(labels)} labelled example{'' if len(labels) == 1 else 's'}"
    if len(np.unique(labels)) < _FEWEST_CLASSES:
        return _ONE_CLASS
    return ""


def _likeliest(tried: Sequence[Tried]) -> list[Tried]:
    """The first form, the best ones, and those in which all labels are off, in their order."""
    count = max(len(tried) // _SHARE_GOING_ON, _FEWEST_GOING_ON)
    best = sorted(tried[1:], key=lambda one: one.score, reverse=True)[:count]
    return [one for one in tried if one is tried[0] or one in best or one.shift is not None]


def _decided(tried: Sequence[Tried], examples: int, forms: int) -> FormChoice:
    """The first form, unless the best beats it; then the first that does as well as the best."""
    best = max(tried, key=lambda one: one.score)
    taken = tried[0]
    if _gain(best, taken) > _ERRORS:
        taken = next(one for one in tried if _gain(best, one) <= _EVEN)
    following = max((one for one in tried if one is not taken), key=lambda one: one.score)
    shift = clearest(one.shift for one in tried)
    return FormChoice(taken.form, "examples", "", taken.accuracy, examples, following, forms, shift)


def _gain(one: Tried, other: Tried) -> float:
    """By how many standard errors the log score of one is better than another's."""
    if one is other or not np.isfinite(one.score):
        return 0.0
    if not np.isfinite(other.score):
        return math.inf
    gains = one.scores - other.scores
    error = gains.std(ddof=1) / math.sqrt(len(gains))
    return float(gains.mean() / max(error, 1e-9))


def _log_scores(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Log scores `[n]` of labels, nats, at the best temperature: logits are divided by it."""
    if not np.isfinite(logits).all():
        return np.full(len(labels), -np.inf)
    return log_probabilities(logits, labels)[np.arange(len(labels)), labels]
