"""The few calls that a benign pickle makes, each replaced by a function of ours."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.errors import CorruptFileError, UnsafePickleError, safe_repr
from converters.limits import Limits
from converters.pickles import numpy_values
from converters.pickles.standins import (
    PARTIAL,
    TORCH_DTYPES,
    Global,
    OrderedMap,
    Standin,
    instance_of,
    key_of,
    named,
)
from converters.tensors import StorageRef, TensorRef, tensor_view


@dataclass(frozen=True)
class Constructor:
    """One function that a pickle may call: ours, its number of arguments, and nothing else."""

    build: Callable[..., Any]
    least: int
    most: int


def construct(target: Global, args: tuple, limits: Limits) -> Any:
    """The value of ``target(*args)`` for a name in `CONSTRUCTORS`.

    Raises:
        UnsafePickleError: ``target`` is allowed as a value but not to be called.
        CorruptFileError: the arguments are not what its real counterpart takes.
    """
    if target.kind != "constructor":
        raise UnsafePickleError(
            f"the pickle calls {target.name!r}, which is allowed only as a value; nothing was "
            "executed",
            global_name=target.name,
        )
    entry = CONSTRUCTORS[target.name]
    if not entry.least <= len(args) <= entry.most:
        raise CorruptFileError(
            f"{target.name} got {len(args)} arguments, expected {entry.least} to {entry.most}"
        )
    return entry.build(limits, *args)


def _expect(value: Any, kinds: type | tuple[type, ...], what: str) -> Any:
    """``value`` if it is one of ``kinds``, else `CorruptFileError`."""
    if not isinstance(value, kinds):
        raise CorruptFileError(f"{what} got a {type(value).__name__}")
    return value


def _ordered(limits: Limits, items: Any = ()) -> OrderedMap:
    pairs = items.items() if isinstance(items, dict) else _expect(items, (list, tuple), "mapping")
    result = OrderedMap()
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise CorruptFileError("an OrderedDict item is not a pair")
        result[key_of(pair[0])] = pair[1]
    return result


def _counter(limits: Limits, items: Any = ()) -> OrderedMap:
    """A Counter is rebuilt from a dict; it would count the members of anything else."""
    return _ordered(limits, _expect(items, dict, "Counter") if items != () else ())


def _defaultdict(limits: Limits, factory: Any = None) -> OrderedMap:
    return OrderedMap()


def _members(limits: Limits, items: Any = ()) -> set:
    return {key_of(item) for item in _expect(items, (list, tuple, set, frozenset), "set")}


def _frozenset(limits: Limits, items: Any = ()) -> frozenset:
    return frozenset(_members(limits, items))


def _tensor(limits: Limits, storage: Any, offset: Any, shape: Any, stride: Any) -> TensorRef:
    return tensor_view(storage, offset, shape, stride, limits)


def _tensor_v2(
    limits: Limits,
    storage: Any,
    offset: Any,
    shape: Any,
    stride: Any,
    requires_grad: Any = False,
    hooks: Any = None,
    metadata: Any = None,
) -> TensorRef:
    _refuse_lazy_bits(metadata)
    return tensor_view(storage, offset, shape, stride, limits)


def _tensor_v3(
    limits: Limits,
    storage: Any,
    offset: Any,
    shape: Any,
    stride: Any,
    requires_grad: Any,
    hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> TensorRef:
    _refuse_lazy_bits(metadata)
    if not isinstance(dtype, Global) or dtype.kind != "dtype":
        raise CorruptFileError("a tensor names no known torch dtype")
    if isinstance(storage, StorageRef) and storage.dtype != np.uint8:
        raise CorruptFileError("a tensor with its own dtype views a storage that is not untyped")
    return tensor_view(storage, offset, shape, stride, limits, TORCH_DTYPES[dtype.name])


def _refuse_lazy_bits(metadata: Any) -> None:
    """Torch can postpone conjugation and negation to a flag; such weights are not read."""
    if isinstance(metadata, dict) and any(metadata.values()):
        raise CorruptFileError(
            "a tensor has the lazy flags conj or neg; "
            "call resolve_conj().resolve_neg() before saving"
        )


def _parameter(limits: Limits, data: Any, requires_grad: Any = True, *rest: Any) -> TensorRef:
    return _expect(data, TensorRef, "a parameter")


def _parameter_with_state(
    limits: Limits, data: Any, requires_grad: Any, hooks: Any, state: Any
) -> TensorRef:
    _refuse_attributes(state)
    return _expect(data, TensorRef, "a parameter")


def _refuse_attributes(state: Any) -> None:
    """Attributes of a tensor: notes are left out, those that change what it is are refused.

    torch sets them by name, also `data` and `real`, which put other values into the tensor.
    """
    for part in state if isinstance(state, tuple) else (state,):
        if part is None:
            continue
        for name, value in _expect(part, dict, "attributes of a tensor").items():
            plain = value is None or isinstance(value, (bool, int, float, str))
            if not isinstance(name, str) or name in _TENSOR_PROPERTIES or not plain:
                raise UnsafePickleError(
                    f"a tensor has the attribute {safe_repr(name)}, which could replace its values;"
                    " save the state dict with plain tensors"
                )


def _tensor_with_attributes(limits: Limits, rebuild: Any, kind: Any, args: Any, state: Any) -> Any:
    _refuse_attributes(state)
    if not isinstance(kind, Global) or kind.name not in _TENSOR_CLASSES:
        raise UnsafePickleError(
            f"a tensor of the class {named(kind)}, expected a plain one",
            global_name=kind.name if isinstance(kind, Global) else None,
        )
    if not isinstance(rebuild, Global) or rebuild.name not in _TENSOR_BUILDERS:
        raise UnsafePickleError(
            f"_rebuild_from_type_v2 would call {named(rebuild)}; nothing was executed",
            global_name=rebuild.name if isinstance(rebuild, Global) else None,
        )
    return construct(rebuild, _expect(args, tuple, "_rebuild_from_type_v2"), limits)


def _size(limits: Limits, dims: Any = ()) -> tuple:
    return tuple(_expect(dims, (tuple, list), "torch.Size"))


def _device(limits: Limits, kind: Any, index: Any = None) -> str:
    name = _expect(kind, str, "torch.device")
    return name if index is None else f"{name}:{_expect(index, int, 'torch.device')}"


def _path(limits: Limits, *parts: Any) -> str:
    return "/".join(_expect(part, str, "a path") for part in parts)


def _encode(limits: Limits, text: Any, encoding: Any = "latin1") -> bytes:
    """Protocol 2 writes bytes as ``_codecs.encode(text, "latin1")``; no other codec is used."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise CorruptFileError(f"_codecs.encode with {safe_repr(encoding)}, expected 'latin1'")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise CorruptFileError("_codecs.encode got text that is not latin1") from error


