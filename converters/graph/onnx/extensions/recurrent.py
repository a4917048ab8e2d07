"""GRU, LSTM and plain recurrent layers.

With the usual activations a layer is one torch call; peepholes, clipping, other activations and
lengths per example are unrolled over time.
"""

from collections.abc import Callable
from functools import partial

import torch

from converters.graph.onnx.extensions.activations import exponential
from converters.graph.onnx.operators import operator
from converters.graph.onnx.values import ints

_ACTIVATIONS: dict[str, Callable] = {
    "sigmoid": lambda x, a, b: torch.sigmoid(x),
    "tanh": lambda x, a, b: torch.tanh(x),
    "relu": lambda x, a, b: torch.relu(x),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: torch.where(x < 0, (0.01 if a is None else a) * x, x),
    "hardsigmoid": lambda x, a, b: torch.clamp(
        (0.2 if a is None else a) * x + (0.5 if b is None else b), 0, 1
    ),
    "softsign": lambda x, a, b: x / (1 + torch.abs(x)),
    "softplus": lambda x, a, b: torch.logaddexp(x, torch.zeros_like(x)),
    "elu": lambda x, a, b: exponential(x, 1.0 if a is None else a),
}
_LSTM = ("sigmoid", "tanh", "tanh")
_USUAL = {
    "GRU": ("sigmoid", "tanh"),
    "LSTM": _LSTM,
    "RNN": ("tanh",),
    "DynamicQuantizeLSTM": _LSTM,
}
# torch's order of the gates among ONNX's: GRU z r h -> r z n, LSTM i o f c -> i f g o.
_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1), "RNN": (0,)}


def _names(call, directions: int) -> list[str]:
    given = call["activations"] or list(_USUAL[call.operator]) * directions
    return [name.lower() for name in given]


def functions_of(call, direction: int, directions: int) -> list[Callable]:
    """Activations of one direction with their parameters, in the order of the file."""
    names, each = _names(call, directions), len(_USUAL[call.operator])
    alphas, betas = list(call["activation_alpha"] or []), list(call["activation_beta"] or [])
    functions = []
    for k, name in enumerate(names):
        if name not in _ACTIVATIONS:
            raise call.refuse(f"activation {name}")
        has_alpha = name in ("affine", "leakyrelu", "hardsigmoid", "elu")
        has_beta = name in ("affine", "hardsigmoid")
        alpha = alphas.pop(0) if has_alpha and alphas else None
        beta = betas.pop(0) if has_beta and betas else None
        if name == "affine" and None in (alpha, beta):
            # ONNX names no defaults; onnxruntime has zeros.
            raise call.refuse("activation affine without its alpha and beta; write both")
        if k // each == direction:
            functions.append(lambda x, f=_ACTIVATIONS[name], a=alpha, b=beta: f(x, a, b))
    return functions


def _plain(call, lengths, peepholes, directions: int) -> bool:
    """Whether torch has this layer as it is."""
    usual = list(_USUAL[call.operator]) * directions
    names = _names(call, directions)
    relu = call.operator == "RNN" and names == ["relu"] * directions
    if call.operator == "GRU" and not call["linear_before_reset"]:
        return False
    simple = lengths is None and peepholes is None and not call["clip"]
    return simple and not call["input_forget"] and (names == usual or relu)


def _reordered(call, values):
    """Gates along the first axis in torch's order."""
    parts = values.chunk(len(_GATES[call.operator]), 0)
    return torch.cat([parts[k] for k in _GATES[call.operator]], 0)


def _torch_layer(call, x, w, r, b, h, c):
    """torch's own layer over `[time, batch, features]`."""
    directions, flat = w.shape[0], []
    for d in range(directions):
        flat += [_reordered(call, w[d]), _reordered(call, r[d])]
        if b is not None:
            halves = b[d].chunk(2, 0)
            flat += [_reordered(call, halves[0]), _reordered(call, halves[1])]
    rest = (flat, b is not None, 1, 0.0, False, directions == 2, False)
    if call.operator == "LSTM":
        return torch._VF.lstm(x, (h, c), *rest)
    if call.operator == "GRU":
        return (*torch._VF.gru(x, h, *rest), None)
    name = _names(call, directions)[0]
    layer = torch._VF.rnn_relu if name == "relu" else torch._VF.rnn_tanh
    return (*layer(x, h, *rest), None)


def check_clip(call) -> None:
    """Refuse a bound that is none; onnxruntime refuses it, or clips otherwise than between both."""
    if call["clip"] is not None and not call["clip"] > 0:
        raise call.refuse(f"clip {call['clip']}, expected more than 0; leave it out for no bound")


def _clip(call, x):
    return torch.clamp(x, -call["clip"], call["clip"]) if call["clip"] else x


def _gru_step(call, functions, x, h, c, w, r, b, p):
    f, g = functions
    wb, rb = b.chunk(2, 0)
    wz, wr, wh = (x @ w.t() + wb).chunk(3, -1)
    rz, rr, rh = r.chunk(3, 0)
    bz, br, bh = rb.chunk(3, 0)
    update = f(_clip(call, wz + h @ rz.t() + bz))
    reset = f(_clip(call, wr + h @ rr.t() + br))
    if call["linear_before_reset"]:
        hidden = g(_clip(call, wh + reset * (h @ rh.t() + bh)))
    else:
        hidden = g(_clip(call, wh + (reset * h) @ rh.t() + bh))
    return (1 - update) * hidden + update * h, c


def _lstm_step(call, functions, x, h, c, w, r, b, p):
    wb, rb = b.chunk(2, 0)
    return lstm_cell(call, functions, x @ w.t() + h @ r.t() + wb + rb, c, p)


