"""torch.export's programs as graphs, call by call; whole layers stay one call each.

A program whose shapes are symbols, or that contains more than ATen calls, is run on the tape.
"""

import math
import operator
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram, default_decompositions
from torch.export.graph_signature import InputKind, OutputKind

from converters.errors import ConversionError, ConverterError, safe_repr
from converters.graph import registry
from converters.graph.aten_calls import UNWRITTEN, WHOLE, refuse_random
from converters.graph.export_inputs import (
    check_inputs,
    example_inputs_of,
    placeholders,
    same_shapes,
)
from converters.graph.graph import Ref
from converters.graph.guard import SizeGuard, WorkLimits, bounded
from converters.graph.kernels import KernelGuard, require_known
from converters.graph.memory import STATE, refuse_layouts
from converters.graph.recorder import (
    Captured,
    Recorder,
    call_arguments,
    encode_plain,
    spec_of,
)
from converters.graph.results import ResultGuard
from converters.graph.tape import traced

_LAYERS: dict[Any, Any] = {
    WHOLE[name]: getattr(torch, name)
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu", "bilinear")
}


def from_exported(
    program: ExportedProgram, example_inputs: Sequence[torch.Tensor] | None = None
) -> Captured:
    """The graph of an exported program.

    Args:
      program: made by `torch.export.export(..., strict=False)` from a module in evaluation mode.
      example_inputs: shapes to convert it for; those it was exported with (1 where they are
        symbols) if not given.

    Raises:
      UnsupportedOperatorError: an operator has no lowering, or a call depends on how a tensor lies
        in memory.
      ConversionError: the program changes its own state or its inputs.
    """
    require_known(_called(program))
    refuse_layouts(program)
    inputs = example_inputs_of(program) if example_inputs is None else list(example_inputs)
    check_inputs(program, inputs)
    try:
        with ResultGuard(WorkLimits().calls), KernelGuard():
            functional = program.run_decompositions(_decompositions())
        # Before this, writes are calls like any other.
        _refuse_mutation(functional)
        refuse_layouts(functional)
        with SizeGuard(WorkLimits(), _weight_bytes(functional)) as guard, KernelGuard():
            if _is_plain(functional) and same_shapes(functional, inputs):
                captured = _Reader(functional, guard).captured()
            else:
                captured = _on_tape(program, inputs)
    except ConverterError as error:
        error.args = (_own_words(error),)
        raise
    except MemoryError:
        raise
    except Exception as error:  # torch and sympy raise whatever a hostile program leads them to
        raise ConversionError(
            f"torch cannot run the exported program: {type(error).__name__}: "
            f"{safe_repr(_own_words(error)[:300])}"
        ) from error
    registry.require(captured.graph)
    return captured


def _called(program: ExportedProgram) -> list[torch._ops.OpOverload]:
    """The operators that a program calls."""
    targets = dict.fromkeys(node.target for node in program.graph.nodes)
    return [target for target in targets if isinstance(target, torch._ops.OpOverload)]


def _own_words(error: Exception) -> str:
    """Its message without what torch.fx writes behind it: the call, and no traceback."""
    return re.split(r"(?:\n|\\n)*While executing ", str(error), maxsplit=1)[0]


def _weight_bytes(program: ExportedProgram) -> int:
    tensors = [*program.state_dict.values(), *program.constants.values()]
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))


def _decompositions() -> dict:
    """torch's definitions of those operators that have no lowering."""
    known = default_decompositions().items()
    return {op: function for op, function in known if not registry.is_supported(str(op))}


def _refuse_mutation(program: ExportedProgram) -> None:
    kinds = {spec.kind: spec.target for spec in program.graph_signature.output_specs}
    changed = [target for kind, target in kinds.items() if kind != OutputKind.USER_OUTPUT]
    if changed:
        raise ConversionError(
            f"the exported program changes {changed[0]} while it runs; export the module in "
            "evaluation mode, without state between inputs"
        )


def _is_plain(program: ExportedProgram) -> bool:
    """Whether every call is an ATen operator on static shapes."""
    for node in program.graph.nodes:
        if node.op == "call_function":
            call = isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem
            if not call or _is_symbolic(node.meta.get("val")):
                return False
        elif node.op not in ("placeholder", "output"):
            return False
    return True


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_is_symbolic, value))
    if isinstance(value, torch.Tensor):
        return not all(isinstance(n, int) for n in value.shape)
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _tensor(program: ExportedProgram, name: str) -> torch.Tensor:
    found = program.state_dict.get(name, program.constants.get(name))
    if not isinstance(found, torch.Tensor):
        raise ConversionError(f"the exported program has no tensor {name}; export it again")
    return found


