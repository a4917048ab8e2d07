"""LSTM, GRU and plain recurrent layers, one `lax.scan` per layer and direction.

Gates lie in torch's order: LSTM input, forget, cell, output; GRU reset, update, new.
"""

import jax
import jax.numpy as jnp
from jax import lax

from converters.graph.registry import Restricted, lowers


def _lstm_step(carry, gates, weights):
    h, c = carry
    recurrent, bias, projection = weights
    i, f, g, o = jnp.split(gates + h @ recurrent.T + bias, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    h = h if projection is None else h @ projection.T
    return (h, c), h


def _gru_step(carry, gates, weights):
    (h,) = carry
    recurrent, bias, _ = weights
    reset, update, new = jnp.split(gates, 3, -1)
    own_reset, own_update, own_new = jnp.split(h @ recurrent.T + bias, 3, -1)
    keep = jax.nn.sigmoid(update + own_update)
    # The bias of the state is inside the reset gate, so it cannot be merged with the other.
    new = jnp.tanh(new + jax.nn.sigmoid(reset + own_reset) * own_new)
    h = (1 - keep) * new + keep * h
    return (h,), h


def _plain_step(activation):
    def step(carry, gates, weights):
        recurrent, bias, _ = weights
        h = activation(gates + carry[0] @ recurrent.T + bias)
        return (h,), h

    return step


def _direction(step, x, state, params, reverse: bool):
    """One direction of one layer over `[t, n, d]`: outputs and the last state."""
    weight, recurrent, bias, own_bias, projection = params
    gates = x @ weight.T + bias
    last, y = lax.scan(
        lambda carry, g: step(carry, g, (recurrent, own_bias, projection)),
        state,
        gates,
        reverse=reverse,
    )
    return y, last


def _grouped(params, has_biases: bool, directions: int):
    """Weights per layer and direction, with None for what is not there."""
    count = len(params) // directions
    plain = 4 if has_biases else 2
    if count not in (plain, plain + 1):
        raise Restricted(f"{len(params)} weights for {directions} layers and directions")
    for i in range(directions):
        own = list(params[i * count : (i + 1) * count])
        projection = own.pop() if count > plain else None
        yield (*own[:2], *(own[2:] if has_biases else (0, 0)), projection)


def _layers(step, x, states, params, has_biases, num_layers, bidirectional, batch_first):
    had_batch = x.ndim == 3
    if not had_batch:
        x, states = x[:, None], [s[:, None] for s in states]
    elif batch_first:
        x = jnp.swapaxes(x, 0, 1)
    ways = 2 if bidirectional else 1
    grouped = list(_grouped(params, has_biases, num_layers * ways))
    finals = []
    for layer in range(num_layers):
        outputs = []
        for way in range(ways):
            i = layer * ways + way
            state = tuple(s[i] for s in states)
            y, last = _direction(step, x, state, grouped[i], reverse=way == 1)
            outputs.append(y)
            finals.append(last)
        x = jnp.concatenate(outputs, -1)
    ends = [jnp.stack(parts) for parts in zip(*finals, strict=True)]
    if not had_batch:
        return x[:, 0], *(end[:, 0] for end in ends)
    return jnp.swapaxes(x, 0, 1) if batch_first else x, *ends


@lowers("aten.lstm.input", restriction="evaluation, not packed")
def lstm(x, states, params, biases, layers, dropout, train, bidirectional, batch_first):
    """LSTM, with projections too: outputs, last state, last cell."""
    _refuse_dropout(dropout, train)
    return _layers(_lstm_step, x, list(states), params, biases, layers, bidirectional, batch_first)


@lowers("aten.gru.input", restriction="evaluation, not packed")
def gru(x, state, params, biases, layers, dropout, train, bidirectional, batch_first):
    """GRU: outputs and last state."""
    _refuse_dropout(dropout, train)
    return _layers(_gru_step, x, [state], params, biases, layers, bidirectional, batch_first)


@lowers("aten.rnn_tanh.input", restriction="evaluation, not packed")
def rnn_tanh(x, state, params, biases, layers, dropout, train, bidirectional, batch_first):
    """Plain recurrent layers with tanh: outputs and last state."""
    _refuse_dropout(dropout, train)
    step = _plain_step(jnp.tanh)
    return _layers(step, x, [state], params, biases, layers, bidirectional, batch_first)


@lowers("aten.rnn_relu.input", restriction="evaluation, not packed")
def rnn_relu(x, state, params, biases, layers, dropout, train, bidirectional, batch_first):
    """Plain recurrent layers with relu: outputs and last state."""
    _refuse_dropout(dropout, train)
    step = _plain_step(jax.nn.relu)
    return _layers(step, x, [state], params, biases, layers, bidirectional, batch_first)


def _refuse_dropout(dropout: float, train: bool) -> None:
    if train and dropout:
        raise Restricted("dropout is random in training")
