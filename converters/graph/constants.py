"""What of a graph no image decides, as arrays: weights, constants, and what calls make of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from converters.graph.graph import CONSTANT, INPUT, PARAM, Graph, Ref, pruned
from converters.graph.recorder import Captured
from converters.graph.replay import run


class Constants:
    """Reads them.

    Attributes:
      graph: the network.
      of_image: names of the values that the image decides.
    """

    def __init__(self, captured: Captured) -> None:
        self.graph, self._params = captured.graph, captured.params
        self.of_image = {f"{INPUT}0"}
        for node in self.graph.nodes:
            if not self.of_image.isdisjoint(node.refs()):
                self.of_image.update(filter(None, node.outputs))
        self._made = {name: n for n in self.graph.nodes for name in n.outputs if name}
        self._run: dict[str, np.ndarray] = {}

    def array(self, value: Any) -> np.ndarray | None:
        """An argument as an array; None of what the image decides, and of what is no number."""
        if isinstance(value, Ref):
            return None if value.name in self.of_image else self._named(value.name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return np.asarray(value, np.float64) if is_number else None

    def arrays(self, values: Sequence[Any]) -> list[np.ndarray]:
        """Those of them that are constants."""
        return [array for value in values if (array := self.array(value)) is not None]

    def _named(self, name: str) -> np.ndarray:
        if name.startswith(PARAM):
            return np.asarray(self._params[name.removeprefix(PARAM)])
        if name.startswith(CONSTANT):
            return self.graph.constants[int(name.removeprefix(CONSTANT))].array()
        if name not in self._run:
            self._run[name] = self._computed(name)
        return self._run[name]

    def _computed(self, name: str) -> np.ndarray:
        """A value that calls make of weights alone."""
        graph = self.graph
        nodes = tuple(node for node in graph.nodes if self.of_image.isdisjoint(node.refs()))
        part = pruned(Graph((), graph.params, graph.constants, nodes, (Ref(name),)))
        params = {key: np.asarray(self._params[key], np.float32) for key, _ in part.params}
        return np.asarray(run(part, params, [])[0])
