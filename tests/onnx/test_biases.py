"""Biases of whole numbers in units that onnxruntime 1.32.0 does not read, and in those it reads.

It answers the hostile networks otherwise, by 7 to 170 % of the largest logit, but for two: where
the scale is nearly the product, and where the operands are moved, it may join them and does not.
"""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from converters.errors import ConversionError
from converters.graph.onnx import load_onnx
from converters.input_form import InputForm

N = helper.make_node
_DRAW = np.random.default_rng(3)
_SX, _SW = np.float32(1 / 255), np.float32(0.01)
_COLUMNS = _DRAW.uniform(0.005, 0.02, 5).astype(np.float32)
_BIAS = _DRAW.integers(-20000, 20000, 5).astype(np.int32)
_INT8 = _DRAW.integers(-100, 100, (3, 5)).astype(np.int8)
_OUTPUT = [
    N("QuantizeLinear", ["g", "ys", "yz"], ["yq"]),
    N("DequantizeLinear", ["yq", "ys", "yz"], ["logits"]),
]
_GEMM: list = [N("Gemm", ["xd", "wd", "bd"], ["g"])]


def _weights(scale, zero=None, columns: Any = _SW, bias: Any = _BIAS, **more) -> dict[str, Any]:
    return {
        "xs": _SX,
        "xz": np.uint8(0),
        "w": _INT8,
        "ws": columns,
        "wz": np.zeros(np.shape(columns), np.int8),
        "b": bias,
        "bs": np.asarray(scale, np.float32),
        "bz": np.int32(0 if zero is None else zero),
        "ys": np.float32(0.02),
        "yz": np.uint8(128),
        **more,
    }


def _nodes(layer=_GEMM, after: Any = _OUTPUT, axis=1, bias_axis=0):
    return [
        N("GlobalAveragePool", ["image"], ["p"]),
        N("Flatten", ["p"], ["f"]),
        N("QuantizeLinear", ["f", "xs", "xz"], ["xq"]),
        N("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        N("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=axis),
        N("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=bias_axis),
        *layer,
        *after,
    ]


_PLAIN = [N("Gemm", ["xd", "wd", "bd"], ["logits"])]
_MATMUL = [N("MatMul", ["xd", "wd"], ["m"]), N("Add", ["bd", "m"], ["g"])]
_MOVED = [
    N("Identity", ["bd"], ["b2"]),
    N("Unsqueeze", ["b2", "first"], ["b3"]),
    N("Transpose", ["wd"], ["wt"]),
    N("Identity", ["xd"], ["x2"]),
    N("Gemm", ["x2", "wt", "b3"], ["g"], transB=1),
]
_FIRST = {"first": np.array([0])}
_COMPUTED = [
    N("Gather", ["f", "five"], ["f5"], axis=1),
    N("Mul", ["f5", "large"], ["l5"]),
    N("Cast", ["l5"], ["i5"], to=TensorProto.INT32),
    N("DequantizeLinear", ["i5", "bs", "bz"], ["bd5"]),
    N("Gemm", ["xd", "wd", "bd5"], ["g"]),
]
_FIVE = {"five": np.array([0, 1, 2, 0, 1]), "large": np.float32(2e4)}
HOSTILE = {
    "another scale": (_nodes(), _weights(5 * _SX * _SW)),
    "a scale that is nearly the product": (_nodes(), _weights(1.0001 * _SX * _SW)),
    "a zero point": (_nodes(), _weights(_SX * _SW, 7000)),
    "one scale beside many": (_nodes(), _weights(_SX * _SW, columns=_COLUMNS)),
    "many scales beside one": (_nodes(), _weights(_SX * _COLUMNS)),
    "no quantisation behind it": (_nodes(_PLAIN, ()), _weights(5 * _SX * _SW)),
    "a product and a sum": (_nodes(_MATMUL), _weights(5 * _SX * _SW)),
    "a bias that is computed": (_nodes(_COMPUTED), _weights(5 * _SX * _SW, **_FIVE)),
    "operands that are moved": (_nodes(_MOVED), _weights(5 * _SX * _SW, **_FIRST)),
}
_SMALL = np.array([9, -30, 40, -90, 100], np.int8)
_HALF = [N("Gemm", ["xd", "wd", "bd"], ["g"], alpha=0.5)]
HONEST = {
    "the product": (_nodes(), _weights(_SX * _SW)),
    "the product in float64": (_nodes(), _weights(float(_SX) * float(_SW))),
    "products": (_nodes(), _weights(_SX * _COLUMNS, columns=_COLUMNS)),
    "no quantisation behind it": (_nodes(_PLAIN, ()), _weights(_SX * _SW)),
    "a product and a sum": (_nodes(_MATMUL), _weights(_SX * _SW)),
    "operands that are moved": (_nodes(_MOVED), _weights(_SX * _SW, **_FIRST)),
    "a bias that is computed": (_nodes(_COMPUTED), _weights(_SX * _SW, **_FIVE)),
    # onnxruntime does not join these.
    "half of the product": (_nodes(_HALF), _weights(5 * _SX * _SW)),
    "a bias of 8 bits": (_nodes(), _weights(0.02, bias=_SMALL, bz=np.int8(0))),
}


def _loaded(make, save, nodes, weights):
    if weights["bs"].shape:
        weights = weights | {"bz": np.zeros(5, np.int32)}
    model = make(nodes, {"image": [1, 3, 8, 8]}, ["logits"], weights)
    return load_onnx(save(model), InputForm(bounds=(0, 1)))


@pytest.mark.parametrize("case", HOSTILE)
def test_a_bias_in_other_units_is_refused(make, save, case):
    with pytest.raises(ConversionError, match="adds a bias of whole numbers in other units"):
        _loaded(make, save, *HOSTILE[case])


@pytest.mark.parametrize("case", HONEST)
def test_other_biases_are_read(make, save, case):
    assert _loaded(make, save, *HONEST[case]).num_classes == 5
