"""Networks that compute otherwise than their weights say: refused, or run as torch runs them.

Each is given to the real torch too, in a process of its own, so that the test shows what it reads.
"""

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

from benchmarks.reading.differential.serve import example
from converters import open_artifact
from converters.conversion import convert
from converters.errors import ConverterError
from converters.opening import open_model
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


def _extra_layer(network):
    network.layer1.add_module("2", nn.Tanh())


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
    "a bias as an attribute": _bias_attribute,
    "a tensor as epsilon": _epsilon_tensor,
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
