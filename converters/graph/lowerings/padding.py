"""Padding with a constant, by reflection, by the border, or around."""

import jax.numpy as jnp
from jax import lax

from converters.graph.layout import ChannelsLast
from converters.graph.registry import OWN, Restricted, lowers


def _sides(pad: tuple[int, ...], ndim: int) -> list[tuple[int, int]]:
    """torch's numbers, last dimension first, as (before, after) per dimension."""
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    return [(0, 0)] * (ndim - len(pairs)) + pairs[::-1]


@lowers("aten.constant_pad_nd.default", layout=OWN)
def constant_pad(x, pad, value):
    """x with a border of one value; negative numbers cut off."""
    sides = _sides(pad, x.ndim)
    last = isinstance(x, ChannelsLast)
    if last:
        sides = [sides[0], *sides[2:], sides[1]]
    array = x.array if isinstance(x, ChannelsLast) else jnp.asarray(x)
    fill = jnp.asarray(0 if value is None else value, array.dtype)
    y = lax.pad(array, fill, [(before, after, 0) for before, after in sides])
    return ChannelsLast(y) if last else y


def _mirrored(x, pad, mode: str):
    sides = _sides(pad, x.ndim)
    cut = tuple(
        slice(max(-before, 0), size - max(-after, 0))
        for (before, after), size in zip(sides, x.shape, strict=True)
    )
    return jnp.pad(x[cut], [(max(before, 0), max(after, 0)) for before, after in sides], mode)


@lowers(*(f"aten.reflection_pad{d}d.default" for d in (1, 2, 3)))
def reflection_pad(x, pad):
    """x with a border that mirrors it, the edge not repeated."""
    return _mirrored(x, pad, "reflect")


@lowers(*(f"aten.replication_pad{d}d.default" for d in (1, 2, 3)))
def replication_pad(x, pad):
    """x with its edge repeated."""
    return _mirrored(x, pad, "edge")


@lowers("aten._pad_circular.default")
def circular_pad(x, pad):
    """x with its other end as border."""
    return _mirrored(x, pad, "wrap")


@lowers("aten.pad.default")
def pad(x, sides, mode, value):
    """Any of the paddings by name."""
    if mode == "constant":
        return constant_pad(x, sides, value)
    names = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in names:
        raise Restricted(f"padding mode {mode!r}")
    return _mirrored(x, sides, names[mode])
