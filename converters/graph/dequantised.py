"""Products that only take back the scale by which pixels were quantised before a trained layer.

`DynamicQuantizeLinear` makes 8-bit values of p by the range of p itself, a layer of whole weights
takes these, and its answers are multiplied by the scale again. The scale comes from the pixels and
passes the layer by, but all of it together is the layer of the rounded p. Every step is compared:
another scale, another zero point or another p would let pixels past the layer.
"""

from collections.abc import Collection, Mapping

from converters.graph.graph import CONSTANT, DType, Graph, Node, Ref
from converters.graph.structure import base_name

_COPIES = ("_to_copy", "to")
_SHAPES = ("view", "reshape", "_unsafe_view", "clone")
_WIDE = ("uint8", "int32", "int64", "float32", "float64")
"""Types that hold every whole number of 8 bits."""
_LAYERS = ("convolution", "mm", "matmul", "bmm")
_TINY = 1e-20
"""Below it stands the scale of values that are all 0."""


class Dequantisation:
    """Reads calls backwards.

    Attributes:
      graph: of the network.
      decided: values that the image decides.
    """

    def __init__(self, graph: Graph, decided: Collection[str]) -> None:
        self._graph, self._decided = graph, decided
        self._made: Mapping[str, Node] = {n.outputs[0]: n for n in graph.nodes if n.outputs[0]}

    def scale_taken_back(self, node: Node) -> str:
        """The factor of a product that is the scale of its other one, a layer's; "" if none is."""
        names = list(node.refs())
        if base_name(node) != "mul" or len(names) != 2:
            return ""
        pairs = (names, names[::-1])
        return next((factor for answer, factor in pairs if self._belong(answer, factor)), "")

    def _belong(self, answer: str, factor: str) -> bool:
        """Whether the layer behind `answer` takes values quantised by the scale in `factor`."""
        layer = self._made.get(self._behind(answer, (*_COPIES, *_SHAPES)))
        if layer is None or base_name(layer) not in _LAYERS:
            return False
        taken = [name for name in layer.refs() if name in self._decided]
        return len(taken) == 1 and self._is_centred(taken[0], self._scale(factor))

    def _scale(self, name: str) -> str:
        """The value in a product with constants that the image decides."""
        while (node := self._made.get(name)) is not None and base_name(node) == "mul":
            decided = [other for other in node.refs() if other in self._decided]
            if len(decided) != 1:
                break
            name = decided[0]
        return name

    def _is_centred(self, name: str, scale: str) -> bool:
        """Whether a value is p in 8 bits less the zero point, both by the range of p."""
        less = self._call(self._behind(name, (*_COPIES, *_SHAPES)), "sub")
        if not less:
            return False
        whole, zero = (self._behind(part, _COPIES) for part in less)
        moved = self._chain(whole, ("clamp", 0, 255), ("add",))
        if not moved or self._behind(moved[1], _COPIES) != zero:
            return False
        divided = self._chain(moved[0], ("round",), ("div",))
        if not divided or divided[1] != scale:
            return False
        ends = self._ends(scale, divided[0])
        return bool(ends) and self._is_zero(zero, ends[1], scale)

    def _ends(self, scale: str, pixels: str) -> tuple[str, ...]:
        """The two ends of the range of `pixels`, which makes the scale; else none.

        0 is included, except before opset 11 (`onnx.own_range`).
        """
        (spread,) = self._call(scale, "div", 255) or ("",)
        bare = self._call(spread, "sub")
        if bare:
            kinds = zip(bare, ("amax", "amin"), strict=True)
            whole = all(self._call(end, kind, (), False) == (pixels,) for end, kind in kinds)
            return bare if whole else ()
        floor = self._made.get(spread)
        least = floor.args[-1] if floor is not None and floor.args else None
        if not isinstance(least, float) or not 0 < least < _TINY:
            return ()
        ends = self._chain(spread, ("clamp_min", least), ("sub",))
        kinds = (("maximum", "amax"), ("minimum", "amin"))
        whole = ends and all(
            self._is_end(end, *kind, pixels) for end, kind in zip(ends, kinds, strict=True)
        )
        return ends if whole else ()

    def _is_zero(self, name: str, low: str, scale: str) -> bool:
        """Whether a value is the whole number that stands for 0."""
        divided = self._chain(name, ("round",), ("clamp", 0, 255), ("div",))
        divided = divided or self._chain(name, ("remainder", 256), ("floor",), ("div",))
        return bool(divided) and divided[1] == scale and self._call(divided[0], "neg") == (low,)

    def _is_end(self, name: str, with_zero: str, reduced: str, pixels: str) -> bool:
        """Whether a value is the largest, or the least, of all pixels and 0."""
        ends = self._call(name, with_zero)
        if len(ends) != 2 or not ends[1].startswith(CONSTANT):
            return False
        nothing = self._graph.constants[int(ends[1].removeprefix(CONSTANT))].array()
        return not nothing.any() and self._call(ends[0], reduced, (), False) == (pixels,)

    def _chain(self, name: str, *calls: tuple) -> tuple[str, ...]:
        """The values that the last of some calls uses, each made of the next."""
        used: tuple[str, ...] = (name,)
        for operator, *more in calls:
            used = self._call(used[0], operator, *more)
            if not used:
                break
        return used

    def _call(self, name: str, operator: str, *more: object) -> tuple[str, ...]:
        """The values that a call uses; none where `name` is made by another or in another way."""
        node = self._made.get(name)
        if node is None or base_name(node) != operator or node.kwargs not in ((), (("alpha", 1),)):
            return ()
        used = tuple(arg.name for arg in node.args if isinstance(arg, Ref))
        return used if node.args[len(used) :] == more else ()

    def _behind(self, name: str, passed: Collection[str]) -> str:
        """The value before calls that change its type or shape only."""
        while (node := self._made.get(name)) is not None and base_name(node) in passed:
            if base_name(node) in _COPIES and dict(node.kwargs).get("dtype") not in _TYPES:
                break
            name = node.args[0].name
        return name


_TYPES = tuple(map(DType, _WIDE))
