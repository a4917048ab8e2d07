"""ONNX files that two readers may take for two networks, by what is ambiguous."""

from tests.onnx import branch_cases, data_cases, function_cases, node_cases, value_cases  # noqa: F401
from tests.onnx.cases import CASES, case

__all__ = ["CASES"]


@case("nothing")
def _nothing(model):
    pass
