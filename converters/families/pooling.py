"""Pooling of NHWC maps, with a gradient of the maximum that XLA cannot make slow."""

from functools import partial, reduce

import jax
import jax.numpy as jnp

from converters.families.windows import Pads, Pair, both_sides, pad, pair, windows


def max_pool(
    x: jax.Array, window: int | Pair, stride: int | Pair, padding: int | Pads = 0
) -> jax.Array:
    """Maximum over windows; ties send their gradient to the first element, as torch does.

    A chain of selections: XLA's select-and-scatter gradient is several times slower on CPU. Takes
    gradients of any order, but no forward-mode derivative (`jax.jvp`) of its own.

    Args:
        x: `[n, h, w, c]`, floating.
        window, stride: one number, or rows and columns.
        padding: the same on all sides, or (before, after) for rows and for columns.

    Raises:
      ValueError: a window has no element.
    """
    if min(pair(window)) < 1:
        raise ValueError(f"max_pool window must be at least 1, got {window}")
    pads = both_sides(pair(padding)) if isinstance(padding, int) else padding
    return _maximum(pair(window), pair(stride), pads, x)


def above(value: jax.Array, best: jax.Array) -> jax.Array:
    """Whether a value takes the best one's place; what is not a number always does, as in torch."""
    return (value > best) | (value != value)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _maximum(window: Pair, stride: Pair, pads: Pads, x: jax.Array) -> jax.Array:
    return reduce(
        lambda best, tap: jnp.where(above(tap, best), tap, best),
        windows(pad(x, pads, -jnp.inf), window, stride),
    )


def _forward(window: Pair, stride: Pair, pads: Pads, x: jax.Array):
    """The maxima, with the number of the tap that each came from and the size of the map."""
    best, which = None, None
    for number, tap in enumerate(windows(pad(x, pads, -jnp.inf), window, stride)):
        if best is None or which is None:
            best, which = tap, jnp.zeros(tap.shape, jnp.int16)
        else:
            better = above(tap, best)
            best = jnp.where(better, tap, best)
            which = jnp.where(better, jnp.int16(number), which)
    return best, (which, x.shape[1:3])


def _backward(window: Pair, stride: Pair, pads: Pads, residual, gradient: jax.Array):
    """Gradient of the map, gathered phase by phase (a phase: the rows, or columns, i mod stride).

    The taps of a window are other shifts of one gradient, so XLA would compute whatever precedes
    this gradient once per tap (a DenseNet121 step: 280 of 1,700 ms). Joining it to a rim of zeros
    makes it do so once: a concatenation is not fused, and no shift lies inside one part of it.
    """
    which, size = residual
    reach = [_taps(*numbers) for numbers in zip(window, stride, pads, strict=True)]
    counts = [-(-s // t) + i for s, t, i in zip(size, stride, (1, 0), strict=True)]
    rims = [
        _rim(phases, n, c) for phases, n, c in zip(reach, gradient.shape[1:3], counts, strict=True)
    ]
    gradient, which = _rimmed(gradient, rims, 0), _rimmed(which, rims, -1)

    def phase(rows, columns):
        total = jnp.zeros((), gradient.dtype)
        for i, down in rows:
            for j, right in columns:
                top, left = rims[0][0] + down, rims[1][0] + right
                seen = (slice(None), slice(top, top + counts[0]), slice(left, left + counts[1]))
                own = which[seen] == i * window[1] + j
                total = total + jnp.where(own, gradient[seen], 0)
        return jnp.broadcast_to(total, (len(gradient), *counts, gradient.shape[-1]))

    joined = jnp.stack([jnp.stack([phase(r, c) for c in reach[1]], 3) for r in reach[0]], 2)
    sizes = [c * s for c, s in zip(counts, stride, strict=True)]
    return (joined.reshape(len(joined), *sizes, -1)[:, : size[0], : size[1]],)


_maximum.defvjp(_forward, _backward)


def _taps(window: int, stride: int, pads: Pair) -> list[list[Pair]]:
    """For each phase of an axis, the taps that see it, and how far on the window lies.

    Element `stride * q + phase` is tap t of window o where `stride * o + t` is its padded place.
    """
    return [
        [
            (tap, (phase + pads[0] - tap) // stride)
            for tap in range(window)
            if (phase + pads[0] - tap) % stride == 0
        ]
        for phase in range(stride)
    ]


def _rim(phases: list[list[Pair]], windows: int, count: int) -> Pair:
    """How many zeros the shifted gradients of an axis need before and after it."""
    shifts = [shift for phase in phases for _, shift in phase]
    return max(0, -min(shifts)), max(0, max(shifts) + count - windows)


def _rimmed(x: jax.Array, rims: list[Pair], value: int) -> jax.Array:
    for axis, rim in enumerate(rims, 1):
        parts = [jnp.full((*x.shape[:axis], n, *x.shape[axis + 1 :]), value, x.dtype) for n in rim]
        x = jnp.concatenate([parts[0], x, parts[1]], axis)
    return x


def avg_pool(x: jax.Array, window: int, stride: int, padding: int = 0) -> jax.Array:
    """Mean over windows, padding zeros counted (torch's `count_include_pad=True`)."""
    padded = pad(x, both_sides(pair(padding)))
    taps = list(windows(padded, pair(window), pair(stride)))
    return sum(taps[1:], taps[0]) / len(taps)


def global_mean(x: jax.Array) -> jax.Array:
    """Spatial mean `[n, h, w, c] -> [n, c]`."""
    return x.mean(axis=(1, 2))
