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
        outputs = [
            helper.make_tensor_value_info(name, _element(value), None)
            for name, value in zip(results, self.outputs, strict=True)
        ]
        opsets = {"": 17, self.domain: self.opset}
        imports = [helper.make_opsetid(*item) for item in opsets.items()]
        graph = helper.make_graph([node], "one", inputs, outputs)
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _element(value: Any) -> int:
    """ONNX's number of a written output's type; that of float32 for all but whole numbers."""
    is_whole = isinstance(value, np.ndarray) and value.dtype.kind in "iu"
    return helper.np_dtype_to_tensor_dtype(value.dtype) if is_whole else 1


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


def _u8(values) -> np.ndarray:
    return np.array(values, np.uint8)


def _f(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def _quantised(operator: str, inputs, output, **attributes) -> OperatorCase:
    """A layer of onnxruntime's quantiser; what it must give is what onnxruntime 1.32.0 gave."""
    return OperatorCase(operator, 1, inputs, (output,), attributes, "com.microsoft")


_LEFT = _u8([[212, 215, 168, 1], [174, 57, 209, 233]])
_RIGHT = np.array([[-19, 116, 66, -45], [96, -30, -102, 23], [89, 40, -28, 102]], np.int8)
_GEMM = (
    _LEFT, _f(0.02), _u8(120), _RIGHT, _f(0.01), np.array(0, np.int8),
    np.array([100, -2000, 3], np.int32),
)  # fmt: skip
_WINDOWS = [[74, 240, 0, 19], [249, 241, 76, 35], [80, 11, 228, 169], [149, 62, 120, 48]]
_MAPS = [
    [[100, 227, 132], [107, 110, 170], [150, 44, 188]],
    [[193, 244, 201], [72, 81, 166], [166, 178, 222]],
]
QUANTISED = {
    "quantised sum": _quantised(
        "QLinearAdd",
        (_u8([[207, 21, 45], [60, 46, 205]]), _f(0.1), _u8(120), _u8([222, 149, 10]), _f(0.05),
         _u8(7), _f(0.1313), _u8(100)),
        _u8([[248, 79, 44], [136, 98, 166]]),
    ),
    "quantised product": _quantised(
        "QLinearMul",
        (np.array([[-104, -43, -18], [31, -6, -61]], np.int8), _f(0.1), np.array(3, np.int8),
         np.array([[-88, 49, 60], [-120, -99, -13]], np.int8), _f(0.05), np.array(-7, np.int8),
         _f(0.5), np.array(1, np.int8)),
        np.array([[88, -25, -13], [-31, 9, 5]], np.int8),
    ),
    "quantised global mean": _quantised(
        "QLinearGlobalAveragePool",
        (_u8([_MAPS]), _f(0.1), _u8(120), _f(0.06), _u8(100)),
        _u8([[[[127]], [[182]]]]),
        channels_last=0,
    ),
    "quantised means of windows": _quantised(
        "QLinearAveragePool",
        (_u8([[_WINDOWS]]), _f(0.1), _u8(120), _f(0.09), _u8(100)),
        _u8([[[[190, 80], [113, 89]]]]),
        kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2],
    ),
    "quantised leaky relu": _quantised(
        "QLinearLeakyRelu",
        (_u8([[197, 121, 7], [65, 180, 133]]), _f(0.1), _u8(120), _f(0.09), _u8(100)),
        _u8([[186, 101, 75], [88, 167, 114]]),
        alpha=0.2,
    ),
    "quantised sigmoid": _quantised(
        "QLinearSigmoid",
        (_u8([[95, 64, 23], [155, 169, 133]]), _f(0.03), _u8(120), _f(1 / 256), _u8(0)),
        _u8([[82, 40, 13], [190, 208, 153]]),
    ),
    "quantised softmax": _quantised(
        "QLinearSoftmax",
        (_u8([[238, 237, 53, 155], [161, 63, 76, 124]]), _f(0.03), _u8(120), _f(1 / 256), _u8(0)),
        _u8([[124, 121, 0, 10], [175, 9, 14, 58]]),
        axis=-1, opset=13,
    ),
    "quantised softmax before opset 13": _quantised(
        "QLinearSoftmax",
        (_u8([[238, 237, 53, 155], [161, 63, 76, 124]]), _f(0.03), _u8(120), _f(1 / 256), _u8(0)),
        _u8([[124, 121, 0, 10], [175, 9, 14, 58]]),
        axis=-1, opset=12,
    ),
    "quantised softmax over several axes": _quantised(
        "QLinearSoftmax",
        (_u8([[[144, 86, 94, 98], [94, 144, 149, 126], [83, 87, 106, 114]],
              [[129, 118, 101, 92], [135, 138, 82, 89], [116, 111, 151, 121]]]),
         _f(0.03), _u8(120), _f(1 / 256), _u8(0)),
        _u8([[[45, 8, 10, 11], [10, 45, 52, 26], [7, 8, 14, 18]],  # by onnxruntime 1.32
             [[27, 19, 12, 9], [32, 35, 7, 8], [18, 16, 52, 21]]]),
        axis=1, opset=12,
    ),
    "quantised values joined": _quantised(
        "QLinearConcat",
        (_f(0.1), _u8(9), _u8([[189, 74], [184, 167]]), _f(0.07), _u8(120), _u8([[55], [99]]),
         _f(0.09), _u8(100)),
        _u8([[57, 0, 0], [54, 42, 8]]),
        axis=1,
    ),
    "quantised layer": _quantised(
        "QGemm", (*_GEMM, _f(0.2), _u8(100)), _u8([[118, 96, 99], [93, 99, 111]]), transB=1
    ),
    "quantised layer, floating result": _quantised(
        "QGemm", _GEMM, np.array([[3.579, -0.7302, -0.2981998], [-1.489, -0.281, 2.2646]],
                                 np.float32), transB=1,
    ),
    "quantised mean over axes": _quantised(
        "QLinearReduceMean",
        (_u8([[10, 20, 60]]), _f(0.1), _u8(10), _f(0.1), _u8(0)),
        _u8([[20]]),  # by hand: 0, 1 and 5 have the mean 2
        axes=[1], keepdims=1,
    ),
    "to 8 bits, in onnxruntime's domain": _quantised(
        "QuantizeLinear",
        (np.array([-1.0, 0.26, 99.0], np.float32), _f(0.1), _u8(10)),
        _u8([0, 13, 255]),
    ),
    "from 8 bits, in onnxruntime's domain": _quantised(
        "DequantizeLinear",
        (_u8([0, 13, 255]), _f(0.1), _u8(10)),
        np.array([-1.0, 0.3, 24.5], np.float32),
    ),
}  # fmt: skip
_ROWS = np.array([[0.13, -0.13, 0.64], [0.1, -0.54, 0.36]], np.float32)
_BIAS = np.array([0.5, -1, 2], np.float32)
_MAP = np.array(
    [[[1.3, 0.9, -0.7], [-1.3, -0.6, 0], [-2.3, -0.2, -1.2]],
     [[-0.7, -0.5, -0.3], [0.4, 1, -0.1], [1.4, -0.7, 0.4]]], np.float32,
)[None]  # fmt: skip
_KERNEL = np.array([[[0.9, 0.1], [-0.7, -0.9]], [[-0.5, 0.2], [-1, -0.2]]], np.float32)[None]


