"""ONNX files written again: which parameters are weights, which training may change."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from converters.errors import ConversionError
from converters.graph.onnx.rewrite import with_weights
from converters.input_form import InputForm
from converters.rewriting import open_rewritable

FORM = InputForm(bounds=(0, 1))
TWO, THREE, SMALL, HALF = (np.array(value, np.float32) for value in (2, 3, 1e-5, [0.5]))
SCALE, SHIFT = (np.array(own, np.float32).reshape(3, 1, 1) for own in ([1, 2, 3], [3, 2, 1]))


def node(kind, inputs, output, **more):
    return helper.make_node(kind, inputs.split(), [output], **more)


NORM = [
    node("ReduceMean", "x", "mean", axes=[1]),
    node("Sub", "x mean", "less"),
    node("Pow", "less two", "squared"),
    node("ReduceMean", "squared", "variance", axes=[1]),
    node("Add", "variance eps", "more"),
    node("Sqrt", "more", "deviation"),
    node("Div", "less deviation", "normed"),
    node("Mul", "normed gamma", "scaled"),
    node("Add", "scaled beta", "y"),
]
TOKEN = np.float32(np.arange(16)).reshape(1, 1, 4, 4)
KERNEL = np.float32(np.arange(9)).reshape(3, 3, 1, 1)
CASES = {
    "a layer norm": (NORM, {"two": TWO, "eps": SMALL, "gamma": SCALE, "beta": SHIFT}, "gamma beta"),
    "bounds": ([node("Clip", "x low high", "y")], {"low": np.float32(0), "high": TWO}, ""),
    "a fill": ([node("Less", "x fill", "m"), node("Where", "m fill x", "y")], {"fill": SCALE}, ""),
    "one factor": ([node("Mul", "x half", "y")], {"half": HALF}, ""),
    "slopes": ([node("PRelu", "x s", "y")], {"s": SCALE}, "s"),
    "a mask": ([node("Add", "x mask", "y")], {"mask": -1e9 * (SCALE > 1).astype("f")}, ""),
    "a divisor": ([node("Div", "x scale", "y")], {"scale": SCALE}, ""),
    "two uses": ([node("Mul", "x s", "a"), node("Pow", "a s", "y")], {"s": SCALE}, ""),
    "a product": (
        [node("Transpose", "k", "t", perm=[1, 0, 2, 3]), node("Conv", "x t b", "y")],
        {"k": KERNEL, "b": SCALE.ravel()},
        "k b",
    ),
    "a standardised kernel": (
        [node("ReduceMean", "k", "m"), node("Sub", "k m", "z"), node("Mul", "z half", "w"),
         node("Conv", "x w", "y")],
        {"k": KERNEL, "half": HALF},
        "k",
    ),
    "a token": ([node("Concat", "x more", "y", axis=1)], {"more": TOKEN}, "more"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_weights_are_what_layers_take(case, make, save):
    nodes, weights, wanted = CASES[case]
    ends = [node("Flatten", "y", "flat"), node("Gemm", "flat head", "logits")]
    size = 16 * (4 if case == "a token" else 3)
    weights = weights | {"head": np.arange(2 * size, dtype=np.float32).reshape(size, 2)}
    path = save(make([*nodes, *ends], {"x": [1, 3, 4, 4]}, ["logits"], weights))
    file = open_rewritable(path, FORM)
    assert file.weights == {"head", *wanted.split()}
    same = file.contents({name: np.asarray(value) for name, value in file.model.params.items()})
    assert same == path.read_bytes()


def test_a_number_keeps_its_shape(make, save):
    """`[1]` in the place of `[]` is another rank, which a Concat of sizes does not take."""
    nodes = [node("Mul", "x two", "y")]
    path = save(make(nodes, {"x": [1, 3]}, ["y"], {"two": TWO}))
    (tensor,) = onnx.load_from_string(with_weights(path, {"two": THREE})).graph.initializer
    assert tuple(tensor.dims) == () and onnx.numpy_helper.to_array(tensor) == 3


def test_a_weight_of_another_precision_is_told_by_writing_the_file_as_it_is(make, save):
    nodes = [node("Cast", "image", "half", to=TensorProto.FLOAT16)]
    nodes += [node("Flatten", "half", "flat"), node("Gemm", "flat head", "wide")]
    nodes += [node("Cast", "wide", "logits", to=TensorProto.FLOAT)]
    head = np.arange(96).reshape(48, 2).astype(np.float16)
    path = save(make(nodes, {"image": [1, 3, 4, 4]}, ["logits"], {"head": head}))
    file = open_rewritable(path, FORM)
    assert file.weights == {"head"}
    with pytest.raises(ConversionError, match="weight 'head' is not float32; export it as float32"):
        file.contents({name: np.asarray(value) for name, value in file.model.params.items()})
