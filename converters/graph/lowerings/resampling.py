"""Resizing of feature maps, and sampling them at given places."""

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from converters.graph.registry import Restricted, lowers

_CUBIC = -0.75
_ANTIALIASED_CUBIC = -0.5


def _ratio(size: int, out: int, scale: float | None) -> np.float32:
    """Input steps per output step, in single precision as torch computes it."""
    if scale is not None and scale > 0:
        return np.float32(1.0 / scale)
    return np.float32(size) / np.float32(out)


def _nearest(size: int, out: int, scale: float | None, exact: bool, space: int) -> np.ndarray:
    """Which input element each output element takes."""
    steps = np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0)
    places = np.floor(steps * _ratio(size, out, scale)).astype(np.int64)
    places = np.minimum(places, size - 1)
    if exact or space == 1 or out not in (size, 2 * size):
        return places
    # torch copies or doubles pictures of these lengths, whatever the scale factor.
    whole = np.arange(out) // (out // size)
    if space == 3 and (places != whole).any():
        raise Restricted(
            f"{size} values enlarged to {out} by {scale}, where torch's answer depends on the "
            "order of the volume in memory; give sizes instead of the scale factor"
        )
    return whole


def _centres(size: int, out: int, scale: float | None, align_corners: bool) -> np.ndarray:
    """Where each output element lies in the input."""
    steps = np.arange(out, dtype=np.float64)
    if align_corners:
        return steps * ((size - 1) / (out - 1) if out > 1 else 0.0)
    ratio = 1.0 / scale if scale is not None and scale > 0 else size / out
    return ratio * (steps + 0.5) - 0.5


def _linear_weights(size: int, out: int, scale: float | None, align_corners: bool) -> np.ndarray:
    """`[out, size]`: what each output element takes from each input element."""
    centres = np.maximum(_centres(size, out, scale, align_corners), 0.0)
    low = np.minimum(np.floor(centres).astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    share = np.clip(centres - low, 0.0, 1.0)
    weights = np.zeros((out, size))
    np.add.at(weights, (np.arange(out), low), 1.0 - share)
    np.add.at(weights, (np.arange(out), high), share)
    return weights


def _cubic_taps(share):
    """Weights of the four neighbours at distance 1 + t, t, 1 - t, 2 - t."""
    a = _CUBIC

    def near(t):
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t):
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return far(share + 1), near(share), near(1 - share), far(2 - share)


def _cubic_weights(size: int, out: int, scale: float | None, align_corners: bool) -> np.ndarray:
    centres = _centres(size, out, scale, align_corners)
    low = np.floor(centres).astype(np.int64)
    weights = np.zeros((out, size))
    for offset, taps in enumerate(_cubic_taps(centres - low), -1):
        np.add.at(weights, (np.arange(out), np.clip(low + offset, 0, size - 1)), taps)
    return weights


def _near(distance: np.ndarray) -> np.ndarray:
    """Weights of a triangle of width 2, by distance from its middle."""
    return np.maximum(1.0 - np.abs(distance), 0.0)


def _cubic(distance: np.ndarray) -> np.ndarray:
    """Weights of a cubic of width 4, with Pillow's coefficient as torch has it here."""
    x, a = np.abs(distance), _ANTIALIASED_CUBIC
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, inner, np.where(x < 2, outer, 0.0))


def _antialiased(
    kernel: Callable[[np.ndarray], np.ndarray], width: int
) -> Callable[[int, int, float | None, bool], np.ndarray]:
    """Weights by a kernel that is as much wider as the picture gets smaller."""

    def weights(size: int, out: int, scale: float | None, align_corners: bool) -> np.ndarray:
        if align_corners:
            step = (size - 1) / (out - 1) if out > 1 else 0.0
        else:
            step = 1.0 / scale if scale is not None and scale > 0 else size / out
        stretch = max(step, 1.0)
        centres = step * (np.arange(out)[:, None] + 0.5)
        support = width / 2 * stretch
        low = np.maximum(np.trunc(centres - support + 0.5), 0)
        high = np.minimum(np.trunc(centres + support + 0.5), size)
        places = np.arange(size)
        taken = kernel((places + 0.5 - centres) / stretch) * ((places >= low) & (places < high))
        return taken / taken.sum(1, keepdims=True)

    return weights


def _weighted(x, axis: int, weights: np.ndarray):
    y = jnp.tensordot(x, jnp.asarray(weights.T, x.dtype), ((axis,), (0,)))
    return jnp.moveaxis(y, -1, axis)


def _sizes(x, output_size, factors) -> tuple[list[int], Sequence[float | None]]:
    """Output sizes and the factors given, per spatial dimension."""
    space = x.shape[2:]
    factors = list(factors or (None,) * len(space))
    if output_size is not None:
        return list(output_size), factors
    return [int(np.floor(n * f)) for n, f in zip(space, factors, strict=True)], factors


