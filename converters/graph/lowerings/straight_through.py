"""Roundings and sigmoids as searches use them: torch's values, gradients as if nothing were cut.

No torch operators: `converters.graph.straight_through` puts these in the place of some.
"""

from functools import partial

import jax
import jax.numpy as jnp

from converters.graph.graph import numpy_dtype
from converters.graph.registry import ELEMENTWISE, lowers
from converters.graph.replay import cast_as_torch

_EXACT, _FULL = 4.0, 17.5
"""Logits below which float32 tells sigmoids apart, and the one of a sigmoid of 1."""
_LAST = 1 - 2.0**-24


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


def _saturated(x):
    """Logits that are as far apart as their sigmoids in float32, which are 1 from 17 on."""
    share = jax.nn.sigmoid(x)
    near = jnp.log(share) - jnp.log1p(-jnp.minimum(share, _LAST))
    return jnp.where(x < _EXACT, x, jnp.where(share < 1, near, _FULL))


lowers("through.round.default", layout=ELEMENTWISE)(_passing(jnp.round))
lowers("through.round.decimals", layout=ELEMENTWISE)(
    lambda x, decimals: _passing(_rounded)(x, decimals)
)
lowers("through.floor.default", layout=ELEMENTWISE)(_passing(jnp.floor))
lowers("through.ceil.default", layout=ELEMENTWISE)(_passing(jnp.ceil))
lowers("through.clamp.default", layout=ELEMENTWISE)(_clipped)
lowers("through.trunc.default", layout=ELEMENTWISE)(_passing(jnp.trunc))
lowers("through.whole.default", layout=ELEMENTWISE)(_passing(_whole))
lowers("through.saturated.default", layout=ELEMENTWISE)(_passing(_saturated))
lowers("through.saturated.hard", layout=ELEMENTWISE)(_passing(lambda x: jnp.clip(x, -3.0, 3.0)))
