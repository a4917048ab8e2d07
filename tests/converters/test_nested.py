"""Whole pickled networks of torchvision inside a `Sequential`: read as torch runs them."""

from collections import OrderedDict
from functools import partial

import pytest
import torch
from torch import nn
from torchvision import models
from torchvision.transforms import ColorJitter, Normalize

from converters import convert, open_artifact
from converters.errors import ConverterError
from converters.parity import check_parity
from tests.converters.graph_parity import check_graph, check_sequential, opened_at

SIDE = 32
# Numbers that float32 has, as which a captured network keeps them.
MEAN, STD = (0.5, 0.375, 0.25), (0.25, 0.3125, 0.5)


def _resnet():
    return models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5)


def _small_stem():
    network = _resnet()
    network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    network.add_module("maxpool", nn.Identity())
    return network


def _densenet():
    return models.DenseNet(8, (1, 1, 1, 1), 16, num_classes=5)


def _transformer():
    return models.VisionTransformer(SIDE, 8, 1, 2, 16, 32, num_classes=5)


NETWORKS = {
    "prepared": lambda: nn.Sequential(Normalize(MEAN, list(STD)), _resnet()),
    "prepared alike": lambda: nn.Sequential(Normalize([0.5], [0.25]), _resnet()),
    "named": lambda: nn.Sequential(
        OrderedDict(normalize=Normalize(MEAN, STD), model=_small_stem())
    ),
    "within two": lambda: nn.Sequential(
        Normalize(MEAN, STD), nn.Sequential(nn.Dropout(), _densenet())
    ),
    "one more layer": lambda: nn.Sequential(_resnet(), nn.ReLU(), nn.Linear(5, 3)),
    "resized": lambda: nn.Sequential(nn.Upsample(size=(40, 44)), _resnet()),
    "a network that is rebuilt": lambda: nn.Sequential(Normalize(MEAN, STD), _transformer()),
}


opened = partial(opened_at, side=SIDE)


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_and_gradients_are_torchs(name, fill, pickled):
    network = fill(NETWORKS[name]).requires_grad_(False)
    check_sequential(network, pickled(network), SIDE, 1e-9)


@pytest.mark.parametrize("first", ["0.", "0.model."])
def test_a_network_that_is_the_only_part(first, fill, pickled):
    """It is the family's, as without what is around it."""
    network = fill(_resnet).requires_grad_(False)
    wrapped = nn.Sequential(network)
    if "model" in first:
        wrapped = nn.Sequential(nn.Sequential(OrderedDict(model=network)))
    artifact = open_artifact(pickled(wrapped.eval()))
    model = convert(artifact)
    assert f"a Sequential whose only part is the network, {first}, was left out" in model.findings
    assert model.architecture == "resnet"
    assert check_parity(artifact, model, ((1, 40, 48),)).passed


def test_a_softmax_behind_it(fill, pickled):
    network = nn.Sequential(fill(_resnet), nn.Softmax(1)).requires_grad_(False).eval()
    images = torch.rand(1, 3, SIDE, SIDE, dtype=torch.float64)
    check_graph(opened(pickled(network)).model, network, images, 1e-9)


def test_pictures_that_are_prepared_in_place(fill, pickled):
    """torch has no gradient then; its logits are the same."""
    network = nn.Sequential(Normalize(MEAN, STD, inplace=True), fill(_resnet))
    path = pickled(network.requires_grad_(False).eval())
    network[0] = Normalize(MEAN, STD)
    check_graph(opened(path).model, network, torch.rand(1, 3, SIDE, SIDE).double(), 1e-9)


def _strided():
    network = _resnet()
    network.get_submodule("layer1.0.conv1").stride = (2, 2)  # pyright: ignore
    return network


def _pooled():
    network = _resnet()
    network.maxpool.kernel_size = 5
    return network


def _with_state(**state):
    layer = Normalize(MEAN, STD)
    vars(layer).update(state)
    return layer


def _holding(layer):
    outer = Normalize(MEAN, STD)
    outer.add_module("more", layer)
    return outer


def _in_another_order():
    network = _densenet()
    parts = network.features._modules
    parts["norm0"] = parts.pop("norm0")
    return network


# What stands before or in place of the network, and what is said of it.
REFUSED = {
    "another stride": (lambda: [Normalize(MEAN, STD), _strided()], r"stride is \(2, 2\)"),
    "another pool": (lambda: [_pooled(), nn.ReLU()], "kernel_size is 5"),
    "parts in another order": (lambda: [_in_another_order(), nn.ReLU()], "order|runs"),
    "a tensor as mean": (
        lambda: [_with_state(mean=torch.zeros(3)), _resnet()], "keeps a tensor or module as its",
    ),
    "deviations of 0": (lambda: [_with_state(std=[1.0, 0.0, 1.0]), _resnet()], "std holds a 0"),
    "no number": (
        lambda: [_with_state(mean=[float("nan")] * 3), _resnet()], "expected a list of finite",
    ),
    "text": (lambda: [_with_state(mean="abc"), _resnet()], "expected a list of finite numbers"),
    "no list": (lambda: [_with_state(std=0.5), _resnet()], "expected a list of finite numbers"),
    "lists of lists": (
        lambda: [_with_state(mean=[[0.5] * 3] * 3), _resnet()], "expected a list of finite numbers",
    ),
    "two channels": (lambda: [Normalize(MEAN[:2], STD[:2]), _resnet()], "cannot be run"),
    "another code": (lambda: [_with_state(forward=abs), _resnet()], "forward|builtins.abs"),
    "a layer in it": (lambda: [_holding(nn.ReLU()), _resnet()], "0.more is a .* no such module"),
    "another transform": (lambda: [ColorJitter(), _resnet()], "asks for the global 'torchvision"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_might_run_otherwise_is_refused(name, pickled):
    parts, message = REFUSED[name]
    with pytest.raises(ConverterError, match=message):
        opened(pickled(nn.Sequential(*parts()).eval()))


class Prepare(nn.Module):
    """As people write it: nobody but its code says what it does with its numbers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3, 1, 1))


def test_a_class_of_the_users_own_before_the_network(pickled):
    path = pickled(nn.Sequential(Prepare(), _resnet()))
    with pytest.raises(ConverterError, match="test_nested.Prepare', which is not on the allow-li"):
        opened(path)
    with pytest.raises(ConverterError, match="1 others stand beside them: '0.mean'"):
        opened(pickled(nn.Sequential(Prepare(), _resnet()).state_dict()))
