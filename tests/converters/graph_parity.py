"""Graphs compared with the torch networks that they are of."""

import dataclasses

import numpy as np
import torch

from converters import open_model
from converters.input_form import InputForm
from converters.model import Model


def check_graph(
    model: Model, network: torch.nn.Module, images: torch.Tensor, tolerance: float = 1e-10
) -> None:
    """Logits and input gradients of both within `tolerance` of each other, in float64.

    Args:
      model: with a graph as its config.
      network: in evaluation mode; its weights become float64.
      images: [N, C, H, W], float64.
    """
    import jax
    import jax.numpy as jnp

    from converters.parity import logits_and_gradients, relative_error

    x = images.clone().requires_grad_(True)
    logits = network.double()(x)
    weights = torch.linspace(-1, 1, logits.numel(), dtype=torch.float64).reshape(logits.shape)
    (gradient,) = torch.autograd.grad((logits * weights).sum(), x)
    expected = logits.detach().numpy(), gradient.numpy().transpose(0, 2, 3, 1)
    with jax.enable_x64(True):
        model = dataclasses.replace(model, params=model.astype(jnp.float64).params)
        program = jax.jit(logits_and_gradients, static_argnums=0)
        given = jnp.asarray(images.permute(0, 2, 3, 1).numpy()), jnp.asarray(weights.numpy())
        got = [np.asarray(v) for v in program(model.config, model.params, *given)]
    errors = [relative_error(g, e) for g, e in zip(got, expected, strict=True)]
    assert all(error is not None and error <= tolerance for error in errors), errors


def opened_at(path, side: int):
    """What a file for pictures of `side` pixels is opened as."""
    return open_model(path, InputForm(image_size=(side, side), bounds=(0, 1)))


def check_sequential(network: torch.nn.Module, path, side: int, tolerance: float) -> None:
    """A pickled `Sequential` is captured as one, and answers as torch does; see `check_graph`."""
    model = opened_at(path, side).model
    assert model.architecture == "sequential"
    images = torch.rand(3, model.channels, side, side, dtype=torch.float64)
    check_graph(model, network, images, tolerance)
