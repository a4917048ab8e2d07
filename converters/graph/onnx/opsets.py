"""Versions of operators: those that a model imports, and those that a function of its file does."""

from collections.abc import Iterable, Mapping

from onnx import NodeProto, OperatorSetIdProto

from converters.errors import UnsupportedOperatorError, safe_repr
from converters.graph.onnx.attributes import domain_of
from converters.graph.onnx.operators import schema_version


def opsets_of(imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """Domain -> version; ONNX's own domain is the empty one, by either of its names."""
    return {domain_of(o.domain): o.version for o in imports}


def agreed_opset(node: NodeProto, own: Mapping[str, int], models: Mapping[str, int]) -> int:
    """The version of the node's domain, where a function and the model agree on the operator.

    onnxruntime runs functions in the versions of the model.

    Args:
        node: of a function, or of the model's graph.
        own: what the function imports, or the model.
        models: what the model imports.

    Raises:
        UnsupportedOperatorError: one does not import the domain, or means another operator.
    """
    domain = domain_of(node.domain)
    try:
        here, there = own[domain], models[domain]
    except KeyError:
        raise UnsupportedOperatorError(
            f"the file imports no opset of domain {safe_repr(domain)}; its operators are unknown"
        ) from None
    versions = [schema_version(domain, node.op_type, opset) for opset in (here, there)]
    if here != there and versions[0] != versions[1]:
        raise UnsupportedOperatorError(
            f"a function uses it as of opset {safe_repr(here)}, the model imports "
            f"{safe_repr(there)}, in which it is another; export both with one opset"
        )
    return here
