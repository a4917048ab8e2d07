"""Operators that ONNX's own suites hold no case of: a node, what it is given, what it must give."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, helper


@dataclass(frozen=True)
class OperatorCase:
    """One node.

    Attributes:
      operator: its name.
      opset: of its domain.
      inputs: in order; None for one that is left out.
      outputs: in order; None for one that is not compared with anything written.
      attributes: by name.
      domain: the empty one is ONNX's own.
      atol: how far outputs may lie from those written.
    """

    operator: str
    opset: int
    inputs: tuple[np.ndarray | None, ...]
    outputs: tuple[Any, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    atol: float = 1e-6

    @property
    def given(self) -> list[np.ndarray]:
        """The inputs that are not left out."""
        return [value for value in self.inputs if value is not None]

    def model(self) -> ModelProto:
        """A model of this node alone."""
        names = ["" if value is None else f"in{k}" for k, value in enumerate(self.inputs)]
        results = [f"out{k}" for k in range(len(self.outputs))]
        node = helper.make_node(
            self.operator, names, results, domain=self.domain, **self.attributes
        )
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in zip(names, self.inputs, strict=True)
            if value is not None
        ]
        outputs = [helper.make_tensor_value_info(name, 1, None) for name in results]
        opsets = {"": 17, self.domain: self.opset}
        imports = [helper.make_opsetid(*item) for item in opsets.items()]
        graph = helper.make_graph([node], "one", inputs, outputs)
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def _lp_pool(opset: int, p: int | None) -> OperatorCase:
    x = _normal(2, 3, 4, 5)
    expected = np.linalg.norm(x.reshape(2, 3, 20), ord=p or 2, axis=2)[..., None, None]
    attributes = {} if p is None else {"p": p}
    return OperatorCase("GlobalLpPool", opset, (x,), (expected,), attributes, atol=1e-5)


HIDDEN, INPUTS, STEPS = 3, 4, 5


def quantised_lstm(
    direction: str, per_column: bool, last: list[float] | None = None, lengths: Any = None
) -> OperatorCase:
    """onnxruntime's LSTM; `last` is its last hidden state, directions one after another."""
    rng = np.random.default_rng(0)
    directions = 2 if direction == "bidirectional" else 1
    w = rng.integers(-128, 128, (directions, INPUTS, 4 * HIDDEN)).astype(np.int8)
    r = rng.integers(-128, 128, (directions, HIDDEN, 4 * HIDDEN)).astype(np.int8)
    b = rng.normal(size=(directions, 8 * HIDDEN)).astype(np.float32)
    shape = (directions, 4 * HIDDEN) if per_column else (directions,)
    scales = [rng.uniform(0.005, 0.01, shape).astype(np.float32) for _ in range(2)]
    zero = np.zeros(shape, np.int8)
    x = np.random.default_rng(1).normal(size=(STEPS, 1, INPUTS)).astype(np.float32)
    states = None if last is None else np.reshape(last, (directions, 1, HIDDEN))
    return OperatorCase(
        "DynamicQuantizeLSTM",
        1,
        (x, w, r, b, lengths, None, None, None, scales[0], zero, scales[1], zero),
        (None, states, None),
        {"hidden_size": HIDDEN, "direction": direction},
        "com.microsoft",
        2e-5,
    )


CASES = {
    "global p-norm": _lp_pool(2, 3),
    "global p-norm, its own p": _lp_pool(22, None),
    # The numbers that onnxruntime 1.31.1 gave.
    "quantised LSTM, both ways": quantised_lstm(
        "bidirectional", False, [-0.06511, 0.16801, -0.17291, -0.04969, 0.13404, -0.02348]
    ),
    "quantised LSTM, scales of columns": quantised_lstm(
        "bidirectional", True, [-0.12009, 0.14319, -0.17645, -0.05400, 0.09142, -0.02535]
    ),
    "quantised LSTM, backwards": quantised_lstm("reverse", False, [-0.63367, -0.12044, 0.08591]),
    "quantised LSTM": quantised_lstm("forward", False, [-0.67916, 0.01074, 0.21089]),
}
