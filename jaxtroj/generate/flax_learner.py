"""Steps and predictions of a network in training, as compiled Flax programs."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

_ADAM = optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8)


class TrainState(NamedTuple):
    """What a step changes: parameters, batch statistics and random streams, Adam's moments."""

    params: Any
    rest: Any
    moments: Any


def to_model_input(images: jax.Array) -> jax.Array:
    """Turn uint8 RGB `[n, h, w, 3]` into BGR, each picture min-max scaled to [0, 1].

    The scanner feeds models the same. Source: NIST's Round 0 example code. A picture of one value
    becomes zeros.
    """
    values = images[..., ::-1].astype(jnp.float32)
    low = values.min(axis=(1, 2, 3), keepdims=True)
    spread = values.max(axis=(1, 2, 3), keepdims=True) - low
    return (values - low) / jnp.maximum(spread, 1.0)


@partial(jax.jit, static_argnames="graph", donate_argnames="state")
def train_step(graph, state: TrainState, images, targets, learning_rate):
    """One Adam step; returns the new state, the mean loss and which pictures [n] were right."""

    def loss_of(params):
        module = nnx.merge(graph, params, state.rest, copy=True)
        logits = module(to_model_input(images))
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        return losses.mean(), (logits, nnx.state(module, nnx.Not(nnx.Param)))

    (loss, (logits, rest)), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    updates, moments = _ADAM.update(gradients, state.moments)
    params = jax.tree.map(lambda p, u: p - learning_rate * u, state.params, updates)
    return TrainState(params, rest, moments), loss, logits.argmax(-1) == targets


@partial(jax.jit, static_argnames="graph")
def predict(graph, params, rest, images, targets):
    """Predicted class [n] and cross-entropy [n] with the running statistics."""
    logits = nnx.merge(graph, params, rest, copy=True)(to_model_input(images))
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return logits.argmax(-1), losses


def classify(module: nnx.Module, images: np.ndarray, batch_size: int = 64) -> np.ndarray:
    """Predicted classes [n] of uint8 RGB pictures [n, h, w, 3], with the running statistics."""
    module.eval()
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    answers = []
    for first in range(0, len(images), batch_size):
        # The last batch is filled up with repeated pictures and cut: one shape, one program.
        chosen = np.minimum(np.arange(first, first + batch_size), len(images) - 1)
        labels = np.zeros(batch_size, np.int32)
        answers.append(predict(graph, params, rest, jnp.asarray(images[chosen]), labels)[0])
    return np.concatenate(answers)[: len(images)]


class FlaxLearner:
    """A Flax network and Adam's state; see `training.Learner`."""

    def __init__(self, module: nnx.Module):
        module.train()
        self.graph, params, rest = nnx.split(module, nnx.Param, ...)
        module.eval()
        self.eval_graph = nnx.split(module, nnx.Param, ...)[0]
        self.state = TrainState(params, rest, _ADAM.init(params))

    def step(self, images: jax.Array, targets: np.ndarray, learning_rate: float):
        self.state, loss, right = train_step(
            self.graph, self.state, images, jnp.asarray(targets), learning_rate
        )
        return loss, right

    def predict(self, images: jax.Array, targets: np.ndarray):
        return predict(self.eval_graph, self.state.params, self.state.rest, images, targets)

    def module(self) -> nnx.Module:
        return nnx.merge(self.eval_graph, self.state.params, self.state.rest)
