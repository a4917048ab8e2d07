"""Every ONNX operator of ours has a case: one of ONNX's own, or one written by hand."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
import torch
from onnx import AttributeProto, helper
from onnx.backend.test.loader import load_model_tests

from converters.errors import UnsupportedOperatorError
from converters.graph.onnx import to_torch
from converters.graph.onnx.attributes import domain_of
from converters.graph.onnx.backend import JaxBackend, TorchBackend
from converters.graph.onnx.extensions import SPECIAL
from converters.graph.onnx.operators import entries
from converters.graph.replay import run
from converters.graph.tape import capture
from tests.onnx.operator_cases import CASES, OperatorCase, quantised_lstm
from tests.onnx.test_backend_suites import FEWEST, expected


@pytest.mark.parametrize("name", CASES)
def test_torch_gives_what_is_written_and_jax_what_torch_gives(name):
    case = CASES[name]
    made = TorchBackend.prepare(case.model()).run(case.given)
    for value, written in zip(made, case.outputs, strict=True):
        if written is not None:
            np.testing.assert_allclose(value, written, rtol=1e-5, atol=case.atol)
    for ours, value in zip(JaxBackend.prepare(case.model()).run(case.given), made, strict=True):
        np.testing.assert_allclose(ours, value, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings(
    "ignore"
)  # ONNX's cases overflow and divide by zero while they are made
def test_every_operator_has_a_case():
    cased = {(case.domain, case.operator) for case in CASES.values()}
    for kind in {kind for engine, kind in FEWEST if engine == "torch"}:
        for case in load_model_tests(kind=kind):
            if expected(case.name, "torch") == "passed":
                cased |= set(_operators(case.model or onnx.load(f"{case.model_dir}/model.onnx")))
    ours = {(domain, name) for domain, name, _ in (*entries(), *SPECIAL)}
    assert not ours - cased, f"tests/onnx/operator_cases.py: {sorted(ours - cased)}"


def _operators(model: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    graphs = [model.graph, *model.functions]
    while graphs:
        for node in graphs.pop().node:
            yield domain_of(node.domain), node.op_type
            graphs += [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]


WIDE = {"strides": [4, 4]}
THIN = np.ones((1, 1, 3, 3), np.float32)
# Windows that onnxruntime 1.32.0 lays otherwise than the formula of ONNX's text.
LAID_OTHERWISE = [
    ("MaxPool", {"kernel_shape": [3, 3], "dilations": [2, 2]}, ()),
    ("MaxPool", {"kernel_shape": [1, 1], **WIDE}, ()),
    ("AveragePool", {"kernel_shape": [3, 3], "dilations": [2, 2]}, ()),
    ("AveragePool", {"kernel_shape": [1, 1], **WIDE}, ()),
    ("LpPool", {"kernel_shape": [3, 3], "dilations": [2, 2]}, ()),
    ("LpPool", {"kernel_shape": [1, 1], **WIDE}, ()),
    ("Conv", {"dilations": [2, 2]}, (THIN,)),
    ("Conv", {"kernel_shape": [1, 1], **WIDE}, (THIN[:, :, :1, :1],)),
    ("ConvTranspose", WIDE, (THIN,)),
    ("ConvTranspose", {"output_shape": [32, 32], **WIDE}, (THIN,)),
]


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("operator, attributes, weights", LAID_OTHERWISE)
def test_padding_that_runtimes_choose_otherwise_is_refused(operator, attributes, weights, mode):
    x = np.ones((1, 1, 8, 8), np.float32)
    case = OperatorCase(operator, 22, (x, *weights), (None,), {**attributes, "auto_pad": mode})
    with pytest.raises(UnsupportedOperatorError, match=f"{operator}.*auto_pad {mode} with .*pads"):
        TorchBackend.prepare(case.model()).run(case.given)


def _recurrent(operator: str, gates: int, lengths: list[int] | None = None, **attributes):
    """A layer of two features over three steps of two examples."""
    shapes = (3, 2, 2), (1, 2 * gates, 2), (1, 2 * gates, 2), (1, 4 * gates)
    inputs = [np.ones(shape, np.float32) for shape in shapes]
    lens = None if lengths is None else np.array(lengths, np.int32)
    return OperatorCase(operator, 22, (*inputs, lens), (None,), {"hidden_size": 2, **attributes})


LINE = np.arange(5, dtype=np.float32)
ROWS = np.full((2, 1), 2, np.int32)
# What onnxruntime 1.32.0 refuses, or computes in a way of its own.
REFUSED = {
    "largest elements in no order": (
        OperatorCase("TopK", 11, (LINE, np.array([2])), (None, None), {"sorted": 0}),
        "TopK-11: unsorted.*set sorted to 1",
    ),
    "affine": (_recurrent("RNN", 1, activations=["Affine"]), "affine without its alpha and beta"),
    "affine, half of it": (
        _recurrent("GRU", 3, activations=["Sigmoid", "Affine"], activation_alpha=[1.0]),
        "affine without its alpha and beta",
    ),
    "clip below 0": (_recurrent("RNN", 1, clip=-1.0), "clip -1.0, expected more than 0"),
    "clip at 0": (_recurrent("LSTM", 4, clip=0.0), "clip 0.0, expected more than 0"),
    "no steps": (_recurrent("LSTM", 4, [3, 0]), r"lengths \[3, 0\] of 3 steps, expected 1 to 3"),
    "too many steps": (_recurrent("GRU", 3, [4, 1]), r"lengths \[4, 1\] of 3 steps"),
    "a power per row": (
        OperatorCase("Pow", 15, (np.ones((2, 3), np.int32), ROWS), (ROWS,)),
        "Pow-15: a power per row",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_onnxruntime_computes_otherwise_is_refused(name):
    case, message = REFUSED[name]
    with pytest.raises(UnsupportedOperatorError, match=message):
        TorchBackend.prepare(case.model()).run(case.given)


@pytest.mark.parametrize("operator", ["Elu", "Selu", "Celu"])
def test_1_is_taken_from_exponentials_as_onnxruntime_does(operator):
    """1.32.0 gives 0 for -1e-9, torch has expm1; gradients are torch's, none of them NaN."""
    x = np.array([-1e-9, 1e-9, -2, 0, 3, 200], np.float32)
    case = OperatorCase(operator, 12, (x,), (None,))
    (found,) = JaxBackend.prepare(case.model()).run(case.given)
    assert found[0] == 0 and found[1] > 0 and abs(found[2]) > 0.8
    graph = capture(to_torch(case.model()), [torch.from_numpy(x)]).graph
    given = torch.from_numpy(x).requires_grad_()
    total = getattr(torch.nn.functional, operator.lower())(given).sum()
    (wanted,) = torch.autograd.grad(total, given)
    made = jax.grad(lambda values: run(graph, {}, [values])[0].sum())(jnp.asarray(x))
    np.testing.assert_allclose(made, wanted.numpy(), rtol=1e-5)


@pytest.mark.parametrize("limits", [(np.nan, 1), (0, np.nan)], ids=str)
@pytest.mark.parametrize("opset", [6, 13])
def test_limits_that_are_no_numbers_are_refused(make, limits, opset):
    low, high = map(np.float32, limits)
    old = opset < 11
    inputs = ["x"] if old else ["x", "low", "high"]
    attributes: dict[str, Any] = {"min": float(low), "max": float(high)} if old else {}
    node = helper.make_node("Clip", inputs, ["y"], **attributes)
    weights = {} if old else {"low": low, "high": high}
    with pytest.raises(UnsupportedOperatorError, match="Clip.*a limit that is not a number"):
        to_torch(make([node], {"x": [2]}, ["y"], weights, opset))


def test_a_quantised_lstm_with_lengths_is_refused():
    case = quantised_lstm("forward", False, lengths=np.array([3], np.int32))
    with pytest.raises(UnsupportedOperatorError, match="lengths per example"):
        TorchBackend.prepare(case.model()).run(case.given)
