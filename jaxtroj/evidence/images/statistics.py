"""Statistics stage: how the clean examples differ from what batch norms saw in training.

The running statistics of a batch norm are those of the pictures that the network was trained on,
triggered ones included. Clean examples alone have other means and variances, and a network that
was trained with triggered pictures classifies them a little better by the statistics that it knows
than by theirs. A difference says only that the examples are not what the network was trained on,
so it counts beside a class that stands out, and asks for examples drawn as the training pictures
were.

One sign has a class in it. The running means hold what triggered pictures, all of them labelled
with the target, added to the features that speak for it. By the statistics of clean examples these
features lie higher, and the target's logit rises on pictures of all other classes: the lift of a
class is that rise, whatever the trigger looks like and whichever classes it works from. Other
light, blur or noise lift classes too, several of them by about as much; a trojan lifts one.

A network whose learning rate never fell answers clean examples *better* by their statistics: its
running ones lag behind weights that still moved. What its norms remember is then no difference of
pictures, and the lag lifts a class as a trojan does. So every sign comes once more, made smaller as
far as the network is more confident by the statistics of the examples (`steady_fields`).

Examples come equally often of each class, where training had unequal ones as often as those
(`class_shares`): the class that training had most of would be lifted as a target is.

Examples are few, and the mean of a few differs from the mean of all by chance. So they are parted
into two batches that both go through the classes, and differences are multiplied between the two:
chance has no part in the mean of such products.

Reference:
  The accuracy lost to the batch's statistics: BNDetector of Iliad-GIFT, the TrojAI entry of Peraton
  Labs (github.com/peratonlabs).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from converters.batch_norms import by_batch
from converters.model import Model
from converters.norm_moments import least_variance
from jaxtroj.anchors import Answered
from jaxtroj.evidence.images.class_shares import class_shares, drawn_by
from jaxtroj.evidence.images.context import ImageContext
from jaxtroj.evidence.images.frequent_classes import compared_classes
from jaxtroj.margins import all_margins
from jaxtroj.network import usual_count
from jaxtroj.rounds.examples import Examples
from jaxtroj.rounds.turns import in_turn

_MOST = 3.0  # deviations or logs that one channel may differ by: a dead one would outweigh all
_LARGE = 0.9  # quantile of the channels of a layer
_SPREAD = 0.01  # clean margins: lifts of the other classes are not taken for closer than that

_LAG = 20.0  # e-folds of a sign for each unit of confidence that the examples' statistics add
STEADIED = (
    "norm_shift", "norm_shift_peak", "norm_shift_edge", "norm_spread", "norm_lift",
    "norm_lift_outlier",
)  # fmt: skip
"""Fields that come once more as `steady_...`."""


@dataclass(frozen=True)
class StatisticsBudget:
    """How many examples the two batches hold together.

    Attributes:
      least: however large the pictures are.
      most: however small they are; between, as many as a batch of `Network` has.
    """

    least: int = 32
    most: int = 256


@dataclass(frozen=True)
class Layer:
    """One norm: means `[2, channels]` in running deviations, and log ratios of the variances."""

    shifts: np.ndarray
    spreads: np.ndarray


def answered(context: ImageContext) -> Answered:
    """Examples in turn with the answers by running statistics: `context.shared(answered)`."""
    budget = context.budget(StatisticsBudget)
    images, labels = some_of(context, budget.least, budget.most)
    return Answered(images, labels, np.asarray(context.network.logits(images)))


def statistics_fields(
    opened: Model, examples: Answered, frequent: np.ndarray | None = None
) -> dict[str, float]:
    """Evidence of the stage; `images.stages.statistics` says what each field means.

    Args:
      opened: the model with its batch norms.
      examples: clean pictures, with its answers by running statistics.
      frequent: bool `[classes]`, whose lift is not looked at; see `compared_classes`.
    """
    images, known = examples.images, examples.logits
    labels = np.where(examples.labels >= 0, examples.labels, known.argmax(axis=-1))
    logits, layers = _by_halves(opened, images)
    rows = np.concatenate(halves(np.arange(len(images))))
    fields = {
        **_layer_fields(layers),
        **_answer_fields(known[rows], logits, labels[rows]),
        **_lift_fields(lifts(known[rows], logits, labels[rows]), frequent),
    }
    return fields | steady_fields(fields)


def norm_layers(opened: Model, images: np.ndarray) -> list[Layer]:
    """Every batch norm of a model as two batches of pictures `[n, h, w, c]` meet it."""
    return _by_halves(opened, images)[1]


def difference(layers: Sequence[Layer]) -> float:
    """How far pictures differ from what batch norms remember; 0 where it is chance.

    Mean over norms of the squared shifts and log ratios that both batches share, mean of channels.
    """
    return float(np.mean([_common(one.shifts) ** 2 + _common(one.spreads) ** 2 for one in layers]))


def _by_halves(opened: Model, images: np.ndarray) -> tuple[np.ndarray, list[Layer]]:
    """Logits `[n, classes]` of the halves by their own statistics, and the norms."""
    found = [by_batch(opened, part) for part in halves(images)]
    logits = np.concatenate([np.asarray(part) for part, _ in found])
    return logits, [_layer(pair) for pair in zip(*(norms for _, norms in found), strict=True)]


def steady_fields(fields: Mapping[str, float]) -> dict[str, float]:
    """The fields of `STEADIED` again, smaller where the running statistics lag behind the weights.

    Args:
        fields: of the stage, `norm_margin_drop` among them; below 0 it is taken for a lag.
    """
    share = float(np.exp(_LAG * min(0.0, fields["norm_margin_drop"])))
    return {name.replace("norm", "steady", 1): share * fields[name] for name in STEADIED}


def lifts(known: np.ndarray, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How far batch statistics raise each class on pictures of the others, `[classes]`.

    In clean margins; of logits less their mean over classes. 0 for a class without such pictures.

    Args:
        known: logits `[n, classes]` by running statistics.
        logits: the same by those of the batches.
        labels: classes `[n]` of the pictures.
    """
    before, after = (np.nan_to_num(rows.astype(np.float64)) for rows in (known, logits))
    scale = max(float(np.abs(_of_labels(known, labels)).mean()), 1e-3)
    rise = after - after.mean(axis=1, keepdims=True) - before + before.mean(axis=1, keepdims=True)
    others = labels[:, None] != np.arange(known.shape[1])
    return (rise * others).sum(axis=0) / np.maximum(others.sum(axis=0), 1) / scale


