"""Attributes of nodes that say one thing only: named once, one field, of the type they claim."""

from functools import lru_cache

from onnx import AttributeProto, NodeProto, defs

from converters.errors import CorruptFileError, safe_repr

# Type of an attribute -> the field that holds its value.
_FIELDS = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.TYPE_PROTOS: "type_protos",
}
_VALUES = frozenset(_FIELDS.values())


def domain_of(name: str) -> str:
    """A domain's one name; ONNX's own has two."""
    return "" if name == "ai.onnx" else name


def check_attributes(node: NodeProto, inside: bool) -> None:
    """Refuse attributes that contradict themselves.

    Args:
        node: any node.
        inside: whether it stands in a function, whose attributes it may refer to.

    Raises:
        CorruptFileError: one is named twice, holds another field than its type says, or refers to
            a function's attribute where there is no function.
    """
    names = [attribute.name for attribute in node.attribute]
    if len(set(names)) < len(names):
        raise CorruptFileError(f"{_place(node)} has two attributes of one name")
    if node.op_type == "Constant" and not domain_of(node.domain) and len(names) != 1:
        raise CorruptFileError(f"{_place(node)} has {len(names)} values, expected one")
    for attribute in node.attribute:
        held = {field.name for field, _ in attribute.ListFields()} & _VALUES
        wanted = _FIELDS.get(attribute.type)
        referring = bool(attribute.ref_attr_name)
        if wanted is None or not held <= ({wanted} if not referring else set()):
            raise CorruptFileError(
                f"attribute {safe_repr(attribute.name)} of {_place(node)} has another value than "
                "its type says"
            )
        if referring and not inside:
            raise CorruptFileError(
                f"attribute {safe_repr(attribute.name)} of {_place(node)} refers to that of a "
                "function, outside of any"
            )


def check_types(node: NodeProto, domain: str, version: int) -> None:
    """Refuse attributes that the operator does not have, or has in another type.

    Raises:
        CorruptFileError: names them.
    """
    known = known_attributes(domain, node.op_type, version)
    if known is None:
        return
    strange = {attribute.name for attribute in node.attribute} - set(known)
    if strange:
        names = ", ".join(map(safe_repr, sorted(strange)[:5]))
        raise CorruptFileError(f"{node.op_type}-{version} has no attribute {names}")
    for attribute in node.attribute:
        if attribute.type != known[attribute.name]:
            raise CorruptFileError(
                f"attribute {safe_repr(attribute.name)} of {node.op_type}-{version} is of another "
                "type than the operator's"
            )


@lru_cache(maxsize=4096)
def known_attributes(domain: str, name: str, version: int) -> dict[str, int] | None:
    """Name -> type of the attributes in an operator's schema; None where none is known."""
    try:
        schema = defs.get_schema(name, domain=domain, max_inclusive_version=version)
    except defs.SchemaError:
        return None
    return {
        key: attribute.type.value  # pyright: ignore[reportAttributeAccessIssue]
        for key, attribute in schema.attributes.items()
    }


def _place(node: NodeProto) -> str:
    return f"{safe_repr(node.op_type)} node {safe_repr(node.name)}"