def _fused(operator: str, inputs, output, **attributes) -> OperatorCase:
    """What onnxruntime's optimizer makes; what it must give is what onnxruntime 1.32.0 gave."""
    output = (np.array(output, np.float32),)
    return OperatorCase(operator, 1, inputs, output, attributes, "com.microsoft", 2e-5)


FUSED = {
    "Gelu": _fused("Gelu", (_ROWS,), [[0.07172, -0.05828, 0.4729], [0.05398, -0.15908, 0.23061]]),
    "Gelu of a sum": _fused(
        "BiasGelu", (_ROWS, _BIAS), [[0.46346, -0.14604, 2.62906], [0.43545, -0.09514, 2.33844]]
    ),
    "FastGelu": _fused(
        "FastGelu", (_ROWS,), [[0.07172, -0.05828, 0.47286], [0.05398, -0.15911, 0.2306]]
    ),
    "FastGelu of a sum": _fused(
        "FastGelu", (_ROWS, _BIAS), [[0.46342, -0.14623, 2.62953], [0.43542, -0.09535, 2.33881]]
    ),
    "QuickGelu": _fused(
        "QuickGelu", (_ROWS,), [[0.07216, -0.05784, 0.47888], [0.05424, -0.15398, 0.23348]]
    ),
    "QuickGelu, its own slope": _fused(
        "QuickGelu",
        (_ROWS,),
        [[0.06922, -0.06078, 0.41904], [0.0525, -0.19882, 0.21205]],
        alpha=1.0,
    ),
    "a scaled product, transposed": _fused(
        "FusedMatMul", (_ROWS, _ROWS), [[0.2217, 0.1568], [0.1568, 0.2156]], transB=1, alpha=0.5
    ),
    "a product with the first transposed": _fused(
        "FusedMatMul",
        (_ROWS, _ROWS),
        [[0.0269, -0.0709, 0.1192], [-0.0709, 0.3085, -0.2776], [0.1192, -0.2776, 0.5392]],
        transA=1,
    ),
    "a product with one row, transposed": _fused(
        "FusedMatMul", (_BIAS, _ROWS.T.copy()), [1.475, 1.31], transA=1
    ),
    "a product with the first axis moved": _fused(
        "FusedMatMul",
        (np.stack([_ROWS, 2 * _ROWS, _ROWS - 1]), np.stack([_ROWS.T, _ROWS.T + 1])),
        [
            [[0.4434, 0.3136], [0.8868, 0.6272], [-0.1966, 0.3936]],
            [[0.2336, 0.3512], [0.4672, 0.7024], [-3.4064, -2.5688]],
        ],
        transBatchA=1,
    ),
    "a norm of a sum": _fused(
        "SkipLayerNormalization",
        (_ROWS[None], 2 * _ROWS[None], _BIAS, _BIAS, _BIAS),
        [[[0.44253, 0.16322, 4.55633], [0.58111, 0.29777, 4.2711]]],
    ),
    "a norm of a sum, its own epsilon": _fused(
        "SkipLayerNormalization",
        (_ROWS[None], _ROWS[None], _BIAS),
        [[[-0.11679, 0.96232, 2.39179], [0.15451, 1.25232, 1.88662]]],
        epsilon=0.1,
    ),
    "a convolution and ReLU": _fused(
        "FusedConv", (_MAP, _KERNEL), [[[[2.36, 0.37], [0, 0.78]]]], activation="Relu"
    ),
    "a convolution, a sum and ReLU": _fused(
        "FusedConv",
        (_MAP, _KERNEL, np.array([0.5], np.float32), np.ones((1, 1, 2, 2), np.float32)),
        [[[[3.86, 1.87], [0.8, 2.28]]]],
        activation="Relu",
    ),
    "a convolution and a clip": _fused(
        "FusedConv",
        (_MAP, _KERNEL),
        [[[[1, 0.37], [-0.7, 0.78]]]],
        activation="Clip",
        activation_params=[-1.0, 1.0],
    ),
    "a convolution and a hard sigmoid": _fused(
        "FusedConv",
        (_MAP, _KERNEL),
        [[[[0.972, 0.574], [0.36, 0.656]]]],
        activation="HardSigmoid",
        activation_params=[0.2, 0.5],
    ),
}
# What onnxruntime 1.32.0 gave.
_COUNTED = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
_SPARSE = [[1, 2, 0, 2, 4, 0, 0], [3, 4, 0, 6, 8, 0, 0], [0] * 7, [3, 6, 0, 4, 8, 0, 0],
           [9, 12, 0, 12, 16, 0, 0], [0] * 7, [0] * 7]  # fmt: skip
