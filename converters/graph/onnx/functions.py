"""Functions that a model file defines itself: their bodies with the caller's attributes put in."""

from collections.abc import Mapping

from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto

from converters.errors import CorruptFileError, safe_repr

FunctionTable = Mapping[tuple[str, str, str], FunctionProto]


def functions_of(model: ModelProto) -> FunctionTable:
    """(domain, name, overload) -> function; raises CorruptFileError where two have the same."""
    table: dict[tuple[str, str, str], FunctionProto] = {}
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        if any(":" in part for part in key):
            raise CorruptFileError(
                f"function {safe_repr(function.name)} has a colon in its name, domain or overload,"
                " by which runtimes join these"
            )
        if key in table:
            raise CorruptFileError(f"function {safe_repr(function.name)} is defined twice")
        table[key] = function
    return table


def body_of(function: FunctionProto, caller: NodeProto) -> list[NodeProto]:
    """The nodes of a function for one call of it."""
    given = {attribute.name: attribute for attribute in caller.attribute}
    defaults = {attribute.name: attribute for attribute in function.attribute_proto}
    return [_filled(node, {**defaults, **given}) for node in function.node]


def _filled(node: NodeProto, given: Mapping[str, AttributeProto]) -> NodeProto:
    """A copy of a node, its references to the function's attributes replaced."""
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.append(_filled_graph(attribute, given))
        elif attribute.ref_attr_name in given:
            value = AttributeProto()
            value.CopyFrom(given[attribute.ref_attr_name])
            value.name = attribute.name
            copy.attribute.append(value)
    return copy


def _filled_graph(attribute: AttributeProto, given: Mapping[str, AttributeProto]) -> AttributeProto:
    if not attribute.HasField("g"):
        return attribute
    copy = AttributeProto()
    copy.CopyFrom(attribute)
    nodes = [_filled(node, given) for node in attribute.g.node]
    del copy.g.node[:]
    copy.g.node.extend(nodes)
    return copy
