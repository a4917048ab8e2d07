"""Arithmetic on sizes in exported programs, bounded before torch computes it on reading."""

from collections.abc import Mapping, Sequence
from typing import Any

from converters.errors import CorruptFileError, TooLargeError, safe_repr

_ARITHMETIC = ("_operator.", "math.", "torch.sym_")
_KINDS = {"as_int", "as_float", "as_bool", "as_sym_int", "as_sym_float", "as_sym_bool",
          "as_sym_ints"}  # fmt: skip
_LARGEST = 2**62
# Eight sizes multiplied; a size takes as many bits as this.
_MOST_BITS, _SIZE_BITS = 256, 32


def check_numbers(nodes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse arithmetic on texts or tensors, and numbers that grow from call to call.

    Args:
        nodes: calls in the program's order, as its JSON has them.

    Raises:
        CorruptFileError: an operand is no number of a size.
        TooLargeError: a result may have more than 256 bits.
    """
    bits: dict[str, int] = {}
    for node in nodes:
        target = node["target"]
        if target.startswith(_ARITHMETIC) and target != "_operator.getitem":
            _note(bits, node, _result_bits(target, _operands(bits, node)))


def _operands(bits: Mapping[str, int], node: Mapping[str, Any]) -> list[int]:
    """Bits of each operand."""
    inputs = node["inputs"]
    given = [part.get("arg") if isinstance(part, dict) else None for part in inputs]
    return [size for argument in given for size in _argument_bits(bits, node["target"], argument)]


def _argument_bits(bits: Mapping[str, int], target: str, argument: Any) -> list[int]:
    if not isinstance(argument, dict) or len(argument) != 1 or not _KINDS.issuperset(argument):
        raise CorruptFileError(
            f"{safe_repr(target)} in the exported program computes with "
            f"{safe_repr(argument)}, expected numbers; export the network again"
        )
    value = next(iter(argument.values()))
    parts = value if isinstance(value, list) else [value]
    return [_number_bits(bits, target, part) for part in parts]


def _number_bits(bits: Mapping[str, int], target: str, value: Any) -> int:
    if isinstance(value, dict):
        if "as_name" in value:
            return bits.get(str(value["as_name"]), _SIZE_BITS)
        value = next(iter(value.values()), None)
    if isinstance(value, int) and abs(value) >= _LARGEST:
        raise TooLargeError(
            f"{safe_repr(target)} in the exported program computes with a number above 2**62"
        )
    return value.bit_length() if isinstance(value, int) else _SIZE_BITS


def _result_bits(target: str, operands: list[int]) -> int:
    largest = max(operands, default=0)
    if target == "_operator.mul":
        result = sum(operands)
    elif target in ("_operator.add", "_operator.sub"):
        result = largest + 1
    else:
        result = largest + (len(operands).bit_length() if target == "torch.sym_sum" else 0)
    if result > _MOST_BITS:
        raise TooLargeError(
            f"{safe_repr(target)} in the exported program may make a number of more than "
            f"{_MOST_BITS} bits; sizes of a network have fewer"
        )
    return result


def _note(bits: dict[str, int], node: Mapping[str, Any], result: int) -> None:
    """Remember the result under the names of the call's outputs."""
    for output in node.get("outputs") or ():
        for value in output.values() if isinstance(output, dict) else ():
            if isinstance(value, dict) and isinstance(value.get("as_name"), str):
                bits[value["as_name"]] = result