def _bytes(limits: Limits, value: Any = b"", encoding: Any = None) -> bytes:
    if encoding is not None:
        return _encode(limits, value, encoding)
    return _expect(value, bytes, "bytes")


def _reconstruct_object(limits: Limits, cls: Any, base: Any, state: Any) -> Any:
    """Protocols 0 and 1 create instances as ``copyreg._reconstructor(cls, object, None)``."""
    if not isinstance(base, Global) or base.name != "builtins.object" or state is not None:
        raise UnsafePickleError(
            "copyreg._reconstructor with a base other than object; nothing was executed",
            global_name="copyreg._reconstructor",
        )
    return instance_of(cls, ())


def _regular_expression(limits: Limits, pattern: Any, *compiled: Any) -> str:
    """The text of a compiled pattern; GPT-2's tokenizer before transformers 5 holds one."""
    return _expect(pattern, str, "a regular expression")


def _partial(limits: Limits, function: Any) -> Standin:
    """A class with some arguments given, as ViT keeps for its norms; what it made says the same."""
    if not isinstance(function, Global) or function.kind != "module":
        raise UnsafePickleError(
            f"functools.partial of {named(function)}, expected a module class; nothing was "
            "executed",
            global_name=function.name if isinstance(function, Global) else None,
        )
    return Standin(PARTIAL, {"func": function})


