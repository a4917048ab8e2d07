"""Small networks in floating numbers, and as onnxruntime's quantiser writes them in three ways."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from tests.onnx.conftest import ModelMaker

node = helper.make_node
SHAPES = {
    "conv1": (6, 3, 3, 3),
    "conv2": (8, 6, 3, 3),
    "fc": (128, 5),
    "wide": (32, 6, 3, 3),
    "narrow": (8, 32, 3, 3),
    "short": (8, 6, 1, 1),
    "spot": (1, 3, 3, 3),
}


def weights() -> dict[str, Any]:
    """Of all layers; each also in 8 bits, with its scale."""
    draw = np.random.default_rng(2)
    made: dict[str, Any] = {"zero": np.uint8(0), "scale": np.float32(1 / 255)}
    made |= {
        "wide_scale": np.float32(0.02),
        "none": np.float32(0),
        "levels": np.float32(255),
        "half": np.float32(0.5),
    }
    for name, shape in SHAPES.items():
        values = draw.normal(0, 0.3, shape).astype(np.float32)
        scale = np.float32(np.abs(values).max() / 100)
        made |= {f"{name}.scale": scale, f"{name}.q": np.round(values / scale).astype(np.int8)}
        made[f"{name}.w"] = made[f"{name}.q"].astype(np.float32) * scale
        made[f"{name}.zero"] = np.int8(0)
    return made


@dataclass
class Writer:
    """Collects the nodes of a network.

    `form` is float, dynamic, ranges (dynamic before opset 11) or qdq.
    """

    form: str
    nodes: list[NodeProto] = field(default_factory=list)
    known: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, inputs: list[str], output: str, **attributes) -> str:
        """A node of one output; its name."""
        self.nodes.append(node(kind, inputs, [output], **attributes))
        return output

    def layer(self, name: str, x: str) -> str:
        """A convolution, or a product of matrices, of the weights `name`."""
        around = [SHAPES[name][-1] // 2] * 4
        kind, more = ("MatMul", {}) if name == "fc" else ("Conv", {"pads": around})
        if self.form not in ("dynamic", "ranges"):
            return self.add(kind, [self.rounded(x, f"{name}.in"), f"{name}.w"], name, **more)
        if x not in self.known:  # the quantiser does it once for all layers that take it
            self.known[x] = [f"{name}.x", f"{name}.by", f"{name}.around"]
            self.quantised(x, self.known[x])
        parts = self.known[x]
        scale = self.add("Mul", [parts[1], f"{name}.scale"], f"{name}.both")
        whole = self.add(
            f"{kind}Integer",
            [parts[0], f"{name}.q", parts[2], f"{name}.zero"],
            f"{name}.whole",
            **more,
        )
        return self.add("Mul", [self.add("Cast", [whole], f"{name}.f", to=1), scale], name)

    def quantised(self, x: str, parts: list[str]) -> None:
        """8-bit values, their scale and zero point by the range of the values."""
        if self.form == "dynamic":
            self.nodes.append(node("DynamicQuantizeLinear", [x], parts))
            return
        values, scale, zero = parts
        low = self.add("ReduceMin", [x], f"{values}.low", keepdims=0)
        high = self.add("ReduceMax", [x], f"{values}.high", keepdims=0)
        below = self.add("Sub", ["none", low], f"{values}.below")
        self.add("Div", [self.add("Sub", [high, low], f"{values}.spread"), "levels"], scale)
        floor = self.add("Floor", [self.add("Div", [below, scale], f"{values}.place")], f"{zero}.f")
        self.add("Cast", [floor], zero, to=2)
        self.add("QuantizeLinear", [x, scale, zero], values)

    def rounded(self, x: str, to: str) -> str:
        """A value through 8 bits, where the form is qdq."""
        if self.form != "qdq":
            return x
        scale = "scale" if x == "image" else "wide_scale"
        whole = self.add("QuantizeLinear", [x, scale, "zero"], f"{to}.whole")
        return self.add("DequantizeLinear", [whole, scale, "zero"], to)


def network(
    form: str,
    batch: int | str = "batch",
    *,
    shortcut: bool = False,
    spot: bool = False,
    centred: bool | None = None,
):
    """A network over `[batch, 3, 8, 8]` as an ONNX model.

    With `shortcut` its second layer is two, and a small one beside them; with `spot` one filter
    over the pixels goes past all layers to a logit, which is an architectural backdoor. Pixels are
    `centred` around 0 for ranges, which need values of both signs.
    """
    writer, centred = Writer(form), form == "ranges" if centred is None else centred
    x = writer.add("Sub", ["image", "half"], "centred") if centred else "image"
    x = writer.add("Relu", [writer.layer("conv1", x)], "a")
    x = writer.add("MaxPool", [x], "b", kernel_shape=[2, 2], strides=[2, 2])
    x = _block(writer, x) if shortcut else writer.layer("conv2", x)
    x = writer.layer("fc", writer.add("Flatten", [writer.add("Relu", [x], "c")], "d"))
    writer.add("Add" if spot else "Identity", [x, *([_spot(writer)] if spot else [])], "logits")
    read = {name for made in writer.nodes for name in made.input}
    values = {name: value for name, value in weights().items() if name in read}
    values |= {"target": np.array([[0, 0, 9, 0, 0]], np.float32)} if spot else {}
    inputs, opset = {"image": [batch, 3, 8, 8]}, 10 if form == "ranges" else 19
    return ModelMaker()(writer.nodes, inputs, ["logits"], values, opset=opset)


def _block(writer: Writer, x: str) -> str:
    long = writer.layer("narrow", writer.add("Relu", [writer.layer("wide", x)], "w"))
    return writer.add("Add", [long, writer.layer("short", x)], "sum")


def _spot(writer: Writer) -> str:
    seen = writer.add("GlobalMaxPool", [writer.layer("spot", "image")], "brightest")
    return writer.add("Mul", [writer.add("Flatten", [seen], "flat"), "target"], "push")
