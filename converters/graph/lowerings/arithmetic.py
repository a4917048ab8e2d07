"""Arithmetic on single elements: one argument, two arguments, and the fused forms."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from converters.graph.lowerings.comparison import promoted
from converters.graph.registry import ELEMENTWISE, Restricted, lowers

_UNARY = {
    "abs": jnp.abs,
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "angle": jnp.angle,
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atanh": jnp.arctanh,
    "ceil": jnp.ceil,
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "deg2rad": jnp.deg2rad,
    "digamma": jax.scipy.special.digamma,
    "erf": jax.scipy.special.erf,
    "erfc": jax.scipy.special.erfc,
    "erfinv": jax.scipy.special.erfinv,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "floor": jnp.floor,
    "lgamma": jax.scipy.special.gammaln,
    "log": jnp.log,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "neg": jnp.negative,
    "positive": jnp.positive,
    "rad2deg": jnp.rad2deg,
    "reciprocal": jnp.reciprocal,
    "round": jnp.round,
    "rsqrt": lambda x: lax.rsqrt(_floating(x)),
    "sin": jnp.sin,
    "sinc": jnp.sinc,
    "sinh": jnp.sinh,
    "square": jnp.square,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
    "trunc": jnp.trunc,
}
_BINARY = {
    "atan2": jnp.arctan2,
    "copysign": jnp.copysign,
    "fmax": promoted(jnp.fmax),
    "fmin": promoted(jnp.fmin),
    "gcd": promoted(jnp.gcd),
    "heaviside": lambda x, at_0: jnp.where(x == 0, at_0, (x > 0).astype(x.dtype)),
    "hypot": jnp.hypot,
    "lcm": promoted(jnp.lcm),
    "logaddexp": jnp.logaddexp,
    "logaddexp2": jnp.logaddexp2,
    "maximum": promoted(jnp.maximum),
    "minimum": promoted(jnp.minimum),
    "nextafter": jnp.nextafter,
}

_AT_0 = "gradient 0 at 0, where torch's is infinite"

for _name, _function in {**_UNARY, **_BINARY}.items():
    lowers(f"aten.{_name}.default", layout=ELEMENTWISE)(_function)


@lowers("aten.sqrt.default", layout=ELEMENTWISE, restriction=_AT_0)
def square_root(x):
    """The square root, see `rooted`."""
    return rooted(jnp.sqrt, x, x)


def rooted(root, x, zero):
    """`root(x)`, and `zero` where x is 0; the gradient there is 0, where torch's is infinite.

    Steps back through it are 0 times infinity, no number, of all that is constant (the deviation
    of a blank picture, the norm of a black pixel): torch knows these as one operator and gives
    them 0, but exports write their parts.
    """
    is_zero = x == 0
    found = root(jnp.where(is_zero, 1, x))
    return jnp.where(is_zero, lax.stop_gradient(zero), found).astype(found.dtype)


@lowers("aten.sign.default", "aten.sgn.default", layout=ELEMENTWISE)
def sign(x):
    """-1, 0 or 1; 0 of what is not a number, as torch has it."""
    return jnp.where(jnp.isnan(x), 0, jnp.sign(x))


lowers("aten.absolute.default", layout=ELEMENTWISE)(jnp.abs)
lowers("aten.mul.Tensor", "aten.mul.Scalar", layout=ELEMENTWISE)(jnp.multiply)
lowers("aten.copysign.Tensor", "aten.copysign.Scalar", layout=ELEMENTWISE)(jnp.copysign)


def _floating(x):
    return jnp.asarray(x, jnp.result_type(x, jnp.float32)) if x.dtype.kind in "biu" else x


def _times(alpha, x):
    return x if isinstance(alpha, (int, float)) and alpha == 1 else alpha * x


@lowers("aten.add.Tensor", "aten.add.Scalar", layout=ELEMENTWISE)
def add(x, y, alpha=1):
    """x + alpha y."""
    return jnp.add(x, _times(alpha, y))


@lowers("aten.sub.Tensor", "aten.sub.Scalar", layout=ELEMENTWISE)
def subtract(x, y, alpha=1):
    """x - alpha y."""
    return jnp.subtract(x, _times(alpha, y))


@lowers("aten.rsub.Scalar", "aten.rsub.Tensor", layout=ELEMENTWISE)
def subtract_from(x, y, alpha=1):
    """y - alpha x."""
    return jnp.subtract(y, _times(alpha, x))


@lowers("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", layout=ELEMENTWISE)
def divide(x, y):
    """x / y."""
    return jnp.true_divide(x, y)


@lowers("aten.div.Tensor_mode", "aten.div.Scalar_mode", layout=ELEMENTWISE)
def divide_rounding(x, y, rounding_mode):
    """x / y, rounded down or towards zero."""
    if rounding_mode is None:
        return jnp.true_divide(x, y)
    return _rounded(x, y, rounding_mode)


@promoted
def _rounded(x, y, rounding_mode):
    if rounding_mode == "floor":
        return jnp.floor_divide(x, y)
    if jnp.result_type(x, y).kind in "iu":
        return _truncated(x, y)
    return jnp.trunc(jnp.true_divide(x, y))


def _truncated(x, y):
    dtype = jnp.result_type(x, y)
    x, y = jnp.broadcast_arrays(jnp.asarray(x, dtype), jnp.asarray(y, dtype))
    return lax.div(x, y)


@lowers("aten.floor_divide.default", "aten.floor_divide.Scalar", layout=ELEMENTWISE)
@promoted
def floor_divide(x, y):
    """x / y, rounded down."""
    return jnp.floor_divide(x, y)


@lowers(
    "aten.remainder.Tensor",
    "aten.remainder.Scalar",
    "aten.remainder.Scalar_Tensor",
    layout=ELEMENTWISE,
)
@promoted
def remainder(x, y):
    """x modulo y, with the sign of y."""
    return jnp.remainder(x, y)


@lowers("aten.fmod.Tensor", "aten.fmod.Scalar", layout=ELEMENTWISE)
@promoted
def fmod(x, y):
    """x modulo y, with the sign of x."""
    return jnp.fmod(x, y)


@lowers("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar", layout=ELEMENTWISE)
@promoted
def power(x, y):
    """x to the power y."""
    if isinstance(y, float) and y == 0.5:
        return square_root(x)
    if isinstance(y, float) and 0 < y < 1:
        return rooted(lambda base: jnp.power(base, y), x, 0.0)
    # A whole exponent becomes multiplications, and has a gradient at zero and below.
    whole = isinstance(y, float) and y.is_integer() and abs(y) < 64
    if whole:
        return jnp.power(_floating(x), int(y))
    if not jnp.issubdtype(jnp.result_type(x, y), jnp.signedinteger):
        return jnp.power(x, y)
    found = jnp.power(x, jnp.maximum(y, 0))  # JAX refuses constants below 0
    inverse = jnp.where(x == 1, 1, jnp.where(x == -1, jnp.where(y % 2 == 0, 1, -1), 0))
    return jnp.where(y < 0, inverse.astype(found.dtype), found)


@lowers("aten.round.decimals", layout=ELEMENTWISE)
def round_decimals(x, decimals):
    """x rounded to so many decimals, halves to even."""
    return jnp.round(x, decimals)


@lowers("aten.frac.default", layout=ELEMENTWISE)
def fraction(x):
    """What trunc leaves of x."""
    return x - jnp.trunc(x)


@lowers("aten.addcmul.default", layout=ELEMENTWISE)
def add_product(x, a, b, value):
    """x + value a b."""
    return x + value * (a * b)


@lowers("aten.addcdiv.default", layout=ELEMENTWISE)
def add_quotient(x, a, b, value):
    """x + value a / b."""
    return x + value * (a / b)


@lowers("aten.lerp.Tensor", "aten.lerp.Scalar", layout=ELEMENTWISE)
def interpolate(x, y, weight):
    """x + weight (y - x)."""
    return x + weight * (y - x)


@lowers("aten.xlogy.Tensor", "aten.xlogy.Scalar_Other", layout=ELEMENTWISE)
def x_log_y(x, y):
    """x log y, zero where x is."""
    return jax.scipy.special.xlogy(x, y)


@lowers("aten.nan_to_num.default", layout=ELEMENTWISE)
def nan_to_num(x, nan, posinf, neginf):
    """x with NaN and infinities replaced."""
    return jnp.nan_to_num(x, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


@lowers("aten.logit.default", layout=ELEMENTWISE)
def logit(x, eps):
    """log(x / (1 - x)), x kept within [eps, 1 - eps]."""
    x = x if eps is None else jnp.clip(x, eps, 1 - eps)
    return jnp.log(x / (1 - x))


@lowers("aten.bitwise_left_shift.Tensor", "aten.__lshift__.Tensor", layout=ELEMENTWISE)
def shift_left(x, y):
    """x times two to the power y."""
    return jnp.left_shift(x, y)


@lowers("aten.bitwise_right_shift.Tensor", "aten.__rshift__.Tensor", layout=ELEMENTWISE)
def shift_right(x, y):
    """x by two to the power y, rounded down."""
    return jnp.right_shift(x, y)


@lowers("aten.bitwise_right_shift.Tensor_Scalar", "aten.__rshift__.Scalar", layout=ELEMENTWISE)
def shift_right_by(x, y: int):
    """x by two to the power y, rounded down; by the width or more all bits are the sign's."""
    bits = np.iinfo(x.dtype).bits
    return jnp.right_shift(x, y if 0 <= y < bits else bits - 1)


@lowers(
    "aten.bitwise_left_shift.Tensor_Scalar",
    "aten.__lshift__.Scalar",
    layout=ELEMENTWISE,
    restriction="by fewer bits than it has",
)
def shift_left_by(x, y: int):
    """x times two to the power y."""
    if not 0 <= y < np.iinfo(x.dtype).bits:
        raise Restricted(f"a shift by {y} bits")
    return jnp.left_shift(x, y)
