"""The heads of Rounds 5 and 6 as arrays that train: only what acts on a sequence of one step.

A head reads one sentence embedding, a sequence of length T = 1 that starts from a zero state. The
hidden-to-hidden matrices of a GRU or LSTM then multiply zeros and the LSTM's forget gate scales a
zero cell: they never get a gradient. `live` takes them out, `complete` puts them back as torch
initialised them, so a finished head has every tensor of the module and the same values that torch
would have reached.

Architectures follow `model_factories.py` of NIST's generator: an RNN whose last layer's states feed
a linear layer, or (Round 6) linear layers with rectifiers; dropout between layers and before the
last one.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.errors import GenerationError

ARCHITECTURES = ("LstmLinear", "GruLinear", "FCLinear")
CLASSES = 2
# Rows of torch's stacked gate matrices, in torch's order, and those that act when T = 1.
_GATES = {"GruLinear": 3, "LstmLinear": 4}
_LIVE_GATES = {"GruLinear": (0, 1, 2), "LstmLinear": (0, 2, 3)}

# Traced parameters of one head: {"layers": [{"w", "b_ih", "b_hh"} | {"w", "b"}], "linear": ...}.
HeadParams = dict[str, Any]


@dataclass(frozen=True)
class HeadShape:
    """What decides a head's shapes; static under jit.

    Attributes:
        architecture: one of `ARCHITECTURES`.
        input_size: width of the embedding.
        hidden_size: width of a layer, per direction.
        layers: how many layers before the last linear one.
        bidirectional: whether an RNN runs both ways; False for FCLinear.
    """

    architecture: str
    input_size: int
    hidden_size: int = 256
    layers: int = 2
    bidirectional: bool = True

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise GenerationError(
                f"unknown architecture {self.architecture!r}; there are {', '.join(ARCHITECTURES)}"
            )
        if min(self.input_size, self.hidden_size, self.layers) < 1:
            raise GenerationError(f"sizes and layers of a head must be at least 1, got {self}")

    @property
    def is_rnn(self) -> bool:
        """Whether the layers are recurrent."""
        return self.architecture in _GATES

    @property
    def directions(self) -> int:
        """1 or 2."""
        return 2 if self.is_rnn and self.bidirectional else 1

    def width_before(self, layer: int) -> int:
        """Width of the input of layer `layer`; of the last linear one for `layers`."""
        return self.input_size if layer == 0 else self.directions * self.hidden_size

    def suffixes(self, layer: int) -> tuple[str, ...]:
        """Endings of torch's names of one RNN layer: forward, then reverse."""
        return tuple(f"_l{layer}{end}" for end in ("", "_reverse")[: self.directions])


def initial_tensors(shape: HeadShape, seed: int) -> dict[str, np.ndarray]:
    """Fresh float32 tensors by torch name, drawn as torch initialises the module.

    Uniform within 1/sqrt(hidden size) for an RNN, within 1/sqrt(inputs) for a linear layer.

    Args:
        shape: the head.
        seed: identity of the draw.
    """
    draw = np.random.default_rng([seed, 0])
    tensors: dict[str, np.ndarray] = {}
    for name, size, fan in _tensor_sizes(shape):
        bound = 1 / np.sqrt(fan)
        tensors[name] = draw.uniform(-bound, bound, size).astype(np.float32)
    return tensors


def _tensor_sizes(shape: HeadShape):
    """(torch name, shape, fan of the initial bound) in the module's own order."""
    hidden = shape.hidden_size
    for layer in range(shape.layers):
        inputs = shape.width_before(layer)
        if not shape.is_rnn:
            yield f"fc_layers.{layer}.weight", (hidden, inputs), inputs
            yield f"fc_layers.{layer}.bias", (hidden,), inputs
            continue
        rows = _GATES[shape.architecture] * hidden
        for end in shape.suffixes(layer):
            yield f"rnn.weight_ih{end}", (rows, inputs), hidden
            yield f"rnn.weight_hh{end}", (rows, hidden), hidden
            yield f"rnn.bias_ih{end}", (rows,), hidden
            yield f"rnn.bias_hh{end}", (rows,), hidden
    inputs = shape.width_before(shape.layers)
    yield "linear.weight", (CLASSES, inputs), inputs
    yield "linear.bias", (CLASSES,), inputs


