"""Captured torchvision classifiers against torch: logits and input gradients in float64."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torchvision import models
from torchvision.models import mobilenetv3

from converters.graph.export import from_exported
from converters.graph.module import graph_model
from converters.graph.tape import capture
from converters.parity import (
    logits_and_gradients,
    relative_error,
    with_exact_gradients,
)

EXACT = 1e-10
# The smallest pictures that the networks take; 32 otherwise.
SIZES = {
    **dict.fromkeys(("alexnet", "densenet121", "densenet161", "densenet169", "densenet201"), 64),
    **dict.fromkeys(("googlenet", "inception_v3"), 75),
    "maxvit_t": 224,
}
NARROW = {
    "squeezenet": (lambda: models.squeezenet1_1(num_classes=5), 33),
    "mobilenet v2": (lambda: models.MobileNetV2(5, 0.25, [[1, 8, 1, 1], [6, 8, 2, 2]]), 32),
    "shufflenet v2": (lambda: models.ShuffleNetV2([1, 2, 1], [8, 8, 16, 16, 32], 5), 33),
    "vgg": (
        lambda: torch.nn.Sequential(
            models.vgg.make_layers([4, "M", 8, "M"], True),
            torch.nn.AdaptiveAvgPool2d(3),
            torch.nn.Flatten(),
            torch.nn.Linear(72, 5),
        ),
        16,
    ),
    "vit": (lambda: models.VisionTransformer(16, 8, 2, 2, 16, 32, num_classes=5), 16),
    "swin": (lambda: models.SwinTransformer([2, 2], 8, [2, 1], [1, 2], [4, 4], num_classes=5), 20),
    "convnext": (
        lambda: models.ConvNeXt(
            [models.convnext.CNBlockConfig(8, 16, 1), models.convnext.CNBlockConfig(16, None, 1)],
            num_classes=5,
        ),
        32,
    ),
    "mobilenet v3": (
        lambda: models.MobileNetV3(
            [mobilenetv3.InvertedResidualConfig(16, 3, 16, 8, True, "HS", 2, 1, 0.5)],
            32,
            num_classes=5,
        ),
        32,
    ),
}
LARGE = {"vit_h_14": 28}


# Gain of random weights where 2, He's, makes a network chaotic: with it torch in channels_last
# differs from torch by 0.33 (v2_l) and 2e-8 (v2_m) of the logits, in double precision.
CALM = {"efficientnet_v2_l": 1.0, "efficientnet_v2_m": 1.0}


def _fill(network, gain: float = 2.0):
    """Random weights of single precision under which values neither vanish nor explode."""
    generator = torch.Generator().manual_seed(0)
    for name, value in network.state_dict().items():
        if not value.is_floating_point():
            continue
        if name.endswith("running_var"):
            value.uniform_(0.5, 2.0, generator=generator)
        elif value.ndim == 1:
            centre = 1.0 if name.endswith("weight") else 0.0
            value.normal_(centre, 0.1, generator=generator)
        else:
            value.normal_(0.0, (gain / value[0].numel()) ** 0.5, generator=generator)
    return network.double().eval().requires_grad_(False)


def errors(
    network, size: int, front_end=None, gain: float = 2.0
) -> tuple[float | None, float | None]:
    """Relative errors of logits and input gradients of a captured network, in float64."""
    torch.set_num_threads(1)
    network = _fill(network, gain)
    random = np.random.default_rng(0)
    images, weights = random.random((2, size, size, 3)), random.standard_normal((2, 5))
    x = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    captured = (front_end or capture)(network, [x[:1]])
    with jax.enable_x64(True):
        model = graph_model(captured)
        model = dataclasses.replace(model, params=model.astype(jnp.float64).params)
        program = jax.jit(logits_and_gradients, static_argnums=0)
        given = jnp.asarray(images), jnp.asarray(weights)
        got = [np.asarray(v) for v in program(model.config, model.params, *given)]
    del model, captured
    x.requires_grad_(True)
    logits = with_exact_gradients(network)(x)
    (gradients,) = torch.autograd.grad((logits * torch.from_numpy(weights)).sum(), x)
    expected = logits.detach().numpy(), gradients.numpy().transpose(0, 2, 3, 1)
    return relative_error(got[0], expected[0]), relative_error(got[1], expected[1])


def standard(name: str):
    """A torchvision network of its full width, and the size of pictures to try it with."""
    extra: dict[str, Any] = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    size = SIZES.get(name, 32)
    if name.startswith("vit"):
        size = LARGE.get(name, size)
        extra["image_size"] = size
    return getattr(models, name)(weights=None, num_classes=5, **extra), size


def _assert_exact(found):
    assert all(error is not None and error <= EXACT for error in found), found


@pytest.mark.parametrize("name", NARROW)
def test_narrow_networks(name):
    build, size = NARROW[name]
    _assert_exact(errors(build(), size))


@pytest.mark.parametrize("name", ["vit", "mobilenet v3"])
def test_exported_networks(name):
    build, size = NARROW[name]

    def exported(network, inputs):
        return from_exported(torch.export.export(network, tuple(inputs), strict=False))

    _assert_exact(errors(build(), size, exported))


@pytest.mark.slow
@pytest.mark.parametrize("name", models.list_models(models))
def test_every_classifier(name):
    _assert_exact(errors(*standard(name), gain=CALM.get(name, 2.0)))
