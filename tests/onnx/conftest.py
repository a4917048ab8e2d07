"""Small ONNX models for the tests."""

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper


@pytest.fixture(autouse=True)
def _compiled_quickly(quick_compilation):
    """Programs of these tests run once or twice each."""


class ModelMaker:
    """Makes ONNX models in few words."""

    def __call__(self, nodes, inputs, outputs, weights=(), opset=17, **more) -> ModelProto:
        """A model; `inputs` is name -> shape, `weights` name -> array."""
        graph = helper.make_graph(
            nodes,
            "net",
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                for name, shape in inputs.items()
            ],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [numpy_helper.from_array(np.asarray(v), k) for k, v in dict(weights).items()],
        )
        imports = [helper.make_opsetid("", opset), *more.pop("imports", [])]
        return helper.make_model(graph, opset_imports=imports, ir_version=8, **more)

    def classifier(self, seed: int = 0, classes: int = 5) -> ModelProto:
        """A small convolutional network in the way torch exports it."""
        draw = np.random.default_rng(seed)

        def weight(*shape):
            return draw.normal(0, 0.3, shape).astype(np.float32)

        nodes = [
            helper.make_node(
                "Conv", ["image", "conv.weight", "conv.bias"], ["a"], pads=[1, 1, 1, 1]
            ),
            helper.make_node(
                "BatchNormalization", ["a", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["b"]
            ),
            helper.make_node("Relu", ["b"], ["c"]),
            helper.make_node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("Shape", ["d"], ["shape"]),
            helper.make_node("Gather", ["shape", "zero"], ["batch"]),
            helper.make_node("Concat", ["batch", "rest"], ["flat"], axis=0),
            helper.make_node("Reshape", ["d", "flat"], ["e"]),
            helper.make_node("Gemm", ["e", "fc.weight", "fc.bias"], ["logits"], transB=1),
        ]
        weights = {
            "conv.weight": weight(4, 3, 3, 3),
            "conv.bias": weight(4),
            "bn.weight": weight(4) + 1,
            "bn.bias": weight(4),
            "bn.mean": weight(4),
            "bn.var": np.abs(weight(4)) + 0.5,
            "zero": np.array([0]),
            "rest": np.array([-1]),
            "fc.weight": weight(classes, 4 * 4 * 4),
            "fc.bias": weight(classes),
        }
        return self(nodes, {"image": ["batch", 3, 8, 8]}, ["logits"], weights)


@pytest.fixture
def make() -> ModelMaker:
    """Makes ONNX models."""
    return ModelMaker()


@pytest.fixture
def save(tmp_path):
    """Writes a model and gives its path."""

    def write(model):
        path = tmp_path / "small.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return write
