"""How an ONNX operator is written as torch calls, and where it is registered.

An operator is a function ``f(call, *inputs)`` of torch tensors: absent optional inputs are `None`,
inputs that decide shapes (`static` positions) arrive as NumPy arrays, and attributes carry the
defaults of the operator's schema. `operator` registers it under every version named. What is not
registered here is asked of onnx2torch (`foreign`). Ours wins where both have one: onnx2torch reads
weights at conversion and renames them, here they stay inputs and keep their names.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from onnx import defs
from onnx.helper import get_attribute_value

from converters.errors import UnsupportedOperatorError
from converters.graph.onnx.attributes import check_types

Function = Callable[..., Any]
ONNX = ""


@dataclass(frozen=True)
class Call:
    """What a node says besides its inputs.

    Attributes:
        operator: the ONNX name.
        version: the opset version since which its schema holds.
        attributes: name -> value, the schema's defaults filled in.
        outputs: how many outputs the node names, trailing unnamed ones left out.
        domain: of the operator; ONNX's own is the empty one.
    """

    operator: str
    version: int
    attributes: Mapping[str, Any]
    outputs: int = 1
    domain: str = ONNX

    def __getitem__(self, name: str) -> Any:
        """The attribute, its schema's default, or None where it has none."""
        return self.attributes.get(name)

    def refuse(self, reason: str) -> UnsupportedOperatorError:
        """The error of a form of the operator that is not covered."""
        name = f"{self.domain + '.' if self.domain else ''}{self.operator}-{self.version}"
        return UnsupportedOperatorError(f"ONNX operator {name}: {reason}", operator=name)


@dataclass(frozen=True)
class Entry:
    """One operator in one version.

    Attributes:
        function: the torch calls.
        static: positions of inputs whose values decide shapes or branches.
        restrictions: what is not covered, for the support table.
        check: given the call and its inputs, None for those that depend on the image, it raises
            where a known value is not covered.
    """

    function: Function
    static: tuple[int, ...]
    restrictions: str
    check: Callable[..., None] | None = None


_ENTRIES: dict[tuple[str, str, int], Entry] = {}


class Operation(torch.nn.Module):
    """One node of ours as a module without state.

    Args:
        function: the torch calls.
        call: what the node says.
        bound: position -> array, for static inputs known at conversion.
    """

    def __init__(self, function: Function, call: Call, bound: Mapping[int, np.ndarray]):
        super().__init__()
        self.function = function
        self.call = call
        self.bound = dict(bound)

    def forward(self, *inputs):
        """The node's outputs for those inputs that are not bound, in order."""
        given = iter(inputs)
        total = len(inputs) + len(self.bound)
        merged = (self.bound[k] if k in self.bound else next(given) for k in range(total))
        return self.function(self.call, *merged)


def operator(
    name: str,
    versions: Iterable[int],
    static: tuple[int, ...] = (),
    domain: str = ONNX,
    restrictions: str = "",
    check: Callable[..., None] | None = None,
) -> Callable[[Function], Function]:
    """Decorator: this function is the operator in these versions; duplicates raise ValueError."""

    def register(function: Function) -> Function:
        entry = Entry(function, static, restrictions, check)
        for version in versions:
            key = (domain, name, version)
            if key in _ENTRIES:
                raise ValueError(f"operator {key} is registered twice")
            _ENTRIES[key] = entry
        return function

    return register


@lru_cache(maxsize=4096)
def schema_version(domain: str, name: str, opset: int) -> int:
    """The version since which the schema holds that `opset` uses; `opset` where none is known."""
    try:
        return defs.get_schema(name, domain=domain, max_inclusive_version=opset).since_version
    except defs.SchemaError:
        return opset


@lru_cache(maxsize=4096)
def _defaults(domain: str, name: str, version: int) -> Mapping[str, Any]:
    try:
        schema = defs.get_schema(name, domain=domain, max_inclusive_version=version)
    except defs.SchemaError:
        return {}
    return {
        key: _plain(attribute.default_value)
        for key, attribute in schema.attributes.items()
        if attribute.default_value.name
    }


def _plain(attribute) -> Any:
    value = get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, (int, float)) or hasattr(value, "DESCRIPTOR"):
        return value
    return [v.decode("utf-8", errors="replace") if isinstance(v, bytes) else v for v in value]


def call_of(node, version: int) -> Call:
    """What a NodeProto says, its schema's defaults filled in.

    Raises CorruptFileError for attributes that the operator does not have, or in another type.
    """
    domain = ONNX if node.domain == "ai.onnx" else node.domain
    check_types(node, domain, version)
    attributes = dict(_defaults(domain, node.op_type, version))
    attributes |= {attribute.name: _plain(attribute) for attribute in node.attribute}
    named = [k + 1 for k, output in enumerate(node.output) if output]
    return Call(node.op_type, version, attributes, max(named, default=0), domain)


def find(domain: str, name: str, version: int) -> Entry | None:
    """Our entry of an operator in the version of its schema, or None."""
    return _ENTRIES.get((domain, name, version))


def entries() -> Mapping[tuple[str, str, int], Entry]:
    """All our entries: (domain, operator, version) -> entry."""
    return dict(_ENTRIES)
