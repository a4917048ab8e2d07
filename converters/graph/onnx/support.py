"""Which ONNX operators are covered, in which versions and with which restrictions."""

from dataclasses import dataclass

from converters.graph.onnx import extensions
from converters.graph.onnx.foreign import covered
from converters.graph.onnx.operators import entries


@dataclass(frozen=True)
class Support:
    """One operator.

    Attributes:
        domain: the empty one is ONNX's own.
        operator: its name.
        versions: opset versions of its schema, ascending.
        restrictions: what is refused; empty for nothing.
        by: "ours", or "onnx2torch" where only its converter covers a version.
    """

    domain: str
    operator: str
    versions: tuple[int, ...]
    restrictions: str
    by: str


def onnx_operators() -> list[Support]:
    """Every operator that a graph may hold, from the registries, by name."""
    found: dict[tuple[str, str], dict[int, tuple[str, str]]] = {}
    for domain, name, version in covered():
        found.setdefault((domain, name), {})[version] = ("", "onnx2torch")
    for (domain, name, version), entry in entries().items():
        found.setdefault((domain, name), {})[version] = (entry.restrictions, "ours")
    for domain, name, version in extensions.SPECIAL:
        text = "what decides it must be known" if name in _DECIDED else ""
        found.setdefault((domain, name), {})[version] = (text, "ours")
    return [_support(domain, name, found[domain, name]) for domain, name in sorted(found)]


_DECIDED = ("If", "Loop", "Scan", "SequenceMap")


def _support(domain: str, name: str, versions: dict[int, tuple[str, str]]) -> Support:
    restrictions = dict.fromkeys(text for text, _ in versions.values() if text)
    ours = all(by == "ours" for _, by in versions.values())
    by = "ours" if ours else "onnx2torch"
    return Support(domain, name, tuple(sorted(versions)), "; ".join(restrictions), by)
