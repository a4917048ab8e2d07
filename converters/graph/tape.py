"""The tape: a torch module runs once, and the ATen calls that its input or weights decide are kept.

Everything else (shapes, integer arithmetic, masks) runs for real and enters as constants. What the
input decides must not leave torch: taking a Python number, a shape or a NumPy array from it is
refused, so nothing of the example input is ever baked into a graph.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.overrides import TorchFunctionMode

from converters.errors import ConversionError, DataDependentError
from converters.graph import registry
from converters.graph.aliases import Aliases
from converters.graph.aten_calls import (
    SAME,
    STRIDED,
    UNWRITTEN,
    VALUE_FREE,
    WHOLE,
    functional,
    refuse_random,
    returns_tensors,
    shape_deciding,
    taken_apart,
    tensors_in,
)
from converters.graph.graph import Ref
from converters.graph.light_mode import LightMode
from converters.graph.outputs import named_tensors
from converters.graph.recorder import (
    Captured,
    Recorder,
    call_arguments,
    encode_plain,
    spec_of,
)

# Ways out of torch that the dispatcher does not see.
_LEAKS = {"numpy", "tolist", "__array__", "__dlpack__", "data_ptr", "storage", "__reduce_ex__"}
# What torch and a network's own code raise for inputs that they do not take.
_FAILURES = (
    *(RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError),
    *(AssertionError, NotImplementedError, ZeroDivisionError, OverflowError),
)


def capture(
    module: torch.nn.Module,
    example_inputs: Sequence[torch.Tensor],
    *,
    static_inputs: Collection[int] = (),
) -> Captured:
    """Record what a module does with example inputs.

    Args:
      module: in evaluation mode; it returns a tensor or tuples, lists and dicts of tensors.
      example_inputs: one tensor per argument; their shapes are the graph's shapes.
      static_inputs: numbers of the inputs whose values become part of the graph.

    Returns:
      The graph with one output per tensor returned, and the module's floating tensors it uses.

    Raises:
      DataDependentError: shapes, branches or Python numbers depend on values of an input.
      UnsupportedOperatorError: an operator has no lowering.
      ConversionError: the module is in training mode, changes its state, or returns no tensor.
    """
    if any(part.training for part in module.modules()):
        raise ConversionError("the module is in training mode; call module.eval() first")
    return traced(module, dict(_state(module)), example_inputs, static_inputs, _names(module))


def traced(
    function: Callable[..., Any],
    state: Mapping[str, torch.Tensor],
    example_inputs: Sequence[torch.Tensor],
    static_inputs: Collection[int] = (),
    module_names: Mapping[int, str] = MappingProxyType({}),
) -> Captured:
    """What `capture` does, for any function of tensors.

    Args:
      function: of the example inputs; it returns what a module may return.
      state: name -> tensor of its weights, which it uses without being given them.
      example_inputs: as in `capture`.
      static_inputs: as in `capture`.
      module_names: id -> name of the modules that it calls, for messages.
    """
    tape = _Tape(module_names)
    for name, tensor in state.items():
        tape.aliases.protect(tensor, name)
        if tensor.is_floating_point() and tape.recorder.name_of(tensor) is None:
            tape.recorder.add_param(name, tensor)
    inputs = [value.detach().clone() for value in example_inputs]
    for number, value in enumerate(inputs):
        tape.aliases.note(value)
        if number not in static_inputs:
            tape.recorder.add_input(value, spec_of(value))
        else:
            tape.recorder.inputs.append(spec_of(value))
    try:
        with torch.no_grad(), tape.recording():
            returned = function(*inputs)
    except _FAILURES as error:
        shapes = [tuple(value.shape) for value in inputs]
        raise ConversionError(
            f"the network cannot be run on inputs of shapes {shapes}: {type(error).__name__} at "
            f"{tape.failed or 'its top'}: {error}"
        ) from error
    given = named_tensors(returned)
    outputs = [tape.encode(tensor) for _, tensor in given]
    if not outputs:
        raise ConversionError("the module returned no tensor; expected at least one")
    floating = tuple(name for name, tensor in state.items() if tensor.is_floating_point())
    captured = tape.recorder.finish(outputs, floating)
    captured = replace(captured, output_names=tuple(name for name, _ in given))
    registry.require(captured.graph)
    return captured


def _state(module: torch.nn.Module):
    """Parameters and buffers, also those that a state dict leaves out; tied ones once."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def _names(module: torch.nn.Module) -> dict[int, str]:
    return {id(part): name for name, part in module.named_modules()}


