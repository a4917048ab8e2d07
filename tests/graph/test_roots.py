"""Roots of 0: their gradient is 0, so that norms and deviations written in parts have torch's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from converters.graph.onnx import to_torch
from converters.graph.onnx.backend import JaxBackend
from converters.graph.replay import run
from converters.graph.tape import capture
from tests.graph.test_lowerings import Function
from tests.onnx.operator_cases import OperatorCase

# A row that is 0 (a dead channel, a black pixel), one of equals, and one that is neither.
ROWS = np.array([[0, 0, 0, 0], [0.5, 0.5, 0.5, 0.5], [0.1, -0.7, 0.4, 0.9]], np.float32)


def _centred(x):
    return x - x.mean(1, keepdim=True)


IN_PARTS = {
    "norm": (lambda x: (x * x).sum(1).sqrt(), lambda x: x.norm(dim=1)),
    "norm as a power": (lambda x: (x * x).sum(1) ** 0.5, lambda x: x.norm(dim=1)),
    "norm of order 3": (lambda x: x.abs().pow(3).sum(1).pow(1 / 3), lambda x: x.norm(p=3, dim=1)),
    "deviation": (
        lambda x: (_centred(x) * _centred(x)).mean(1).sqrt(),
        lambda x: x.std(1, correction=0),
    ),
    "unit length": (
        lambda x: x / (x * x).sum(1, keepdim=True).sqrt().clamp(min=1e-12),
        lambda x: torch.nn.functional.normalize(x, dim=1),
    ),
}
OPERATORS = {
    "ReduceL2": (13, {"axes": [1]}, lambda x: x.norm(dim=1, keepdim=True)),
    "LpNormalization": (
        22,
        {"axis": 1, "p": 2},
        lambda x: torch.nn.functional.normalize(x[x.norm(dim=1) > 0], dim=1),
    ),
    "MeanVarianceNormalization": (
        13,
        {"axes": [1]},
        lambda x: _centred(x) / (x.std(1, correction=0, keepdim=True) + 1e-9),
    ),
}


def _torch_gradient(function) -> np.ndarray:
    given = torch.from_numpy(ROWS).requires_grad_()
    (gradient,) = torch.autograd.grad((function(given) ** 3).sum(), given)
    return gradient.numpy()


def _gradient(network) -> np.ndarray:
    graph = capture(network, [torch.from_numpy(ROWS)]).graph
    return np.asarray(jax.grad(lambda x: (run(graph, {}, [x])[0] ** 3).sum())(jnp.asarray(ROWS)))


@pytest.mark.parametrize("case", IN_PARTS)
def test_in_parts_they_have_the_gradient_of_the_whole(case):
    parts, whole = IN_PARTS[case]
    found = _gradient(Function(parts).eval())
    np.testing.assert_allclose(found, _torch_gradient(whole), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("operator", OPERATORS)
def test_onnx_operators_have_it(operator):
    version, attributes, whole = OPERATORS[operator]
    case = OperatorCase(operator, version, (ROWS,), (None,), attributes)
    found = _gradient(to_torch(case.model()))
    np.testing.assert_allclose(found, _torch_gradient(whole), rtol=1e-4, atol=1e-5)
    (value,) = JaxBackend.prepare(case.model()).run(case.given)
    assert np.isfinite(value).all()


@pytest.mark.parametrize("power", [0.5, 0.3])
def test_values_of_roots_are_torch_s_to_the_sign(power):
    x = np.array([0.0, -0.0, 2.0, -1.0, np.inf, np.nan])
    given = torch.from_numpy(x)
    graph = capture(Function(lambda x: x**power).eval(), [given]).graph
    with jax.enable_x64(True):
        (found,) = run(graph, {}, [jnp.asarray(x)])
    wanted = (given**power).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    np.testing.assert_array_equal(np.signbit(found)[:2], np.signbit(wanted)[:2])
