"""Runs a graph in JAX: each call through its lowering, each result checked against torch's."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from converters.errors import ConversionError, UnsupportedOperatorError
from converters.graph import registry
from converters.graph.graph import (
    CONSTANT,
    INPUT,
    PARAM,
    DType,
    Graph,
    Node,
    Ref,
    TensorSpec,
    numpy_dtype,
)
from converters.graph.layout import ChannelsLast, agree, is_array, logical
from converters.graph.opaque import Opaque, hidden_result, is_arithmetic
from converters.graph.precision import is_half

# What jax and numpy raise for arguments that they do not take.
_REFUSALS = (TypeError, ValueError, IndexError, OverflowError, NotImplementedError)

Replace = Callable[[Node, tuple[Any, ...]], tuple[Any, ...]]
"""Given a call and its positional arguments as values; returns the arguments that it gets."""

_CUT_OFF = ("int8", "int16", "int32", "uint8", "uint16")
_WIDE = ("int64", "uint64", "uint32")


def _as_they_are(node: Node, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return args


def run(
    graph: Graph,
    params: Mapping[str, Any],
    inputs: Sequence[Any],
    replace: Replace = _as_they_are,
) -> tuple[jax.Array, ...]:
    """What the network returns; pure, with `graph` static under jit.

    The floating type of the parameters (of the first floating input if there are none) takes the
    place of the type that the graph computes in, casts inside the graph included. Half precision
    in a network of float32 stays.

    Args:
      graph: as captured.
      params: torch name -> array, torch's layout, all of `graph.params`.
      inputs: arrays of the shapes of `graph.inputs`.
      replace: asked before each call for its arguments.

    Raises:
      UnsupportedOperatorError: an operator, or this form of it, has no lowering.
      ConversionError: an input has another shape than the graph.
    """
    types = _Types(graph, params, inputs)
    values: dict[str, Any] = {}
    for i, (spec, value) in enumerate(zip(graph.inputs, inputs, strict=True)):
        if tuple(value.shape) != spec.shape:
            raise ConversionError(
                f"input {i} has shape {tuple(value.shape)}, the graph was captured with "
                f"{spec.shape}; resize the input or capture the network for this shape"
            )
        values[f"{INPUT}{i}"] = jnp.asarray(value).astype(types.of(spec.dtype))
    for name, spec in graph.params:
        values[f"{PARAM}{name}"] = types.parameter(params[name], spec.dtype)
    for i, constant in enumerate(graph.constants):
        values[f"{CONSTANT}{i}"] = types.constant(constant)
    constants = Opaque()
    for node in graph.nodes:
        _call(node, values, types, replace, constants)
        constants.note(node)
    return tuple(jnp.asarray(logical(values[ref.name])) for ref in graph.outputs)


class _Types:
    """The types of a graph as this run has them."""

    def __init__(self, graph: Graph, params: Mapping[str, Any], inputs: Sequence[Any]):
        self._captured = graph.float_dtype
        values = [*(params[name] for name, _ in graph.params), *inputs]
        specs = [*(spec for _, spec in graph.params), *graph.inputs]
        pairs = zip(values, specs, strict=True)
        working = (value.dtype for value, spec in pairs if spec.dtype == self._captured)
        self._working = jax.dtypes.canonicalize_dtype(next(working, np.dtype(np.float32)))

    def of(self, name: str) -> np.dtype:
        """The type to compute in where torch has the type of that name."""
        if name == self._captured:
            return self._working
        return jax.dtypes.canonicalize_dtype(numpy_dtype(name))

    def parameter(self, value: Any, name: str) -> Any:
        """A parameter; half ones, which models hold in float32, as the network has them."""
        dtype = self.of(name)
        return jnp.asarray(value).astype(dtype) if is_half(dtype) else value

    def constant(self, constant) -> np.ndarray:
        """A static tensor, in the type of this run."""
        array, dtype = constant.array(), self.of(constant.spec.dtype)
        if array.dtype.kind in "iu" and dtype.itemsize < array.dtype.itemsize and array.size:
            info = np.iinfo(dtype)
            beyond = (array < info.min) | (array > info.max)
            # "To the end" is 2**63 - 1; in 32 bits any index beyond 2**31 is as far.
            if (beyond & (np.abs(array.astype(np.float64)) < 2.0**62)).any():
                raise ConversionError(
                    f"a constant of the graph holds {array[beyond].flat[0]}, which needs 64 bits; "
                    "run it inside `with jax.enable_x64(True)`"
                )
            array = np.clip(array, info.min, info.max)
        return array.astype(dtype)


def _call(
    node: Node, values: dict[str, Any], types: _Types, replace: Replace, constants: Opaque
) -> None:
    lowering = registry.lowering_of(node.op, node.source)
    args = _resolved(node.args, values, types)
    kwargs = {name: _resolved(value, values, types) for name, value in node.kwargs}
    if is_arithmetic(node):
        args, kwargs = _opaque(node, args, kwargs, types, constants)
    args = replace(node, args)
    try:
        results = _lowered(lowering, args, kwargs)
    except registry.Restricted as restricted:
        raise registry.unsupported(node.op, node.source, str(restricted)) from None
    except _REFUSALS as error:
        reason = f"JAX cannot compute this form of it ({type(error).__name__}: {error})"
        raise registry.unsupported(node.op, node.source, reason) from error
    results = results if isinstance(results, tuple) else (results,)
    if len(results) != len(node.outputs):
        raise _disagrees(node, f"{len(results)} results, torch has {len(node.outputs)}")
    for name, spec, result in zip(node.outputs, node.specs, results, strict=True):
        if name is not None and spec is not None:
            if result is None:
                raise _disagrees(node, "no such result")
            values[name] = hidden_result(node, result, _checked(node, spec, result, types))


def _opaque(node: Node, args: tuple, kwargs: dict, types: _Types, constants: Opaque) -> tuple:
    """The arguments of arithmetic, constant ones hidden from XLA's simplifier."""
    spec = node.specs[0]
    assert spec is not None  # it is arithmetic
    dtype, named = types.of(spec.dtype), dict(node.kwargs)
    pairs = zip(node.args, args, strict=True)
    return (
        tuple(constants.operand(given, value, dtype) for given, value in pairs),
        {name: constants.operand(named[name], value, dtype) for name, value in kwargs.items()},
    )


