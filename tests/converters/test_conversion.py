"""Variants that convert, and files that must be refused with one clear error."""

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torchvision import models

from converters import convert, fold, open_model
from converters.errors import ConversionError, MismatchError, UnsupportedArchitectureError
from converters.families.inception import InceptionConfig, _convolutions
from converters.families.reference import empty_module
from converters.model import apply

DenseNet: Any = models.DenseNet  # typed for four blocks; it takes as many as there are

nn = torch.nn


def dense():
    return DenseNet(8, (2, 2), 16, num_classes=3)


def residual():
    return models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], 3)


def inception(aux_logits=False, channels=8):
    """Inception v3 with every convolution a few channels wide."""
    widths = (channels,) * len(list(_convolutions()))
    config = InceptionConfig(widths, 3)
    return empty_module(config, ("AuxLogits.fc.bias",) if aux_logits else ())


def narrow_resnext():
    from converters.families.resnet import BlockConfig, ResNetConfig

    stages = tuple((BlockConfig((8, 8, 12), True), BlockConfig((8, 8, 12), False)) for _ in "1234")
    return empty_module(ResNetConfig(6, stages, 4, 3, channels=1))


def check_logits(model, network, channels=3, tolerance=1e-5):
    """Float32 logits on one picture that is not square."""
    images = np.random.default_rng(0).random((2, 75, 107, channels), np.float32)
    with torch.no_grad():
        expected = network.float().eval()(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    got, expected = np.asarray(model(images)), expected.numpy()
    assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


@pytest.fixture(scope="module")
def tensors(fill):
    """Arrays of the small DenseNet by name."""
    return {name: value.numpy() for name, value in fill(dense).state_dict().items()}


# ---- variants


@pytest.mark.parametrize("build", [dense, inception, narrow_resnext])
def test_narrow_networks(build, fill, artifact_of):
    network = fill(build)
    channels = 1 if build is narrow_resnext else 3
    model = convert(artifact_of(network))
    assert (model.num_classes, model.channels) == (3, channels)
    check_logits(model, network, channels)
    check_logits(fold(model), network, channels)


def test_odd_depth_has_the_family_s_name(fill, artifact_of):
    assert convert(artifact_of(fill(residual))).architecture == "resnet"
    assert convert(artifact_of(fill(dense))).architecture == "densenet"


def test_pickled_narrow_and_reheaded_network(fill, pickled):
    network = fill(dense)
    network.classifier = nn.Linear(network.classifier.in_features, 11)
    model = open_model(pickled(network)).model
    assert model.num_classes == 11
    check_logits(model, network)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floating_types(dtype, fill, pickled):
    network = fill(dense).to(dtype)
    model = open_model(pickled(network)).model
    assert {value.dtype for value in model.params.values()} == {np.dtype(np.float32)}
    check_logits(model, network)


def test_data_parallel(fill, pickled):
    network = fill(dense)
    model = open_model(pickled(nn.DataParallel(network))).model
    check_logits(model, network)
    assert any("DataParallel" in finding for finding in model.findings)


def test_names_of_old_dense_layers(fill, artifact_of):
    import re

    network = fill(dense)
    old = {
        re.sub(r"(denselayer\d+\.(?:norm|conv))(\d)", r"\1.\2", name): value
        for name, value in network.state_dict().items()
    }
    assert any(".norm.1." in name for name in old)
    check_logits(convert(artifact_of(old)), network)


def test_old_and_new_name_together_are_refused(tensors, artifact_of):
    name = "features.denseblock1.denselayer1.norm1.weight"
    both = tensors | {name.replace("norm1", "norm.1"): tensors[name]}
    with pytest.raises(MismatchError, match=r"norm\.1\.weight are two names"):
        convert(artifact_of(both))


def test_counters_may_be_absent(tensors, artifact_of):
    old = {name: value for name, value in tensors.items() if "num_batches" not in name}
    assert convert(artifact_of(old)).num_classes == 3


@pytest.mark.parametrize("aux_logits", [False, True])
def test_inception_pickled_without_pools(aux_logits, fill, pickled):
    """torchvision 0.4 had no pooling submodules."""
    network = fill(lambda: inception(aux_logits))
    path = pickled(network)
    expected = open_model(path).model
    for name in ("maxpool1", "maxpool2", "avgpool", "dropout"):
        del network._modules[name]
    model = open_model(pickled(network)).model
    assert model.config == expected.config
    assert any("auxiliary" in finding for finding in model.findings) == aux_logits
    for name, value in expected.params.items():
        np.testing.assert_array_equal(model.params[name], value)


def test_state_dict_of_inception_says_what_it_does_not_know(fill, artifact_of):
    findings = convert(artifact_of(fill(inception))).findings
    assert any("transform_input" in finding for finding in findings)


@pytest.mark.parametrize("build", [residual, dense, inception])
def test_strides_and_pools_of_a_state_dict_are_said_to_be_torchvisions(build, fill, pickled):
    """Whole networks name them, and are refused where they differ."""
    network = fill(build)
    said = [
        any("strides and pools" in finding for finding in open_model(pickled(kind)).findings)
        for kind in (network.state_dict(), network)
    ]
    assert said == [True, False]


def test_training_mode_is_a_finding(fill, pickled):
    assert any(
        "training mode" in f for f in open_model(pickled(fill(dense).train())).model.findings
    )


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(random=st.randoms(use_true_random=False))
def test_order_of_tensors_does_not_matter(random, tensors, artifact_of):
    names = list(tensors)
    random.shuffle(names)
    model = convert(artifact_of({name: tensors[name] for name in names}))
    expected = convert(artifact_of(tensors))
    assert model.config == expected.config and set(model.params) == set(expected.params)
    for name, value in expected.params.items():
        np.testing.assert_array_equal(model.params[name], value)


# ---- folding


def test_folding_twice_changes_nothing(tensors, artifact_of):
    folded = fold(convert(artifact_of(tensors)))
    assert folded.config.folded and fold(folded) is folded
    assert len(folded.params) < len(convert(artifact_of(tensors)).params)


def test_folding_that_overflows_is_refused(tensors, artifact_of):
    huge = tensors | {"features.norm0.weight": np.full(16, 3e38, np.float32)}
    huge["features.norm0.running_var"] = np.zeros(16, np.float32)
    with pytest.raises(ConversionError, match=r"features\.norm0.*overflows"):
        fold(convert(artifact_of(huge)))


# ---- mismatches


def test_everything_missing_unused_and_misshapen_is_listed(tensors, artifact_of):
    wrong = dict(tensors)
    del wrong["features.norm5.running_var"], wrong["classifier.bias"]
    wrong["extra.weight"] = np.ones(3, np.float32)
    wrong["features.norm5.bias"] = np.ones(9, np.float32)
    wrong["features.denseblock1.denselayer1.conv2.weight"] = np.ones((8, 32, 5, 5), np.float32)
    with pytest.raises(MismatchError) as caught:
        convert(artifact_of(wrong))
    text = str(caught.value)
    missing, unused, misshapen = (text.index(k) for k in ("missing:", "unused:", "misshapen:"))
    assert missing < unused < misshapen
    assert "features.norm5.running_var" in text and "classifier.bias" in text
    assert "extra.weight (3,)" in text
    assert "features.norm5.bias: got (9,), expected (16,)" not in text[:misshapen]
    assert "features.norm5.bias: got (9,), expected" in text
    assert "conv2.weight: got (8, 32, 5, 5), expected (8, 32, 3, 3)" in text


@pytest.mark.parametrize(
    "name",
    [
        "features.denseblock1.denselayer2.conv1.weight",
        "features.denseblock2.denselayer1.conv2.weight",
        "features.transition1.conv.weight",
        "features.transition1.norm.running_mean",
        "features.norm0.weight",
    ],
)
def test_each_missing_tensor_is_named(name, tensors, artifact_of):
    with pytest.raises(MismatchError, match=f"missing: {name}\\."):
        convert(artifact_of({n: t for n, t in tensors.items() if n != name}))


@pytest.mark.parametrize("name", ["layer2.0.conv2.weight", "layer3.0.downsample.1.bias"])
def test_each_missing_tensor_of_a_resnet_is_named(name, fill, artifact_of):
    state = fill(residual).state_dict()
    with pytest.raises(MismatchError, match=f"missing: {name}\\."):
        convert(artifact_of({n: t for n, t in state.items() if n != name}))


@pytest.mark.parametrize("stage", [2, 3, 4])
def test_truncated_depth(stage, fill, artifact_of):
    state = fill(residual).state_dict()
    cut = {n: t for n, t in state.items() if not n.startswith(f"layer{stage}")}
    with pytest.raises(MismatchError):
        convert(artifact_of(cut))


def test_unknown_names_are_shown(artifact_of):
    with pytest.raises(UnsupportedArchitectureError, match=r"encoder\.weight \(2, 3\)"):
        convert(artifact_of({"encoder.weight": np.ones((2, 3), np.float32)}))


def test_no_tensors(artifact_of):
    with pytest.raises(UnsupportedArchitectureError, match="none at all"):
        convert(artifact_of({}))


# ---- values


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["classifier.bias", "features.norm5.running_mean"])
def test_weights_that_are_not_finite(name, value, tensors, artifact_of):
    wrong = tensors[name].copy()
    wrong[0] = value
    with pytest.raises(ConversionError, match="NaN or infinite"):
        convert(artifact_of(tensors | {name: wrong}))


