"""Whole networks that are a `Sequential` of torch's own layers, made layer by layer."""

from collections import OrderedDict
from functools import partial

import pytest
import torch
from torch import nn

from converters import open_artifact
from converters.conversion import convert
from converters.errors import ConverterError
from converters.rebuilt.sequential import _LAYERS
from tests.converters.graph_parity import check_graph, check_sequential, opened_at

SIDE = 12


def stack(*middle: nn.Module) -> nn.Sequential:
    """A small classifier with these layers, which keep eight maps of half the size, inside."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        *middle,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


def twice() -> nn.Sequential:
    activation = nn.ReLU(inplace=True)
    block = nn.Sequential(nn.Conv2d(8, 8, 3, padding="same", groups=2, bias=False), activation)
    return stack(activation, block, block)


NETWORKS = {
    # The last one is no plain mean of zero, whose gradient would be rounding alone.
    "norms": lambda: stack(
        nn.LayerNorm([8, 6, 6], eps=0.2), nn.LayerNorm(6, elementwise_affine=False),
        nn.BatchNorm2d(8, eps=0.3), nn.BatchNorm2d(8, affine=False),
        nn.GroupNorm(2, 8, eps=0.1), nn.GroupNorm(4, 8, affine=False),
        nn.LocalResponseNorm(3, 0.5, 0.6),
    ),
    "a norm without bias": lambda: stack(nn.LayerNorm([8, 6, 6], bias=False), nn.Sigmoid()),
    "instance norms": lambda: stack(
        nn.InstanceNorm2d(8, eps=0.2), nn.Tanh(), nn.InstanceNorm2d(8, eps=0.3, affine=True),
        nn.Tanh(), nn.InstanceNorm2d(8, eps=0.1, track_running_stats=True), nn.Sigmoid(),
    ),
    "activations": lambda: stack(
        nn.LeakyReLU(0.3), nn.PReLU(8), nn.ELU(0.7), nn.CELU(2.0), nn.SELU(), nn.GELU("tanh"),
        nn.GELU(), nn.SiLU(), nn.Hardtanh(-0.2, 0.6), nn.Softplus(2.0, 1.0), nn.Hardswish(),
        nn.ReLU6(), nn.Tanh(), nn.Sigmoid(), nn.ReLU(),
    ),
    "further activations": lambda: stack(
        nn.Mish(), nn.Softsign(), nn.Threshold(0.2, -0.3),
        nn.Conv2d(8, 16, 1), nn.GLU(1), nn.GLU(),
    ),
    "a hard sigmoid": lambda: stack(nn.Hardsigmoid()),
    "upsampled": lambda: stack(
        nn.Upsample(scale_factor=2), nn.Tanh(), nn.Upsample(size=(7, 5), mode="nearest"),
        nn.Upsample(scale_factor=(1.7, 2.3), mode="bilinear"), nn.Sigmoid(),
        nn.Upsample(size=9, mode="bilinear", align_corners=True), nn.ReLU(),
        nn.Upsample(scale_factor=1.3, mode="bilinear", recompute_scale_factor=True),
    ),
    "transposed kernels": lambda: stack(
        nn.ConvTranspose2d(8, 8, (3, 2), 2, (1, 0), 1, 2, bias=False, dilation=(2, 3)),
        nn.Tanh(), nn.ConvTranspose2d(8, 8, 3),
    ),
    "a transposed kernel first": lambda: nn.Sequential(
        nn.ConvTranspose2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 3),
    ),
    "shapes": lambda: stack(
        nn.ConstantPad2d((1, 2, 0, -1), 0.7), nn.Tanh(), nn.Conv2d(8, 32, 1), nn.PixelShuffle(2),
        nn.Flatten(2), nn.Unflatten(2, (-1, 3)), nn.Tanh(), nn.Conv2d(8, 8, 3),
    ),
    "pools": lambda: stack(
        nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.AvgPool2d(2, 1, 1, count_include_pad=False),
        nn.ZeroPad2d((1, 2, 0, 1)), nn.AvgPool2d(3, divisor_override=4), nn.AdaptiveMaxPool2d(2),
    ),
    "kernels": lambda: stack(
        nn.Conv2d(8, 8, (3, 1), padding=(2, 0), dilation=2), nn.Conv2d(8, 8, 2, padding="valid"),
    ),
    "names": lambda: nn.Sequential(OrderedDict(
        last=nn.Conv2d(3, 4, 3), first=nn.ReLU(), middle=nn.AdaptiveAvgPool2d((2, 1)),
        flat=nn.Flatten(1), drop=nn.Dropout(0.5), out=nn.Linear(8, 4), soft=nn.LogSoftmax(1),
    )),
    "one layer in several places": twice,
    "matrices": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(SIDE * SIDE, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4),
    ),
    "needless ones": lambda: stack(nn.Identity(), nn.Dropout2d(), nn.Dropout(), nn.AlphaDropout()),
}  # fmt: skip
# torch multiplies this gradient by a sixth in single precision, whatever the type is.
TOLERANCES = {"a hard sigmoid": 1e-7}


opened = partial(opened_at, side=SIDE)


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_and_gradients_are_torchs(name, fill, pickled):
    network = fill(NETWORKS[name]).requires_grad_(False)
    check_sequential(network, pickled(network), SIDE, TOLERANCES.get(name, 1e-10))


def test_every_layer_of_the_table_is_among_them():
    made = {type(m) for build in NETWORKS.values() for m in build().modules()}
    names = {f"{m.__module__.removeprefix('torch.nn.modules.')}.{m.__name__}" for m in made}
    assert set(_LAYERS) - names == {"activation.Softmax"}, "which is cut off, as the next test says"


def test_a_softmax_at_the_end_is_cut_off(fill, pickled):
    network = fill(lambda: stack(nn.ReLU()))
    model = opened(pickled(nn.Sequential(*network, nn.Softmax(1)))).model
    assert model.num_classes == 5 and "softmax" in " ".join(model.findings)


def test_a_checkpoint_that_holds_one(fill, pickled):
    network = fill(lambda: stack(nn.ReLU()))
    held = opened(pickled({"model": nn.DataParallel(network), "epoch": 3}))
    assert held.model.architecture == "sequential"
    assert any("DataParallel" in finding for finding in held.model.findings)


def with_(change, *middle):
    def made():
        network = stack(*middle)
        change(network)
        return network

    return made


def _two_results(network):
    network[1].return_indices = True


def _odd_mode(network):
    network[1].mode = "bicubic"


def _text(network):
    network[1].stride = ("a", "b")


def _odd_word(network):
    network[0].padding = "full"


def _tensor(network):
    network[1].eps = torch.tensor(0.5)


def _named_train(network):
    network._modules["train"] = nn.Linear(5, 5)


def _none(network):
    network._modules["1"] = None


def _inside_a_layer(network):
    network[0]._modules["more"] = nn.ReLU()


def _other_weight(network):
    network[0].weight = nn.Parameter(torch.ones(8, 3, 5, 5))


REFUSED = {
    "by reflection": (lambda: stack(nn.Conv2d(8, 8, 3, padding_mode="reflect")), "zeros"),
    "no statistics": (lambda: stack(nn.BatchNorm2d(8, track_running_stats=False)), "beside it"),
    "a softmax over the batch": (lambda: stack().append(nn.Softmax(0)), r"4\.dim is 0"),
    "the batch flattened": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 12), nn.Flatten(0), nn.Linear(8, 5)), "dim is 0",
    ),
    "the batch split": (lambda: stack().append(nn.Unflatten(0, (1, -1))), r"4\.dim is 0"),
    "half of the batch": (lambda: stack(nn.GLU(0)), r"1\.dim is 0"),
    "another way of resizing": (
        with_(_odd_mode, nn.Upsample(size=4)), "1.mode is 'bicubic', expected nearest or bilinear",
    ),
    "a larger picture without end": (lambda: stack(nn.Upsample(scale_factor=1e6)), "more than"),
    # Of three axes it takes the first, the batch.
    "a softmax over places": (lambda: stack(nn.Softmax2d()), r"activation\.Softmax2d; expected"),
    "another class": (lambda: stack(nn.RReLU()), r"'1' is a torch\.nn\.modules\.activation\.RReLU"),
    "two results": (with_(_two_results, nn.MaxPool2d(2)), "return_indices is True"),
    "text as a number": (with_(_text, nn.MaxPool2d(2)), r"1\.stride is .*, expected numbers"),
    "an odd word": (with_(_odd_word), r"0\.padding is 'full', expected same or valid"),
    "a tensor as a number": (with_(_tensor, nn.BatchNorm2d(8)), "'eps'"),
    "a name of every module": (with_(_named_train), "'train'"),
    "None as a part": (with_(_none, nn.ReLU()), "a Sequential with None in the place of a part"),
    "a layer in a layer": (with_(_inside_a_layer), "0.more is a .*, expected no such module"),
    "weights of another kernel": (with_(_other_weight), r"0\.weight: got \(8, 3, 5, 5\)"),
    "work without end": (lambda: stack(nn.AdaptiveAvgPool2d(10**6)), "more than"),
    "pictures of another size": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(100, 5)), "100 values, expected a multiple",
    ),
    "no layer with weights of a picture": (
        lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Flatten()), "no convolution and no matrix",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_might_run_otherwise_is_refused(name, pickled):
    build, message = REFUSED[name]
    with pytest.raises(ConverterError, match=message):
        opened(pickled(build().eval()))


def test_what_an_older_torch_did_not_record(fill, pickled):
    """`__setstate__` says that factors are computed anew, which the constructor does not."""

    def unrecorded():
        layer = nn.Upsample(scale_factor=1.3, mode="bilinear")
        del layer.recompute_scale_factor
        return stack(layer)

    path = pickled(fill(unrecorded).requires_grad_(False))
    network = torch.load(path, weights_only=False)
    assert network[1].recompute_scale_factor is True
    check_graph(opened(path).model, network, torch.rand(2, 3, SIDE, SIDE, dtype=torch.float64))


def test_a_state_dict_of_one_says_too_little(pickled):
    with pytest.raises(ConverterError, match="no family has tensors"):
        convert(open_artifact(pickled(stack().state_dict())))
