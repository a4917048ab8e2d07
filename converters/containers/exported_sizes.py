"""Symbolic sizes of exported programs: arithmetic that is parsed before sympy evaluates it."""

import ast
import re
from typing import Any

from converters.errors import CorruptFileError, safe_repr

LONGEST = 4000
"""Characters of a symbolic size."""
# Simplifying takes time that grows with the square of these, and for extremes far faster.
_MOST_CALLS, _MOST_OPERANDS, _MOST_EXTREMES = 200, 32, 4
SYMBOL = re.compile(r"[a-z]{1,8}\d{1,5}", re.ASCII)
"""torch counts to the number of a symbol."""
_FUNCTIONS = frozenset(
    "Add Mul Pow Max Min Integer Symbol FloorDiv ModularIndexing Where PythonMod Mod CleanDiv "
    "CeilToInt FloorToInt CeilDiv TruncToInt RoundToInt IntTrueDiv ToFloat Identity Eq Ne Lt Le "
    "Gt Ge And Or Not Equality Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan"
    .split()
)  # fmt: skip
_ARITHMETIC = (
    ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.keyword, ast.BinOp, ast.UnaryOp,
    ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub, ast.Compare, ast.Eq, ast.NotEq,
    ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip
# sympy drops line ends, and with them what Python takes for the end of a comment.
_PLAIN = re.compile(r"[A-Za-z0-9_ ()+\-*/%,=<>!']*")


def check_expression(text: Any) -> None:
    """Refuse a symbolic size that is more than arithmetic."""
    try:
        if not isinstance(text, str) or len(text) > LONGEST:
            raise ValueError("no short text")
        if not _PLAIN.fullmatch(text):
            raise ValueError("a character in it is none of arithmetic's")
        parts = list(ast.walk(ast.parse(text, mode="eval")))
        _check_effort(parts)
        for part in parts:
            _check_part(part)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise CorruptFileError(
            f"the size {safe_repr(text)} in the exported program is no arithmetic: {error}"
        ) from error


def _check_effort(parts: list[ast.AST]) -> None:
    """Refuse an expression that takes long to simplify."""
    calls = [part for part in parts if isinstance(part, ast.Call)]
    sums = sum(isinstance(part, ast.BinOp) for part in parts)
    names = [part.func.id for part in calls if isinstance(part.func, ast.Name)]
    extremes = [part for part, name in zip(calls, names, strict=False) if name in ("Max", "Min")]
    operands = max((len(part.args) for part in calls), default=0)
    fewer = max((len(part.args) for part in extremes), default=0)
    if (
        len(calls) + sums > _MOST_CALLS
        or operands > _MOST_OPERANDS
        or max(len(extremes), fewer) > _MOST_EXTREMES
        or names.count("Pow") > _MOST_EXTREMES
    ):
        raise ValueError("it has more terms, extremes or powers than sizes of a network have")


def _check_part(part: ast.AST) -> None:
    if not isinstance(part, _ARITHMETIC):
        raise ValueError(f"{type(part).__name__} in it")
    if isinstance(part, ast.Call):
        if not isinstance(part.func, ast.Name) or part.func.id not in _FUNCTIONS:
            raise ValueError("it calls an unknown function")
        if part.func.id == "Pow" and not _is_small_power(part):
            raise ValueError("a power in it is not small")
    if isinstance(part, ast.Name) and part.id not in _FUNCTIONS and not SYMBOL.fullmatch(part.id):
        raise ValueError("an unknown name in it")
    if isinstance(part, ast.Constant):
        known = isinstance(part.value, bool) or isinstance(part.value, int)
        symbol = isinstance(part.value, str) and SYMBOL.fullmatch(part.value)
        if not known and not symbol:
            raise ValueError("an unknown constant in it")


def _is_small_power(call: ast.Call) -> bool:
    exponent = call.args[1] if len(call.args) == 2 else None
    text = "" if exponent is None else ast.unparse(exponent)
    return re.fullmatch(r"Integer\(-?[0-4]\)|-?[0-4]", text) is not None