def test_weights_beyond_float32(tensors, artifact_of):
    wrong = tensors | {"classifier.bias": np.array([1e300, 0, 0])}
    with pytest.raises(ConversionError, match="infinite"):
        convert(artifact_of(wrong))


def test_bfloat16_nan(tensors, artifact_of):
    wrong = np.array([np.nan, 0, 0], ml_dtypes.bfloat16)
    with pytest.raises(ConversionError, match="NaN"):
        convert(artifact_of(tensors | {"classifier.bias": wrong}))


def test_negative_variance(tensors, artifact_of):
    wrong = tensors | {"features.norm0.running_var": np.full(16, -1.0, np.float32)}
    with pytest.raises(ConversionError, match=r"negative.*features\.norm0\.var"):
        convert(artifact_of(wrong))


@pytest.mark.parametrize(
    ("dtype", "says"),
    [
        (np.int8, "Quantised"),
        (np.int64, "Quantised"),
        (np.bool_, "masks"),
        (np.complex64, "complex"),
    ],
)
def test_weights_that_are_no_floating_numbers(dtype, says, tensors, artifact_of):
    wrong = tensors | {"classifier.bias": np.ones(3, dtype)}
    with pytest.raises(ConversionError, match=f"no floating numbers.*{np.dtype(dtype)}.*{says}"):
        convert(artifact_of(wrong))


