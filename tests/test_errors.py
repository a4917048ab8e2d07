"""Every error of both packages can be copied, and sent from one process to another."""

import ast
import copy
import importlib
import inspect
import pickle
from pathlib import Path

import pytest

from converters.errors import (
    DataDependentError,
    SharedNamesError,
    UnsafePickleError,
    UnsupportedOperatorError,
)
from converters.public_codes import HUYVNPHAN, NO_FIRST_POOL
from jaxtroj.generate.divergence import DivergedError
from jaxtroj.record import Record
from jaxtroj.verdict import ScanError

ROOT = Path(__file__).parents[1]
RECORD = Record("m", "", 0.5, False, None, (), "failed", "the file is cut off")
WITH_MORE = {
    ScanError: (RECORD,),
    DivergedError: (1e9, 30),
    SharedNamesError: ((NO_FIRST_POOL, HUYVNPHAN), "no examples"),
    UnsafePickleError: ("asks for os.system", "os.system"),
    UnsupportedOperatorError: ("no lowering", "aten.sort", "n3"),
    DataDependentError: ("a shape", (1, 2)),
}
"""Errors that are made of more than a message."""


def derives_from_an_error(node: ast.AST) -> bool:
    bases = node.bases if isinstance(node, ast.ClassDef) else []
    return any(ast.unparse(base).endswith(("Error", "Exception")) for base in bases)


def error_classes() -> list[type[BaseException]]:
    found = []
    for path in sorted((*ROOT.glob("jaxtroj/**/*.py"), *ROOT.glob("converters/**/*.py"))):
        if any(map(derives_from_an_error, ast.walk(ast.parse(path.read_text())))):
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            of_it = inspect.getmembers(module, inspect.isclass)
            found += [c for _, c in of_it if c.__module__ == module.__name__]
    return [c for c in found if issubclass(c, BaseException)]


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_errors_are_copied_whole(kind, again):
    error = kind(*WITH_MORE.get(kind, ("what was got, and what was expected",)))
    error.digest = "ab12"
    error.add_note("seen in a pool")
    other = again(error)
    assert type(other) is kind and str(other) == str(error) and repr(other) == repr(error)
    assert vars(other) == vars(error)


def test_all_errors_are_known():
    names = {kind.__name__ for kind in error_classes()}
    assert {kind.__name__ for kind in WITH_MORE} | {"NonsenseError", "OutputError"} <= names
    assert len(names) > 30
