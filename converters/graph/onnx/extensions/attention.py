"""Attention, rotary positions and recurrent attention of transformer exports."""

import math

import torch
import torch.nn.functional as F

from converters.graph.onnx.operators import operator
from converters.graph.onnx.types import torch_type
from converters.graph.onnx.values import ints

_RAW, _CAPPED, _BIASED, _NORMALISED = range(4)


def _heads(x, count: int):
    """`[batch, time, heads * size]` -> `[batch, heads, time, size]`."""
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def _repeated(x, times: int):
    """Each head several times in a row."""
    return x if times == 1 else x.repeat_interleave(times, 1)


def _offsets(past, lengths, queries: int) -> list[int]:
    """How many keys precede the queries, per example where lengths say so."""
    if past is not None:
        return [past.shape[2]]
    return [0] if lengths is None else [length - queries for length in lengths]


def _allowed(call, offset: int, queries: int, keys: int):
    """Which keys each query may see, `[queries, keys]`."""
    gap = torch.arange(queries).reshape(-1, 1) + offset - torch.arange(keys).reshape(1, -1)
    allowed = torch.ones_like(gap, dtype=torch.bool)
    left, right = call["left_window_size"], call["right_window_size"]
    if call["is_causal"]:
        allowed = allowed & (gap >= 0)
    if left is not None and left >= 0:
        allowed = allowed & (gap <= left)
    if right is not None and right >= 0:
        allowed = allowed & (-gap <= right)
    return allowed


def _bias(call, q, keys: int, mask, past, lengths):
    """What is added to the scores: the mask, causal and window limits, padding."""
    queries = q.shape[2]
    zero, forbidden = torch.zeros((), dtype=q.dtype), torch.full((), -torch.inf, dtype=q.dtype)
    offsets = _offsets(past, lengths, queries)
    allowed = torch.stack([_allowed(call, offset, queries, keys) for offset in offsets])
    bias = torch.where(allowed.unsqueeze(1) if len(offsets) > 1 else allowed[0], zero, forbidden)
    if mask is not None:
        missing = keys - mask.shape[-1]
        if mask.dtype == torch.bool:
            mask = torch.where(mask, zero, forbidden)
        if missing > 0:
            mask = F.pad(mask, [0, missing], value=-math.inf)
        bias = bias + mask.to(q.dtype)
    if lengths is not None:
        live = torch.tensor([[k < length for k in range(keys)] for length in lengths])
        bias = bias + torch.where(live[:, None, None], zero, forbidden)
    return bias


