"""Writes small networks as ONNX files, by the operators that torch's exporters use for them."""

from pathlib import Path

import numpy as np
from flax import nnx

from converters.families.layers import Conv
from converters.files import write_atomic
from converters.model import params_of
from jaxtroj.errors import GenerationError
from jaxtroj.generate.small.networks import EPS, Plain, Residual

_OPSET, _IR_VERSION = 17, 8
_NORM = {"scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}


class _Writer:
    """Nodes and weights in the making; each method adds one call and returns its result's name."""

    def __init__(self):
        self.nodes, self.weights, self.count = [], [], 0

    def call(self, operator: str, *inputs: str, **attributes) -> str:
        from onnx import helper

        self.count += 1
        name = f"v{self.count}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def weight(self, name: str, value) -> str:
        from onnx import numpy_helper

        array = np.ascontiguousarray(np.asarray(value, np.float32))
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, x: str, name: str, layer: Conv) -> str:
        kernel = np.asarray(layer.kernel[...]).transpose(3, 2, 0, 1)
        pads = [*layer.padding, *layer.padding]
        weight = self.weight(f"{name}.weight", kernel)
        return self.call("Conv", x, weight, strides=list(layer.stride), pads=pads)

    def norm(self, x: str, name: str, layer: nnx.BatchNorm) -> str:
        values = params_of(layer)
        names = [self.weight(f"{name}.{key}", values[own]) for own, key in _NORM.items()]
        return self.call("BatchNormalization", x, *names, epsilon=EPS)

    def head(self, x: str, layer: nnx.Linear) -> str:
        pooled = self.call("Flatten", self.call("GlobalAveragePool", x))
        weight = self.weight("fc.weight", np.asarray(layer.kernel[...]).T)
        bias = self.weight("fc.bias", params_of(layer)["bias"])
        return self.call("Gemm", pooled, weight, bias, transB=1)


def write_onnx(path: Path, network: nnx.Module, size: tuple[int, int]) -> None:
    """Write a network for pictures `[n, 3, h, w]` in [0, 1], RGB; `size` is height and width.

    The batch is left open. Raises GenerationError for a network of another kind.
    """
    from onnx import TensorProto, helper

    writer = _Writer()
    if isinstance(network, Residual):
        body = _residual(writer, network)
    elif isinstance(network, Plain):
        body = _plain(writer, network)
    else:
        raise GenerationError(f"a {type(network).__name__} is no small network")
    logits = writer.head(body, network.head)
    classes = network.head.out_features
    graph = helper.make_graph(
        writer.nodes,
        "network",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, *size])],
        [helper.make_tensor_value_info(logits, TensorProto.FLOAT, ["n", classes])],
        writer.weights,
    )
    opset = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(graph, opset_imports=opset, producer_name="jaxtroj")
    model.ir_version = _IR_VERSION
    write_atomic(path, model.SerializeToString(deterministic=True))


def _residual(writer: _Writer, network: Residual) -> str:
    x = writer.conv("images", "conv1", network.stem)
    for number, block in enumerate(network.blocks):
        name = f"blocks.{number}"
        active = writer.call("Relu", writer.norm(x, f"{name}.bn1", block.bn1))
        y = writer.norm(writer.conv(active, f"{name}.conv1", block.conv1), f"{name}.bn2", block.bn2)
        y = writer.conv(writer.call("Relu", y), f"{name}.conv2", block.conv2)
        if block.shortcut is not None:
            x = writer.conv(active, f"{name}.shortcut", block.shortcut)
        x = writer.call("Add", y, x)
    return writer.call("Relu", writer.norm(x, "bn", network.norm))


def _plain(writer: _Writer, network: Plain) -> str:
    x = "images"
    for number, (conv, norm) in enumerate(zip(network.convs, network.norms, strict=True)):
        x = writer.norm(writer.conv(x, f"conv{number}", conv), f"bn{number}", norm)
        x = writer.call("Relu", x)
    return x
