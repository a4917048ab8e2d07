"""Rows of the last layer as evidence takes them: without what no answer depends on.

A file can hold a vector in all rows, which no class gains by, or columns of features that are the
same on every picture, which are a bias. It can make a feature smaller and its column larger. None
of this changes an answer, and all of it drowns the rows or makes one stand out. What common vectors
and constant features hold of the rows is small in trained networks, and is left out only where it
is large; features are taken as equally large only where a row stands out half as far then. So rows
of other networks stay as they are to the bit.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from converters.graph.last_layer import linear_tail
from converters.graph.module import GraphConfig
from converters.model import Model, NetworkConfig, apply
from jaxtroj.evidence.images.frequent_classes import frequent_classes
from jaxtroj.evidence.images.weights import weight_fields
from jaxtroj.last_weight import last_weight
from jaxtroj.rounds.turns import in_turn

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext

_COMMON = 2.0  # times the rows' deviation from their mean; of 137 networks at hand up to 0.63
# Of the rows' squares, and of a constant column's beside another's, on average. Trained networks
# hold up to 0.71 in such columns, small VGGs have 115 of 128; but none of these is larger than 1.4.
_CONSTANT, _HEAVY = 0.5, 4.0
# Times the median column; columns as large hold up to 0.38 of the squares.
_LARGE, _MOST = 10.0, 0.5
# Beyond what clean networks at hand show: only then a look at the features is worth a program.
_SEEN = {"head_lead": 0.2, "head_mean_outlier": 4.0, "head_norm_outlier": 4.0}
_HALF = 0.5  # of 64 networks at hand none stands out by less than 0.52 of it with equal columns
_SHOWN = 32
_SAME = 1e-5  # of the largest size of a feature


@dataclass(frozen=True)
class HeadRows:
    """What is known of a last layer.

    Attributes:
      rows: float64 `[classes, features]`; None without one that was recognised.
      findings: what was left out of them, in words.
    """

    rows: np.ndarray | None
    findings: tuple[str, ...] = ()


def head_rows(context: "ImageContext") -> HeadRows:
    """The rows of a model: `context.shared(head_rows)`."""
    model = context.model
    if (rows := model.last_layer()) is None:
        return HeadRows(None)
    found = [_joined(model)]
    if stands_out(rows):
        images = context.examples.images[in_turn(context.examples.labels, _SHOWN)]
        rows, said = without_constant(rows, constant_features(model, images))
        found.append(said)
    rows, said = without_common(rows)
    found.append(said)
    rows, said = without_scales(rows)
    return HeadRows(rows, tuple(filter(None, (*found, said))))


def compared_head(context: "ImageContext") -> tuple[np.ndarray | None, np.ndarray | None]:
    """Rows `[classes, features]` of the last layer, and which of them are of frequent classes.

    Without a last layer that was recognised nothing is asked: both are None.
    """
    head = context.shared(head_rows).rows
    return head, None if head is None else context.shared(frequent_classes)


def _joined(model: Model) -> str:
    network = model.config.core
    count = len(linear_tail(network.graph)) if isinstance(network, GraphConfig) else 1
    if count < 2:
        return ""
    return (
        f"the network ends in {count} linear layers with nothing between them; their product is"
        " taken for the last layer"
    )


def stands_out(rows: np.ndarray) -> bool:
    """Whether rows `[classes, features]` show what those of clean networks at hand do not."""
    sizes = np.square(rows).sum(axis=0)
    if not sizes.any():
        return False
    large = sizes > _LARGE**2 * np.median(sizes[sizes > 0])
    return bool(sizes[large].sum() > _MOST * sizes.sum()) or _beyond(rows) > 1


def _beyond(rows: np.ndarray) -> float:
    """How far a row stands out, largest of the fields; up to 1 clean networks at hand do."""
    fields = weight_fields({}, rows)
    return max(fields[name] / most for name, most in _SEEN.items())


def without_constant(rows: np.ndarray, is_constant: np.ndarray) -> tuple[np.ndarray, str]:
    """Rows without the columns bool `[features]`, and a finding.

    Only where these hold most of the rows and are larger than others: features that wait for a
    trigger are constant on clean pictures too, and their columns say which class it is for.
    """
    sizes = np.square(rows).sum(axis=0)
    of_them, of_others = sizes[is_constant], sizes[~is_constant]
    if not of_them.size or not of_others.size or not sizes.any():
        return rows, ""
    share = of_them.sum() / sizes.sum()
    if share <= _CONSTANT or of_them.mean() <= _HEAVY * of_others.mean():
        return rows, ""
    return rows[:, ~is_constant], (
        f"{share:.0%} of the last layer's weights are of {is_constant.sum()} features that are the"
        " same on every example, so they only shift its logits: they are left out of evidence"
    )


def without_common(rows: np.ndarray) -> tuple[np.ndarray, str]:
    """Rows without their mean, where it is larger than what they differ by; and a finding."""
    mean = rows.mean(axis=0)
    deviation = np.sqrt(np.square(rows - mean).sum(axis=1).mean())
    if not np.linalg.norm(mean) > _COMMON * deviation or not deviation:
        return rows, ""
    return rows - mean, (
        "the rows of the last layer have more in common than they differ by, which changes no"
        " answer: it is left out of evidence"
    )


def without_scales(rows: np.ndarray) -> tuple[np.ndarray, str]:
    """Rows with all columns of one size, where they stand out half as far then; and a finding.

    What a layer multiplies a feature by the next one can divide its column by. A trojan that
    training left in the rows does not depend on it.
    """
    sizes = np.linalg.norm(rows, axis=0)
    equal = rows / np.where(sizes > 0, sizes, 1.0)
    before = _beyond(rows)
    if before <= 1 or _beyond(equal) >= _HALF * before:
        return rows, ""
    return equal, (
        "a row of the last layer stands out by large weights for small features, with all features"
        " as large half as far or less: it is compared so"
    )


def constant_features(model: Model, images: np.ndarray) -> np.ndarray:
    """Bool `[features]`, whether each feature of the last layer is the same on all pictures.

    What a layer reads of a feature is the derivative of a logit by its weight, so no layer has to
    be hooked. None counts as constant where the weight is no parameter, or of one picture.

    Args:
        model: with a last layer.
        images: `[n, h, w, c]`.
    """
    weight, rows = last_weight(model), model.last_layer()
    if weight is None or len(images) < 2:
        return np.zeros(0 if rows is None else rows.shape[1], bool)
    name, axis = weight
    read = np.asarray(_features(model.config, name, axis, model.params, jnp.asarray(images)))
    spread = read.max(axis=0) - read.min(axis=0)
    return spread <= _SAME * np.abs(read).max()


@partial(jax.jit, static_argnums=(0, 1, 2))
def _features(config: NetworkConfig, name: str, axis: int, params: Any, images: jax.Array):
    """What the weight reads of each image, `[n, features]`, up to one factor."""
    weights = 1 + jnp.arange(config.num_classes) / config.num_classes

    def logit(weight, image):
        return (apply(config, {**params, name: weight}, image[None])[0] * weights).sum()

    def one(image):
        slope = jax.grad(logit)(params[name], image)
        return jnp.moveaxis(slope, axis, 0).reshape(slope.shape[axis], -1).sum(axis=1)

    return jax.lax.map(one, images)
