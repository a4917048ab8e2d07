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
lowers("through.trunc.default", layout=ELEMENTWISE)(_passing(jnp.trunc))
lowers("through.whole.default", layout=ELEMENTWISE)(_passing(_whole))
