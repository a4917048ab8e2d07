"""GRU and LSTM heads on sentence embeddings, as Flax modules.

The last layer's final hidden states, forward then backward, go through one linear layer. TrojAI
gives a head one embedding, a sequence of one step: from the zero state the hidden weights multiply
zeros and LSTM's forget gate scales a zero, so only the input weights and the biases count. That
case takes a path of its own, and `single_step` leaves the inert weights out altogether.

References:
  torch.nn.GRU and torch.nn.LSTM, whose order of gates and pairs of biases these are.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from converters.families.dense_head import check_embeddings, check_size, linear, uniform
from converters.model import EmbeddingConfig

# Gates in torch's order: reset, update, new; input, forget, cell, output.
GATES = {"gru": 3, "lstm": 4}


@dataclass(frozen=True)
class RnnHeadConfig(EmbeddingConfig):
    """Static description of a recurrent head; hashable, so it is a jit argument.

    Attributes:
      cell: kind of the recurrent layers.
      input_size, hidden_size, num_layers, num_classes: 1 or more.
      bidirectional: each layer also runs backwards.
      has_bias: of the recurrent layers; the linear layer always has one.
      batch_first: whether a sequence is `[n, t, d]`, as TrojAI's, or `[t, n, d]`.
      single_step: the parameters are those that one step needs (see `single_step`).
    """

    cell: Literal["gru", "lstm"]
    input_size: int
    hidden_size: int
    num_layers: int
    bidirectional: bool
    num_classes: int
    has_bias: bool = True
    batch_first: bool = True
    single_step: bool = False

    @property
    def first_kernels(self) -> tuple[str, ...]:
        """Flax paths of the kernels of the first layer."""
        return tuple(f"rnn.weight_ih_{suffix}" for suffix in self.suffixes[0])

    @property
    def suffixes(self) -> tuple[tuple[str, ...], ...]:
        """Per layer, what ends the names of its directions' parameters: ("l0", "l0_reverse")."""
        ways = ("", "_reverse") if self.bidirectional else ("",)
        return tuple(tuple(f"l{k}{way}" for way in ways) for k in range(self.num_layers))

    def build(self, rngs: nnx.Rngs) -> "RnnHead":
        """A module of this shape with torch's initial distribution."""
        return RnnHead(self, rngs)


class Recurrent(nnx.Module):
    """torch's GRU or LSTM from the zero state; kernels are `[inputs, gates x hidden]`."""

    def __init__(self, config: RnnHeadConfig, rngs):
        self.config = config
        start = uniform(config.hidden_size)
        for name, shape in _shapes(config).items():
            setattr(self, name, nnx.Param(start(rngs.params(), shape, jnp.float32)))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Final states of the last layer `[n, directions x hidden]` of `[n, d]` or `[t, n, d]`."""
        last = x
        for suffixes in self.config.suffixes:
            if x.ndim == 2:
                x = last = jnp.concatenate([self._step(x, s) for s in suffixes], axis=-1)
            else:
                runs = [self._run(x, s) for s in suffixes]
                last = jnp.concatenate([state for state, _ in runs], axis=-1)
                x = jnp.concatenate([states for _, states in runs], axis=-1)
        return last

    def _step(self, x: jax.Array, suffix: str) -> jax.Array:
        """Hidden state `[n, hidden]` after one step `[n, inputs]` from the zero state."""
        config, given = self.config, self._given(suffix)
        kernel, bias, new_bias = given if config.single_step else _reduced(config.cell, *given)
        first, second, third = jnp.split(_affine(x, kernel, bias), 3, axis=-1)
        if config.cell == "lstm":
            return jax.nn.sigmoid(third) * jnp.tanh(jax.nn.sigmoid(first) * jnp.tanh(second))
        if new_bias is not None:
            third = third + jax.nn.sigmoid(first) * new_bias
        return (1 - jax.nn.sigmoid(second)) * jnp.tanh(third)

    def _run(self, x: jax.Array, suffix: str) -> tuple[jax.Array, jax.Array]:
        """Final state `[n, hidden]` and all states `[t, n, hidden]` over `[t, n, inputs]`."""
        kernel, bias, hidden_bias = self._given(suffix)
        hidden_kernel = getattr(self, f"weight_hh_{suffix}")[...]
        cell = _gru if self.config.cell == "gru" else _lstm

        def step(state, inputs):
            state = cell(inputs, _affine(state[0], hidden_kernel, hidden_bias), state)
            return state, state[0]

        inputs = _affine(x, kernel, bias)
        zeros = jnp.zeros((x.shape[1], self.config.hidden_size), inputs.dtype)
        (state, *_), states = jax.lax.scan(
            step, (zeros, zeros), inputs, reverse=suffix.endswith("_reverse")
        )
        return state, states

    def _given(self, suffix: str) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
        """Input kernel and the two biases of a direction, those that it has."""
        names = (f"{kind}_{suffix}" for kind in ("weight_ih", "bias_ih", "bias_hh"))
        kernel, *biases = (getattr(self, name, None) for name in names)
        return kernel[...], *(None if b is None else b[...] for b in biases)  # pyright: ignore


def _shapes(config: RnnHeadConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter of the recurrent layers.

    Raises:
      ValueError: the head is absurdly large.
    """
    width, ways = config.hidden_size, 1 + config.bidirectional
    outputs = GATES[config.cell] * width
    later = (config.num_layers - 1) * ways * outputs * (ways + 1) * width
    first = ways * outputs * (config.input_size + width)
    sizes = (config.input_size, width, config.num_classes, config.num_layers)
    check_size(sizes, config.num_layers, first + later)
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, suffixes in enumerate(config.suffixes):
        inputs = config.input_size if layer == 0 else ways * width
        for suffix in suffixes:
            shapes |= _direction(config, suffix, inputs)
    return shapes