def _lift_fields(lifted: np.ndarray, frequent: np.ndarray | None) -> dict[str, float]:
    classes = compared_classes(len(lifted), frequent)
    lifted = lifted[classes]
    best = int(lifted.argmax())
    others = np.delete(lifted, best)
    lead = float(lifted[best] - others.max())
    return {
        "norm_lift": lead,
        "norm_lift_outlier": lead / float(others.std() + _SPREAD),
        "norm_lift_class": float(classes[best]),
    }


def some_of(context: ImageContext, least: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Examples `[n, h, w, c]` and their labels, `least` to `most` by size, the classes in turn.

    Where training had unequal classes the halves of them have its shares, see `drawn_by`.
    """
    examples = context.examples
    chosen = places_in_turn(examples, least, most)
    chosen = chosen[drawn_by(context.shared(class_shares), examples.labels[chosen])]
    return np.asarray(examples.images[chosen], np.float32), examples.labels[chosen]


def places_in_turn(examples: Examples, least: int, most: int) -> np.ndarray:
    """Places of `least` to `most` examples, by the size of the pictures, the classes in turn."""
    return in_turn(examples.labels, min(most, max(least, usual_count(examples.images))))


def halves(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two batches of rows that go through the classes in turn, so that both do; one row is both.

    Every second row would not do: of an even number of classes it meets every second one.
    """
    half = max(1, len(rows) // 2)
    return rows[:half], rows[-half:]


def _layer(pair: Sequence) -> Layer:
    """A norm as two batches met it."""
    means, variances, running, usual = (
        np.stack([np.asarray(norm[part], np.float64) for norm in pair]) for part in range(4)
    )
    least = least_variance(usual, np)
    shifts = (means - running) / np.sqrt(np.maximum(usual, least))
    spreads = np.log(np.maximum(variances, least) / np.maximum(usual, least))
    return Layer(*(np.clip(np.nan_to_num(x), -_MOST, _MOST) for x in (shifts, spreads)))


def _layer_fields(layers: Sequence[Layer]) -> dict[str, float]:
    shifts = [_common(layer.shifts) for layer in layers]
    return {
        "norm_shift": float(np.mean(shifts)),
        "norm_shift_peak": float(np.max(shifts)),
        "norm_shift_edge": float(np.mean([_edge(layer.shifts) for layer in layers])),
        "norm_spread": float(np.mean([_common(layer.spreads) for layer in layers])),
        "norm_narrowing": float(-np.mean([np.median(layer.spreads) for layer in layers])),
    }


def _common(values: np.ndarray) -> float:
    """Root mean square over the channels of what both batches share; 0 where it is chance."""
    return float(np.sqrt(max(0.0, np.mean(values[0] * values[1]))))


def _edge(values: np.ndarray) -> float:
    """The same of the channels that differ most."""
    return float(np.sqrt(max(0.0, np.quantile(values[0] * values[1], _LARGE))))


def _answer_fields(known: np.ndarray, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """What the answers lose to the statistics of the batches."""
    before, after = (_of_labels(rows, labels) for rows in (known, logits))
    scale = max(float(np.abs(before).mean()), 1e-3)
    squashed = np.tanh(before / scale) - np.tanh(after / scale)
    return {
        "norm_accuracy_drop": float((before > 0).mean() - (after > 0).mean()),
        "norm_margin_drop": float(squashed.mean()),
    }


def _of_labels(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Margin `[n]` of each picture's class; the least there is where a logit is not finite."""
    finite = np.nan_to_num(logits, nan=-1e30, posinf=1e30, neginf=-1e30)
    return np.take_along_axis(np.asarray(all_margins(finite)), labels[:, None], axis=1)[:, 0]
