"""Every ONNX operator of ours has a case: one of ONNX's own, or one written by hand."""

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import AttributeProto
from onnx.backend.test.loader import load_model_tests

from converters.errors import UnsupportedOperatorError
from converters.graph.onnx.attributes import domain_of
from converters.graph.onnx.backend import JaxBackend, TorchBackend
from converters.graph.onnx.extensions import SPECIAL
from converters.graph.onnx.operators import entries
from tests.onnx.operator_cases import CASES, quantised_lstm
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


def test_a_quantised_lstm_with_lengths_is_refused():
    case = quantised_lstm("forward", False, lengths=np.array([3], np.int32))
    with pytest.raises(UnsupportedOperatorError, match="lengths per example"):
        TorchBackend.prepare(case.model()).run(case.given)