def _lowered(lowering: registry.Lowering, args: tuple, kwargs: dict) -> Any:
    if lowering.layout == registry.OWN:
        return lowering.function(*args, **kwargs)
    if lowering.layout == registry.LOGICAL:
        kwargs = {name: logical(value) for name, value in kwargs.items()}
        return lowering.function(*logical(args), **kwargs)
    args, last = agree(args)
    result = lowering.function(*args, **kwargs)
    return ChannelsLast(result) if last else result


def _resolved(value: Any, values: Mapping[str, Any], types: _Types) -> Any:
    if isinstance(value, Ref):
        return values[value.name]
    if isinstance(value, DType):
        return types.of(value.name)
    if isinstance(value, tuple):
        return tuple(_resolved(part, values, types) for part in value)
    return value


def _checked(node: Node, spec: TensorSpec, result: Any, types: _Types) -> Any:
    """A result in torch's type; a shape other than torch's is a fault of the lowering."""
    if not is_array(result):
        result = jnp.asarray(result)
    if tuple(result.shape) != spec.shape:
        raise _disagrees(node, f"shape {tuple(result.shape)}, torch has {spec.shape}")
    dtype = types.of(spec.dtype)
    if result.dtype == dtype:
        return result
    if isinstance(result, ChannelsLast):
        return ChannelsLast(cast_as_torch(result.array, dtype, spec.dtype))
    return cast_as_torch(result, dtype, spec.dtype)


def cast_as_torch(array: Any, dtype: np.dtype, torch_name: str) -> Any:
    """An array in another type; floating numbers beyond a whole one become what processors make.

    torch and onnxruntime convert to 32 bits, where out of range is the least number, and cut off
    higher bits; XLA would take the nearest number.
    """
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return array.astype(dtype)
    if torch_name in _WIDE:  # bounds show that numbers fit, but NaN has none
        info = np.iinfo(dtype)
        return jnp.where(jnp.isnan(array), info.min or info.max, array).astype(dtype)
    if torch_name not in _CUT_OFF:
        return array.astype(dtype)
    fits = (array >= -(2.0**31)) & (array < 2.0**31)
    return jnp.where(fits, array, -(2.0**31)).astype(np.int32).astype(dtype)


def _disagrees(node: Node, what: str) -> UnsupportedOperatorError:
    reason = f"the lowering gives {what}, so it does not cover this form of the operator"
    return registry.unsupported(node.op, node.source, reason)