def _on_tape(program: ExportedProgram, inputs: list[torch.Tensor]) -> Captured:
    """The graph of a program that has to be run to be known."""
    state = {
        str(spec.target): _tensor(program, str(spec.target)).detach()
        for _, spec in placeholders(program)
        if spec.kind in STATE
    }

    def function(*given):
        rest = iter(given)
        kinds = [spec for _, spec in placeholders(program)]
        values = [state[str(s.target)] if s.kind in STATE else next(rest) for s in kinds]
        return _Run(program.graph_module).run(*values)

    return traced(function, state, inputs)


class _Run(torch.fx.Interpreter):
    """Calls layers that the tape keeps whole as modules call them: it sees no ATen call of them."""

    def __init__(self, module: torch.fx.GraphModule):
        super().__init__(module)
        self.extra_traceback = False  # torch would write itself into the messages

    def call_function(self, target, args, kwargs):
        """As the interpreter, by the function of torch that makes this call."""
        return super().call_function(_LAYERS.get(target, target), args, kwargs)


class _Reader:
    """Walks through a program whose every call is an ATen operator."""

    def __init__(self, program: ExportedProgram, guard: SizeGuard):
        self._program, self._guard = program, guard
        self._recorder = Recorder()
        # What neither inputs nor weights decide is computed on the way.
        self._values: dict[torch.fx.Node, Any] = {}
        self._names: list[str] = []

    def captured(self) -> Captured:
        """The graph."""
        for node, spec in placeholders(self._program):
            self._placeholder(node, spec)
        outputs: list[Ref] = []
        for node in self._program.graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                values = (value for value in node.args[0] if value is not None)
                outputs = [self._encode(value, "the output", "") for value in values]
        return self._recorder.finish(outputs, tuple(self._names))

    def _placeholder(self, node: torch.fx.Node, spec) -> None:
        if spec.kind == InputKind.USER_INPUT:
            self._recorder.add_input(node, spec_of(node.meta["val"]))
        elif spec.kind in STATE:
            name = str(spec.target)
            tensor = _tensor(self._program, name)
            if tensor.is_floating_point() and spec.kind != InputKind.CONSTANT_TENSOR:
                self._names.append(name)
                self._recorder.add_param(name, tensor, node)
            else:
                self._values[node] = tensor
        else:
            raise ConversionError(
                f"the exported program takes a {spec.kind.name}; expected tensors"
            )

    def _call(self, node: torch.fx.Node) -> None:
        known = [n for n in node.all_input_nodes if self._recorder.name_of(n) is not None]
        if not known:
            self._values[node] = self._computed(node)
        elif node.target is operator.getitem:
            pass  # bound with the call whose result it picks
        elif node.users:
            self._record(node, frozenset().union(*map(self._recorder.depends, known)))

    def _computed(self, node: torch.fx.Node) -> Any:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), self._values.__getitem__)
        assert callable(node.target)  # a call_function node
        if isinstance(node.target, torch._ops.OpOverload):
            refuse_random(node.target, args, kwargs, _source(node))
        value = node.target(*args, **kwargs)
        return torch.zeros_like(value) if str(node.target) in UNWRITTEN else value

    def _record(self, node: torch.fx.Node, depends: frozenset[int]) -> None:
        name, source = str(node.target), _source(node)
        positional, keywords = call_arguments(
            node.target, node.args, node.kwargs, lambda v: self._encode(v, name, source)
        )
        value = node.meta["val"]
        results = list(value) if isinstance(value, (tuple, list)) else [value]
        specs = [spec_of(r) if isinstance(r, torch.Tensor) else None for r in results]
        for spec in filter(None, specs):
            bounded(math.prod(spec.shape))
        args, kwargs = self._shapes(node)
        self._guard.foresee(node.target, args, kwargs, value)
        names = self._recorder.add_node(name, positional, keywords, specs, depends, source)
        if not isinstance(value, (tuple, list)):
            self._recorder.bind(node, names[0], depends)
            return
        self._recorder.bind(node, names[0], depends)  # known, though only its parts are used
        for user in node.users:
            self._recorder.bind(user, names[_picked(user)], depends)

    def _shapes(self, node: torch.fx.Node) -> Any:
        """Arguments of a call, tensors without values where none is known."""
        known = self._values
        return torch.fx.map_arg(
            (node.args, node.kwargs), lambda n: known[n] if n in known else n.meta["val"]
        )

    def _encode(self, value: Any, name: str, source: str) -> Any:
        if isinstance(value, torch.fx.Node):
            known = self._recorder.name_of(value)
            if known is not None:
                return Ref(known)
            value = self._values[value]
        if isinstance(value, torch.Tensor):
            return self._recorder.bake(value)
        if isinstance(value, (tuple, list)):
            return tuple(self._encode(part, name, source) for part in value)
        return encode_plain(value, name, source)


def _picked(node: torch.fx.Node) -> int:
    """Which of several results a getitem takes."""
    number = node.args[1]
    assert isinstance(number, int)
    return number


def _source(node: torch.fx.Node) -> str:
    """Name of the innermost submodule that a call came from."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    return paths[-1] if paths else node.name
