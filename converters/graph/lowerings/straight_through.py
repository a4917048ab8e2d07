"""Roundings as searches use them: torch's values, and gradients as if nothing were rounded.

No torch operators: `converters.graph.straight_through` puts these in the place of some.
"""

from functools import partial

import jax
import jax.numpy as jnp

from converters.graph.graph import numpy_dtype
from converters.graph.registry import ELEMENTWISE, lowers
from converters.graph.replay import cast_as_torch


def _passing(function):
    """The function of x, and maybe of static arguments after it, with a derivative of one."""
    return lambda x, *static: _valued(partial(function, *static), x)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _valued(function, x):
    return function(x)


@_valued.defjvp
def _slope(function, primals, tangents):
    return function(*primals), tangents[0]


def _clipped(x, low, high, is_relu):
    """x within the bounds of a whole type; below them it has a gradient unless that is a relu."""
    return _cut(low, high, 0.0 if is_relu else 1.0, x)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _cut(low, high, below, x):
    del below
    return jnp.clip(x, low, high)


@_cut.defjvp
def _slope_of_cut(low, high, below, primals, tangents):
    (x,), (tangent,) = primals, tangents
    return jnp.clip(x, low, high), jnp.where(x < low, below * tangent, tangent)


def _rounded(decimals, x):
    return jnp.round(x, decimals)


def _whole(name: str, x):
    whole = cast_as_torch(x, jax.dtypes.canonicalize_dtype(numpy_dtype(name)), name)
    return whole.astype(x.dtype)


lowers("through.round.default", layout=ELEMENTWISE)(_passing(jnp.round))
lowers("through.round.decimals", layout=ELEMENTWISE)(
    lambda x, decimals: _passing(_rounded)(x, decimals)
)
lowers("through.floor.default", layout=ELEMENTWISE)(_passing(jnp.floor))
lowers("through.ceil.default", layout=ELEMENTWISE)(_passing(jnp.ceil))
lowers("through.clamp.default", layout=ELEMENTWISE)(_clipped)
lowers("through.trunc.default", layout=ELEMENTWISE)(_passing(jnp.trunc))
lowers("through.whole.default", layout=ELEMENTWISE)(_passing(_whole))
