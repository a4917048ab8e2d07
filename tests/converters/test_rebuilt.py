"""torchvision's classifiers outside the Flax families: files read as data, networks rebuilt."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import models
from torchvision.models import mobilenetv3

from converters import open_artifact, open_model
from converters.errors import ConversionError, ConverterError, TooLargeError
from converters.families.torch_layers import resize
from converters.input_form import InputForm
from converters.rebuilt.model import rebuilt_model
from converters.rebuilt.network import describe, rebuild
from converters.rebuilt.table import KNOWN
from converters.weights import Weights

CONVNEXT = models.convnext.CNBlockConfig
MOBILE = mobilenetv3.InvertedResidualConfig
FUSED, MB = models.efficientnet.FusedMBConvConfig, models.efficientnet.MBConvConfig
SWIN = models.swin_transformer


def _squeezenet():
    network = models.squeezenet1_0(num_classes=5)
    for name, layer in network.named_modules():
        if isinstance(layer, torch.nn.Conv2d):
            # Blocks squeeze sixteen channels to eight and give twice eight.
            cin = 16 if name.endswith(("squeeze", "classifier.1")) else 8
            cout = {"features.0": 16, "classifier.1": 5}.get(name, 8)
            resize(layer, (cout, 3 if name == "features.0" else cin, *layer.kernel_size))
    return network


def _vgg():
    features = models.vgg.make_layers([4, "M", 8, 8, "M"], True)
    network = models.VGG(features, 5, init_weights=False)
    resize(network.classifier[0], (6, 8 * 49))
    resize(network.classifier[3], (6, 6))
    resize(network.classifier[6], (5, 6))
    return network


def _mobilenet_v3():
    rows = [
        MOBILE(16, 5, 24, 16, True, "HS", 1, 2, 1.0),
        MOBILE(16, 3, 24, 8, False, "RE", 2, 1, 1.0),
    ]
    return models.MobileNetV3(rows, 32, 5)


def _efficientnet():
    rows = [FUSED(1, 3, 1, 8, 8, 1), FUSED(4, 3, 2, 8, 8, 2), MB(6, 5, 2, 8, 16, 2)]
    return models.EfficientNet(rows, 0.2, num_classes=5, last_channel=24)


def _regnet():
    params = models.regnet.BlockParams([1, 2], [8, 16], [4, 8], [1.0, 1.0], [2, 2], 0.25)
    return models.RegNet(params, 5, 8)


def _convnext():
    return models.ConvNeXt([CONVNEXT(8, 16, 1), CONVNEXT(16, None, 1)], num_classes=5)


def _swin(window=(4, 4), **kinds):
    return models.SwinTransformer([2, 2], 8, [2, 1], [1, 2], [*window], num_classes=5, **kinds)


def _swin_v2():
    kinds = {"block": SWIN.SwinTransformerBlockV2, "downsample_layer": SWIN.PatchMergingV2}
    return _swin((3, 4), **kinds)


# family -> network of few weights, side of the pictures, whether its state dict says enough.
SMALL = {
    "vgg": (_vgg, 32, True),
    "squeezenet": (_squeezenet, 33, True),
    "mobilenet_v2": (lambda: models.MobileNetV2(5, 0.25, [[1, 8, 1, 1], [6, 9, 2, 2]]), 32, False),
    "mobilenet_v2 of standard depth": (lambda: models.mobilenet_v2(num_classes=5), 32, True),
    "mobilenet_v3": (_mobilenet_v3, 32, False),
    "mnasnet": (lambda: models.MNASNet(0.1, 5), 32, True),
    "shufflenet_v2": (lambda: models.ShuffleNetV2([1, 2, 1], [8, 8, 16, 16, 32], 5), 33, True),
    "efficientnet": (_efficientnet, 32, False),
    "regnet": (_regnet, 32, True),
    "convnext": (_convnext, 32, True),
    "vit": (lambda: models.VisionTransformer(16, 8, 2, 2, 16, 32, num_classes=5), 16, False),
    "swin": (_swin, 20, True),
    "swin v2": (_swin_v2, 20, True),
    "maxvit": (lambda: models.MaxVit((32, 32), 8, 2, [8, 16], [1, 1], 4, 0.2, num_classes=5), 32,
               None),
}  # fmt: skip


@pytest.fixture
def small(fill):
    def made(name):
        build, size, _ = SMALL[name]
        return fill(build).requires_grad_(False), size

    return made


def _images(size: int, n: int = 2):
    return np.random.default_rng(0).random((n, size, size, 3))


def _logits(network, images):
    with torch.no_grad():
        return network(torch.from_numpy(images).permute(0, 3, 1, 2).to(next(network.parameters())))


def _same(network, rebuilt, size):
    """Both are torch's own code, so what is the same network gives the same bits."""
    images = _images(size)
    assert rebuilt.module is not network and not rebuilt.module.training
    assert torch.equal(_logits(rebuilt.module, images), _logits(network, images))


