"""What both front ends write to: names for tensors, constants, calls, and in the end a `Captured`.

torch is imported by the front ends; this file only handles the objects they bring.
"""

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.errors import TooLargeError, UnsupportedOperatorError
from converters.graph.graph import (
    CONSTANT,
    INPUT,
    PARAM,
    VALUE,
    Constant,
    DType,
    Graph,
    Node,
    Ref,
    TensorSpec,
    numpy_dtype,
    pruned,
)
from converters.graph.registry import unsupported

# Arguments that say where a tensor lies, not what is in it. All of them are keyword-only.
_PLACEMENT = {"device", "layout", "pin_memory", "memory_format", "generator", "requires_grad"}
_CONSTANT_PREFIX = "constants"
# Tables of positions and masks; those of the largest Swin take 30 MiB.
_MOST_BAKED_BYTES = 2**29


@dataclass(frozen=True)
class Captured:
    """A network as graph and parameters.

    Attributes:
      graph: the calls.
      params: torch name -> array in torch's layout, of each parameter the graph uses. It is the
        module's own memory where torch allows that: a module that is trained on changes it.
      unused: names of the module's floating tensors that the output does not depend on.
      output_names: of the outputs where the module names them, with dots for parts of parts; the
        numbers of those that have none.
    """

    graph: Graph
    params: Mapping[str, np.ndarray]
    unused: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()


class Recorder:
    """Collects a graph while a front end walks through a network.

    A value is known by the identity of the object that stands for it. Inputs, weights and constants
    are kept alive; a result is forgotten as soon as the network itself drops it, so that the
    results of a whole run do not lie in memory at once.
    """

    def __init__(self):
        self.inputs: list[TensorSpec] = []
        self.tensors: dict[str, Any] = {}
        self.constants: list[Constant] = []
        self.nodes: list[Node] = []
        self._names: dict[int, str] = {}
        self._depends: dict[str, frozenset[int]] = {}
        self._baked: dict[tuple[int, int], str] = {}
        self._baked_bytes = 0
        self._alive: list[Any] = []
        self._seen: dict[int, weakref.ref] = {}

    def bind(self, value: Any, name: str, depends: frozenset[int] = frozenset()) -> None:
        """From now on the object `value`, which is kept alive, is the graph's value `name`."""
        self._alive.append(value)
        self._names[id(value)] = name
        self._depends[name] = depends

    def bind_result(self, value: Any, name: str, depends: frozenset[int] = frozenset()) -> None:
        """The same for as long as anybody else holds `value`; its identity is free afterwards."""
        key = id(value)

        def forget(_: weakref.ref) -> None:
            self._names.pop(key, None)
            self._seen.pop(key, None)

        self._seen[key] = weakref.ref(value, forget)
        self._names[key] = name
        self._depends[name] = depends

    def add_input(self, value: Any, spec: TensorSpec) -> None:
        """The next input of the graph; `value` stands for it."""
        number = len(self.inputs)
        self.inputs.append(spec)
        self.bind(value, f"{INPUT}{number}", frozenset({number}))

    def add_param(self, name: str, tensor: Any, value: Any = None) -> None:
        """A floating tensor of the network; `value` stands for it where that is another object."""
        self.tensors[name] = tensor
        self.bind(tensor if value is None else value, f"{PARAM}{name}")

    def name_of(self, value: Any) -> str | None:
        """The graph's name of an object; None if the graph does not compute it."""
        return self._names.get(id(value))

    def depends(self, value: Any) -> frozenset[int]:
        """Numbers of the inputs that a value depends on."""
        name = self.name_of(value)
        return frozenset() if name is None else self._depends[name]

    def bake(self, tensor: Any) -> Ref:
        """A tensor that no input and no parameter decides, as it is now.

        Floating ones of several elements become parameters, for they may be weights, unless all
        elements are the same; the rest (indices, masks, single numbers) is static.
        """
        key = (id(tensor), tensor._version)
        if key not in self._baked:
            self._alive.append(tensor)
            self._baked[key] = self._baked_name(tensor, host_array(tensor))
            self._depends[self._baked[key]] = frozenset()
        return Ref(self._baked[key])

    def _baked_name(self, tensor: Any, array: np.ndarray) -> str:
        spec = spec_of(tensor)
        self._baked_bytes += array.nbytes
        if self._baked_bytes > _MOST_BAKED_BYTES:
            raise TooLargeError(
                f"the constants that the network computes take more than {_MOST_BAKED_BYTES} bytes,"
                " the most that is allowed; export the network with them as weights, or for smaller"
                " pictures"
            )
        if "float" not in spec.dtype or array.size <= 1:
            return self.bake_array(array).name
        first = array.reshape(-1)[0]
        if (array == first).all():
            kwargs = (("dtype", DType(spec.dtype)),)
            args = (spec.shape, float(first))
            return self.add_node("aten.full.default", args, kwargs, [spec], frozenset(), "")[0]
        name = self._fresh_name()
        self.tensors[name] = tensor.detach().clone()
        return f"{PARAM}{name}"

    def bake_array(self, array: np.ndarray) -> Ref:
        """A static array."""
        self.constants.append(Constant(TensorSpec(array.shape, str(array.dtype)), array.tobytes()))
        return Ref(f"{CONSTANT}{len(self.constants) - 1}")

    def _fresh_name(self) -> str:
        taken = sum(name.startswith(f"{_CONSTANT_PREFIX}.") for name in self.tensors)
        while f"{_CONSTANT_PREFIX}.{taken}" in self.tensors:
            taken += 1
        return f"{_CONSTANT_PREFIX}.{taken}"

    def add_node(self, op, args, kwargs, specs, depends, source) -> list[str]:
        """Append a call with encoded arguments; names of its results."""
        count = len(self._depends)
        names = [f"{VALUE}{count}.{i}" for i in range(len(specs))]
        self._depends.update({name: depends for name in names})
        outputs = tuple(None if s is None else n for n, s in zip(names, specs, strict=True))
        self.nodes.append(Node(op, args, kwargs, outputs, tuple(specs), source))
        return names

    def finish(self, outputs: list[Ref], names: tuple[str, ...] = ()) -> Captured:
        """The graph of these outputs; `names` are the module's tensors, to tell the unused."""
        params = tuple((name, spec_of(tensor)) for name, tensor in self.tensors.items())
        graph = pruned(
            Graph(
                tuple(self.inputs), params, tuple(self.constants), tuple(self.nodes), tuple(outputs)
            )
        )
        used = {name: host_array(self.tensors[name]) for name, _ in graph.params}
        return Captured(graph, used, tuple(name for name in names if name not in used))


