"""onnxruntime's quantised LSTM: 8-bit weights, and values quantised by their range as they come.

Source: com.microsoft.DynamicQuantizeLSTM in onnxruntime's docs/ContribOperators.md. The input is
quantised as a whole and the state anew in each step, so examples of a batch share a scale, there
as here. Rounding has no gradient, so neither have the products.
"""

from functools import partial

import torch

from converters.graph.onnx.extensions.quantisation import centred, dynamic_quantize
from converters.graph.onnx.extensions.recurrent import check_clip, functions_of, lstm_cell, unrolled
from converters.graph.onnx.operators import operator
from converters.graph.onnx.values import ints

_DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def _product(x, weight, scale, zero):
    """`x @ weight` of values quantised here and weights `[in, out]` quantised before; exact sums.

    `scale` and `zero` are one number or one per column.
    """
    values, x_scale, x_zero = dynamic_quantize(None, x)
    sums = centred(values, x_zero, 0) @ centred(weight, zero.reshape(-1), 1)
    return (sums * (x_scale.double() * scale.double())).to(x.dtype)


def _advance(call, functions, product, p, gates, h, c):
    return lstm_cell(call, functions, gates + product(h), c, p)


def _one_way(call, d: int, back: bool, x, w, r, b, h, c, p):
    """Outputs `[time, batch, hidden]` and last states of direction `d`."""
    weights, recurrent = (partial(_product, **_slice(d, *parts)) for parts in (w, r))
    gates = weights(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:2], -1)
    if b is not None:
        gates = gates + sum(b[d].chunk(2, 0))
    functions = functions_of(call, d, w[0].shape[0])
    advance = partial(_advance, call, functions, recurrent, None if p is None else p[d])
    y, last, cell = unrolled(advance, gates.flip(0) if back else gates, h[d], c[d], None)
    return (y.flip(0) if back else y), last, cell


def _slice(d: int, weight, scale, zero) -> dict:
    return {"weight": weight[d], "scale": scale[d], "zero": zero[d]}


@operator(
    "DynamicQuantizeLSTM",
    (1,),
    static=(4,),
    domain="com.microsoft",
    restrictions="no lengths per example",
)
def dynamic_quantize_lstm(call, x, w, r, b, lengths, h, c, p, w_scale, w_zero, r_scale, r_zero):
    """Long short-term memory with weights `[directions, in, 4 hidden]` in 8 bits."""
    direction = call["direction"] or "forward"
    directions = w.shape[0]
    if _DIRECTIONS.get(direction) != directions:
        raise call.refuse(f"direction {direction} with weights for {directions}")
    check_clip(call)
    if lengths is not None and any(length != x.shape[0] for length in ints(lengths)):
        raise call.refuse("lengths per example")
    zeros = torch.zeros([directions, x.shape[1], r.shape[1]], dtype=x.dtype)
    h, c = zeros if h is None else h, zeros if c is None else c
    parts = [
        _one_way(
            call, d, direction == "reverse" or d == 1,
            x, (w, w_scale, w_zero), (r, r_scale, r_zero), b, h, c, p,
        )
        for d in range(directions)
    ]  # fmt: skip
    ys, hs, cs = zip(*parts, strict=True)
    made = (torch.stack(ys, 1), torch.stack(hs), torch.stack(cs))
    return made[: call.outputs] if call.outputs > 1 else made[0]
