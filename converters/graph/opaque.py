"""Numbers and results that XLA may not see through, since its simplifier counts as on paper.

XLA computes `(x + a) - a` as `x`, `log(exp(x))` as `x` and `exp(a) exp(b)` as `exp(a + b)`. In
float32 these are not equal, and torch and onnxruntime compute step by step: behind such operators a
file could hide a second network from the scan. So what is constant stands behind a barrier where it
meets a value in arithmetic, and results that the simplifier undoes, joins with others or makes a
choice of stand behind one, too. Barriers end before code is made: numbers are fused as before.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax

from converters.graph.graph import CONSTANT, Node, Ref
from converters.graph.layout import ChannelsLast, is_array
from converters.graph.precision import is_half
from converters.graph.structure import base_name

_ARITHMETIC = frozenset("add sub rsub mul div true_divide addcmul addcdiv lerp".split())
_UNDONE = frozenset(
    "exp exp2 expm1 log log2 log10 log1p pow div true_divide reciprocal sqrt rsqrt addcdiv".split()
)
_MADE = ("full", "zeros", "ones", "new_", "fill", "scalar_tensor", "arange", "linspace", "empty")
_EXACT = (0.0, 1.0, -1.0)


class Opaque:
    """Which values of a graph are constant, as its nodes are run in order."""

    def __init__(self) -> None:
        self._constant: set[str] = set()

    def operand(self, given: Any, value: Any, dtype: Any) -> Any:
        """An operand of floating arithmetic, behind a barrier where it is constant.

        Args:
            given: the argument as the graph has it.
            value: what it is.
            dtype: of the result.
        """
        if not isinstance(given, Ref):
            return number(value, dtype)
        if value.dtype == jnp.bool_:
            return hidden(_cast(value, dtype))
        return hidden(value) if self._is_constant(given) else value

    def note(self, node: Node) -> None:
        """Remember what a node makes where nothing that varies goes in, or only for its shape."""
        refs = [Ref(name) for name in node.refs()]
        varying = refs[1:] if base_name(node).startswith(_MADE) else refs
        if all(map(self._is_constant, varying)):
            self._constant.update(name for name in node.outputs if name is not None)

    def _is_constant(self, ref: Ref) -> bool:
        return ref.name.startswith(CONSTANT) or ref.name in self._constant


def is_arithmetic(node: Node) -> bool:
    """Whether a call is arithmetic of floating numbers that the simplifier orders anew."""
    spec = node.specs[0] if node.specs else None
    return base_name(node) in _ARITHMETIC and spec is not None and "float" in spec.dtype


def number(value: Any, dtype: Any) -> Any:
    """A Python number of arithmetic behind a barrier; all else, and exact ones, as they are."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value in _EXACT:
        return value
    # Of half precision torch takes a number in float32, and rounds the result alone.
    wide = jnp.float32 if is_half(dtype) else dtype
    return lax.optimization_barrier(jnp.asarray(value, wide))


def hidden_result(node: Node, made: Any, value: Any) -> Any:
    """A result in its type, behind a barrier where the simplifier would undo or join it.

    Args:
        node: the call.
        made: what its lowering made; of truths that become numbers the simplifier makes a choice,
            which is 0 where a product with them is not a number.
        value: the same in the type of the result.
    """
    is_truth = is_array(made) and made.dtype == jnp.bool_
    return hidden(value) if is_truth or base_name(node) in _UNDONE else value


def hidden(value: Any) -> Any:
    """A floating array behind a barrier."""
    if not is_array(value) or not jnp.issubdtype(value.dtype, jnp.floating):
        return value
    if isinstance(value, ChannelsLast):
        return ChannelsLast(lax.optimization_barrier(value.array))
    return lax.optimization_barrier(jnp.asarray(value))


def _cast(value: Any, dtype: Any) -> Any:
    if isinstance(value, ChannelsLast):
        return ChannelsLast(value.array.astype(dtype))
    return value.astype(dtype)