@operator("Attention", (23, 24, 25), static=(6,))
def attention(call, q, k, v, mask=None, past_key=None, past_value=None, lengths=None):
    """Scaled dot-product attention with grouped heads, masks, windows, caches and soft capping."""
    flat = q.dim() == 3
    if flat:
        q = _heads(q, call["q_num_heads"])
        k, v = _heads(k, call["kv_num_heads"]), _heads(v, call["kv_num_heads"])
    if past_key is not None and past_value is not None:
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    lengths = None if lengths is None else ints(lengths)
    bias = _bias(call, q, k.shape[2], mask, past_key, lengths)
    scores, shares = _shares(call, q, _repeated(k, q.shape[1] // k.shape[1]), bias)
    y = torch.matmul(shares.to(q.dtype), _repeated(v, q.shape[1] // v.shape[1]))
    if flat:
        y = y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1)
    made = (y, k, v, scores.to(q.dtype))
    return made[: call.outputs] if call.outputs > 1 else y


def _shares(call, q, k, bias):
    """The scores asked for as an output, and the shares of the keys."""
    scale = 1 / math.sqrt(q.shape[3]) if call["scale"] is None else call["scale"]
    root = torch.full((), math.sqrt(scale), dtype=q.dtype)
    raw = torch.matmul(q * root, (k * root).transpose(2, 3))
    cap = call["softcap"]
    capped = torch.tanh(raw / cap) * cap if cap else raw
    biased = capped + bias
    wide = biased.to(torch_type(call["softmax_precision"])) if call["softmax_precision"] else biased
    # A query that may see no key has no shares, rather than the NaN of a softmax over -inf.
    blind = (bias == -torch.inf).all(-1, keepdim=True)
    calm = torch.where(blind, torch.zeros_like(wide), wide)
    shares = torch.where(blind, torch.zeros_like(wide), torch.softmax(calm, -1))
    mode = call["qk_matmul_output_mode"] or _RAW
    return {_RAW: capped, _CAPPED: capped, _BIASED: biased, _NORMALISED: shares}[mode], shares


@operator("RotaryEmbedding", (23,))
def rotary_embedding(call, x, cos, sin, positions=None):
    """Pairs of features turned by an angle that grows with the position."""
    flat = x.dim() == 3
    y = x.reshape(*x.shape[:2], call["num_heads"], -1) if flat else x.transpose(1, 2)
    size = call["rotary_embedding_dim"] or y.shape[-1]
    turned, rest = y[..., :size], y[..., size:]
    if positions is not None:
        cos, sin = cos[positions.long()], sin[positions.long()]
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    if call["interleaved"]:
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack([cos * a - sin * b, sin * a + cos * b], -1).flatten(-2)
    else:
        a, b = turned.chunk(2, -1)
        turned = torch.cat([cos * a - sin * b, sin * a + cos * b], -1)
    y = torch.cat([turned, rest], -1)
    return y.reshape(x.shape) if flat else y.transpose(1, 2)


def _spread_gate(gate, heads: int, size: int):
    """`[batch, time, heads or heads * size]` -> `[batch, heads, time, 1 or size]` in float32."""
    per_head = gate.shape[-1] in (1, heads)
    count = gate.shape[-1] if per_head else heads
    if not per_head and gate.shape[-1] != heads * size:
        raise ValueError(f"a gate of {gate.shape[-1]} features for {heads} heads of {size}")
    return _heads(gate, count).float()


@operator("LinearAttention", (27,))
def linear_attention(call, query, key, value, past=None, decay=None, beta=None):
    """Attention as a recurrent state, unrolled over time."""
    rule, groups = call["update_rule"], call["q_num_heads"] // call["kv_num_heads"]
    q = _heads(query, call["q_num_heads"]).float()
    k, v = (_heads(x, call["kv_num_heads"]).float() for x in (key, value))
    gates = _spread_gate(decay, k.shape[1], k.shape[3]) if "gated" in rule else None
    rates = _spread_gate(beta, k.shape[1], 0) if "delta" in rule else None
    state = torch.zeros(k.shape[0], k.shape[1], k.shape[3], v.shape[3])
    state = state if past is None else past.float()
    scale, outputs = call["scale"] or 1 / math.sqrt(k.shape[3]), []
    for step in range(q.shape[2]):
        new = v[:, :, step]
        if gates is not None:
            state = state * torch.exp(gates[:, :, step]).unsqueeze(-1)
        if rates is not None:
            known = torch.matmul(k[:, :, step].unsqueeze(-2), state).squeeze(-2)
            new = rates[:, :, step] * (new - known)
        state = state + k[:, :, step].unsqueeze(-1) * new.unsqueeze(-2)
        read = _repeated(state, groups)
        outputs.append(scale * torch.matmul(q[:, :, step].unsqueeze(-2), read).squeeze(-2))
    y = torch.stack(outputs, 1).flatten(2).to(query.dtype)
    final = state.to(query.dtype if past is None else past.dtype)
    return (y, final) if call.outputs > 1 else y


@operator("CausalConvWithState", (27,))
def causal_conv(call, x, weight, bias=None, past=None):
    """Depthwise convolution over the past, with the inputs that the next call needs."""
    reach = weight.shape[2] - 1
    before = torch.zeros(*x.shape[:2], reach, dtype=x.dtype) if past is None else past
    padded = torch.cat([before, x], 2)
    y = F.conv1d(padded, weight, bias, groups=x.shape[1])
    if call["activation"] in ("silu", "swish"):
        y = (y.float() * torch.sigmoid(y.float())).to(x.dtype)
    elif call["activation"] != "none":
        raise call.refuse(f"activation {call['activation']}")
    return (y, padded[:, :, padded.shape[2] - reach :]) if call.outputs > 1 else y