# ---- changed modules


def _set(path: str, name: str, value):
    def change(network):
        setattr(network.get_submodule(path), name, value)

    return change


def _replace(path: str, module):
    def change(network):
        parent, _, name = path.rpartition(".")
        setattr(network.get_submodule(parent), name, module)

    return change


CHANGES = {
    "stride": ("layer2.0.conv1", _set("layer2.0.conv1", "stride", (1, 1))),
    "padding": ("conv1.padding", _set("conv1", "padding", (0, 0))),
    "padding by name": ("conv1.padding", _set("conv1", "padding", "same")),
    "padding mode": ("conv1.padding_mode", _set("conv1", "padding_mode", "reflect")),
    "dilation": ("layer1.0.conv2.dilation", _set("layer1.0.conv2", "dilation", (2, 2))),
    "groups": ("conv1.groups", _set("conv1", "groups", 3)),
    "one eps": ("eps", _set("bn1", "eps", 0.1)),
    "batch statistics": ("track_running_stats", _set("bn1", "track_running_stats", False)),
    "activation": ("SiLU", _replace("relu", nn.SiLU())),
    "inner activation": ("Identity", _replace("layer3.0.relu", nn.Identity())),
    "pool kernel": ("maxpool.kernel_size", _set("maxpool", "kernel_size", 2)),
    "pool ceil": ("maxpool.ceil_mode", _set("maxpool", "ceil_mode", True)),
    "pool kind": ("AvgPool2d", _replace("maxpool", nn.AvgPool2d(3, 2, 1))),
    "pool left out": ("Identity", _replace("maxpool", nn.Identity())),
    "pooled size": ("output_size", _set("avgpool", "output_size", (2, 2))),
    "more": ("Softmax", lambda network: network.add_module("last", nn.Softmax(1))),
}


@pytest.mark.parametrize("what", CHANGES)
def test_changed_module_is_refused(what, fill, pickled):
    named, change = CHANGES[what]
    network = fill(residual)
    change(network)
    with pytest.raises(MismatchError, match=named):
        open_model(pickled(network))


def test_head_of_several_layers_is_refused(fill, pickled):
    network = fill(residual)
    network.fc = nn.Sequential(nn.Dropout(), nn.Linear(512, 3))
    with pytest.raises(UnsupportedArchitectureError, match=r"conv1\.weight"):
        open_model(pickled(network))


def test_eps_that_all_share_is_used(fill, pickled):
    network = fill(dense)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 0.01
    model = open_model(pickled(network)).model
    assert model.config.eps == 0.01
    check_logits(model, network)


@pytest.mark.parametrize("eps", [0.0, -1.0, 2.0, float("nan"), True])
def test_impossible_eps_is_refused(eps, fill, pickled):
    network = fill(dense)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = eps
    with pytest.raises(MismatchError, match="eps"):
        open_model(pickled(network))


