"""What a file says of a network: shapes of its tensors and, where they were saved, its modules."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from converters.errors import MismatchError, safe_repr
from converters.families.computed import how_to_remove, is_computed_from
from converters.weights import ModuleInfo, Plain

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Description:
    """Shapes and modules; each question that a file does not answer raises MismatchError.

    Attributes:
      shapes: torch name -> shape of every tensor.
      modules: torch path -> class and plain attributes; those of a standard network where the file
        is a state dict, which names no strides.
    """

    shapes: Mapping[str, Shape]
    modules: Mapping[str, ModuleInfo]

    def within(self, path: str) -> "Description":
        """What the file says of the part at `path`, by the names that it has as a whole network."""
        first = f"{path}."
        shapes = {n.removeprefix(first): s for n, s in self.shapes.items() if n.startswith(first)}
        modules = {n.removeprefix(first): m for n, m in self.modules.items() if n.startswith(first)}
        return Description(shapes, {"": self.modules[path], **modules})

    def shape(self, name: str, ndim: int) -> Shape:
        """Shape of a tensor that the network cannot do without."""
        shape = self.shapes.get(name)
        if shape is None:
            raise MismatchError(
                f"the file has no {name}, which every network of this class has"
                f"{self._stored_instead(name)}"
            )
        if len(shape) != ndim or 0 in shape:
            raise MismatchError(
                f"{name} has shape {shape}, expected {ndim} dimensions, none of them 0"
            )
        return shape

    def _stored_instead(self, name: str) -> str:
        """Tensors of its layer that the missing weight is computed from, and what to do."""
        layer = name.removesuffix(name.rpartition(".")[2])
        beside = [n for n in self.shapes if n.startswith(layer) and is_computed_from(n)]
        return f", but {', '.join(beside[:3])}; {how_to_remove(beside)}" if beside else ""

    def rows(self, name: str) -> int:
        """Outputs of a convolution or of a linear layer."""
        return self.shape(name, len(self.shapes.get(name, (1, 1))))[0]

    def is_convolution(self, path: str) -> bool:
        """Whether the layer there has the weight of a two-dimensional convolution."""
        return len(self.shapes.get(f"{path}.weight", ())) == 4

    def children(self, path: str) -> list[int]:
        """Numbers of the numbered submodules of `path` that hold tensors, in order."""
        return sorted(self._children.get(path, ()))

    @cached_property
    def _children(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for name in self.shapes:
            parts = name.split(".")
            for k, part in enumerate(parts[:-1]):
                if re.fullmatch(r"[0-9]{1,4}", part):
                    found.setdefault(".".join(parts[:k]), set()).add(int(part))
        return found

    def attribute(self, path: str, name: str) -> Plain:
        """A plain attribute of a module; None where it is not recorded."""
        info = self.modules.get(path)
        return None if info is None else info.attributes.get(name)

    def kind(self, path: str) -> str:
        """Class name of a module without its package; empty where there is none."""
        info = self.modules.get(path)
        return "" if info is None else info.class_name.rpartition(".")[2]

    def number(self, path: str, name: str, most: int = 4096, default: int | None = None) -> int:
        """An attribute that is one whole number from 1, or the same one for height and width.

        `default` serves where it is not recorded.
        """
        value = self.attribute(path, name)
        value = default if value is None else value
        if isinstance(value, tuple) and len(set(value)) == 1:
            value = value[0]
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise MismatchError(
                f"{path}.{name} is {safe_repr(value)}, expected one whole number from 1 to {most}; "
                "where the file does not say it, save the whole network"
            )
        return value

    def pair(self, path: str, name: str, default: tuple[int, int]) -> tuple[int, int]:
        """An attribute that is height and width from 1; `default` where it is not recorded."""
        value = self.attribute(path, name)
        if value is None:
            return default
        sizes = value if isinstance(value, tuple) else ()
        whole = [n for n in sizes if isinstance(n, int) and 1 <= n <= 1024]
        if len(sizes) != 2 or len(whole) != 2:
            raise MismatchError(f"{path}.{name} is {safe_repr(value)}, expected two whole numbers")
        return whole[0], whole[1]

    def epsilon(self, path: str, default: float | None = None) -> float:
        """What a norm adds to the variance; `default` where it is not recorded."""
        value = self.attribute(path, "eps")
        value = default if value is None else value
        if not isinstance(value, float) or not 0 < value < 1:
            raise MismatchError(f"{path}.eps is {safe_repr(value)}, expected a number in (0, 1)")
        return value
