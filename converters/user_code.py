"""A network's own Python code, which its user names and trusts: it is imported and called.

This is the only place where code that is no part of the installation runs. Nothing in a model file
can ask for it; it is asked for by name, on the command line.
"""

import hashlib
import importlib
import importlib.util
import json
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from types import ModuleType
from typing import Any

from converters.errors import ConversionError
from converters.files import read_plain

_MOST_BYTES = 16 * 2**20
_MOST_FRAMES, _MOST_NAMES = 6, 10
_PREFIX = "user_network_"
# Frames of this package, of Python and of what is installed are not the user's.
_NOT_THEIRS = (
    "<",
    str(Path(__file__).parent),
    *(path for path in sysconfig.get_paths().values() if path != sys.prefix),
)


class UserCodeError(ConversionError):
    """The code that the user named cannot be used, or raised; its own frames are in the message."""


@dataclass(frozen=True)
class NetworkCode:
    """What makes a network: a class or function in a Python file, and its keyword arguments.

    Attributes:
      path: of the file.
      name: of the class or function in it, with dots for attributes of attributes.
      arguments: a JSON object in its canonical form.
    """

    path: Path
    name: str
    arguments: str = "{}"

    def __str__(self) -> str:
        given = "" if self.arguments == "{}" else f" with {self.arguments}"
        return f"{self.path.name}:{self.name}{given}"

    def digest(self) -> str:
        """sha256 of the file; what it imports is not in it. Raises UserCodeError."""
        try:
            return hashlib.sha256(read_plain(self.path, _MOST_BYTES)).hexdigest()
        except OSError as error:
            raise UserCodeError(f"cannot read {self.path}: {error.strerror}") from error


def network_code(text: str, arguments: str | None = None) -> NetworkCode:
    """The code that `FILE.py:NAME` and a JSON object of keyword arguments name.

    >>> str(network_code("models/net.py:WRN", '{"depth": 16}'))
    'net.py:WRN with {"depth": 16}'

    Raises:
      UserCodeError: they name none.
    """
    path, colon, name = text.rpartition(":")
    parts = name.split(".")
    if not colon or not path.endswith(".py") or not all(part.isidentifier() for part in parts):
        raise UserCodeError(f"{text!r} names no code, expected FILE.py:NAME, as in net.py:WRN")
    try:
        values = json.loads(arguments or "{}")
    except ValueError as error:
        raise UserCodeError(f"the network's arguments are no JSON: {error}") from error
    if not isinstance(values, dict):
        raise UserCodeError(
            f"the network's arguments are {arguments}, expected a JSON object of keyword arguments,"
            ' as in {"depth": 16}'
        )
    return NetworkCode(Path(path), name, json.dumps(values, sort_keys=True))


def build(code: NetworkCode) -> Any:
    """Import the file and call what it names: a torch module.

    Raises:
      UserCodeError: the code raised, names nothing of that name, or makes no torch module.
    """
    import torch

    with running(code):
        made: Any = _imported(code)
        for part in code.name.split("."):
            if not hasattr(made, part):
                known = _callables(made, part)
                raise UserCodeError(f"{code.path} has no {code.name}; it has {known}")
            made = getattr(made, part)
        if not isinstance(made, torch.nn.Module):
            made = made(**json.loads(code.arguments))
    if not isinstance(made, torch.nn.Module):
        raise UserCodeError(
            f"{code} makes a {type(made).__name__}, expected a torch.nn.Module or what makes one"
        )
    return made


@contextmanager
def running(code: NetworkCode) -> Iterator[None]:
    """Run the user's code inside: what it prints goes to stderr, what it raises is told as its own.

    Raises:
      UserCodeError: in the place of any error that is none of ours.
    """
    argv, bytecode = sys.argv, sys.dont_write_bytecode
    sys.argv, sys.dont_write_bytecode = [str(code.path)], True
    try:
        with redirect_stdout(sys.stderr):
            yield
    except ConversionError:
        raise
    except (Exception, SystemExit) as error:
        raise UserCodeError(
            f"your code {code} raised {type(error).__name__}: {error}; your frames:"
            f" {_frames(error)}"
        ) from error
    finally:
        sys.argv, sys.dont_write_bytecode = argv, bytecode


def _imported(code: NetworkCode) -> ModuleType:
    """The file as a module; inside a package under its full name, so that it may import parts."""
    path = code.path.resolve()
    content = code.digest()  # which says what is wrong with the path
    root, names = path.parent, [path.stem]
    while (root / "__init__.py").exists():
        root, names = root.parent, [root.name, *names]
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    if len(names) > 1:
        return importlib.import_module(".".join(names))
    name = f"{_PREFIX}{path.stem}_{hashlib.sha256(f'{path}:{content}'.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up the module of their annotations
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _callables(module: Any, asked: str) -> str:
    """Classes and functions of a module, those first whose names are closest to what was asked."""
    names = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == getattr(module, "__name__", None)
    ]

    def likeness(name: str) -> float:
        return SequenceMatcher(None, name.lower(), asked.lower()).ratio()

    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    nearest = sorted(names, key=likeness, reverse=True)[:_MOST_NAMES]
    return ", ".join(nearest) + more or "no class and no function"


def _frames(error: BaseException) -> str:
    """The frames of an error in the user's own files, the outermost first."""
    if isinstance(error, SyntaxError) and error.filename:
        text = (error.text or "").strip()
        return f"{Path(error.filename).name}:{error.lineno}: {text}"
    frames = [
        f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_NOT_THEIRS)
    ]
    return " > ".join(frames[-_MOST_FRAMES:]) or "none, it was called with these arguments"
