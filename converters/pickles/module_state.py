"""A pickled module must say one thing, and compute with the code of its class.

torch keeps some values twice. A recurrent layer computes from a list of its own, `_flat_weights`,
not from the parameters that its state dict shows; an attribute stored beside a parameter or
submodule of the same name hides it from the network's code; a name in two of a module's tables has
one value in the state dict and another in the code. An attribute called `forward` is run in place
of the class's code, and so are hooks beside it. A file with any of these computes something else
than what is read out of it, so it is refused.

Classes have many methods, and an attribute of the name of one is run in its place. So what could be
run is refused under every name but the few under which real networks keep something of the kind.
"""

import re
from collections.abc import Iterator
from typing import Any

from converters.errors import CorruptFileError, safe_repr
from converters.pickles.standins import PARTIAL, Global, Standin
from converters.tensors import TensorRef

# Names under which torch's and torchvision's modules call code of their own class. `_check_kept`
# refuses functions under any name; these may hold nothing at all.
_CODE = frozenset(
    "forward __call__ _call_impl _wrapped_call_impl _compiled_call_impl _slow_forward _forward "
    "_forward_impl _conv_forward _check_input_dim _output_padding _transform_input eager_outputs "
    "bn_function any_requires_grad call_checkpoint_bottleneck _process_input _scale _layers "
    "_split_input _run_cells check_forward_args permute_hidden get_expected_hidden_size "
    "check_input check_hidden_size extra_repr train eval requires_grad_ parameters children "
    "named_children modules named_modules _get_name to float half _apply cuda cpu double bfloat16 "
    "items keys values get_relative_position_bias get_relative_positional_bias merge_masks "
    "get_expected_cell_size flatten_parameters _update_flat_weights _weights_have_changed "
    "_get_backward_hooks _get_backward_pre_hooks _maybe_warn_non_full_backward_hook "
    "scatter gather replicate parallel_apply".split()
)
# Attributes that hold the class of a norm, or a partial of it; a network is made with it, and its
# forward pass runs what was made. torchvision's ResNet and ViT have them.
_NORM_CLASSES = frozenset({"norm_layer", "_norm_layer"})
# Attributes of transformers' modules that hold a function; `encoders.pickled_modules` compares it.
ACTIVATION_NAMES = ("intermediate_act_fn", "activation", "act")
# Objects that hold values and cannot be run.
_VALUES = re.compile(r"transformers\.(\w+\.)*\w+Config|argparse\.Namespace", re.ASCII)
# Tables of functions that torch calls around a module's code, and that may change what it gives.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
HOOKS_OF_TRAINING = (
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
"""Tables of functions that torch calls for gradients or state dicts: logits stay the same."""
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_TABLES = ("_parameters", "_buffers", "_modules")
_KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
_RECURRENT = re.compile(rf"({'|'.join(_KINDS)})_l([0-9]{{1,4}})(_reverse)?")


def check_state(name: str, module: Standin, held: set[int] | None = None) -> None:
    """Compare what a module says twice, and refuse code that is none of its class.

    Args:
      name: dotted path of the module.
      module: with dicts of text keys as `_parameters`, `_buffers` and `_modules`.
      held: identities of containers whose contents need no second look; grows.

    Raises:
      CorruptFileError: two values differ, or something would run or be used that is not shown.
    """
    state = module.state
    _check_names(name, state)
    _check_code(name, state)
    _check_kept(name, module)
    _check_held(name, state, set() if held is None else held)
    _check_order(name, module)
    parameters = state["_parameters"]
    keys = {key: _RECURRENT.fullmatch(key) for key in parameters}
    names = [key for _, key in sorted((_position(m), key) for key, m in keys.items() if m)]
    _check_list(name, "_flat_weights_names", state, names)
    _check_list(name, "_flat_weights", state, [_place(parameters[key]) for key in names])


def check_wrapper(module: Standin) -> None:
    """Refuse a wrapper, such as DataParallel, that holds or runs more than the network inside.

    Raises:
      CorruptFileError: it has tensors or hooks of its own, a second submodule, or misses a table.
    """
    tables = [module.state.get(part) for part in _TABLES]
    if not all(isinstance(table, dict) for table in tables) or [*map(len, tables)] != [0, 0, 1]:  # type: ignore[arg-type]
        raise CorruptFileError(
            f"a {module.class_name} with tensors of its own or several networks, expected one "
            "network"
        )
    check_state("", module)


def _check_names(name: str, state: dict[str, Any]) -> None:
    """Each name stands in one place."""
    seen = dict.fromkeys(state, "as an attribute")
    for part in _TABLES:
        for key in state[part]:
            if key in seen:
                raise CorruptFileError(
                    f"module {safe_repr(name)} has {safe_repr(key)} {seen[key]} and in its {part}: "
                    "one of them would be used and the other shown; expected one of them"
                )
            seen[key] = f"in its {part}"


def _check_code(name: str, state: dict[str, Any]) -> None:
    for key in _HOOKS:
        if state.get(key):
            raise CorruptFileError(
                f"module {safe_repr(name)} has {key}, functions that torch runs with it and that "
                "may change its results or compute its weights; remove them before saving "
                "(handle.remove(), remove_weight_norm, prune.remove), or export the network to ONNX"
            )
    for key, value in state.items():
        if key in _CODE and value is not None:
            raise CorruptFileError(
                f"module {safe_repr(name)} has an attribute {key}, which torch runs in place "
                "of the code of its class; delete it before saving, or export the network to ONNX"
            )
        if isinstance(value, TensorRef) or isinstance(value, Standin) and "_modules" in value.state:
            raise CorruptFileError(
                f"module {safe_repr(name)} keeps a tensor or module as its plain attribute "
                f"{safe_repr(key)}, which its state dict does not show; register it, or export the "
                "network to ONNX"
            )


def _check_kept(name: str, module: Standin) -> None:
    """Nothing that could be run stands among the attributes, but where real networks have it."""
    for key, value in module.state.items():
        if isinstance(value, (Global, Standin)) and not _is_kept(module.class_name, key, value):
            what = value.name if isinstance(value, Global) else f"a {value.class_name}"
            raise CorruptFileError(
                f"module {safe_repr(name)} keeps {what} as its attribute {safe_repr(key)}, which "
                "its code may run in place of its own; expected numbers, text and the like; delete "
                "it before saving, or export the network to ONNX"
            )


def _check_held(name: str, state: dict[str, Any], held: set[int]) -> None:
    """The same of lists, tuples and dicts: code may run what they hold as parts of the network."""
    for key, value in state.items():
        if key in _TABLES or key in HOOKS_OF_TRAINING or key == "_flat_weights":
            continue
        for part in _contents(value, held):
            if isinstance(part, TensorRef):
                what = "a tensor"
            elif isinstance(part, Standin) and not _VALUES.fullmatch(part.class_name):
                what = f"a {part.class_name}"
            elif isinstance(part, Global) and part.kind != "dtype":
                what = part.name
            else:
                continue
            raise CorruptFileError(
                f"module {safe_repr(name)} keeps {what} inside its attribute {safe_repr(key)}, "
                "which its code may compute with and its state dict does not show; expected "
                "numbers, text and the like; delete it before saving, or export the network to ONNX"
            )


def _contents(value: Any, held: set[int]) -> Iterator[Any]:
    """What containers hold, at any depth; containers in `held` are passed over, and put there."""
    pending = [value]
    while pending:
        container = pending.pop()
        if not isinstance(container, (dict, list, tuple, set, frozenset)) or id(container) in held:
            continue
        held.add(id(container))
        parts = container.values() if isinstance(container, dict) else container
        yield from parts
        pending.extend(parts)


def _is_kept(class_name: str, key: str, value: Global | Standin) -> bool:
    """Whether no forward pass runs the value, or a reader says what it must be."""
    if isinstance(value, Standin) and value.class_name != PARTIAL:
        return _VALUES.fullmatch(value.class_name) is not None
    if isinstance(value, Standin) or value.kind == "module":
        return key in _NORM_CLASSES  # a class, or a partial of one
    is_function = class_name.startswith("transformers.") and key in ACTIVATION_NAMES
    return value.kind == "dtype" or (value.kind == "name" and is_function)


def _check_order(name: str, module: Standin) -> None:
    """Numbered submodules stand in order, since torch runs them as they stand; none is `None`."""
    parts = module.state["_modules"]
    if module.class_name.endswith(".container.Sequential") and None in parts.values():
        raise CorruptFileError(
            f"module {safe_repr(name)} is a Sequential with None in the place of a part, which "
            "torch cannot run"
        )
    numbers = [key for key in module.state["_modules"] if _NUMBER.fullmatch(key)]
    if numbers != sorted(numbers, key=int):
        raise CorruptFileError(
            f"module {safe_repr(name)} has its parts in the order {', '.join(numbers[:20])}, in "
            "which torch runs them; expected ascending numbers"
        )


def _check_list(name: str, key: str, state: dict[str, Any], wanted: list[Any]) -> None:
    """The list under `key`, where there is one, is that of the parameters in torch's order."""
    got = state.get(key, [])
    alike = isinstance(got, (list, tuple)) and len(got) == len(wanted)
    if key in state and not (alike and [*map(_place, got)] == wanted):
        raise CorruptFileError(
            f"recurrent layer {safe_repr(name)}: its {key}, which torch computes with, are not "
            "those "
            "of its parameters, which its state dict shows; save the model again"
        )


def _position(match: re.Match[str]) -> tuple[int, bool, int]:
    """torch's order: layer, direction, kind."""
    return int(match[2]), match[3] is not None, _KINDS.index(match[1])


def _place(value: Any) -> object:
    """Where in the file a tensor lies and how it is laid out; text as it is, else None."""
    if not isinstance(value, TensorRef):
        return value if isinstance(value, str) else None
    storage = (value.storage.key, value.storage.first, str(value.dtype))
    return *storage, value.offset, value.shape, value.stride
