"""What onnxruntime 1.32.0 joins, with its default optimisation, into another network."""

import numpy as np
import pytest
from onnx import helper

from converters.findings import SUSPICION, TWICE_QUANTISED, doubts
from converters.graph.onnx import load_onnx
from converters.input_form import InputForm

N = helper.make_node
SEEN = InputForm(bounds=(0, 1))
_DRAW = np.random.default_rng(0)
_WEIGHTS = {
    "kernel": _DRAW.normal(size=(4, 3, 3, 3)).astype(np.float32),
    "matrix": _DRAW.normal(size=(4, 5)).astype(np.float32),
    **{f"s{k}": np.float32(scale) for k, scale in enumerate((1.0, 1 / 255, 1 / 255))},
    **{f"z{k}": np.uint8(zero) for k, zero in enumerate((0, 0, 3))},
    "z8": np.int8(0),
    "one": np.float32(1),
    "half": np.float32(0.5),
    "eps": np.float32(1e-5),
    **{f"e{k}": np.float32(k) for k in (2, 3, 4)},
}


def _findings(make, save, nodes, opset=17):
    """Those that put answers in doubt, of a network with `nodes` from `v` to `w` in it."""
    network = [
        N("Conv", ["image", "kernel"], ["c"], pads=[1, 1, 1, 1]),
        N("Relu", ["c"], ["v"]),
        *nodes,
        N("GlobalAveragePool", ["w"], ["p"]),
        N("Flatten", ["p"], ["f"]),
        N("MatMul", ["f", "matrix"], ["logits"]),
    ]
    model = make(network, {"image": [1, 3, 8, 8]}, ["logits"], _WEIGHTS, opset)
    return doubts(load_onnx(save(model), SEEN).findings)


def _pair(given, made, scale, zero):
    return [
        N("QuantizeLinear", [given, scale, zero], [f"{made}q"]),
        N("DequantizeLinear", [f"{made}q", scale, zero], [made]),
    ]


def _twice(first, second, *between):
    given = between[-1].output[0] if between else "a"
    return [*_pair("v", "a", *first), *between, *_pair(given, "w", *second)]


JOINED = {
    "another scale": _twice(("s0", "z0"), ("s1", "z0")),
    "another zero point": _twice(("s1", "z0"), ("s1", "z2")),
    "what changes nothing between": _twice(
        ("s0", "z0"), ("s1", "z0"), N("Identity", ["a"], ["b"]), N("Mul", ["b", "one"], ["d"])
    ),
    "a scale under two names": _twice(
        ("s0", "z0"), ("same", "z0"), N("Identity", ["s1"], ["same"]), N("Identity", ["a"], ["b"])
    ),
}
APART = {
    "once": _pair("v", "w", "s0", "z0"),
    "equal pairs": _twice(("s1", "z0"), ("s2", "z1")),
    "a product between": _twice(("s0", "z0"), ("s1", "z0"), N("Mul", ["a", "half"], ["b"])),
    "an activation between": _twice(("s0", "z0"), ("s1", "z0"), N("Relu", ["a"], ["b"])),
    "another type": _twice(("s0", "z0"), ("s1", "z8")),
}


@pytest.mark.parametrize("case", JOINED)
def test_quantisations_that_are_joined_are_a_doubt(make, save, case):
    (found,) = _findings(make, save, JOINED[case])
    assert found.startswith(TWICE_QUANTISED) and "QuantizeLinear node 'wq'" in found


def _norm(exponent="e2", above=("v", "m"), below=("v", "m"), mean="v"):
    return [
        N("ReduceMean", [mean], ["m"], axes=[-1]),
        N("Sub", list(above), ["d"]),
        N("Sub", list(below), ["d2"]),
        N("Pow", ["d2", exponent], ["q"]),
        N("ReduceMean", ["q"], ["var"], axes=[-1]),
        N("Add", ["eps", "var"], ["more"]),
        N("Sqrt", ["more"], ["root"]),
        N("Identity", ["d"], ["same"]),
        N("Div", ["same", "root"], ["w"]),
    ]


BENT = {
    "another exponent": _norm("e3"),
    "the mean less the value": _norm(above=("m", "v"), below=("m", "v")),
    "that above alone": _norm(above=("m", "v")),
    "the fourth power of the mean less the value": _norm("e4", below=("m", "v")),
}
TRUE = {
    "a layer norm": _norm(),
    "one whose squares are of the mean less the value": _norm(below=("m", "v")),
    "another value above": _norm("e4", above=("v", "half")),
}


@pytest.mark.parametrize("case", BENT)
def test_what_is_taken_for_a_layer_norm_is_a_suspicion(make, save, case):
    (found,) = _findings(make, save, BENT[case])
    assert found.startswith(SUSPICION) and "Div node 'w' ends nodes of a layer norm" in found


@pytest.mark.parametrize("nodes", [*APART.values(), *TRUE.values()], ids=[*APART, *TRUE])
def test_other_quantisations_and_true_layer_norms_are_none(make, save, nodes):
    assert not _findings(make, save, nodes)
