"""onnx2torch: asked for what only it covers, imported only then, and extended for others' use."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx2torch import convert

from converters.graph.onnx.foreign import covered, extend_onnx2torch
from converters.opening import open_model


def network(node: onnx.NodeProto, opset: int) -> onnx.ModelProto:
    """A network of one image input, a node from `x` to `y`, and a mean over the picture."""
    head = helper.make_node("ReduceMean", ["y"], ["logits"], axes=[2, 3], keepdims=0)
    graph = helper.make_graph(
        [node, head],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(np.arange(3, dtype=np.float32), "b")],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


OLD_SUM = helper.make_node("Add", ["x", "b"], ["y"], axis=1, broadcast=1)
NEW_SUM = helper.make_node("Shrink", ["x"], ["y"], lambd=0.5)


@pytest.mark.parametrize(("node", "opset", "wanted"), [(NEW_SUM, 13, False), (OLD_SUM, 6, True)])
def test_it_is_imported_for_its_own_operators_only(node, opset, wanted, tmp_path):
    onnx.save(network(node, opset), tmp_path / "one.onnx")
    program = (
        "import sys; from converters.opening import open_model;"
        f"open_model({str(tmp_path / 'one.onnx')!r});"
        "print('onnx2torch' in sys.modules, 'torchvision' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == [str(wanted)] * 2, done.stderr


def test_what_it_lacks_it_has_once_extended():
    model = network(NEW_SUM, 13)
    x = np.linspace(-2, 2, 192, dtype=np.float32).reshape(1, 3, 8, 8)
    assert ("", "Shrink", 9) not in covered()
    with pytest.raises(NotImplementedError, match="Shrink"):
        convert(model)
    extend_onnx2torch()
    extend_onnx2torch()
    expected = torch.nn.functional.hardshrink(torch.from_numpy(x), 0.5).mean(dim=(2, 3))
    torch.testing.assert_close(convert(model)(torch.from_numpy(x)), expected)


def test_old_arithmetic_is_its_own(tmp_path):
    onnx.save(network(OLD_SUM, 6), tmp_path / "old.onnx")
    model = open_model(tmp_path / "old.onnx").model
    x = np.random.default_rng(0).random((2, 8, 8, 3), np.float32)
    np.testing.assert_allclose(model(x), x.mean(axis=(1, 2)) + np.arange(3), rtol=1e-5)