AUTO_PADDED = {
    "a transposed convolution larger than its windows": OperatorCase(
        "ConvTranspose",
        17,
        (_COUNTED, _COUNTED),
        (np.array([[_SPARSE]], np.float32),),
        {"strides": [3, 3], "output_shape": [7, 7]},
    ),
    "windows of one value, one apart": OperatorCase(
        "Conv",
        17,
        (np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), np.ones((1, 1, 1, 1), np.float32)),
        (np.array([[[[0, 2], [8, 10]]]], np.float32),),
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ),
}
_HOLED = np.array([np.nan, -2, 0, 3, np.nan, 0.2], np.float32)
_LEAST = -(2**31)


_ENDS = np.array([-np.inf, np.inf, 2, -3], np.float32)
_MOST = float(np.finfo(np.float32).max)


def _place(operator: str, last: int, expected) -> OperatorCase:
    """Places along rows that hold what is not a number."""
    nan = np.nan
    rows = [[nan, 5, 7, 1], [1, nan, 2, 0], [2, 0, 3, 3], [nan, nan, nan, nan]]
    attributes = {"axis": 1, "keepdims": 0, "select_last_index": last}
    return OperatorCase(
        operator, 13, (np.array(rows, np.float32),), (np.array(expected),), attributes
    )


def _power(numbers, powers, expected) -> OperatorCase:
    values = [np.array(v, np.int32) for v in (numbers, powers, expected)]
    return OperatorCase("Pow", 15, tuple(values[:2]), (values[2],))


