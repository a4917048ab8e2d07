"""Bare pickles of NumPy arrays, as tools other than torch write state dicts, changed."""

import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from benchmarks.reading.differential import containers, states
from benchmarks.reading.differential.draw import Random, one
from benchmarks.reading.differential.seeds import network


@cache
def _arrays() -> dict[str, np.ndarray]:
    state = network("shufflenet").state_dict()
    return {name: tensor.numpy() for name, tensor in state.items()}


def mutant(random: Random) -> tuple[bytes, str]:
    """A pickled dict of arrays with changes to the dict, an array, or the operations."""
    state: Any = dict(_arrays())
    names: list[str] = []
    for _ in range(int(random.choice((1, 1, 2)))):
        change = one(CHANGES, random)
        if isinstance(state, dict) and state:
            state = change(state, random)
            names.append(change.__name__.strip("_"))
    content = pickle.dumps(state, int(random.integers(6)))
    if random.random() < 0.4:
        content = containers.operations(content, random)
        names.append("operations")
    if random.random() < 0.06:
        content += one((b"\0", content, b"N.", pickle.dumps(_arrays(), 2)), random)
        names.append("tail")
    return content, "+".join(names)


def _array(state: dict, random: Random) -> dict:
    """An array of another type, byte order, layout or class."""
    key = list(state)[int(random.integers(len(state)))]
    if not isinstance(state[key], np.ndarray):
        return state
    forms: tuple[Callable[[np.ndarray], Any], ...] = (
        lambda a: a.astype(np.float16), lambda a: a.astype(np.float64), lambda a: a.astype("i4"),
        lambda a: a.astype(a.dtype.newbyteorder()), lambda a: np.asfortranarray(a),
        lambda a: a.T, lambda a: a[::-1] if a.ndim else a, lambda a: a.astype(bool),
        lambda a: a.astype(np.uint8), lambda a: a.astype(np.complex64), lambda a: a.tolist(),
        lambda a: a.reshape(-1)[0] if a.size else a, lambda a: a.astype(object),
        lambda a: a.astype("U8"), lambda a: a[:0] if a.ndim else a, lambda a: a[..., None],
        lambda a: np.ma.masked_array(a, a > 0), lambda a: np.broadcast_to(a, (2, *a.shape)),
        lambda a: a.view([("x", a.dtype)]) if a.ndim else a, lambda a: a.astype(np.longdouble),
        lambda a: np.asarray(a.ravel()[:1], "M8[s]"), lambda a: a.astype("f4").view(np.recarray),
        lambda a: a.reshape(a.shape[::-1], order="F"), lambda a: a.astype(np.int64),
    )  # fmt: skip
    return {**state, key: one(forms, random)(state[key])}


CHANGES: tuple[Callable[[dict, Random], Any], ...] = (
    *(states.reorder, states.rename, states.alias, states.prefix, states.nest),
    *(_array, _array, _array, _array, _array),
)