def live(shape: HeadShape, tensors: dict[str, np.ndarray]) -> HeadParams:
    """The tensors that act at T = 1, both directions of a layer stacked."""
    layers = []
    for layer in range(shape.layers):
        if not shape.is_rnn:
            name = f"fc_layers.{layer}"
            layers.append({"w": tensors[f"{name}.weight"], "b": tensors[f"{name}.bias"]})
            continue
        rows = _live_rows(shape)
        parts = {"w": "weight_ih", "b_ih": "bias_ih", "b_hh": "bias_hh"}
        layers.append(
            {
                key: np.stack([tensors[f"rnn.{name}{end}"][rows] for end in shape.suffixes(layer)])
                for key, name in parts.items()
            }
        )
    linear = {"w": tensors["linear.weight"], "b": tensors["linear.bias"]}
    return {"layers": layers, "linear": linear}


def complete(
    shape: HeadShape, initial: dict[str, np.ndarray], params: HeadParams
) -> dict[str, np.ndarray]:
    """Every tensor of the module: trained where it acts, initial where it does not.

    Args:
        shape: the head.
        initial: from `initial_tensors`.
        params: one head's trained `live` parameters.
    """
    tensors = {name: value.copy() for name, value in initial.items()}
    for layer, values in enumerate(params["layers"]):
        if not shape.is_rnn:
            tensors[f"fc_layers.{layer}.weight"] = np.array(values["w"])
            tensors[f"fc_layers.{layer}.bias"] = np.array(values["b"])
            continue
        rows = _live_rows(shape)
        for direction, end in enumerate(shape.suffixes(layer)):
            tensors[f"rnn.weight_ih{end}"][rows] = values["w"][direction]
            tensors[f"rnn.bias_ih{end}"][rows] = values["b_ih"][direction]
            tensors[f"rnn.bias_hh{end}"][rows] = values["b_hh"][direction]
    tensors["linear.weight"] = np.array(params["linear"]["w"])
    tensors["linear.bias"] = np.array(params["linear"]["b"])
    return tensors


def _live_rows(shape: HeadShape) -> np.ndarray:
    hidden = shape.hidden_size
    starts = (gate * hidden for gate in _LIVE_GATES[shape.architecture])
    return np.concatenate([np.arange(start, start + hidden) for start in starts])


def logits(
    shape: HeadShape,
    params: HeadParams,
    x: jax.Array,
    dropout: jax.Array | float = 0.0,
    key: jax.Array | None = None,
) -> jax.Array:
    """Logits of one head.

    Args:
        shape: the head.
        params: its `live` parameters.
        x: embeddings [n, input size].
        dropout: probability in [0, 1) that an activation is dropped.
        key: of the dropout; None for evaluation.

    Returns:
        [n, 2].
    """
    for layer, values in enumerate(params["layers"]):
        if shape.is_rnn and layer and key is not None:
            x = _drop(x, dropout, jax.random.fold_in(key, layer))
        x = _layer(shape, values, x)
    if key is not None:
        x = _drop(x, dropout, jax.random.fold_in(key, shape.layers))
    return x @ params["linear"]["w"].T + params["linear"]["b"]


def _layer(shape: HeadShape, values: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    if not shape.is_rnn:
        return jax.nn.relu(x @ values["w"].T + values["b"])
    inputs = jnp.einsum("ni,dri->ndr", x, values["w"]) + values["b_ih"]
    first, second, third = jnp.split(inputs, 3, axis=-1)
    b_first, b_second, b_third = jnp.split(values["b_hh"], 3, axis=-1)
    if shape.architecture == "GruLinear":
        reset, update = jax.nn.sigmoid(first + b_first), jax.nn.sigmoid(second + b_second)
        hidden = (1 - update) * jnp.tanh(third + reset * b_third)
    else:
        cell = jax.nn.sigmoid(first + b_first) * jnp.tanh(second + b_second)
        hidden = jax.nn.sigmoid(third + b_third) * jnp.tanh(cell)
    return hidden.reshape(x.shape[0], -1)


def _drop(x: jax.Array, rate: jax.Array | float, key: jax.Array) -> jax.Array:
    # Sixteen random bits per activation are plenty for a rate, and cost half of thirty-two.
    bits = jax.random.bits(key, x.shape, jnp.uint16)
    kept = bits >= jnp.asarray(rate * 65536.0, jnp.float32)
    return jnp.where(kept, x / (1.0 - rate), 0.0)
