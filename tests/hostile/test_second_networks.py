"""Networks that compute otherwise than their weights say: refused, or run as torch runs them.

Each is given to the real torch too, in a process of its own, so that the test shows what it reads.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

from benchmarks.reading.differential.serve import example
from converters import open_artifact
from converters.conversion import convert
from converters.errors import ConverterError, CorruptFileError, LoadError
from converters.opening import open_model
from converters.pickles.module_state import check_state
from converters.pickles.standins import Global, Standin
from tests.hostile.second_readings import SHAPE, logits, reads, saved


def resnet(seed=0):
    torch.manual_seed(seed)
    network = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [2, 1, 1, 1], 3)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    return network.eval()


def densenet():
    torch.manual_seed(0)
    return torchvision.models.DenseNet(4, (2, 1, 1, 1), 8, num_classes=3).eval()


def swapped(modules: dict) -> None:
    """The first two entries change places, as a file may have them."""
    items = list(modules.items())
    items[:2] = items[1::-1]
    modules.clear()
    modules.update(items)


def _reorder(network):
    swapped(network.layer1._modules)


def _shadow_parameter(network):
    """The code takes the parameter, the state dict shows the buffer."""
    weight = network.fc._parameters["weight"]
    network.fc._buffers["weight"] = weight.detach()
    network.fc._parameters["weight"] = nn.Parameter(weight.detach() + torch.eye(3, 512))


def _forward(network):
    network.__dict__["forward"] = resnet(1)


def _compiled(network):
    network.__dict__["_call_impl"] = resnet(1)


def _hook(network):
    network.relu._forward_hooks[0] = torch.nn.functional.elu


def _pool_as_relu(network):
    network.maxpool = nn.ReLU()


def _pool_attribute(network):
    del network._modules["maxpool"]
    network.__dict__["maxpool"] = nn.functional.relu


def _gelu_attribute(network):
    del network.layer1[0]._modules["relu"]
    network.layer1[0].__dict__["relu"] = nn.functional.gelu


def _bias_attribute(network):
    del network.conv1._parameters["bias"]
    network.conv1.__dict__["bias"] = torch.ones(64)


def _epsilon_tensor(network):
    network.bn1.eps = torch.tensor(0.5)


def _epsilon_buffer(network):
    """Code finds it where the attribute was, and the state dict does not show it."""
    del network.bn1.__dict__["eps"]
    network.bn1.register_buffer("eps", torch.tensor(0.5), persistent=False)


def _extra_layer(network):
    network.layer1.add_module("2", nn.Tanh())


def _unsaved_buffer(value):
    """In the place of a relu, which code finds there and the state dict does not show."""

    def changed(network):
        block = network.layer1[0]
        del block._modules["relu"]
        block._buffers["relu"] = value
        block._non_persistent_buffers_set.add("relu")

    return changed


def _dilated(network):
    network.layer1[0].conv1.dilation = (2, 2)
    network.layer1[0].conv1.padding = (2, 2)


MODULES = {
    "order of a Sequential": _reorder,
    "a parameter and a buffer of one name": _shadow_parameter,
    "forward as an attribute": _forward,
    "_call_impl as an attribute": _compiled,
    "a hook": _hook,
    "another kind of module": _pool_as_relu,
    "a function in place of a module": _pool_attribute,
    "a function in place of an activation": _gelu_attribute,
    "a function in an unsaved buffer": _unsaved_buffer(nn.functional.gelu),
    "a module in an unsaved buffer": _unsaved_buffer(nn.Tanh()),
    "a bias as an attribute": _bias_attribute,
    "a tensor as epsilon": _epsilon_tensor,
    "an unsaved buffer as epsilon": _epsilon_buffer,
    "one layer more": _extra_layer,
    "another dilation": _dilated,
}


@pytest.mark.parametrize("case", MODULES)
def test_networks_that_compute_otherwise_are_refused(case, runtime, tmp_path):
    network, path = resnet(), tmp_path / "model.pt"
    plain = network(torch.from_numpy(example(SHAPE))).detach().numpy()
    MODULES[case](network)
    path.write_bytes(saved(network))
    reading = reads(runtime, path)
    # torch either computes something else, or cannot run the network at all.
    assert not reading.read or np.abs(reading.arrays["logits"] - plain).max() > 1e-3
    with pytest.raises(ConverterError):
        convert(open_artifact(path))


DENSE = {
    "order of the features": lambda network: swapped(network.features._modules),
    "order inside a transition": lambda network: swapped(network.features.transition1._modules),
    "no first activation": lambda network: network.features._modules.pop("relu0"),
    "order of dense layers": lambda network: swapped(network.features.denseblock1._modules),
}


@pytest.mark.parametrize("case", DENSE)
def test_dense_networks_run_in_the_order_of_the_file(case, runtime, tmp_path):
    network, path = densenet(), tmp_path / "model.pt"
    DENSE[case](network)
    path.write_bytes(saved(network))
    reads(runtime, path)
    with pytest.raises(ConverterError, match="runs|order"):
        convert(open_artifact(path))


class _Partial:
    """A partial that is made of one class, and whose state names another function."""

    def __init__(self, shown, used, *args):
        self.parts = shown, used, args

    def __reduce__(self):
        shown, used, args = self.parts
        return partial, (shown,), (used, args, None, None)


def swin():
    torch.manual_seed(0)
    network = torchvision.models.SwinTransformer([4, 4], 8, [2], [2], [4, 4], num_classes=3)
    for parameter in network.parameters():
        nn.init.normal_(parameter)  # torchvision's are so small that attention changes little
    return network.eval()


def _hidden_layers():
    """Dense layers of other weights, as pairs with their names."""
    block: Any = densenet().features.denseblock1
    for parameter in block.parameters():
        parameter.data = -parameter.data
    return [*block._modules.items()]


def _set(path, name, value):
    """An attribute in the place of a method."""
    return lambda network: network.get_submodule(path).__dict__.__setitem__(name, value())


def _without_table():
    """A layer that runs, although it has no table of submodules."""
    layer = nn.Softplus()
    del layer.__dict__["_modules"]
    return layer


BLOCK, ATTENTION = "features.denseblock1", "features.1.0.attn"
IN_PLACE_OF_METHODS = {
    "items of a dense block": (
        densenet,
        _set(BLOCK, "items", lambda: partial(nn.ParameterList, _hidden_layers())),
    ),
    "items of a dense block, by the state": (
        densenet,
        _set(BLOCK, "items", lambda: _Partial(nn.Linear, list, _hidden_layers())),
    ),
    "positions of Swin": (
        swin,
        _set(
            ATTENTION,
            "get_relative_position_bias",
            lambda: partial(nn.Buffer, torch.rand(1, 2, 16, 16)),
        ),
    ),
    "a class": (resnet, _set("layer1.0", "other", lambda: nn.Buffer)),
    "a function in a list": (resnet, _set("", "blocks", lambda: [1, [nn.functional.gelu]])),
    "a layer in a dict": (resnet, _set("layer1", "steps", lambda: {"first": (nn.Tanh(),)})),
    "a tensor in a list": (resnet, _set("", "scales", lambda: [torch.ones(3)])),
    "a class where a norm's may be": (resnet, _set("", "_norm_layer", lambda: torch.Size)),
    "a layer without its tables": (resnet, _set("layer1.0", "other", _without_table)),
    "a function that loading a network calls": (resnet, _set("", "_apply", lambda: dict)),
}


@pytest.mark.parametrize("case", IN_PLACE_OF_METHODS)
def test_what_runs_in_place_of_a_method_is_refused(case, tmp_path):
    make, change = IN_PLACE_OF_METHODS[case]
    network, path = make(), tmp_path / "model.pt"
    change(network)
    path.write_bytes(saved(network))
    with pytest.raises(LoadError, match="its attribute|an attribute|expected the same class"):
        open_artifact(path)


@pytest.mark.parametrize("case", [case for case in IN_PLACE_OF_METHODS if " of " in case])
def test_a_partial_in_place_of_a_method_changes_the_logits(case, runtime, tmp_path):
    """The control: this is why such attributes are refused."""
    make, change = IN_PLACE_OF_METHODS[case]
    network, path = make(), tmp_path / "model.pt"
    plain = network(torch.from_numpy(example(SHAPE))).detach().numpy()
    change(network)
    path.write_bytes(saved(network))
    assert np.abs(logits(runtime, path) - plain).max() > 1e-3


LAYERS = {
    "torchvision": lambda: [densenet(), swin(), resnet()],
    "of heads": lambda: [nn.LSTM(2, 2), nn.GRU(2, 2), nn.Dropout()],
    "attention": lambda: [nn.MultiheadAttention(2, 2)],
    "a wrapper": lambda: [nn.DataParallel(nn.ReLU())],
}


@pytest.mark.parametrize("group", LAYERS)
def test_no_method_can_be_replaced(group):
    kinds = {type(layer) for network in LAYERS[group]() for layer in network.modules()}
    for kind in kinds:
        methods = [name for name in dir(kind) if callable(getattr(kind, name))]
        assert {"forward", "_apply", "bfloat16"} <= set(methods)
        for name in methods:
            tables = {"_parameters": {}, "_buffers": {}, "_modules": {}}
            module = Standin(kind.__module__, tables | {name: Global("builtins.dict", "name")})
            with pytest.raises(CorruptFileError, match=name):
                check_state("", module)


@pytest.mark.parametrize("make", [resnet, densenet])
def test_unchanged_networks_agree(make, runtime, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(saved(make()))
    theirs = logits(runtime, path)
    model = convert(open_artifact(path))
    ours = model(example(SHAPE).transpose(0, 2, 3, 1))
    assert np.abs(np.asarray(ours) - theirs).max() < 1e-4 * max(1, np.abs(theirs).max())


@pytest.mark.parametrize("none", [True, False])
def test_a_missing_submodule_is_refused(none, runtime, tmp_path):
    network = resnet()
    if none:
        network._modules["bn1"] = None
    else:
        del network._modules["bn1"]
    path = tmp_path / "model.pt"
    path.write_bytes(saved(network))
    assert not reads(runtime, path).read
    with pytest.raises(ConverterError):
        open_model(path)


def test_a_network_in_half_precision_is_a_finding(tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(saved(resnet().half()))
    assert "a network saved in float16; scanned in float32" in " ".join(open_model(path).findings)
    path.write_bytes(saved(resnet().half().state_dict()))
    assert "float16" not in " ".join(open_model(path).findings)


def test_one_module_under_two_names_is_run_twice(runtime, tmp_path):
    network, path = resnet(), tmp_path / "model.pt"
    network.layer1._modules["1"] = network.layer1._modules["0"]
    path.write_bytes(saved(network))
    model = convert(open_artifact(path))
    ours = model(example(SHAPE).transpose(0, 2, 3, 1))
    assert np.abs(np.asarray(ours) - logits(runtime, path)).max() < 1e-3