def _layer_norm(opset: int) -> OperatorCase:
    x = np.array([[1, 2, 4], [0, -1, 5]], np.float32)
    scale, bias = np.array([1, 2, 3], np.float32), np.array([0, 1, 0], np.float32)
    expected = [[-1.06904, 0.46547, 4.00891], [-0.50800, -0.77801, 4.19101]]
    return OperatorCase("LayerNormalization", opset, (x, scale, bias), (expected,), atol=1e-4)


ONNXRUNTIME_S = {
    "sign of what is not a number": OperatorCase(
        "Sign", 13, (_HOLED,), (np.array([np.nan, -1, 0, 1, np.nan, 1]),)
    ),
    "shrunk what is not a number": OperatorCase(
        "Shrink", 9, (_HOLED,), (np.array([0, -1.5, 0, 2.5, 0, 0]),), {"bias": 0.5}
    ),
    "the largest beside what is not a number": _place("ArgMax", 0, [0, 2, 2, 0]),
    "the last of the largest beside it": _place("ArgMax", 1, [0, 2, 3, 0]),
    "the smallest beside what is not a number": _place("ArgMin", 0, [0, 3, 1, 0]),
    "what is not a number in 8 bits": OperatorCase(
        "QuantizeLinear",
        13,
        (_HOLED, _f(0.1), np.array(3, np.int8)),
        (np.array([-128, -17, 3, 33, -128, 5], np.int8),),
    ),
    "a lower limit alone": OperatorCase(
        "Clip", 13, (_ENDS, _f(0), None), (np.array([0, _MOST, 2, 0]),)
    ),
    "an upper limit alone": OperatorCase(
        "Clip", 13, (_ENDS, None, _f(1)), (np.array([-_MOST, 1, 1, -3]),)
    ),
    "whole powers": _power([3, 215, 216, -216, 2, 0], 4, [81, 2136750625, _LEAST, _LEAST, 16, 0]),
    "whole inverses": _power([3, 1, -1, 2], [-1], [0, 1, -1, 0]),
    "whole squares": _power([3, 46341, -46341], 2, [9, -2147479015, -2147479015]),
    "whole cubes": _power([3, 1291, -1291], 3, [27, -2143282125, 2143282125]),
    "a whole square": _power([46341], 2, [_LEAST]),
    "whole squares and cubes": _power([46341, 1291, 7], [2, 3, 2], [_LEAST, _LEAST, 49]),
    "whole powers of one": _power([216], [0, 1, 3, 4], [1, 216, 10077696, _LEAST]),
    "a norm far from 0": OperatorCase(
        "MeanVarianceNormalization",
        13,
        (np.array([[[[4096, 4098, 4097, 4103]]]], np.float32),),
        (np.array([[[[-0.92847669, -0.18569534, -0.55708605, 1.67125809]]]]),),
        atol=1e-5,
    ),
    "layer normalisation before ONNX has it": _layer_norm(16),
    "layer normalisation long before": _layer_norm(11),
}
CASES = {
    **FUSED,
    **QUANTISED,
    **AUTO_PADDED,
    **ONNXRUNTIME_S,
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
