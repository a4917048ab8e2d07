"""What `to_torch` builds: weights by name, constants folded, structure known or refused."""

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from converters.errors import ConversionError, TooLargeError, UnsupportedOperatorError
from converters.graph.onnx import OnnxLimits, to_torch
from converters.graph.onnx.batch_use import BatchUse
from converters.graph.onnx.torch_module import build

IMAGE = (1, 3, 8, 8)


def _image(shape=IMAGE):
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def _agrees(model, shapes, rtol=1e-5):
    feeds = {name: _image(shape) for name, shape in shapes.items()}
    module = to_torch(model, shapes)
    got = module(*(torch.from_numpy(feeds[name]) for name in module.input_names))
    got = got if isinstance(got, tuple) else (got,)
    answers: Any = ReferenceEvaluator(model).run(None, feeds)
    for ours, expected in zip(got, answers, strict=True):
        np.testing.assert_allclose(ours.numpy(), expected, rtol=rtol, atol=1e-6)
    return module


def test_weights_keep_their_names_and_shapes_are_folded(make):
    module = _agrees(make.classifier(), {"image": IMAGE})
    names = {"conv.weight", "conv.bias", "fc.weight", "fc.bias"}
    names |= {f"bn.{part}" for part in ("weight", "bias", "mean", "var")}
    assert set(module.state_dict()) == names
    made = [key.split()[1] for key in module.nodes]
    assert made == ["Conv", "BatchNormalization", "Relu", "MaxPool", "Reshape", "Gemm"]


@pytest.mark.parametrize("name", ["a..b", ".a", "training", "forward", "a.weight.b", "nodes"])
def test_names_that_torch_forbids_are_kept_beside(make, name):
    nodes = [
        helper.make_node("Mul", ["x", "a.weight"], ["y"]),
        helper.make_node("Add", ["y", name], ["z"]),
    ]
    weights = {"a.weight": np.array([2, 3], np.float32), name: np.array([1, 1], np.float32)}
    module = _agrees(make(nodes, {"x": [2, 2]}, ["z"], weights), {"x": (2, 2)})
    names = {module.weight_names.get(key, key) for key in module.state_dict()}
    assert names == {"a.weight", name}


def test_weights_in_constant_nodes_and_constant_of_shape(make):
    kernel = numpy_helper.from_array(_image((4, 3, 3, 3)), "kernel")
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [0.5])
    nodes = [
        helper.make_node("Constant", [], ["w"], value=kernel),
        helper.make_node("ConstantOfShape", ["size"], ["b"], value=one),
        helper.make_node("Conv", ["x", "w", "b"], ["y"], auto_pad="SAME_LOWER", strides=[2, 2]),
    ]
    model = make(nodes, {"x": [1, 3, 7, 7]}, ["y"], {"size": np.array([4])})
    module = _agrees(model, {"x": (1, 3, 7, 7)})
    assert [key.split()[1] for key in module.nodes] == ["Conv"]


def test_allowzero(make):
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], allowzero=1)
    _agrees(make([node], {"x": [0, 3]}, ["y"], {"shape": np.array([3, 0])}), {"x": (0, 3)})


def test_quantised_weights_become_floating_parameters(make):
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["w"], axis=0),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    weights = {
        "q": np.arange(100, dtype=np.int8).reshape(10, 10),
        "scale": np.linspace(0.1, 1, 10).astype(np.float32),
        "zero": np.zeros(10, np.int8),
    }
    model = make(nodes, {"x": [2, 10]}, ["y"], weights, opset=19)
    module = _agrees(model, {"x": (2, 10)})
    (parameter,) = module.parameters()
    assert parameter.dtype == torch.float32
    assert [key.split()[1] for key in module.nodes] == ["MatMul"]


def test_functions_of_the_file_are_put_in(make):
    body = helper.make_function(
        "mine",
        "scaled",
        ["x"],
        ["y"],
        [
            helper.make_node("LeakyRelu", ["x"], ["a"]),
            helper.make_node("Neg", ["a"], ["y"]),
        ],
        [helper.make_opsetid("", 17)],
        attributes=["slope"],
    )
    reference = onnx.AttributeProto(
        name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT
    )
    body.node[0].attribute.append(reference)
    nodes = [
        helper.make_node("scaled", ["x"], ["b"], domain="mine", slope=0.3),
        helper.make_node("scaled", ["b"], ["y"], domain="mine", slope=0.7),
    ]
    imports = [helper.make_opsetid("mine", 1)]
    model = make(nodes, {"x": [4]}, ["y"], functions=[body], imports=imports)
    once = to_torch(model)(torch.tensor([-2.0, -1.0, 1.0, 2.0]))
    torch.testing.assert_close(once, torch.tensor([-0.6, -0.3, 0.7, 1.4]))


def test_a_function_that_calls_itself_is_refused(make):
    body = helper.make_function(
        "mine",
        "again",
        ["x"],
        ["y"],
        [helper.make_node("again", ["x"], ["y"], domain="mine")],
        [helper.make_opsetid("mine", 1)],
    )
    node = helper.make_node("again", ["x"], ["y"], domain="mine")
    imports = [helper.make_opsetid("mine", 1)]
    model = make([node], {"x": [2]}, ["y"], functions=[body], imports=imports)
    with pytest.raises(TooLargeError, match="depth"):
        to_torch(model)