class _Tape(LightMode):
    """Records ATen calls as the dispatcher makes them."""

    def __init__(self, module_names: Mapping[int, str]):
        super().__init__()
        self.recorder = Recorder()
        self.aliases = Aliases(self.recorder)
        self._module_names = module_names
        self._stack: list[str] = []
        self._paused = False
        self.failed = ""

    @property
    def source(self) -> str:
        """Name of the innermost submodule that is running."""
        return self._stack[-1] if self._stack else ""

    @contextmanager
    def recording(self):
        """Record what torch runs inside, each call under its submodule's name."""
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.modules import module as hooks

        fastpath = torch.backends.mha.get_fastpath_enabled()
        enter = hooks.register_module_forward_pre_hook(self._enter)
        leave = hooks.register_module_forward_hook(self._leave, always_call=True)
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            with ExitStack() as stack:
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
                stack.enter_context(_Gate(self))
                stack.enter_context(self)
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fastpath)
            enter.remove()
            leave.remove()

    def _enter(self, module, args):
        self._stack.append(self._module_names.get(id(module), self.source))

    def _leave(self, module, args, output):
        if output is None and not self.failed:
            self.failed = self.source
        if self._stack:
            self._stack.pop()

    def encode(self, value: Any, operator: str = "the output") -> Any:
        """An argument as a node holds it."""
        if isinstance(value, torch.Tensor):
            name = self.recorder.name_of(value)
            return self.recorder.bake(value) if name is None else Ref(name)
        if isinstance(value, (tuple, list)):
            return tuple(self.encode(part, operator) for part in value)
        return encode_plain(value, operator, self.source)

    def depends(self, args: Any, kwargs: Any = ()) -> tuple[bool, frozenset[int]]:
        """Whether any tensor among arguments is the graph's, and the inputs that decide them."""
        found = tensors_in((args, list(dict(kwargs).values())))
        known = [tensor for tensor in found if self.recorder.name_of(tensor) is not None]
        return bool(known), frozenset().union(*map(self.recorder.depends, known))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tracked, depends = self.depends(args, kwargs)
        if str(func) in VALUE_FREE:
            tracked = self.depends(args[1:], kwargs)[0]
        if self._paused or not tracked:
            self._refuse_random(func, args, kwargs)
            results = func(*args, **kwargs)
            if not self._paused and str(func) in UNWRITTEN:
                results.zero_()  # what lies in memory would become part of the network
            return self._note(results)
        if str(func) in SAME:
            return self._same(func, args, kwargs)
        if str(func) in STRIDED:
            return self._strided(func, args, kwargs)
        self._refuse_random(func, args, kwargs)
        if self._leaves_the_graph(func, args, depends):
            return self._note(func(*args, **kwargs))
        decomposed = self._decomposition(func)
        if decomposed is not None:
            with self:
                return decomposed(*args, **kwargs)
        return self.record(func, args, kwargs, lambda: func(*args, **kwargs))

    def record(self, func, args, kwargs, compute):
        """Run `compute` and append the call `func(*args, **kwargs)` whose results it returns."""
        name, written = functional(func, args, kwargs, self.source)
        _, depends = self.depends(args, kwargs)
        positional, keywords = call_arguments(func, args, kwargs, lambda v: self.encode(v, name))
        before = self.aliases.before_write(written) if written is not None else []
        results = self._note(compute())
        flat = list(results) if isinstance(results, (tuple, list)) else [results]
        specs = [spec_of(r) if isinstance(r, torch.Tensor) else None for r in flat]
        names = self.recorder.add_node(name, positional, keywords, specs, depends, self.source)
        for result, value in zip(flat, names, strict=True):
            if isinstance(result, torch.Tensor):
                self.recorder.bind_result(result, value, depends)
        if written is not None and torch.Tag.inplace_view not in func.tags:
            self.aliases.after_write(written, before, depends, self.source)
        return results

    def whole(self, func, overload, args, kwargs):
        """Record one call instead of the many that torch would make for it."""
        if not self.depends(args, kwargs)[0]:
            return func(*args, **kwargs)
        self._paused = True
        try:
            return self.record(overload, args, kwargs, lambda: func(*args, **kwargs))
        finally:
            self._paused = False

    def _same(self, func, args, kwargs):
        result = self._note(func(*args, **kwargs))
        self._bind_as(result, args[0])
        return result

    def _strided(self, func, args, kwargs):
        # The shape before, for the call may change the tensor itself.
        before = torch.as_strided(args[0], args[0].shape, args[0].stride())
        self._bind_as(before, args[0])
        result = self._note(func(*args, **kwargs))
        self.aliases.strided(before, result, self.source)
        return result

    def _bind_as(self, other: torch.Tensor, tensor: torch.Tensor) -> None:
        name = self.recorder.name_of(tensor)
        assert name is not None  # the caller saw that the tensor is the graph's
        self.recorder.bind_result(other, name, self.recorder.depends(tensor))

    def _note(self, results):
        for tensor in tensors_in(results):
            self.aliases.note(tensor)
        return results

    def _decomposition(self, func):
        """torch's own definition of an operator that has no lowering; None if there is one."""
        if registry.is_supported(str(func)) or func._schema.is_mutable:
            return None
        return decomposition_table.get(func)

    def _refuse_random(self, func, args, kwargs) -> None:
        if not self._paused:
            refuse_random(func, args, kwargs, self.source)

    def _leaves_the_graph(self, func, args, depends: frozenset[int]) -> bool:
        """Whether values decide a shape or a Python number; they may be weights, not inputs."""
        tags = func.tags
        if torch.Tag.dynamic_output_shape in tags:
            deciding = shape_deciding(func, args)
        elif torch.Tag.data_dependent_output in tags or not returns_tensors(func):
            deciding = args
        else:
            return False
        tracked, inputs = self.depends(deciding)
        if inputs:
            self.refuse(str(func), inputs)
        return tracked

    def refuse(self, operator: str, inputs: frozenset[int]) -> None:
        """Raise for values of inputs that decide what the graph itself is."""
        numbers = ", ".join(map(str, sorted(inputs)))
        raise DataDependentError(
            f"{operator} at {self.source or 'the top of the network'} takes a shape, a branch or a "
            f"Python number from values of input {numbers}, a possible architectural backdoor. "
            "Only networks whose structure is the same for every input can be converted: export it "
            "with these values fixed.",
            tuple(sorted(inputs)),
        )


class _Gate(TorchFunctionMode):
    """Sees calls before torch takes them apart: keeps some whole, refuses what would leak."""

    def __init__(self, tape: _Tape):
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _LEAKS:
            tracked, inputs = self._tape.depends(args)
            if inputs:
                self._tape.refuse(f"Tensor.{name}", inputs)
        elif name in WHOLE and not taken_apart(name, args):
            return self._tape.whole(func, WHOLE[name], args, kwargs)
        return func(*args, **kwargs)