def _typed(limits: Limits, value: Any, kind: Any = None) -> Any:
    """A list, or a value with the name of its type, as TorchScript pickles them."""
    return value


def _function_backend(limits: Limits) -> None:
    """Modules of torch before 1.2 carry this marker object, which has no content."""


_TENSOR_BUILDERS = {
    "torch._utils._rebuild_tensor": Constructor(_tensor, 4, 4),
    "torch._utils._rebuild_tensor_v2": Constructor(_tensor_v2, 4, 7),
    "torch._utils._rebuild_tensor_v3": Constructor(_tensor_v3, 7, 8),
    "torch._utils._rebuild_parameter": Constructor(_parameter, 1, 3),
    "torch._utils._rebuild_parameter_with_state": Constructor(_parameter_with_state, 4, 4),
}
# What an attribute of a tensor may not be called: torch gives these a meaning.
_TENSOR_PROPERTIES = frozenset(
    "data real imag grad names requires_grad T mT H mH is_leaf _grad _base _cdata _backward_hooks "
    "_post_accumulate_grad_hooks _version __class__ __dict__ __torch_function__".split()
)
# Classes whose operators are those of every tensor; others may compute differently.
_TENSOR_CLASSES = frozenset(
    (
        *("torch.Tensor", "torch._tensor.Tensor"),
        *("torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer"),
    )
)

CONSTRUCTORS = {
    **_TENSOR_BUILDERS,
    "torch._tensor._rebuild_from_type_v2": Constructor(_tensor_with_attributes, 4, 4),
    "torch.nn.parameter.Parameter": Constructor(_parameter, 1, 2),
    "torch.autograd.variable.Variable": Constructor(_parameter, 1, 2),
    "torch.Size": Constructor(_size, 0, 1),
    "torch.device": Constructor(_device, 1, 2),
    "torch.jit._pickle.restore_type_tag": Constructor(_typed, 2, 2),
    **{
        f"torch.jit._pickle.build_{kind}list": Constructor(_typed, 1, 1)
        for kind in ("int", "double", "bool", "tensor")
    },
    "functools.partial": Constructor(_partial, 1, 1),
    "torch.nn.backends.thnn._get_thnn_function_backend": Constructor(_function_backend, 0, 0),
    "collections.OrderedDict": Constructor(_ordered, 0, 1),
    "collections.defaultdict": Constructor(_defaultdict, 0, 1),
    "collections.Counter": Constructor(_counter, 0, 1),
    "builtins.set": Constructor(_members, 0, 1),
    "builtins.frozenset": Constructor(_frozenset, 0, 1),
    "builtins.bytes": Constructor(_bytes, 0, 2),
    "builtins.bytearray": Constructor(_bytes, 0, 2),
    "copyreg._reconstructor": Constructor(_reconstruct_object, 3, 3),
    "copy_reg._reconstructor": Constructor(_reconstruct_object, 3, 3),
    "pathlib.PosixPath": Constructor(_path, 0, 256),
    "pathlib.PurePosixPath": Constructor(_path, 0, 256),
    "pathlib.WindowsPath": Constructor(_path, 0, 256),
    "pathlib.PureWindowsPath": Constructor(_path, 0, 256),
    "_codecs.encode": Constructor(_encode, 1, 2),
    "_regex.compile": Constructor(_regular_expression, 1, 16),
    "regex._regex.compile": Constructor(_regular_expression, 1, 16),
    **{
        name: Constructor(build, least, most)
        for name, (build, least, most) in numpy_values.CONSTRUCTORS.items()
    },
}