@pytest.mark.parametrize("name", SMALL)
def test_whole_networks_are_rebuilt_from_their_files(name, small, pickled):
    network, size = small(name)
    _same(network, rebuild(open_artifact(pickled(network)).weights), size)


@pytest.mark.parametrize("name", [name for name, (_, _, enough) in SMALL.items() if enough])
def test_state_dicts_that_say_enough_are_rebuilt(name, small, pickled):
    network, size = small(name)
    state = {k: v for k, v in network.state_dict().items() if "num_batches" not in k}
    _same(network, rebuild(open_artifact(pickled(state)).weights), size)


@pytest.mark.parametrize("name", [name for name, case in SMALL.items() if case[2] is False])
def test_other_state_dicts_are_not_guessed(name, small, pickled):
    network, _ = small(name)
    with pytest.raises(ConversionError, match="state dict does not say"):
        rebuild(open_artifact(pickled(network.state_dict())).weights)


def test_the_image_size_of_a_state_dict_is_said_to_be_assumed(small, pickled):
    network, _ = small("maxvit")
    rebuilt = rebuild(open_artifact(pickled(network.state_dict())).weights)
    assert rebuilt.image_size == (224, 224) and "224 x 224" in rebuilt.findings[0]
    assert rebuild(open_artifact(pickled(network)).weights).image_size == (32, 32)


@pytest.mark.parametrize("name", ["mobilenet_v2", "vit"])
def test_parity_of_the_model(name, small, pickled):
    import jax
    import jax.numpy as jnp

    from converters.parity import logits_and_gradients, relative_error

    network, size = small(name)
    opened = open_model(pickled(network), InputForm(image_size=(size, size), bounds=(0, 1)))
    assert opened.model.architecture == name.split()[0]
    outline, looked_through = opened.findings
    assert outline.startswith(f"{name} has conv x") and looked_through.startswith("none of the")
    images, weights = _images(size), np.random.default_rng(1).standard_normal((2, 5))
    with jax.enable_x64(True):
        model = dataclasses.replace(opened.model, params=opened.model.astype(jnp.float64).params)
        program = jax.jit(logits_and_gradients, static_argnums=0)
        given = jnp.asarray(images), jnp.asarray(weights)
        got = [np.asarray(v) for v in program(model.config, model.params, *given)]
    x = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous().requires_grad_(True)
    logits = network.double()(x)
    (gradient,) = torch.autograd.grad((logits * torch.from_numpy(weights)).sum(), x)
    expected = logits.detach().numpy(), gradient.numpy().transpose(0, 2, 3, 1)
    errors = [relative_error(g, e) for g, e in zip(got, expected, strict=True)]
    assert all(error is not None and error <= 1e-10 for error in errors), errors


STANDARD = [
    name
    for name in models.list_models(models)
    if not name.startswith(("resne", "wide_", "densenet", "inception"))
]


@pytest.mark.slow
@pytest.mark.parametrize("name", STANDARD)
def test_every_classifier_of_torchvision(name, fill, pickled):
    extra: dict[str, Any] = {"init_weights": False} if name == "googlenet" else {}
    sizes = {"vit_h_14": 28, "maxvit_t": 224, "alexnet": 64}
    if name.startswith("vit"):
        extra["image_size"] = sizes.get(name, 32)

    def build():
        with torch.device("cpu"):  # RegNet's builder computes its widths with tensors
            return getattr(models, name)(num_classes=5, **extra)

    network = fill(build).requires_grad_(False)
    size = sizes.get(name, 32)
    _same(network, rebuild(open_artifact(pickled(network)).weights), size)
    _same(network, rebuild(open_artifact(pickled(network.state_dict())).weights), size)


def test_named_layers_in_another_order_are_refused(small, pickled):
    """torch runs them as they stand."""
    network, _ = small("vit")
    layers = network.encoder.layers._modules
    for name in reversed([*layers]):
        layers[name] = layers.pop(name)
    with pytest.raises(ConverterError, match=r"parts of encoder\.layers stand in another order"):
        open_model(pickled(network))


