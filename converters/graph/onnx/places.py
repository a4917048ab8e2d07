"""Errors that arise at a node of a graph say at which, whatever raised them."""

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from onnx import NodeProto

from converters.errors import (
    ConversionError,
    ConverterError,
    CorruptFileError,
    TooLargeError,
    UnsupportedOperatorError,
    safe_repr,
)

_NAME = re.compile(r"[\w.:-]{1,200}", re.ASCII)
# What torch raises on arguments that make no sense; the graph is to blame, not this program.
_TORCH_FAULTS = (
    RuntimeError,
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    RecursionError,
    struct.error,
)


def check_names(node: NodeProto) -> None:
    """Refuse names that no operator and no domain has; others stand in errors as they are.

    Raises:
        CorruptFileError: the operator or its domain is called so.
    """
    for name in (node.op_type, node.domain or "ai.onnx"):
        # protobuf gives names that are no text as bytes.
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise CorruptFileError(f"a node names {safe_repr(name)}, which no operator is called")


def place_of(node: NodeProto) -> str:
    """A node in words: its operator, and its name or else that of its first output."""
    return f"{node.op_type} node {safe_repr(node.name or (node.output[0] if node.output else ''))}"


@contextmanager
def built_at(place: str) -> Iterator[None]:
    """What goes wrong inside is an error of this package that names the place.

    Raises:
        ConverterError: as it was raised, with the place in front.
        TooLargeError: memory ran out.
        ConversionError: torch takes no such arguments.
    """
    try:
        with checked_at(place):
            yield
    except ConverterError:
        raise
    except MemoryError as error:
        raise TooLargeError(f"{place}: it takes more memory than there is") from error
    except _TORCH_FAULTS as error:
        raise ConversionError(f"{place}: {safe_repr(str(error))}") from error


@contextmanager
def checked_at(place: str) -> Iterator[None]:
    """Errors of this package that arise inside say once in which node."""
    try:
        yield
    except UnsupportedOperatorError as error:
        if not error.node:
            error.node = place
            _put_in_front(error, place)
        raise
    except ConverterError as error:
        _put_in_front(error, place)
        raise


def _put_in_front(error: ConverterError, place: str) -> None:
    if error.args and place not in str(error.args[0]):
        error.args = (f"{place}: {error.args[0]}", *error.args[1:])
