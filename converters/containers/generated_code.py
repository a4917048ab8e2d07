"""A second wall behind the names of an exported program: the Python code that torch makes of it.

torch.fx writes a graph as the source of a function `forward`, names and all, and executes it. While
`checked_code` is active, only source that calls ATen operators on plain names is executed.
"""

import ast
import functools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from converters.errors import CorruptFileError, safe_repr

_here = threading.local()
_installing = threading.Lock()
_MARK = "checks_code"
_STATEMENTS = (
    ast.FunctionDef, ast.arguments, ast.arg, ast.Assign, ast.AnnAssign, ast.Expr, ast.Return,
    ast.Pass,
)  # fmt: skip
_EXPRESSIONS = (
    ast.Name, ast.Attribute, ast.Call, ast.keyword, ast.Constant, ast.Tuple, ast.List, ast.Dict,
    ast.Starred, ast.Subscript, ast.Slice, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare,
    ast.expr_context, ast.unaryop, ast.operator, ast.boolop, ast.cmpop,
)  # fmt: skip
# `from_file` opens a path; `save` writes one.
_CALLED = re.compile(
    r"torch\.ops\.(aten|prims?)\.(?!from_file\b|save\b)\w+\.\w+|torch\._?sym_\w+|torch\.Size"
    r"|_?operator\.\w+|math\.\w+|device|slice|complex|getattr"
    r"|fx_pytree\.tree_flatten_spec|pytree\.tree_(un)?flatten|self\._guards_fn"
)


@contextmanager
def checked_code() -> Iterator[None]:
    """Within, torch.fx executes no source but plain calls of operators; other threads go on.

    Raises:
        CorruptFileError: the source of a graph holds more than that; it was not executed.
    """
    _install()
    depth = getattr(_here, "depth", 0)
    _here.depth = depth + 1
    try:
        yield
    finally:
        _here.depth = depth


def _install() -> None:
    """Put the check in front of the one place where torch.fx executes source, once and for all."""
    import torch.fx.graph_module as fx

    with _installing:
        real = fx._exec_with_source
        if getattr(real, _MARK, False):
            return

        @functools.wraps(real)
        def checked(src, *args, **kwargs):
            if getattr(_here, "depth", 0):
                refuse_more_than_calls(src)
            return real(src, *args, **kwargs)

        setattr(checked, _MARK, True)
        fx._exec_with_source = checked


@functools.lru_cache(maxsize=4)
def refuse_more_than_calls(source: str) -> None:
    """Raise CorruptFileError unless `source` is one function of plain calls."""
    try:
        body = ast.parse(source).body
        if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
            raise ValueError("it is more than one function")
        _check_head(body[0])
        for part in ast.walk(body[0]):
            _check(part)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise CorruptFileError(
            f"the exported program makes code that is more than calls of operators ({error}); "
            "expected plain names; export it again, nothing was executed: "
            f"{safe_repr(source[:200])}"
        ) from error


def _check_head(function: ast.FunctionDef) -> None:
    given = function.args
    defaults = [value for value in (*given.defaults, *given.kw_defaults) if value is not None]
    plain = all(isinstance(value, ast.Constant) for value in defaults)
    if function.name != "forward" or function.decorator_list or function.returns or not plain:
        raise ValueError("its head is no plain `def forward`")


def _check(part: ast.AST) -> None:
    if isinstance(part, ast.FunctionDef) and part.name != "forward":
        raise ValueError("a function within it")
    if not isinstance(part, _STATEMENTS + _EXPRESSIONS):
        raise ValueError(f"{type(part).__name__} in it")
    if isinstance(part, ast.arg) and part.annotation is not None:
        raise ValueError("an annotated argument")
    if isinstance(part, ast.Call) and not _CALLED.fullmatch(ast.unparse(part.func)):
        raise ValueError(f"a call of {safe_repr(ast.unparse(part.func)[:100])}")
    if isinstance(part, ast.Attribute) and part.attr.startswith("__") and not _is_operator(part):
        raise ValueError(f"the attribute {part.attr}")


def _is_operator(part: ast.Attribute) -> bool:
    """Whether it names an operator, such as `torch.ops.aten.__and__`."""
    return ast.unparse(part.value) == "torch.ops.aten"