def lstm_cell(call, functions, gates, c, p):
    """New output and cell state from the gates' sums `[batch, 4 hidden]`."""
    f, g, last = functions
    i, o, forget, cell = gates.chunk(4, -1)
    pi, po, pf = (0, 0, 0) if p is None else p.chunk(3, 0)
    i = f(_clip(call, i + pi * c))
    keep = 1 - i if call["input_forget"] else f(_clip(call, forget + pf * c))
    c = keep * c + i * g(_clip(call, cell))
    return f(_clip(call, o + po * c)) * last(c), c


def _rnn_step(call, functions, x, h, c, w, r, b, p):
    wb, rb = b.chunk(2, 0)
    return functions[0](_clip(call, x @ w.t() + h @ r.t() + wb + rb)), c


_STEPS = {"GRU": _gru_step, "LSTM": _lstm_step, "RNN": _rnn_step}


def unrolled(advance: Callable, x, h, c, lengths):
    """One direction step by step; past an example's length its state stays and its output is 0.

    `advance(x[t], h, c)` gives the new output and cell state.
    """
    outputs = []
    for step in range(x.shape[0]):
        new_h, new_c = advance(x[step], h, c)
        y = new_h
        if lengths is not None:
            live = torch.tensor([step < length for length in lengths]).reshape(-1, 1)
            y = torch.where(live, new_h, torch.zeros_like(new_h))
            new_h = torch.where(live, new_h, h)
            new_c = None if c is None else torch.where(live, new_c, c)
        h, c = new_h, new_c
        outputs.append(y)
    return torch.stack(outputs), h, c


def _lengths(call, lengths, steps: int) -> list[int] | None:
    """Lengths per example, None where all are whole."""
    found = [steps] if lengths is None else ints(lengths)
    if not all(1 <= length <= steps for length in found):
        # onnxruntime refuses others; after 0 steps it gives zeros, not the state before them.
        raise call.refuse(f"lengths {found[:8]} of {steps} steps, expected 1 to {steps}")
    return None if all(length == steps for length in found) else found


def _layer(call, x, w, r, b, lengths, h, c, p):
    check_clip(call)
    if call["layout"]:
        x = x.transpose(0, 1)
        h, c = (None if s is None else s.transpose(0, 1) for s in (h, c))
    direction, directions = call["direction"], w.shape[0]
    if (direction == "bidirectional") != (directions == 2) or direction not in (
        "forward",
        "reverse",
        "bidirectional",
    ):
        raise call.refuse(f"direction {direction} with weights for {directions}")
    lengths = _lengths(call, lengths, x.shape[0])
    if lengths is not None and direction != "forward":
        raise call.refuse("lengths per example backwards in time")
    size = [directions, x.shape[1], r.shape[-1]]
    h = torch.zeros(size, dtype=x.dtype) if h is None else h
    if c is None and call.operator == "LSTM":
        c = torch.zeros(size, dtype=x.dtype)
    if _plain(call, lengths, p, directions):
        y, h, c = _flipped(call, x, w, r, b, h, c)
    else:
        y, h, c = _both_ways(call, x, w, r, b, h, c, p, lengths)
    return _arranged(call, y, h, c)


def _flipped(call, x, w, r, b, h, c):
    """torch's layer; `[time, directions, batch, hidden]` out."""
    back = call["direction"] == "reverse"
    y, h, c = _torch_layer(call, x.flip(0) if back else x, w, r, b, h, c)
    y = y.reshape(y.shape[0], y.shape[1], w.shape[0], -1).permute(0, 2, 1, 3)
    return (y.flip(0) if back else y), h, c


def _both_ways(call, x, w, r, b, h, c, p, lengths):
    results = []
    for d in range(w.shape[0]):
        back = call["direction"] == "reverse" or d == 1
        bias = torch.zeros(2 * w.shape[1], dtype=x.dtype) if b is None else b[d]
        functions = functions_of(call, d, w.shape[0])
        cell, peep = (None if s is None else s[d] for s in (c, p))
        advance = partial(_STEPS[call.operator], call, functions, w=w[d], r=r[d], b=bias, p=peep)
        y, last, cell = unrolled(advance, x.flip(0) if back else x, h[d], cell, lengths)
        results.append((y.flip(0) if back else y, last, cell))
    ys, hs, cs = zip(*results, strict=True)
    return torch.stack(ys, 1), torch.stack(hs), None if cs[0] is None else torch.stack(cs)


def _arranged(call, y, h, c):
    if call["layout"]:
        y = y.permute(2, 0, 1, 3)
        h, c = (None if s is None else s.transpose(0, 1) for s in (h, c))
    made = (y, h) if c is None else (y, h, c)
    return made[: call.outputs] if call.outputs > 1 else y


@operator("GRU", (7, 14, 22), static=(4,), restrictions="lengths per example only forwards")
def gru(call, x, w, r, b=None, lengths=None, h=None):
    """Gated recurrent units."""
    return _layer(call, x, w, r, b, lengths, h, None, None)


@operator("LSTM", (7, 14, 22), static=(4,), restrictions="lengths per example only forwards")
def lstm(call, x, w, r, b=None, lengths=None, h=None, c=None, p=None):
    """Long short-term memory, with peepholes."""
    return _layer(call, x, w, r, b, lengths, h, c, p)


@operator("RNN", (7, 14, 22), static=(4,), restrictions="lengths per example only forwards")
def rnn(call, x, w, r, b=None, lengths=None, h=None):
    """Plain recurrent layers."""
    return _layer(call, x, w, r, b, lengths, h, None, None)
