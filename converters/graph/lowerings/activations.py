"""Activations. Gradients at kinks are torch's: relu has 0 at 0, hardtanh 0 at its bounds.

What is not a number stays so: comparisons with it are false, so it goes where none holds.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax

from converters.graph.layout import ChannelsLast, axis_of, logical
from converters.graph.lowerings.comparison import clamp
from converters.graph.precision import as_type, widened
from converters.graph.registry import ELEMENTWISE, OWN, Restricted, lowers

# jnp.maximum(x, 0) would have gradient 0.5 at 0, and is slower.
lowers("aten.relu.default", layout=ELEMENTWISE)(jax.nn.relu)
lowers("aten.sigmoid.default", layout=ELEMENTWISE)(jax.nn.sigmoid)
lowers("aten.silu.default", layout=ELEMENTWISE)(jax.nn.silu)


@lowers("aten.hardtanh.default", layout=ELEMENTWISE)
def hardtanh(x, low, high):
    """x within bounds."""
    return clamp(x, low, high).astype(x.dtype)


@lowers("aten.relu6.default", layout=ELEMENTWISE)
def relu6(x):
    """x within [0, 6]."""
    return hardtanh(x, 0.0, 6.0)


@lowers("aten.leaky_relu.default", layout=ELEMENTWISE)
def leaky_relu(x, slope):
    """x where positive, else slope x."""
    return jnp.where(x > 0, x, slope * x)


@lowers("aten._prelu_kernel.default", layout=ELEMENTWISE)
def prelu_kernel(x, slope):
    """x where positive, else slope x; the slopes broadcast already."""
    return jnp.where(x > 0, x, slope * x)


@lowers("aten.prelu.default")
def prelu(x, slope):
    """x where positive, else slope x, one slope or one per channel."""
    channels = (1, -1, *(1,) * (x.ndim - 2)) if x.ndim > 1 else (-1,)
    return jnp.where(x > 0, x, slope.reshape(channels if slope.size > 1 else ()) * x)


@lowers("aten.rrelu_with_noise.default", layout=ELEMENTWISE, restriction="evaluation only")
def rrelu(x, noise, lower, upper, training, generator=None):
    """Leaky relu with the mean of the slopes drawn in training."""
    del noise, generator
    if training:
        raise Restricted("random slopes of training")
    return leaky_relu(x, (lower + upper) / 2)


@lowers("aten.elu.default", layout=ELEMENTWISE)
def elu(x, alpha, scale, input_scale):
    """scale x where positive, else scale alpha (exp(input_scale x) - 1)."""
    # The unused side must not overflow, or its gradient is not a number.
    negative = alpha * jnp.expm1(jnp.where(x > 0, 0.0, x) * input_scale)
    return scale * jnp.where(x > 0, x, negative)


@lowers("aten.celu.default", layout=ELEMENTWISE)
def celu(x, alpha):
    """x where positive, else alpha (exp(x / alpha) - 1)."""
    return elu(x, alpha, 1.0, 1.0 / alpha)


@lowers("aten.selu.default", layout=ELEMENTWISE)
def selu(x):
    """The self-normalising elu."""
    return elu(x, 1.6732632423543772, 1.0507009873554805, 1.0)


@lowers("aten.gelu.default", layout=ELEMENTWISE)
def gelu(x, approximate):
    """x times the normal distribution function of x, exactly or through tanh.

    In torch's way, which is 0 far below 0, where 1 + erf is: erfc would keep something there.
    """
    if approximate == "tanh":
        return jax.nn.gelu(x, approximate=True)
    return (x * 0.5 * (1 + lax.erf(x * math.sqrt(0.5)))).astype(x.dtype)


@lowers("aten.mish.default", layout=ELEMENTWISE)
def mish(x):
    """x tanh(softplus(x))."""
    return x * jnp.tanh(jax.nn.softplus(x))


@lowers("aten.hardswish.default", layout=ELEMENTWISE)
def hardswish(x):
    """x relu6(x + 3) / 6; its gradient is 0 at -3 and 1 at 3."""
    # Of minus infinity the product is not a number, as in torch; nothing goes back through it.
    low = lax.stop_gradient(x) * 0.0
    return jnp.where(x <= -3, low, jnp.where(x < 3, x * (x + 3) / 6, x)).astype(x.dtype)


@lowers("aten.hardsigmoid.default", layout=ELEMENTWISE)
def hardsigmoid(x):
    """relu6(x + 3) / 6."""
    return hardtanh(x + 3, 0.0, 6.0) / 6


@lowers("aten.softplus.default", layout=ELEMENTWISE)
def softplus(x, beta, threshold):
    """log(1 + exp(beta x)) / beta, x itself beyond the threshold."""
    return jnp.where(x * beta > threshold, x, jax.nn.softplus(x * beta) / beta)


@lowers("aten.log_sigmoid.default", layout=ELEMENTWISE)
def log_sigmoid(x):
    """Logarithm of the logistic function."""
    return jax.nn.log_sigmoid(x)


@lowers("aten.log_sigmoid_forward.default")
def log_sigmoid_forward(x):
    """The same with torch's buffer, which nothing here reads."""
    return jax.nn.log_sigmoid(x), jnp.zeros((0,), x.dtype)


