"""The same network has the same name, whatever its weights, files and pictures are called."""

from collections import OrderedDict
from importlib.resources import files

import numpy as np
import torch
from flax import nnx

from converters.graph.structure import architecture_of, outline
from converters.graph.tape import capture
from converters.opening import open_model
from jaxtroj.generate.small.networks import build
from jaxtroj.generate.small.onnx_file import write_onnx


def _network(widths=(4, 8), names=("one", "two"), classes=5):
    layers = [
        (names[0], torch.nn.Conv2d(3, widths[0], 3, padding=1)),
        ("r", torch.nn.ReLU()),
        (names[1], torch.nn.Conv2d(widths[0], widths[1], 3)),
        ("p", torch.nn.AdaptiveAvgPool2d(1)),
        ("f", torch.nn.Flatten()),
        ("head", torch.nn.Linear(widths[1], classes)),
    ]
    return torch.nn.Sequential(OrderedDict(layers)).eval()


def _named(module, size=8):
    return architecture_of(capture(module, [torch.zeros(1, 3, size, size)]).graph)


def test_names_weights_and_sizes_of_pictures_do_not_matter():
    torch.manual_seed(0)
    first = _named(_network())
    assert first.startswith("graph:") and len(first) == len("graph:") + 8
    assert _named(_network(names=("x", "y"))) == first
    assert _named(_network(), 16) == first
    assert _named(_network(classes=7)) == first
    assert _named(_network((4, 9))) != first
    other = _network()
    other[1] = torch.nn.GELU().eval()
    assert _named(other) != first


def test_the_outline_counts_layers():
    graph = capture(_network(), [torch.zeros(1, 3, 8, 8)]).graph
    assert outline(graph) == "conv x2, linear x1"


class _Block(torch.nn.Module):
    """A residual add; a zero point, and neighbours that a norm sums, are none."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        x = x + torch.round(x.amin())
        x = x + self.conv(x)
        near = sum(torch.nn.functional.pad(x * x, (0, 0, 0, 0, 1, 1))[:, k : k + 3] for k in (0, 2))
        return (x / (1 + near)).mean((2, 3))


def test_the_outline_counts_residual_adds_and_no_others():
    graph = capture(_Block().eval(), [torch.zeros(1, 3, 8, 8)]).graph
    assert sum(node.op == "aten.add.Tensor" for node in graph.nodes) > 3
    assert outline(graph) == "conv x1, residual adds x1"


def test_the_same_bytes_have_the_same_architecture_under_any_name(tmp_path):
    torch.manual_seed(0)
    program = torch.export.export(_network(), (torch.zeros(1, 3, 8, 8),), strict=False)
    torch.export.save(program, tmp_path / "wrn16.pt2")
    (tmp_path / "other.pt2").write_bytes((tmp_path / "wrn16.pt2").read_bytes())
    first, second = (open_model(tmp_path / f"{name}.pt2") for name in ("wrn16", "other"))
    assert first.model.architecture == second.model.architecture
    assert first.findings == second.findings and first.sha256 == second.sha256
    x = np.ones((1, 8, 8, 3), np.float32)
    np.testing.assert_array_equal(first.model(x), second.model(x))


def test_the_shipped_calibrator_knows_the_generated_networks(tmp_path):
    content = (files("jaxtroj") / "data/calibrators/small.json").read_text()
    for name in ("wrn16", "plain5"):
        path = tmp_path / "network.onnx"
        write_onnx(path, build(name, 10, nnx.Rngs(0)), (32, 32))
        assert f'"{open_model(path).model.architecture}"' in content