def _direction(config: RnnHeadConfig, suffix: str, inputs: int) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the parameters of one direction of one layer."""
    width = config.hidden_size
    gates = 3 if config.single_step else GATES[config.cell]
    shapes: dict[str, tuple[int, ...]] = {f"weight_ih_{suffix}": (inputs, gates * width)}
    if not config.single_step:
        shapes[f"weight_hh_{suffix}"] = (width, gates * width)
    if config.has_bias:
        shapes[f"bias_ih_{suffix}"] = (gates * width,)
    if config.has_bias and not config.single_step:
        shapes[f"bias_hh_{suffix}"] = (gates * width,)
    elif config.has_bias and config.cell == "gru":
        shapes[f"bias_hh_{suffix}"] = (width,)
    return shapes


def _affine(x: jax.Array, kernel: jax.Array, bias: jax.Array | None) -> jax.Array:
    return x @ kernel if bias is None else x @ kernel + bias


def _gru(inputs: jax.Array, hidden: jax.Array, state):
    """torch's GRU: the reset gate scales the hidden part with its bias."""
    reset, update, new = jnp.split(inputs, 3, axis=-1)
    hidden_reset, hidden_update, hidden_new = jnp.split(hidden, 3, axis=-1)
    update = jax.nn.sigmoid(update + hidden_update)
    new = jnp.tanh(new + jax.nn.sigmoid(reset + hidden_reset) * hidden_new)
    return (1 - update) * new + update * state[0], state[1]


def _lstm(inputs: jax.Array, hidden: jax.Array, state):
    put, forget, cell, out = jnp.split(inputs + hidden, 4, axis=-1)
    memory = jax.nn.sigmoid(forget) * state[1] + jax.nn.sigmoid(put) * jnp.tanh(cell)
    return jax.nn.sigmoid(out) * jnp.tanh(memory), memory


def _reduced(cell: str, kernel, bias, hidden_bias):
    """Kernel `[..., inputs, 3 x hidden]`, bias `[..., 3 x hidden]` and GRU's bias of the new gate.

    What is left of one direction when the state before the step is zero: GRU's hidden bias of the
    new gate stays apart, since the reset gate scales it; LSTM's forget gate goes.
    """
    width = kernel.shape[-1] // GATES[cell]
    if bias is None:
        return (kernel if cell == "gru" else _without_forget(kernel, width)), None, None
    both = bias + hidden_bias
    if cell == "lstm":
        return _without_forget(kernel, width), _without_forget(both, width), None
    merged = jnp.concatenate([both[..., : 2 * width], bias[..., 2 * width :]], axis=-1)
    return kernel, merged, hidden_bias[..., 2 * width :]


def _without_forget(x, width: int):
    return jnp.concatenate([x[..., :width], x[..., 2 * width :]], axis=-1)


class RnnHead(nnx.Module):
    """Logits of sentence embeddings through a GRU or LSTM."""

    def __init__(self, config: RnnHeadConfig, rngs: nnx.Rngs):
        self.rnn = Recurrent(config, rngs)
        width = config.hidden_size * (1 + config.bidirectional)
        self.linear = linear(width, config.num_classes, rngs)

    def features(self, embeddings: jax.Array) -> jax.Array:
        """Final hidden states `[n, directions x hidden]`.

        Args:
          embeddings: `[n, d]`, each a sequence of one step, or sequences laid out as
            `config.batch_first` says.

        Raises:
          ValueError: another shape, or several steps for a `single_step` configuration.
        """
        config = self.rnn.config
        x = check_embeddings(embeddings, config.input_size)
        if x.ndim == 3:
            x = jnp.swapaxes(x, 0, 1) if config.batch_first else x
            x = x[0] if x.shape[0] == 1 else x
        if x.ndim == 3 and config.single_step:
            raise ValueError(
                f"got sequences of {x.shape[0]} steps, expected one: the parameters for more were "
                "left out by single_step"
            )
        return self.rnn(x)

    def __call__(self, embeddings: jax.Array) -> jax.Array:
        return self.linear(self.features(embeddings))


def single_step(config: RnnHeadConfig, params: Mapping[str, jax.Array]):
    """The same function of one step with what is inert there left out.

    Hidden kernels go, LSTM's forget gate goes, and biases that only ever occur as a sum become it:
    29 % fewer parameters for TrojAI's GRU heads (768-256x2, both ways), 46 % for its LSTM heads.

    Args:
      config: of a head; one that is reduced already is returned unchanged.
      params: its parameters, which may have leading axes of stacked models.

    Returns:
      (config, params) that take embeddings `[n, d]` or sequences of one step.
    """
    if config.single_step:
        return config, dict(params)
    return dataclasses.replace(config, single_step=True), _reduce_all(config, dict(params))


@partial(jax.jit, static_argnums=0)
def _reduce_all(config: RnnHeadConfig, params: dict[str, jax.Array]) -> dict[str, jax.Array]:
    kept = {path: value for path, value in params.items() if path.startswith("linear.")}
    for suffix in (suffix for suffixes in config.suffixes for suffix in suffixes):
        paths = [f"rnn.{kind}_{suffix}" for kind in ("weight_ih", "bias_ih", "bias_hh")]
        reduced = _reduced(config.cell, *(params.get(path) for path in paths))
        kept |= {p: v for p, v in zip(paths, reduced, strict=True) if v is not None}
    return kept
