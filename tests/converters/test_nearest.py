"""State dicts that almost fit a family: what differs is said, and what to do about it."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm
from torch.optim.swa_utils import AveragedModel
from torchvision import models

from converters import open_model
from converters.errors import ConverterError, MismatchError, UnsupportedArchitectureError
from tests.converters.public_networks import NETWORKS

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")


def _resnet(head: nn.Module | None = None) -> nn.Module:
    network = models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=7)
    network.fc = network.fc if head is None else head  # pyright: ignore
    return network


def _densenet(head: nn.Module) -> nn.Module:
    network = models.DenseNet(8, (2, 1, 1, 1), 16, num_classes=5)
    network.classifier = head  # pyright: ignore
    return network


def _each_convolution(network: nn.Module, change) -> nn.Module:
    for part in list(network.modules()):
        if isinstance(part, nn.Conv2d):
            change(part)
    return network


def _pruned(module: nn.Module) -> nn.Module:
    return prune.l1_unstructured(module, "weight", 0.2)


@pytest.fixture
def refused(tmp_path):
    """What opening a network's state dict says."""

    def message(network: nn.Module, kind: type[ConverterError] = UnsupportedArchitectureError):
        torch.save(network.state_dict(), tmp_path / "model.pt")
        with pytest.raises(kind) as caught:
            open_model(tmp_path / "model.pt")
        return str(caught.value)

    return message


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (
            lambda: _resnet(nn.Sequential(nn.Dropout(0.2), nn.Linear(512, 7))),
            "like resnet, but fc.weight, fc.bias are missing and fc.1.weight (7, 512), fc.1.bias "
            "(7,) are unknown; export it",
        ),
        (lambda: _resnet(nn.Identity()), "like resnet, but fc.weight, fc.bias are missing; export"),
        (
            lambda: _densenet(nn.Sequential(nn.Linear(9, 5, bias=False))),
            "like densenet, but classifier.weight, classifier.bias are missing and "
            "classifier.0.weight (5, 9) is unknown",
        ),
    ],
)
def test_replaced_heads_are_named(network, said, refused):
    message = refused(network())
    assert message.startswith(said) and "--network FILE.py:CLASS" in message
    assert "torch.onnx.export(network.eval(), example, 'model.onnx')" in message[:360]
    assert "names fit, the first is " in message[-60:]


@pytest.mark.parametrize(
    ("change", "remover"),
    [
        (weight_norm, "torch.nn.utils.remove_weight_norm(module)"),
        (spectral_norm, "torch.nn.utils.remove_spectral_norm(module)"),
        (
            parametrizations.weight_norm,
            "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')",
        ),
        (
            parametrizations.spectral_norm,
            "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')",
        ),
        (_pruned, "torch.nn.utils.prune.remove(module, 'weight')"),
    ],
)
@pytest.mark.parametrize("where", ["head", "convolutions", "one inside", "another network"])
def test_parametrised_weights_say_how_to_remove_that(change, remover, where, refused):
    kind = UnsupportedArchitectureError
    network = _resnet()
    if where == "head":
        change(network.fc)
    elif where == "convolutions":
        _each_convolution(network, change)
    elif where == "one inside":  # the family is recognised, its weights do not fit
        kind, _ = MismatchError, change(network.get_submodule("layer2.0.conv2"))
    else:
        network = _each_convolution(models.squeezenet1_1(num_classes=3), change)
    message = refused(network, kind)
    assert f"call {remover} for each such module of the network, then save" in message[:360]
    assert ("like resnet, but" in message) == (where in ("head", "convolutions"))
    assert len(message) < 1500


@pytest.mark.parametrize(
    ("change", "remover"),
    [(_pruned, "prune.remove"), (parametrizations.weight_norm, "remove_parametrizations")],
)
def test_a_parametrised_weight_of_a_network_for_small_pictures(change, remover, refused):
    network = NETWORKS["PreActResNet"][0]()
    change(network.layer4[0].conv2)
    message = refused(network, MismatchError)
    assert "has no layer4.0.conv2.weight, which every network of this class has, but" in message
    assert f"{remover}(module, 'weight') for each such module of the network" in message


def test_lists_are_short(refused):
    message = refused(_each_convolution(_resnet(), weight_norm))
    assert "24 names are unknown: conv1.weight_g (64, 1, 1, 1), conv1.weight_v" in message
    assert message.count("weight_g") + message.count("weight_v") == 12 and "..." in message[-4:]


def test_a_few_common_names_are_no_family(refused):
    parts = {"conv1": nn.Conv2d(3, 4, 3), "conv2": nn.Conv2d(4, 4, 3), "conv3": nn.Conv2d(4, 4, 3)}
    message = refused(nn.ModuleDict(parts | {"fc1": nn.Linear(4, 4)}))
    assert message.startswith("no family has tensors named like these: conv1.weight (4, 3, 3, 3)")


def test_an_averaged_model_is_the_network_inside(tmp_path):
    average = AveragedModel(_resnet())
    torch.save(average.state_dict(), tmp_path / "model.pt")
    opened = open_model(tmp_path / "model.pt")
    assert any("n_averaged of AveragedModel left out" in finding for finding in opened.findings)
    torch.save(average.state_dict() | {"n_averaged": torch.ones(2)}, tmp_path / "model.pt")
    with pytest.raises(ConverterError):
        open_model(tmp_path / "model.pt")


def test_the_networks_of_torchvision_come_near_no_family():
    """They are rebuilt where no family recognises them."""
    from converters import families

    names = "alexnet vgg11_bn squeezenet1_0 googlenet mobilenet_v2 mobilenet_v3_small mnasnet0_5"
    for name in f"{names} shufflenet_v2_x0_5 efficientnet_b0 convnext_tiny vit_b_16 swin_t".split():
        extra = {"init_weights": False} if name == "googlenet" else {}
        with torch.device("meta"):
            state = models.get_model(name, weights=None, **extra).state_dict()
        shapes = {n: tuple(t.shape) for n, t in state.items() if t.ndim in (2, 4) or "bias" in n}
        assert families.recognise(shapes) is None
