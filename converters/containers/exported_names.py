"""Every text of an exported program has a rule here; a text without one is refused.

torch.fx writes names into Python code that it executes, looks operators up by `getattr`, and gives
sizes to sympy, which evaluates them. So the file's texts are checked where torch's schema has read
them, by class and field: what is no text of a rule never reaches torch's reader.
"""

import dataclasses
import json
import keyword
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from converters.containers.exported_sizes import SYMBOL, check_expression
from converters.errors import CorruptFileError, UnsupportedOperatorError, safe_repr

_OPERATOR = re.compile(
    r"torch\.ops\.aten\.\w+\.\w+|torch\.sym_(?:max|min|int|float|not|ite|sum)"
    r"|_operator\.(?:getitem|mul|add|sub|floordiv|truediv|mod|neg|eq|ne|lt|le|gt|ge|and_|or_)"
    r"|math\.(?:ceil|floor|trunc|sqrt)",
    re.ASCII,
)
# They take numbers alone, and end a run or say what a symbol is.
_WITHOUT_TENSORS = {"aten::_assert_scalar", "aten::_functional_assert_scalar",
                    "aten::sym_constrain_range", "aten::sym_constrain_range_for_size"}  # fmt: skip
# `from_file` opens whatever path stands in the graph.
_NEVER = {"aten::from_file"}
_PLAIN_TYPE = re.compile(
    r"(?:Optional\[|List\[)*(Tensor|int|float|bool|number|complex|Device|Generator|str)\]*"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"(?!__)[\w :@+/-]+(\.(?!__)[\w :@+/-]+)*")
_TEXT = re.compile(r"[A-Za-z0-9_ ,.>:+-]{0,1000}")
_VERSION = re.compile(r"[\w.+-]{0,100}", re.ASCII)
_SPEC_KEYS = {"type", "context", "children_spec"}
_CONTAINERS = (None, "builtins.tuple", "builtins.list", "builtins.dict")


def _is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text)) and not keyword.iskeyword(text) and len(text) <= 1000


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


_NAMES = (_is_name, "a plain name of letters, digits and _")
_PATHS = (_matches(_PATH), "words between dots")
_TEXTS = (_matches(_TEXT), "a plain word")
Rule = tuple[Callable[[str], bool], str]
_RULES: dict[tuple[str, str], Rule] = {
    **dict.fromkeys(
        [
            *((f"Sym{kind}Argument", "as_name") for kind in ("Int", "Float", "Bool")),
            *((kind, "name") for kind in ("TensorArgument", "TokenArgument", "Node")),
            ("InputToConstantInputSpec", "name"),
            ("UserInputMutationSpec", "user_input_name"),
            ("GradientToUserInputSpec", "user_input_name"),
            *(("Graph", f"{kind}_values, key") for kind in (
                "tensor", "sym_int", "sym_float", "sym_bool")),
        ],
        _NAMES,
    ),  # fmt: skip
    **dict.fromkeys(
        [
            ("InputToParameterSpec", "parameter_name"),
            ("InputToBufferSpec", "buffer_name"),
            ("InputToTensorConstantSpec", "tensor_constant_name"),
            ("BufferMutationSpec", "buffer_name"),
            ("ParameterMutationSpec", "parameter_name"),
            ("GradientToParameterSpec", "parameter_name"),
        ],
        _PATHS,
    ),
    ("Argument", "as_string"): _TEXTS,
    ("Argument", "as_strings"): _TEXTS,
    ("ConstantValue", "as_string"): _TEXTS,
    # The argument of a schema, which may be a keyword; looked up, not written.
    ("NamedArgument", "name"): (lambda text: not text or bool(_NAME.fullmatch(text)), "a name"),
    ("Node", "metadata, key"): (lambda text: text == "nn_module_stack", "nn_module_stack"),
    ("Node", "metadata"): (str.isprintable, "text of one line"),
    ("ModuleCallEntry", "fqn"): (lambda text: not text, "nothing"),
    ("Device", "type"): (lambda text: text == "cpu", "a device that holds values"),
    ("ExportedProgram", "opset_version, key"): (_matches(_VERSION), "a version"),
    ("ExportedProgram", "torch_version"): (_matches(_VERSION), "a version"),
    ("ExportedProgram", "verifiers"): (
        lambda text: text in ("", "ATEN", "TRAINING"), "ATEN or TRAINING"
    ),
    ("ExportedProgram", "range_constraints, key"): (_matches(SYMBOL), "a symbol"),
}  # fmt: skip
# Checked by rules of their own, with their own messages.
_ELSEWHERE = {
    ("Node", "target"),
    ("SymExpr", "expr_str"),
    ("ModuleCallSignature", "in_spec"),
    ("ModuleCallSignature", "out_spec"),
}