# ---- hostile shapes


def _lying(shape) -> np.ndarray:
    """An array of any shape that takes no memory."""
    return np.broadcast_to(np.float32(0.5), shape)


HOSTILE = [(), (0,), (7,), (0, 0), (3, 4), (0, 3, 7, 7), (2, 0, 1, 1), (2, 3, 0, 0)]
HOSTILE += [(2**20, 2**10, 1, 1), (1, 2**30, 1, 1), (2, 2, 2, 2, 2), (1, 1, 1, 1), (13, 5, 3, 3)]


@pytest.mark.parametrize("shape", HOSTILE, ids=str)
@pytest.mark.parametrize("build", [dense, residual, narrow_resnext])
def test_hostile_shapes_raise_conversion_errors_only(build, shape, fill, artifact_of):
    state = {n: t.numpy() for n, t in fill(build).state_dict().items()}
    layers = [n for n in state if n.endswith("weight")]
    for name in (layers[0], layers[2], layers[len(layers) // 2], layers[-1]):
        if state[name].shape != shape:
            with pytest.raises(ConversionError):
                convert(artifact_of(state | {name: _lying(shape)}))


@pytest.mark.parametrize("shape", [(0,), (3, 4), (2**20, 2**10, 1, 1)], ids=str)
def test_hostile_shapes_of_inception(shape, fill, artifact_of):
    state = {n: t.numpy() for n, t in fill(inception).state_dict().items()}
    for name in ("Conv2d_1a_3x3.conv.weight", "Mixed_6b.branch7x7_2.conv.weight"):
        with pytest.raises(ConversionError):
            convert(artifact_of(state | {name: _lying(shape)}))


@pytest.mark.parametrize(
    "names",
    [
        ("conv1.weight", "fc.weight", "layer1.0.conv1.weight"),
        ("conv1.weight", "fc.weight", "layer1.0.conv1.weight", "layer1.0.conv3.weight"),
        ("conv1.weight", "fc.weight", "layer1.0.conv1.weight", f"layer{'9' * 5000}.0.conv1.weight"),
        ("conv1.weight", "fc.weight", "layer1.0.conv1.weight", "layer\u0661.0.conv1.weight"),
        ("features.conv0.weight", "classifier.weight"),
        (
            "features.conv0.weight",
            "classifier.weight",
            "features.denseblock7.denselayer3.conv2.weight",
        ),
    ],
    ids=range(6),
)
@pytest.mark.parametrize("shape", [*HOSTILE, (8, 8, 3, 3)], ids=str)
def test_names_without_a_network(names, shape, artifact_of):
    with pytest.raises(ConversionError):
        convert(artifact_of({name: _lying(shape) for name in names}))


@pytest.mark.parametrize("shape", [(3, 4), (8, 8, 3, 3)], ids=str)
def test_names_without_an_inception(shape, artifact_of):
    names = ("Conv2d_1a_3x3.conv.weight", "Mixed_5b.branch1x1.conv.weight", "fc.weight")
    with pytest.raises(MismatchError, match="missing: "):
        convert(artifact_of({name: _lying(shape) for name in names}))


def test_block_without_its_downsample_is_refused(fill, artifact_of):
    state = fill(residual).state_dict()
    cut = {n: t for n, t in state.items() if "layer2.0.downsample" not in n}
    with pytest.raises(MismatchError, match="no downsample"):
        convert(artifact_of(cut))


def test_groups_that_do_not_divide_are_refused(fill, artifact_of):
    state = {n: t.numpy() for n, t in fill(narrow_resnext).state_dict().items()}
    for name in ("layer2.0.conv1.weight", "layer2.0.conv2.weight"):
        state[name] = _lying((9, *state[name].shape[1:]))
    with pytest.raises(MismatchError, match="divide into"):
        convert(artifact_of(state))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_whatever_converts_also_runs(data, tensors, artifact_of):
    """Widths at random, alike in all tensors of a layer or not."""
    wrong = dict(tensors)
    for name in data.draw(st.lists(st.sampled_from(sorted(tensors)), min_size=1, max_size=3)):
        shape = list(tensors[name].shape)
        if shape:
            shape[data.draw(st.integers(0, len(shape) - 1))] = data.draw(st.integers(0, 40))
        wrong[name] = _lying(tuple(shape))
    try:
        model = convert(artifact_of(wrong))
    except ConversionError:
        return
    images = jax.ShapeDtypeStruct((1, 40, 36, model.channels), np.float32)
    logits = jax.eval_shape(lambda x: apply(model.config, model.params, x), images)
    assert logits.shape == (1, model.num_classes)
