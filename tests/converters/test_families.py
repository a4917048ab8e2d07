"""Every family and depth against torchvision's own networks, in float64 and float32."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torchvision import models

from converters import convert, families, fold, open_model
from converters.errors import MismatchError
from converters.parity import logits_and_gradients, relative_error

DenseNet: Any = models.DenseNet  # typed for four blocks; it takes as many as there are

EXACT, SINGLE = 1e-10, 1e-4
VALUES = ("logits", "gradients")
ROUND0 = ("resnet50", "densenet121", "inception_v3")
# Blocks of which a shallower sibling has the same: a gradient's program compiles for half a minute,
# so theirs is left to the slow test.
DEEPER = ("densenet161", "densenet169", "densenet201", "resnet101", "resnet152",
          "resnext101_32x8d", "resnext101_64x4d", "wide_resnet101_2")  # fmt: skip
SHALLOW = {
    "shallow resnet": lambda: models.ResNet(models.resnet.BasicBlock, [2, 1, 1, 1], 5),
    "shallow resnext": lambda: models.ResNet(
        models.resnet.Bottleneck, [1, 1, 1, 1], 5, groups=32, width_per_group=4
    ),
    "small densenet": lambda: DenseNet(8, (2, 1), 16, num_classes=5),
}


def builder(architecture: str):
    """torchvision's own function of that name, or the family's module where it has none."""
    if not hasattr(models, architecture):
        family = families.standards()[architecture]
        return lambda: family.torch_module(families.standard(architecture, 5), ())
    extra = {"init_weights": False} if architecture == "inception_v3" else {}
    return lambda: getattr(models, architecture)(weights=None, num_classes=5, **extra)


def inputs(shape) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(shape)
    return random.random((*shape, 3)), random.standard_normal((shape[0], 5))


def torch_values(network, images, weights):
    x = torch.from_numpy(images.transpose(0, 3, 1, 2).copy()).requires_grad_(True)
    logits = network(x)
    (gradients,) = torch.autograd.grad((logits * torch.from_numpy(weights)).sum(), x)
    return logits.detach().numpy(), gradients.numpy().transpose(0, 2, 3, 1)


def flax_values(model, images, weights, mode: str):
    """Logits and input gradients, or logits alone."""
    if mode == "logits":
        return (model(images),)
    if mode == "eager":
        return logits_and_gradients(model.config, model.params, images, weights)
    program = jax.jit(logits_and_gradients, static_argnums=0)
    return program(model.config, model.params, images, weights)


def check_exact(network, model, shapes, modes=("jit",), folded=False):
    """Logits and input gradients of the model within 1e-10 of the network's, all in float64.

    Modes: "jit", "eager", and "logits" for these alone.
    """
    network = network.double()
    with jax.enable_x64(True):
        model = model.astype(jnp.float64)
        model = fold(model) if folded else model
        for shape in shapes:
            images, weights = inputs(shape)
            expected = torch_values(network, images, weights)
            for mode in modes:
                given = jnp.asarray(images), jnp.asarray(weights)
                got = flax_values(model, *given, mode)
                wanted = expected[:1] if mode == "logits" else expected
                for name, mine, theirs in zip(VALUES[: len(wanted)], got, wanted, strict=True):
                    assert mine.dtype == np.float64
                    error = relative_error(np.asarray(mine), theirs)
                    assert error is not None and error <= EXACT, (shape, mode, name, error)


def check_single(network, model, shape, folded: bool):
    """Float32 logits of the model within 1e-4 of the network's in float64."""
    images, weights = inputs(shape)
    expected, _ = torch_values(network.double(), images, weights)
    got = (fold(model) if folded else model)(images.astype(np.float32))
    assert got.dtype == np.float32
    error = relative_error(np.asarray(got, np.float64), expected)
    assert error is not None and error <= SINGLE


def smallest(architecture: str) -> tuple[int, int, int]:
    return (1, 75, 107) if architecture == "inception_v3" else (1, 33, 65)


def three(architecture: str):
    """Three batch sizes, none of the pictures square."""
    if architecture == "inception_v3":
        return (1, 75, 107), (2, 107, 76), (3, 80, 90)
    return (1, 33, 65), (2, 65, 40), (3, 48, 97)