def test_one_output_of_several(make):
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
    model = make(nodes, {"x": [2]}, ["a", "b"])
    module = to_torch(model, output="b")
    assert module(torch.tensor([1.0, -1.0])).tolist() == [-1.0, 1.0]
    assert len(module.nodes) == 1
    with pytest.raises(ConversionError, match="the outputs are 'a', 'b'"):
        to_torch(model, output="c")


def test_open_dimensions_must_be_said(make):
    with pytest.raises(ConversionError, match="leaves its shape open"):
        to_torch(make.classifier())
    assert to_torch(make.classifier(), {"image": (2, 3, 8, 8)}).input_shapes == ((2, 3, 8, 8),)


def _where_branch(make, condition):
    def branch(name, op):
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [out])

    nodes = [
        *condition,
        helper.make_node(
            "If", ["c"], ["y"], then_branch=branch("t", "Neg"), else_branch=branch("e", "Relu")
        ),
    ]
    return make(nodes, {"x": [3]}, ["y"], {"two": np.array(2)})


def test_branches_by_shape_are_taken_and_by_pixels_refused(make):
    by_shape = [
        helper.make_node("Size", ["x"], ["n"]),
        helper.make_node("Greater", ["n", "two"], ["c"]),
    ]
    _agrees(_where_branch(make, by_shape), {"x": (3,)})
    by_value = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
    ]
    with pytest.raises(UnsupportedOperatorError, match="depends on the image") as caught:
        to_torch(_where_branch(make, by_value))
    assert caught.value.operator == "If-16" and "If node" in caught.value.node


class _Spy(BatchUse):
    """Keeps what it is told was built."""

    def built(self, values):
        self.values = dict(values)


def test_what_comes_from_the_image_is_kept_until_its_last_use_and_no_longer(make):
    def branch(name):  # reads `early`, which is of the graph around it
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        add = helper.make_node("Add", ["late", "early"], [name])
        return helper.make_graph([add], name, [], [out])

    nodes = [
        helper.make_node("Neg", ["x"], ["early"]),
        helper.make_node("Exp", ["x"], ["unread"]),
        helper.make_node("Relu", ["x"], ["middle"]),
        helper.make_node("Abs", ["middle"], ["late"]),
        helper.make_node("If", ["true"], ["y"], then_branch=branch("t"), else_branch=branch("e")),
    ]
    model = make(nodes, {"x": [3]}, ["y"], {"true": np.array(True)})
    _agrees(model, {"x": (3,)})
    spy = _Spy(2)
    build(model, {"x": torch.ones(3)}, use=spy, limits=OnnxLimits())
    held = {name for name, value in spy.values.items() if value.data.device.type == "cpu"}
    assert held == {"x", "true", "t"}


UNSUPPORTED = {
    "unknown operator": (helper.make_node("Frobnicate", ["x"], ["y"]), "Frobnicate"),
    "unknown domain": (helper.make_node("Relu", ["x"], ["y"], domain="evil"), "domain"),
    "random": (helper.make_node("RandomUniformLike", ["x"], ["y"]), "RandomUniformLike-1"),
    "values make shapes": (helper.make_node("NonZero", ["x"], ["y"]), "NonZero-13"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_what_is_not_covered_names_operator_and_node(make, case):
    node, words = UNSUPPORTED[case]
    with pytest.raises(UnsupportedOperatorError, match=words) as caught:
        to_torch(make([node], {"x": [2, 2]}, ["y"]))
    assert "node 'y'" in str(caught.value)


EXPLOSIONS = {
    "ConstantOfShape": ([helper.make_node("ConstantOfShape", ["n"], ["y"])], [10**6, 10**6]),
    "Expand": ([helper.make_node("Expand", ["x", "n"], ["y"])], [10**6, 10**6, 1]),
    "Tile": ([helper.make_node("Tile", ["x", "n"], ["y"])], [10**9]),
    "Pad": ([helper.make_node("Pad", ["x", "n"], ["y"])], [10**9, 10**9]),
    "EyeLike": (
        [helper.make_node("Expand", ["x", "n"], ["a"]), helper.make_node("EyeLike", ["a"], ["y"])],
        [10**6, 10**6],
    ),
}


@pytest.mark.parametrize("case", EXPLOSIONS)
def test_values_of_absurd_size_are_refused_before_they_exist(make, case):
    nodes, sizes = EXPLOSIONS[case]
    with pytest.raises(TooLargeError, match="value_elements"):
        to_torch(make(nodes, {"x": [1]}, ["y"], {"n": np.array(sizes)}))


def test_broadcasting_of_absurd_size_is_refused(make):
    nodes = [
        helper.make_node("Reshape", ["x", "tall"], ["a"]),
        helper.make_node("Mul", ["x", "a"], ["y"]),
    ]
    model = make(nodes, {"x": [1, 2**20]}, ["y"], {"tall": np.array([2**20, 1])})
    with pytest.raises(TooLargeError, match="value_elements"):
        to_torch(model)


def test_endless_loops_are_refused(make):
    condition = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
    number = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    value = helper.make_tensor_value_info("v", TensorProto.FLOAT, None)
    out = helper.make_tensor_value_info("w", TensorProto.FLOAT, None)
    body = helper.make_graph(
        [helper.make_node("Neg", ["v"], ["w"])], "b", [number, condition, value], [condition, out]
    )
    node = helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body)
    model = make([node], {"x": [2]}, ["y"], {"yes": np.array(True)})
    with pytest.raises(TooLargeError, match="nodes"):
        to_torch(model, limits=OnnxLimits(nodes=200))