def check_texts(program: Any) -> None:
    """Refuse an exported program with a text that torch would run, import or evaluate.

    Args:
        program: of torch's schema, `torch._export.serde.schema.ExportedProgram`.

    Raises:
        CorruptFileError: a name, size or text is none.
        UnsupportedOperatorError: a call of something besides ATen operators.
    """
    found = list(_texts(program))
    for kind, field, text in found:
        if (kind, field) == ("Node", "target"):
            _check_operator(text)
    for kind, field, text in found:
        if (kind, field) == ("SymExpr", "expr_str"):
            check_expression(text)
        elif kind == "ModuleCallSignature" and field in ("in_spec", "out_spec"):
            _check_structure(text, field == "in_spec")
        elif (kind, field) not in _ELSEWHERE:
            _check_text(kind, field, text)


def check_path(name: str) -> None:
    """Raise CorruptFileError unless a tensor's name in the tables is words between dots."""
    _check_text("InputToParameterSpec", "parameter_name", name)


def _texts(program: Any) -> Iterator[tuple[str, str, str]]:
    """Every text with the class and field that hold it. A stack of its own: depth is the file's."""
    pending: list[tuple[str, str, Any]] = [("", "", program)]
    while pending:
        kind, field, value = pending.pop()
        if isinstance(value, str):
            yield kind, field, value
        elif isinstance(value, Mapping):
            pending += [(kind, f"{field}, key", key) for key in value]
            pending += [(kind, field, part) for part in value.values()]
        elif isinstance(value, (list, tuple)):
            pending += [(kind, field, part) for part in value]
        elif dataclasses.is_dataclass(value):
            name = type(value).__name__
            pending += [(name, key, part) for key, part in vars(value).items() if key != "_type"]


def _check_text(kind: str, field: str, text: str) -> None:
    rule = _RULES.get((kind, field))
    if rule is None or not rule[0](text):
        expected = "none there" if rule is None else f"{rule[1]} there"
        raise CorruptFileError(
            f"the exported program has {safe_repr(text)} as {kind}.{field}, expected {expected}; "
            "torch writes such texts into code that it runs; export the network again, nothing was "
            "executed"
        )


def _check_operator(target: str) -> None:
    if not _OPERATOR.fullmatch(target) or not _is_tensor_operator(target):
        raise UnsupportedOperatorError(
            f"the exported program calls {safe_repr(target)}; only ATen operators are "
            f"supported, nothing was executed{_branches(target)}",
            target[:200],
        )


def _is_tensor_operator(target: str) -> bool:
    """Whether an ATen name is an operator on tensors: others save files, print, and keep texts."""
    if not target.startswith("torch.ops."):
        return True
    import torch

    packet = getattr(torch.ops.aten, target.split(".")[3], None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return False
    operator = getattr(packet, target.split(".")[4], None)
    if not isinstance(operator, torch._ops.OpOverload):
        return False
    schema = operator._schema
    taken = [str(argument.type) for argument in schema.arguments]
    given = [str(returned.type) for returned in schema.returns]
    plain = all(map(_PLAIN_TYPE.fullmatch, taken + given)) and "str" not in given
    tensors = any("Tensor" in kind for kind in taken + given) or schema.name in _WITHOUT_TENSORS
    return plain and tensors and schema.name not in _NEVER


def _branches(target: str) -> str:
    """What is said of a call that chooses what to run by values, or casts them."""
    if "wrap_with_autocast" in target:
        return "; export the network without torch.autocast in its forward"
    if not re.search(r"\b(cond|while_loop|switch|map_impl)\b", target):
        return ""
    return "; a branch or loop on values of the image is a possible architectural backdoor"


def _check_structure(text: str, inputs: bool) -> None:
    """Refuse a description of inputs or outputs that is more than plain containers.

    Args:
        text: of `torch.utils._pytree`.
        inputs: whether the keys of its dicts become names of arguments.
    """
    try:
        pending = [json.loads(text)]
        while pending:
            part = pending.pop()
            if isinstance(part, list):
                pending += part
            elif isinstance(part, dict):
                if set(part) != _SPEC_KEYS or part["type"] not in _CONTAINERS:
                    raise ValueError("an unknown container in it")
                _check_keys(json.loads(part.get("context") or "null"), inputs)
                pending += part["children_spec"]
    except (ValueError, TypeError, RecursionError) as error:
        raise CorruptFileError(
            f"inputs or outputs of the exported program are no plain containers: {error}"
        ) from error


def _check_keys(context: Any, inputs: bool) -> None:
    for key in context or ():
        words = isinstance(key, str) and (_is_name(key) if inputs else _PATH.fullmatch(key))
        if not words and (not isinstance(key, int) or inputs):
            raise ValueError(f"the key {safe_repr(key)} in it, expected a plain name")