def dtype_name(dtype: Any) -> str:
    """numpy's name of a torch type.

    Raises:
      UnsupportedOperatorError: it has none that XLA computes with.
    """
    name = str(dtype).removeprefix("torch.")
    try:
        return numpy_dtype(name).name
    except (TypeError, AttributeError):
        raise unsupported(name, "", f"tensors of type {name} cannot be computed with") from None


def spec_of(tensor: Any) -> TensorSpec:
    """Shape and type of a torch tensor."""
    return TensorSpec(tuple(int(n) for n in tensor.shape), dtype_name(tensor.dtype))


def host_array(tensor: Any) -> np.ndarray:
    """A torch tensor as a numpy array, without a copy where torch allows it."""
    import torch

    tensor = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg()
    dtype = numpy_dtype(dtype_name(tensor.dtype))
    if dtype.kind != "V" and dtype.name not in ("bfloat16",):
        return tensor.numpy()
    raw = {1: torch.uint8, 2: torch.int16}[dtype.itemsize]
    return tensor.view(raw).numpy().view(dtype)


def call_arguments(func: Any, args: tuple, kwargs: Mapping[str, Any], encode) -> tuple:
    """Positional and keyword arguments of an ATen call as its schema lists them.

    Args:
      func: the operator, with `_schema`.
      args: as called, trailing defaults left out.
      kwargs: as called.
      encode: turns one argument into what a `Node` holds.
    """
    positional, keywords = [], []
    for i, argument in enumerate(func._schema.arguments):
        if argument.kwarg_only and argument.name in _PLACEMENT:
            continue
        if i < len(args) and not argument.kwarg_only:
            value = args[i]
        else:
            value = kwargs.get(argument.name, argument.default_value)
        if argument.kwarg_only:
            keywords.append((argument.name, encode(value)))
        else:
            positional.append(encode(value))
    return tuple(positional), tuple(keywords)


def encode_plain(value: Any, operator: str, source: str) -> Any:
    """An argument that is no tensor, as a `Node` holds it.

    Raises:
      UnsupportedOperatorError: a kind of argument that no lowering could take.
    """
    import torch

    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, torch.dtype):
        return DType(dtype_name(value))
    if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
        return None
    raise _strange(value, operator, source)


def _strange(value: Any, operator: str, source: str) -> UnsupportedOperatorError:
    kind = type(value).__name__
    return unsupported(operator, source, f"an argument is of type {kind}, expected plain values")
