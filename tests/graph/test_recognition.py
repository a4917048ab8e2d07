"""Graphs that are a family's network become its model; near matches stay graphs."""

import dataclasses

import numpy as np
import pytest
import torch
from torchvision import models

from converters import open_model
from converters.families import standard
from converters.families.densenet import DenseNetConfig
from converters.families.inception import InceptionConfig
from converters.families.reference import empty_module
from converters.families.resnet import ResNetConfig
from converters.findings import SUSPICION
from converters.graph.export import from_exported
from converters.graph.graph import Graph
from converters.graph.matching import weights_of
from converters.graph.module import GraphConfig
from converters.graph.recognition import family_model
from converters.graph.tape import capture
from converters.graph.torch_network import torch_model
from converters.input_form import InputForm

SIZE = 32


def _fill(network):
    generator = torch.Generator().manual_seed(0)
    for name, value in network.state_dict().items():
        if name.endswith("running_var"):
            value.uniform_(0.5, 2.0, generator=generator)
        elif value.ndim == 1:
            value.normal_(float(name.endswith("weight")), 0.1, generator=generator)
        elif value.ndim:
            value.normal_(0.0, (2.0 / value[0].numel()) ** 0.5, generator=generator)
    return network.eval().requires_grad_(False)


def _resnet():
    """A ResNet18 a sixteenth as wide."""
    config = standard("resnet18", 5)
    narrow = [
        tuple(dataclasses.replace(b, widths=tuple(w // 16 for w in b.widths)) for b in stage)
        for stage in config.stages
    ]
    config = dataclasses.replace(config, stem=4, stages=tuple(narrow))
    return _fill(empty_module(config).to_empty(device="cpu"))


@pytest.fixture(scope="module")
def resnet():
    return _resnet()


def _logits(network, images):
    with torch.no_grad():
        return network(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()


def _images(size=SIZE):
    return np.random.default_rng(0).random((2, size, size, 3)).astype(np.float32)


def _assert_same(model, network, size=SIZE):
    images = _images(size)
    expected = _logits(network, images)
    np.testing.assert_allclose(model(images), expected, rtol=1e-3, atol=1e-4 * abs(expected).max())


def test_a_resnet_with_large_offsets_stays_a_graph_and_is_suspected():
    """The family's batch norms would round away what torch's keep."""
    network = _resnet()
    network.bn1.running_mean.fill_(1e6)
    network.bn1.bias.fill_(1e6)
    network.bn1.running_var.fill_(1.0)
    network.bn1.weight.fill_(1.0)
    model = torch_model(network, (SIZE, SIZE, 3))
    assert isinstance(model.config, GraphConfig)
    assert any(f.startswith(SUSPICION) for f in model.findings)


def test_a_resnet_is_recognised(resnet):
    model = family_model(capture(resnet, [torch.zeros(1, 3, SIZE, SIZE)]))
    assert model is not None and isinstance(model.config, ResNetConfig)
    assert (model.architecture, model.num_classes, model.config.folded) == ("resnet18", 5, False)
    _assert_same(model, resnet)
    program = torch.export.export(resnet, (torch.zeros(1, 3, SIZE, SIZE),), strict=False)
    again = family_model(from_exported(program))
    assert again is not None and again.config == model.config
    for name, value in model.params.items():
        np.testing.assert_array_equal(again.params[name], value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "config", "size"),
    [
        ("resnet50", ResNetConfig, 64),
        ("resnext50_32x4d", ResNetConfig, 64),
        ("densenet121", DenseNetConfig, 64),
        ("inception_v3", InceptionConfig, 75),
    ],
)
@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_standard_networks_through_onnx(name, config, size, dynamo, tmp_path):
    if dynamo:
        pytest.importorskip("onnxscript", reason="torch's newer exporter needs it")
    extra = {"init_weights": False, "transform_input": dynamo} if name == "inception_v3" else {}
    network = _fill(getattr(models, name)(num_classes=5, **extra))
    path = tmp_path / "net.onnx"
    torch.onnx.export(network, (torch.zeros(1, 3, size, size),), path, dynamo=dynamo)
    opened = open_model(path, InputForm(bounds=(0, 1)))
    inner = opened.model.config.inner  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(inner, config)
    _assert_same(opened.model, network, size)


@pytest.mark.filterwarnings("ignore")
def test_an_onnx_export_with_folded_norms_is_recognised(resnet, tmp_path):
    path = tmp_path / "net.onnx"
    torch.onnx.export(resnet, (torch.zeros(1, 3, SIZE, SIZE),), path, dynamo=False)
    opened = open_model(path, InputForm(bounds=(-1, 1), mean=(0.1, 0.2, 0.3)))
    config = opened.model.config.inner  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(config, ResNetConfig) and config.folded
    assert opened.model.architecture == "resnet18" and opened.findings == ()
    images = _images()
    prepared = (images * 2 - 1 - np.array([0.1, 0.2, 0.3], np.float32)).astype(np.float32)
    expected = _logits(resnet, prepared)
    np.testing.assert_allclose(opened.model(images), expected, rtol=1e-3, atol=1e-3)


class Around(torch.nn.Module):
    """A network with something around it."""

    def __init__(self, network, change):
        super().__init__()
        self.network, self.change = network, change

    def forward(self, x):
        return self.change(self.network, x)


def _switch(network, x):
    """Answers another class when one pixel is bright: a trojan in the structure."""
    return network(x) + torch.relu(x[:, 0, 0, 0] - 0.99) * torch.tensor([0, 0, 0, 1e6, 0])


AROUND = {
    "a hidden branch": _switch,
    "scaled pixels": lambda network, x: network(x * 2),
    "mirrored pixels": lambda network, x: network(x.flip(3)),
    "pixels in another order": lambda network, x: network(x.transpose(2, 3)),
    "a reshape that mixes": lambda network, x: network(x.reshape(1, SIZE, 3, SIZE).transpose(1, 2)),
    "a softmax": lambda network, x: network(x).softmax(1),
    "twice": lambda network, x: network(x) + network(x),
}


@pytest.mark.parametrize("case", AROUND)
def test_what_is_more_than_a_family_stays_a_graph(case, resnet):
    network = Around(resnet, AROUND[case]).eval()
    assert family_model(capture(network, [torch.zeros(1, 3, SIZE, SIZE)])) is None


def _set(path, **attributes):
    def change(network):
        for name, value in attributes.items():
            setattr(network.get_submodule(path), name, value)

    return change


def _tied(network):
    block = network.layer1
    block[1].conv1.weight = block[0].conv1.weight


def _other_activation(network):
    network.layer2[0].relu = torch.nn.ReLU6().eval()


CHANGED = {
    "a stride": _set("conv1", stride=(1, 1)),
    "a dilation": _set("layer4.1.conv1", dilation=(2, 2), padding=(2, 2)),
    "a pool": _set("maxpool", kernel_size=5, padding=2),
    "an epsilon": _set("bn1", eps=1e-4),
    "an activation": _other_activation,
    "a tied weight": _tied,
    "no bias": _set("fc", bias=None),
}


@pytest.mark.parametrize("case", CHANGED)
def test_changed_networks_stay_graphs(case):
    network = _resnet()
    CHANGED[case](network)
    assert family_model(capture(network, [torch.zeros(1, 3, SIZE, SIZE)])) is None


def _captured(function, *shapes) -> Graph:
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.rand(3, 3))
            self.b = torch.nn.Parameter(torch.rand(3))

        def forward(self, x):
            return function(self, x)

    return capture(Net().eval(), [torch.zeros(*shapes)]).graph


SAME = {
    "a linear layer": (
        lambda n, x: torch.nn.functional.linear(x, n.w, n.b),
        lambda n, x: torch.addmm(n.b, x, n.w.t()),
    ),
    "reshapes": (
        lambda n, x: (x.reshape(9) * 2).reshape(3, 3) @ n.w + n.b,
        lambda n, x: (x.reshape(3, 3, 1).flatten() * 2).reshape(3, 3) @ n.w + n.b,
    ),
}
SAME |= {
    "parts joined in steps": (
        lambda n, x: torch.cat([torch.cat([x @ n.w, x]), x + n.b]),
        lambda n, x: torch.cat([torch.cat([x @ n.w]), x, torch.cat([x + n.b])]),
    ),
    "a row, its axis kept": (
        lambda n, x: (x[1].unsqueeze(0) * n.b) @ n.w,
        lambda n, x: (x.index_select(0, torch.tensor([1])) * n.b) @ n.w,
    ),
}
DIFFERENT = {
    "parts joined along another axis": (
        lambda n, x: torch.cat([torch.cat([x @ n.w, x]), x + n.b]),
        lambda n, x: torch.cat([x @ n.w, x, x + n.b], 1).reshape(9, 3),
    ),
    "steps with a reshape between": (
        lambda n, x: torch.cat([torch.cat([x @ n.w, x]).reshape(3, 6), (x + n.b)], 1),
        lambda n, x: torch.cat([x @ n.w, x, (x + n.b)], 1),
    ),
    "another row": (
        lambda n, x: (x[1].unsqueeze(0) * n.b) @ n.w,
        lambda n, x: (x.index_select(0, torch.tensor([2])) * n.b) @ n.w,
    ),
    "a factor": (lambda n, x: x @ n.w + n.b, lambda n, x: 2 * (x @ n.w) + n.b),
    "operands in another order": (lambda n, x: x @ n.w - n.b, lambda n, x: n.b - x @ n.w),
    "a transposed matrix": (lambda n, x: x @ n.w + n.b, lambda n, x: x @ n.w.t() + n.b),
    "a reshape that reorders": (
        lambda n, x: x @ n.w + n.b,
        lambda n, x: x.t().reshape(9).reshape(3, 3) @ n.w + n.b,
    ),
    "other axes": (lambda n, x: x @ n.w + n.b, lambda n, x: (x @ n.w).t() + n.b),
    "a constant": (
        lambda n, x: (x @ n.w + n.b)[torch.tensor([0, 1, 2])],
        lambda n, x: (x @ n.w + n.b)[torch.tensor([2, 1, 0])],
    ),
    "a weight used twice": (lambda n, x: x @ n.w + n.b, lambda n, x: x @ n.w + n.w[0] + 0 * n.b),
    "another input": (lambda n, x: x @ n.w + n.b, lambda n, x: n.w @ n.w + n.b + 0 * x),
}


@pytest.mark.parametrize("case", SAME)
def test_spellings_of_one_function_match(case):
    ours, theirs = SAME[case]
    found = weights_of(_captured(ours, 3, 3), _captured(theirs, 3, 3))
    assert found == {"w": "w", "b": "b"}


@pytest.mark.parametrize("case", DIFFERENT)
def test_other_functions_do_not_match(case):
    ours, theirs = DIFFERENT[case]
    assert weights_of(_captured(ours, 3, 3), _captured(theirs, 3, 3)) is None


class Scaled(torch.nn.Module):
    """A product with a number that is a parameter, as ONNX files keep numbers."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(3, 3))
        self.factor = torch.nn.Parameter(torch.tensor(0.458))

    def forward(self, x):
        return (x * self.factor) @ self.w


@pytest.mark.parametrize(("factor", "same"), [(0.458, True), (0.4581, False)])
def test_a_number_may_stand_as_a_parameter_of_that_value(factor, same):
    theirs = capture(Scaled().eval(), [torch.zeros(3, 3)])
    ours = _captured(lambda n, x: (x * factor) @ n.w, 3, 3)
    found = weights_of(ours, theirs.graph, {"factor": float(theirs.params["factor"])})
    assert found == ({"w": "w"} if same else None)


@pytest.mark.parametrize(("levels", "parts"), [(3000, 1), (60, 2)])
def test_nested_joins_cost_neither_the_stack_nor_time(levels, parts):
    """A chain deeper than Python's stack, and 2^60 empty parts."""
    empty = parts == 2

    def nested(n, x):
        y = x[:, :0] if empty else x
        for _ in range(levels):
            y = torch.cat([y] * parts, 1)
        return y.sum() + x @ n.w + n.b

    graph = _captured(nested, 3, 3)
    assert weights_of(graph, graph) == {"w": "w", "b": "b"}
