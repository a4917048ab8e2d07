"""Where the sign and the trigger are on the picture, and their pixels there.

Everything is written for one picture and vmapped by the renderer. Pixels are sampled by gathers
from small textures; coordinates x run right and y down.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

GRID = 16  # cells a side of the coarse map in which a place for the trigger is sought


class Pose(NamedTuple):
    """Sign coordinates q in [-.5, .5]^2 to pixels: centre + (matrix q) / (1 + tilt . q)."""

    centre: jax.Array
    matrix: jax.Array
    tilt: jax.Array
    side: jax.Array


def pose_of(size, numbers, draws):
    """The pose of one sign, wholly inside the picture but for its turned corners."""
    fraction = numbers.sign_low + draws.size * (numbers.sign_high - numbers.sign_low)
    side = fraction * size
    room = 1 - fraction
    centre = jnp.stack([draws.centre_x, draws.centre_y]) * room + fraction / 2
    turn = numbers.turn * _signed(draws.turn)
    cos, sin = jnp.cos(turn), jnp.sin(turn)
    wide = 1 + numbers.stretch * _signed(draws.stretch) / 2
    rows = [jnp.stack([cos * wide, -sin / wide]), jnp.stack([sin * wide, cos / wide])]
    matrix = side * jnp.stack(rows)
    tilt = numbers.perspective * jnp.stack([_signed(draws.tilt_x), _signed(draws.tilt_y)])
    return Pose(centre * size, matrix, tilt, side)


def _signed(uniform):
    """From [0, 1) to [-1, 1)."""
    return 2 * uniform - 1


def _pixel_offsets(size, centre):
    axis = jnp.arange(size, dtype=jnp.float32) + 0.5
    return axis[None, :] - centre[0], axis[:, None] - centre[1]


def sample_sign(size, sign, pose):
    """The sign in its pose, float32 `[size, size, 4]`, premultiplied; 0 outside of it."""
    dx, dy = _pixel_offsets(size, pose.centre)
    # (matrix - d tilt^T) q = d is the projection solved for q
    a, b = pose.matrix[0, 0] - dx * pose.tilt[0], pose.matrix[0, 1] - dx * pose.tilt[1]
    c, d = pose.matrix[1, 0] - dy * pose.tilt[0], pose.matrix[1, 1] - dy * pose.tilt[1]
    # the determinant falls to 0 at the plane's horizon; beyond it nothing is seen
    scale = 1 / jnp.maximum(a * d - b * c, 1e-3 * pose.side**2)
    x, y = (d * dx - b * dy) * scale + 0.5, (a * dy - c * dx) * scale + 0.5
    premultiplied = jnp.concatenate([sign[..., :3] * sign[..., 3:], sign[..., 3:]], axis=-1)
    return _bilinear(premultiplied, x, y)


def _bilinear(texture, x, y):
    """Sample `texture` `[p, p, c]` at x, y in [0, 1] (edges of the texture); 0 outside."""
    pixels = texture.shape[0]
    padded = jnp.pad(texture, ((1, 1), (1, 1), (0, 0)))
    side = pixels + 2
    flat = padded.reshape(side * side, -1)
    fx = jnp.clip(x * pixels + 0.5, 0.0, side - 1.001)
    fy = jnp.clip(y * pixels + 0.5, 0.0, side - 1.001)
    ix, iy = fx.astype(jnp.int32), fy.astype(jnp.int32)
    wx, wy = (fx - ix.astype(jnp.float32))[..., None], (fy - iy.astype(jnp.float32))[..., None]
    corner = iy * side + ix

    def tap(offset):
        return flat.at[corner + offset].get(mode="promise_in_bounds")

    top = tap(0) * (1 - wx) + tap(1) * wx
    return top * (1 - wy) + (tap(side) * (1 - wx) + tap(side + 1) * wx) * wy


def low_pass(alpha, size_pixels):
    """Average `alpha` `[p, p]` over one picture pixel, padded so that the soft edge stays inside.

    Sampling the result at single points is then anti-aliased, however small the trigger is.
    """
    pixels = alpha.shape[0]
    width = jnp.maximum(jnp.asarray(pixels, jnp.float32) / size_pixels, 1.0)
    pad = pixels // 4
    centres = jnp.arange(pixels + 2 * pad, dtype=jnp.float32)[:, None] - pad
    distance = jnp.abs(centres - jnp.arange(pixels, dtype=jnp.float32)[None, :])
    weights = jnp.clip((width + 1) / 2 - distance, 0.0, 1.0) / width
    return (weights @ alpha @ weights.T)[..., None]


def trigger_cover(size, size_pixels, alpha, centre, axis):
    """Coverage `[size, size, 1]` of the trigger centred at `centre` pixels, turned to `axis`."""
    dx, dy = _pixel_offsets(size, centre)
    # `alpha` is padded by a quarter on either side: the shape is the middle 1 / 1.5 of it
    step = 1 / (1.5 * size_pixels)
    x = (axis[0] * dx + axis[1] * dy) * step + 0.5
    y = (axis[0] * dy - axis[1] * dx) * step + 0.5
    return _bilinear(alpha, x, y)


def trigger_place(sign_alpha, pose, draws, size_pixels):
    """Where the trigger goes: its centre in pixels and its axis (cos, sin).

    The place is uniform among those where the trigger's square lies on the sign; where it fits
    nowhere, among those that hold the most of it. The angle is a multiple of 5 degrees.
    """
    coarse = coarse_alpha(sign_alpha)
    edges = jnp.arange(GRID, dtype=jnp.float32)
    centres = edges[:, None] + 0.5
    half = size_pixels / pose.side * GRID / 2
    low, high = jnp.maximum(centres - half, edges), jnp.minimum(centres + half, edges + 1)
    weights = jnp.maximum(high - low, 0.0) / (2 * half)
    share = (weights @ coarse @ weights.T).reshape(-1)
    ranks = jnp.cumsum((share >= 0.97 * jnp.max(share)).astype(jnp.float32))
    cell = jnp.minimum(jnp.sum(ranks <= draws.place * ranks[-1]).astype(jnp.int32), GRID**2 - 1)
    x = (cell % GRID).astype(jnp.float32) + draws.place_x
    y = (cell // GRID).astype(jnp.float32) + draws.place_y
    place = jnp.stack([x, y]) / GRID - 0.5
    centre = pose.centre + pose.matrix @ place / (1 + pose.tilt @ place)
    turn = jnp.floor(draws.trigger_turn * 72) * jnp.float32(math.pi / 36)
    return centre, jnp.stack([jnp.cos(turn), jnp.sin(turn)])


def coarse_alpha(sign_alpha):
    """Mean alpha `[16, 16]` over equal cells of `[p, p]`."""
    pixels = sign_alpha.shape[0]
    edges = np.linspace(0, pixels, GRID + 1)
    cells = np.arange(pixels)[None, :]
    overlap = np.minimum(edges[1:, None], cells + 1) - np.maximum(edges[:-1, None], cells)
    weights = jnp.asarray((np.maximum(overlap, 0) * GRID / pixels).astype(np.float32))
    return weights @ sign_alpha @ weights.T
