"""Which parameter of a network its last layer reads the features by."""

import numpy as np

from converters.graph.last_layer import linear_tail
from converters.graph.module import GraphConfig, attribute_of
from converters.model import Model


def last_weight(model: Model) -> tuple[str, int] | None:
    """Flat path of the weight, and the axis of its features; None where no parameter is it.

    Of linear layers in a row it is that of the first: those behind it only mix what it gives.
    """
    network = model.config.core
    if isinstance(network, GraphConfig) and len(factors := linear_tail(network.graph)) > 1:
        return attribute_of(factors[-1].name), int(factors[-1].has_outputs_first)
    rows = model.last_layer()
    if rows is None:
        return None
    rows = rows[rows.any(axis=1)]  # beside a network's one output there is a row of zeros
    same_size = {n: v for n, v in model.params.items() if v.size == rows.size and v.ndim > 1}
    found = ((name, _features_of(np.asarray(v, np.float64), rows)) for name, v in same_size.items())
    return next(((name, axis) for name, axis in found if axis is not None), None)


def _features_of(array: np.ndarray, rows: np.ndarray) -> int | None:
    """The axis of the features, where an array holds exactly these rows `[classes, features]`."""
    if len(rows) == 1 and np.array_equal(array.ravel(), rows[0]):
        return int(np.argmax(array.shape))
    wide = [axis for axis, size in enumerate(array.shape) if size != 1]
    flat = array.reshape([array.shape[axis] for axis in wide] or [1])
    for turned, place in ((flat, 1), (flat.T, 0)):
        if turned.shape == rows.shape and np.array_equal(turned, rows):
            return wide[place]
    return None