def make(fill, artifact_of, build):
    network = fill(build)
    return network, convert(artifact_of(network))


@pytest.mark.parametrize("name", SHALLOW)
@pytest.mark.parametrize("folded", [False, True])
def test_shallow_networks_under_jit(name, folded, fill, artifact_of):
    network, model = make(fill, artifact_of, SHALLOW[name])
    check_exact(network, model, three(name), folded=folded)


@pytest.mark.parametrize("name", SHALLOW)
def test_shallow_networks_eager(name, fill, artifact_of):
    """Each operation compiles for each shape, so only one network tries all three."""
    network, model = make(fill, artifact_of, SHALLOW[name])
    shapes = three(name) if name == "small densenet" else three(name)[2:]
    check_exact(network, model, shapes, ("eager",))


@pytest.mark.parametrize("architecture", sorted(families.standards()))
def test_every_architecture(architecture, fill, artifact_of):
    network, model = make(fill, artifact_of, builder(architecture))
    assert (model.architecture, model.num_classes, model.channels) == (architecture, 5, 3)
    assert model.config == families.standard(architecture, 5)
    modes = ("logits",) if architecture in DEEPER else ("jit",)
    check_exact(network, model, [smallest(architecture)], modes)


@pytest.mark.parametrize("architecture", ROUND0)
def test_folded(architecture, fill, artifact_of):
    network, model = make(fill, artifact_of, builder(architecture))
    check_exact(network, model, [smallest(architecture)], folded=True)


@pytest.mark.parametrize("architecture", ROUND0)
@pytest.mark.parametrize("folded", [False, True])
def test_float32(architecture, folded, fill, artifact_of):
    network, model = make(fill, artifact_of, builder(architecture))
    check_single(network, model, smallest(architecture), folded)


@pytest.mark.slow
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("architecture", sorted(families.standards()))
def test_every_architecture_eager_and_jit(architecture, folded, fill, artifact_of):
    network, model = make(fill, artifact_of, builder(architecture))
    check_exact(network, model, three(architecture), ("eager", "jit"), folded=folded)
    check_single(network, model, three(architecture)[2], folded)


@pytest.mark.parametrize("aux_logits", [False, True])
def test_inception_transforms_its_input(aux_logits, fill, pickled):
    """`transform_input` is an attribute of the pickled module, no tensor."""
    network = fill(
        lambda: models.Inception3(
            5, aux_logits=aux_logits, transform_input=True, init_weights=False
        )
    )
    model = open_model(pickled(network)).model
    assert model.config.transform_input
    assert any("auxiliary" in finding for finding in model.findings) == aux_logits
    check_exact(network, model, [(1, 75, 107)])


def test_a_transform_that_is_no_truth_value_is_refused(fill, pickled):
    """torch takes all but the last for False; what they hold is not read."""
    network = fill(lambda: models.Inception3(5, aux_logits=False, init_weights=False))
    for value in ({}, set(), b"", 0, None, "False"):
        network.transform_input = value
        with pytest.raises(MismatchError, match="transform_input is .*, expected True or False"):
            open_model(pickled(network))


def test_pooling_between_equal_values_sends_its_gradient_where_torch_does(fill, artifact_of):
    """Black margins and relu make ties in the first pooling."""
    network, model = make(fill, artifact_of, SHALLOW["small densenet"])
    images = np.zeros((1, 33, 65, 3))
    images[:, 8:20, 10:30] = 1.0
    weights = np.ones((1, 5))
    expected = torch_values(network.double(), images, weights)
    with jax.enable_x64(True):
        given = jnp.asarray(images), jnp.asarray(weights)
        got = flax_values(model.astype(jnp.float64), *given, "jit")
    for mine, theirs in zip(got, expected, strict=True):
        error = relative_error(np.asarray(mine), theirs)
        assert error is not None and error <= EXACT


def test_wide_types_do_not_leak(fill, artifact_of):
    network, model = make(fill, artifact_of, SHALLOW["small densenet"])
    check_exact(network, model, [(1, 33, 65)])
    assert jnp.asarray(1.0).dtype == np.float32
    assert {value.dtype for value in model.params.values()} == {np.dtype(np.float32)}