@lowers("aten.threshold.default", layout=ELEMENTWISE)
def threshold(x, limit, value):
    """x where above the limit, else a value."""
    return jnp.where(x <= limit, jnp.asarray(value, x.dtype), x)


@lowers("aten.softshrink.default", layout=ELEMENTWISE)
def softshrink(x, limit):
    """x moved towards zero by the limit, zero within it."""
    moved = jnp.where(x < 0, x + limit, x - limit)
    return jnp.where(jnp.abs(x) <= limit, 0.0, moved).astype(x.dtype)


@lowers("aten.hardshrink.default", layout=ELEMENTWISE)
def hardshrink(x, limit):
    """x, zero within the limit."""
    return jnp.where(jnp.abs(x) <= limit, 0.0, x).astype(x.dtype)


@lowers("aten.glu.default")
def glu(x, dim):
    """First half times the logistic function of the second."""
    first, second = jnp.split(x, 2, axis=dim)
    return first * jax.nn.sigmoid(second)


@lowers(
    "aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default", layout=OWN
)
def dropout(x, p, train):
    """x itself, as in evaluation."""
    del p
    if train:
        raise Restricted("it is random in training")
    return x


@lowers("aten.native_dropout.default")
def native_dropout(x, p, train):
    """x itself and a mask of ones, as in evaluation."""
    del p
    if train:
        raise Restricted("it is random in training")
    return x, jnp.ones(x.shape, bool)


def _along(function, x, dim):
    """A function over one axis, in whatever layout x has."""
    if isinstance(x, ChannelsLast):
        return ChannelsLast(function(x.array, axis_of(dim, x.ndim)))
    x = logical(x)
    return function(x, dim) if x.ndim else function(x.reshape(1), 0).reshape(())


@lowers("aten.softmax.int", layout=OWN)
def softmax(x, dim, dtype=None):
    """Softmax over one dimension, of x in that type."""
    return _along(jax.nn.softmax, widened(as_type(x, dtype)), dim)


@lowers("aten.log_softmax.int", layout=OWN)
def log_softmax(x, dim, dtype=None):
    """Logarithm of the softmax over one dimension, of x in that type."""
    return _along(jax.nn.log_softmax, widened(as_type(x, dtype)), dim)


@lowers("aten._softmax.default", layout=OWN)
def softmax_kernel(x, dim, half_to_float):
    """Softmax as torch's kernel is called; its result may be float32 of half numbers."""
    del half_to_float
    return softmax(x, dim)


@lowers("aten._log_softmax.default", layout=OWN)
def log_softmax_kernel(x, dim, half_to_float):
    """Its logarithm, called in the same way."""
    del half_to_float
    return log_softmax(x, dim)