def _resize_nearest(x, output_size, factors, exact: bool):
    for axis, (out, factor) in enumerate(zip(*_sizes(x, output_size, factors), strict=True), 2):
        size = x.shape[axis]
        places = _nearest(size, out, factor, exact, x.ndim - 2)
        if out % size == 0 and (places == np.arange(out) // (out // size)).all():
            x = jnp.repeat(x, out // size, axis=axis) if out != size else x
        else:
            x = jnp.take(x, places, axis=axis)
    return x


def _resize_weighted(x, output_size, align_corners, factors, weights):
    for axis, (out, factor) in enumerate(zip(*_sizes(x, output_size, factors), strict=True), 2):
        x = _weighted(x, axis, weights(x.shape[axis], out, factor, align_corners))
    return x


def _register_nearest(space: int) -> None:
    for name, exact in (
        (f"upsample_nearest{space}d", False),
        (f"_upsample_nearest_exact{space}d", True),
    ):

        def by_factors(x, output_size, factors, exact=exact):
            """Nearest neighbours."""
            return _resize_nearest(x, output_size, factors, exact)

        def by_size(x, output_size, *factors, exact=exact):
            """Nearest neighbours."""
            return _resize_nearest(x, output_size, factors, exact)

        limit = "no factor near but not 1 or 2" if space == 3 and not exact else ""
        lowers(f"aten.{name}.vec", restriction=limit)(by_factors)
        lowers(f"aten.{name}.default", restriction=limit)(by_size)


def _register_weighted(name: str, weights, restriction: str = "without antialiasing") -> None:
    def by_factors(x, output_size, align_corners, factors):
        """Weighted sums of neighbours."""
        return _resize_weighted(x, output_size, align_corners, factors, weights)

    def by_size(x, output_size, align_corners, *factors):
        """Weighted sums of neighbours."""
        return _resize_weighted(x, output_size, align_corners, factors, weights)

    lowers(f"aten.{name}.vec", restriction=restriction)(by_factors)
    lowers(f"aten.{name}.default", restriction=restriction)(by_size)


for _space in (1, 2, 3):
    _register_nearest(_space)
for _name in ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"):
    _register_weighted(_name, _linear_weights)
_register_weighted("upsample_bicubic2d", _cubic_weights)
_register_weighted("_upsample_bilinear2d_aa", _antialiased(_near, 2), "")
_register_weighted("_upsample_bicubic2d_aa", _antialiased(_cubic, 4), "")


def _unnormalised(places, size: int, align_corners: bool):
    """Positions in [-1, 1] as positions in pixels."""
    if align_corners:
        return (places + 1) / 2 * (size - 1)
    return ((places + 1) * size - 1) / 2


def _reflected(places, size: int, align_corners: bool):
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    span = high - low
    if span == 0:
        return jnp.zeros_like(places)
    distance = jnp.mod(jnp.abs(places - low), 2 * span)
    return low + jnp.where(distance > span, 2 * span - distance, distance)


def _bounded(places, size: int, padding: int, align_corners: bool):
    """Positions brought into the picture, as padding mode 1 (border) or 2 (reflection) has it."""
    if padding == 2:
        places = _reflected(places, size, align_corners)
    return jnp.clip(places, 0, size - 1) if padding else places


def _read(x, places, padding: int, align_corners: bool):
    """Elements of `[c, ...]` at whole positions (one array per axis); zero outside."""
    inside, index = True, []
    for position, size in zip(places, x.shape[1:], strict=True):
        position = _bounded(position, size, padding, align_corners)
        inside = inside & (position >= 0) & (position <= size - 1)
        index.append(jnp.clip(position, 0, size - 1).astype(int))
    return jnp.where(inside, x[(slice(None), *index)], 0)


def _sample(x, grid, mode: int, padding: int, align_corners: bool):
    """`[c, ...]` at `[..., d]`, whose last axis counts dimensions from the last."""
    sizes = x.shape[1:]
    places = [
        _unnormalised(grid[..., -1 - axis], size, align_corners) for axis, size in enumerate(sizes)
    ]
    if mode != 2:
        pairs = zip(places, sizes, strict=True)
        places = [_bounded(p, size, padding, align_corners) for p, size in pairs]
    if mode == 1:
        return _read(x, [jnp.round(p) for p in places], 0, align_corners)
    low = [jnp.floor(p) for p in places]
    shares = [p - floor for p, floor in zip(places, low, strict=True)]
    taps = (
        [list(enumerate((1 - s, s))) for s in shares]
        if mode == 0
        else [list(enumerate(_cubic_taps(s), -1)) for s in shares]
    )
    total = 0
    for choice in itertools.product(*taps):
        at = [floor + offset for floor, (offset, _) in zip(low, choice, strict=True)]
        weight = 1
        for _, share in choice:
            weight = weight * share
        total = total + weight * _read(x, at, padding if mode == 2 else 0, align_corners)
    return total


@lowers("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default", "aten.grid_sampler.default")
def grid_sampler(x, grid, mode, padding, align_corners):
    """Pictures `[n, c, ...]` at places `[n, ..., d]` in [-1, 1]: linear, nearest or cubic."""
    if mode == 2 and x.ndim != 4:
        raise Restricted("cubic sampling of volumes")
    return jax.vmap(lambda a, b: _sample(a, b, mode, padding, align_corners))(x, grid)
