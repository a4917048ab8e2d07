"""One small network in floating numbers, and as onnxruntime's quantiser writes it in two ways."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from tests.onnx.conftest import ModelMaker

node = helper.make_node
LAYERS = ("conv1", "conv2", "fc")


def weights() -> dict[str, Any]:
    """Of the three layers; each also in 8 bits, with its scale."""
    draw = np.random.default_rng(2)
    made: dict[str, Any] = {"zero": np.uint8(0), "scale": np.float32(1 / 255)}
    for name, shape in zip(LAYERS, ((6, 3, 3, 3), (8, 6, 3, 3), (128, 5)), strict=True):
        values = draw.normal(0, 0.3, shape).astype(np.float32)
        scale = np.float32(np.abs(values).max() / 100)
        made |= {f"{name}.scale": scale, f"{name}.q": np.round(values / scale).astype(np.int8)}
        made[f"{name}.w"] = made[f"{name}.q"].astype(np.float32) * scale
        made[f"{name}.zero"] = np.int8(0)
    return made


@dataclass
class Writer:
    """Collects the nodes of a network; `form` is float, dynamic or qdq."""

    form: str
    nodes: list[NodeProto] = field(default_factory=list)

    def add(self, kind: str, inputs: list[str], output: str, **attributes) -> str:
        """A node of one output; its name."""
        self.nodes.append(node(kind, inputs, [output], **attributes))
        return output

    def layer(self, name: str, x: str) -> str:
        """A convolution, or a product of matrices, of the weights `name`."""
        kind, more = ("MatMul", {}) if name == "fc" else ("Conv", {"pads": [1] * 4})
        if self.form != "dynamic":
            return self.add(kind, [self.rounded(x, f"{name}.in"), f"{name}.w"], name, **more)
        parts = [f"{name}.x", f"{name}.by", f"{name}.around"]
        self.nodes.append(node("DynamicQuantizeLinear", [x], parts))
        scale = self.add("Mul", [parts[1], f"{name}.scale"], f"{name}.both")
        whole = self.add(
            f"{kind}Integer",
            [parts[0], f"{name}.q", parts[2], f"{name}.zero"],
            f"{name}.whole",
            **more,
        )
        return self.add("Mul", [self.add("Cast", [whole], f"{name}.f", to=1), scale], name)

    def rounded(self, x: str, to: str) -> str:
        """A value through 8 bits, where the form is qdq."""
        if self.form != "qdq":
            return x
        scale = "scale" if x == "image" else "wide"
        whole = self.add("QuantizeLinear", [x, scale, "zero"], f"{to}.whole")
        return self.add("DequantizeLinear", [whole, scale, "zero"], to)


def network(form: str, batch: int | str = "batch"):
    """The network over `[batch, 3, 8, 8]` as an ONNX model."""
    writer = Writer(form)
    x = writer.add("Relu", [writer.layer("conv1", "image")], "a")
    x = writer.add("MaxPool", [x], "b", kernel_shape=[2, 2], strides=[2, 2])
    x = writer.add("Relu", [writer.layer("conv2", x)], "c")
    writer.add("Identity", [writer.layer("fc", writer.add("Flatten", [x], "d"))], "logits")
    values = weights() | {"wide": np.float32(0.02)}
    return ModelMaker()(writer.nodes, {"image": [batch, 3, 8, 8]}, ["logits"], values, opset=19)