def test_classes_and_signatures_are_unambiguous(small):
    classes = [family.class_name for family in KNOWN if family.class_name]
    assert len(set(classes)) == len(classes)
    for name in SMALL:
        with torch.device("meta"):
            names = SMALL[name][0]().state_dict()
        found = [f.name for f in KNOWN if f.tensors and set(f.tensors) <= set(names)]
        assert found == [name.split()[0].removesuffix(",")], name


def test_old_names_are_read(small):
    network, size = small("vit")
    current = Weights({k: v.numpy() for k, v in network.state_dict().items()})
    old = {
        k.replace(".mlp.0.", ".mlp.linear_1.").replace(".mlp.3.", ".mlp.linear_2."): v
        for k, v in current.tensors.items()
    }
    _same(network, rebuild(Weights(old, describe(network))), size)


def _changed(path, **attributes):
    def change(network):
        for name, value in attributes.items():
            setattr(network.get_submodule(path), name, value)

    return change


def _replaced(path, layer):
    def change(network):
        parent, _, name = path.rpartition(".")
        setattr(network.get_submodule(parent), name, layer)

    return change


CHANGED = {
    "a padding": ("vgg", _changed("features.0", padding=(0, 0)), "features.0.padding is"),
    "a pool": ("vgg", _changed("features.3", stride=1), "features.3.stride is 1"),
    "an epsilon": ("mobilenet_v3", _changed("features.1.block.0.1", eps=0.5), "eps is 0.5"),
    "an activation": ("regnet", _replaced("stem.2", torch.nn.Tanh()), "stem.2 is a torch.nn"),
    "a head": (
        "mobilenet_v2",
        _replaced("classifier", torch.nn.Linear(1280, 5)),
        "no classifier.1.weight",
    ),
    "another layer": (
        "convnext",
        lambda n: n.classifier.append(torch.nn.Linear(5, 5)),
        "unused: classifier.3.weight",
    ),
    "heads": (
        "vit",
        _changed("encoder.layers.encoder_layer_0.self_attention", num_heads=3),
        "cannot be made|differ",
    ),
    "a stride": ("mobilenet_v2", _changed("features.1.conv.0.0", stride=(7, 7)), "stride"),
    "weights": ("vgg", _changed("features.0", bias=torch.nn.Parameter(torch.zeros(7))), "misshap"),
    "NaN": (
        "vgg",
        lambda n: n.features[0].bias.fill_(float("nan")),
        "NaN or infinite values, the first is features.0.bias",
    ),
}


@pytest.mark.parametrize("case", CHANGED)
def test_changed_networks_are_refused(case, small, pickled):
    name, change, words = CHANGED[case]
    network, _ = small(name)
    with torch.no_grad():
        change(network)
    with pytest.raises(ConversionError, match=words) as caught:
        rebuild(open_artifact(pickled(network)).weights)
    assert len(str(caught.value)) < 4000


def test_a_forward_pass_that_would_not_fit_is_refused_before_it_runs(small):
    """A first layer of very many channels: few weights, but huge feature maps."""
    tensors = {k: v.numpy() for k, v in small("vgg")[0].state_dict().items()}
    wide = 60_000
    tensors["features.0.weight"] = np.zeros((wide, 3, 3, 3), np.float32)
    for name in ("features.0.bias", *(f"features.1.{k}" for k in ("bias", "running_mean"))):
        tensors[name] = np.zeros(wide, np.float32)
    for name in ("features.1.weight", "features.1.running_var"):
        tensors[name] = np.ones(wide, np.float32)
    tensors["features.4.weight"] = np.zeros((8, wide, 3, 3), np.float32)

    with pytest.raises(TooLargeError, match="value_elements"):
        rebuilt_model(Weights(tensors), (), InputForm(image_size=(224, 224)), None)


HOSTILE = {
    "no first layer": {"features.0.weight": np.zeros((0, 3, 3, 3), np.float32)},
    "huge numbers": {"features.9999.weight": np.zeros((4, 4, 3, 3), np.float32)},
    "a matrix for a kernel": {"features.0.weight": np.zeros((4, 3), np.float32)},
    "text": {"features.0.weight": np.zeros((4, 3, 3, 3), "S4")},
    "whole numbers": {"features.0.weight": np.zeros((4, 3, 3, 3), np.int32)},
    "other kernels": {"features.0.weight": np.zeros((4, 3, 5, 5), np.float32)},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_lying_tensors_are_refused(case, small):
    tensors = {k: v.numpy() for k, v in small("vgg")[0].state_dict().items()}
    with pytest.raises(ConverterError):
        rebuild(Weights({**tensors, **HOSTILE[case]}))
