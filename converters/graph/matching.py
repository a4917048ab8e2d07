"""Whether two graphs compute the same function of their weights, whatever the weights are called.

Both are walked from their outputs, pair by pair. A pair matches if both sides are the same kind of
call with the same numbers and their operands match. Spellings that mean the same are one kind (see
`spellings`), and reshapes are compared by the shapes before and after them alone, since they keep
the order of elements. Anything else must be equal call for call: what is not understood does not
match.
"""

from collections.abc import Mapping
from types import MappingProxyType

from converters.graph.graph import CONSTANT, INPUT, PARAM, Graph
from converters.graph.spellings import Side


def weights_of(
    ours: Graph, theirs: Graph, scalars: Mapping[str, float] = MappingProxyType({})
) -> dict[str, str] | None:
    """Which of our parameters is which of theirs, if both graphs compute the same.

    Args:
      ours: the graph whose function is known.
      theirs: another, each with one input and one output.
      scalars: values of those parameters of theirs that are one number; where ours has a number
        in its code, such a parameter may stand.

    Returns:
      Our name -> their name of every parameter of ours, or None if they differ. Parameters of the
      same name have the same shape.
    """
    if len(ours.outputs) != 1 or len(theirs.outputs) != 1 or ours.inputs != theirs.inputs:
        return None
    left, right = Side(ours, {}), Side(theirs, scalars)
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    pending = [(ours.outputs[0].name, theirs.outputs[0].name)]
    while pending:
        pair = pending.pop()
        if pair in seen:
            continue
        seen.add(pair)
        operands = _operands(left, right, pair, found)
        if operands is None:
            return None
        pending += operands
    # A parameter that stands for two of theirs, or the other way round, is another network.
    matched, all_theirs = set(found.values()), {name for name, _ in theirs.params}
    whole = len(found) == len(ours.params) == len(matched)
    return found if whole and matched | right.used_scalars == all_theirs else None


def _operands(left: Side, right: Side, pair: tuple[str, str], found: dict[str, str]):
    """The pairs that a pair rests on; None if it does not match. Notes weights in `found`."""
    if left.shape(pair[0]) != right.shape(pair[1]):
        return None
    ours, theirs = left.source(pair[0]), right.source(pair[1])
    if _bare(left.shape(ours)) != _bare(right.shape(theirs)):
        return None
    if ours.startswith(PARAM) and theirs.startswith(PARAM):
        name, other = ours.removeprefix(PARAM), theirs.removeprefix(PARAM)
        same = left.shape(ours) == right.shape(theirs) and found.setdefault(name, other) == other
        return [] if same else None
    if ours.startswith((INPUT, CONSTANT)) or theirs.startswith((INPUT, CONSTANT, PARAM)):
        return [] if _same_leaf(left.graph, right.graph, ours, theirs) else None
    if ours.startswith(PARAM):
        return None
    call, other = left.call(ours), right.call(theirs)
    if (call.kind, call.numbers) != (other.kind, other.numbers):
        return None
    if len(call.operands) != len(other.operands):
        return None
    pairs = list(zip(call.operands, other.operands, strict=True))
    if any((a is None) != (b is None) for a, b in pairs):
        return None
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without axes of one element, which a pool keeps or drops."""
    return tuple(n for n in shape if n != 1)


def _same_leaf(ours: Graph, theirs: Graph, name: str, other: str) -> bool:
    if name.startswith(INPUT):
        return name == other
    if not (name.startswith(CONSTANT) and other.startswith(CONSTANT)):
        return False
    ours_is = ours.constants[int(name.removeprefix(CONSTANT))]
    return ours_is == theirs.constants[int(other.removeprefix(CONSTANT))]
