"""The scene renderer of Rounds 1 to 4: a sign seen from some side, on a road, with polygon or not.

One compiled program per picture size draws a whole batch. A picture depends on its own key, label
and stamp only; with one key the stamped and the clean picture show the same scene. Order as in the
official generator: sign, view, size (height and width apart), polygon, brightness, blend, blur,
fog, rain. As in Round 0 here, the grain merge is left out and the brightness factor is bounded.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.generate.traffic_signs import placement, scene, weather
from jaxtroj.generate.traffic_signs.assets import Assets
from jaxtroj.generate.traffic_signs.later.views import views
from jaxtroj.pytrees import pytree

BLUR_SIGMA = 0.8  # of OpenCV's Gaussian kernel of width 3, pixels of a 256 px picture
BLUR_REFERENCE = 256
_NUM_DRAWS = 32
_NUM_UNIFORM = _NUM_DRAWS + weather.FOG_CELLS**2


@pytree
@dataclass(frozen=True)
class Stamps:
    """Polygons that pictures may carry; a pytree, so new ones need no new compilation.

    Attributes:
        alpha: float32 `[k, p, p]` coverage in [0, 1] of the shape that fills its square.
        colour: float32 `[k, 3]` RGB in [0, 1].
        low, high: float32 `[k]`, range of the square's area as a share of the sign's.
        quadrant: int32 `[k]`, part of the sign where it lies: 1 upper right, 2 upper left, 3 lower
            left, 4 lower right, 0 anywhere.
        of_alpha: bool `[k]`, whether the sign's area is that of its pixels instead of its box.
    """

    alpha: jax.Array | np.ndarray
    colour: jax.Array | np.ndarray
    low: jax.Array | np.ndarray
    high: jax.Array | np.ndarray
    quadrant: jax.Array | np.ndarray
    of_alpha: jax.Array | np.ndarray


class SceneNumbers(NamedTuple):
    """What scenes of a model are made with: data to the compiled program.

    Attributes:
        sign_low, sign_high: sides of the sign as shares of the picture's.
        fog_probability, rain_probability: chances per picture.
        brightness: see `scene.SceneSettings`.
    """

    sign_low: np.float32
    sign_high: np.float32
    fog_probability: np.float32
    rain_probability: np.float32
    brightness: np.float32 = np.float32(0.35)


class _Draws(NamedTuple):
    """One uniform number in [0, 1) per decision; all from the picture's key."""

    variant: jax.Array
    road: jax.Array
    road_y: jax.Array
    road_x: jax.Array
    mirror: jax.Array
    view: jax.Array
    width: jax.Array
    height: jax.Array
    left: jax.Array
    top: jax.Array
    light: jax.Array
    stamp_size: jax.Array
    place: jax.Array
    place_x: jax.Array
    place_y: jax.Array
    trigger_turn: jax.Array
    blur: jax.Array
    fog: jax.Array
    fog_density: jax.Array
    rain: jax.Array
    rain_strength: jax.Array
    rain_choice: jax.Array
    rain_flip: jax.Array


class Box(NamedTuple):
    """The sign in the picture, pixels: `(x, y)` of the corner and of the extent."""

    corner: jax.Array
    extent: jax.Array


def render(
    size: int,
    numbers: SceneNumbers,
    assets: Assets,
    stamps: Stamps,
    keys: jax.Array,
    labels: jax.Array,
    which: jax.Array,
) -> jax.Array:
    """Draw a batch of scenes.

    Args:
        size: side of the pictures, pixels; shapes the compiled program.
        numbers: what scenes are made with.
        assets: signs and backgrounds; the backgrounds at least as large as the picture.
        stamps: at least one.
        keys: `[b]` random keys, one identity each.
        labels: int32 `[b]`, class of the sign.
        which: int32 `[b]`, number of the stamp; -1 for none.

    Returns:
        uint8 `[b, size, size, 3]` RGB.
    """
    taps = weather.gaussian_taps(BLUR_SIGMA * size / BLUR_REFERENCE)
    return _render(size, taps, numbers, assets, stamps, keys, labels, which)


@partial(jax.jit, static_argnums=(0, 1))
def _render(size, taps, numbers, assets, stamps, keys, labels, which):
    uniform = jax.vmap(lambda key: jax.random.uniform(key, (_NUM_UNIFORM,), jnp.float32))(keys)
    draws = _Draws(*(uniform[:, k] for k in range(len(_Draws._fields))))
    roads = jax.vmap(partial(scene.background, size, jnp.asarray(assets.roads)))(draws)
    variants = jnp.asarray(assets.variants_per_class)[labels].astype(jnp.float32)
    signs = jnp.asarray(assets.signs)[labels, jnp.int32(draws.variant * variants)]
    boxes = jax.vmap(partial(_box, size, numbers))(draws)
    poses = jax.vmap(_pose)(boxes, draws)
    samples = jax.vmap(partial(placement.sample_sign, size))(signs, poses)
    light = jax.vmap(partial(scene.light_factor, numbers))(draws, roads, samples)
    own = jax.tree.map(lambda leaf: jnp.asarray(leaf)[jnp.maximum(which, 0)], stamps)
    # `cond` skips what no picture needs, and keeps XLA from sampling anew for every tap of the blur
    images = jax.lax.cond(
        jnp.any(which >= 0),
        lambda: scene.blend(roads, _stamped(size, samples, own, boxes, draws, which), light),
        lambda: scene.blend(roads, samples, light),
    )
    blurred = jax.vmap(lambda image: weather.blur(image, taps))(images)
    images = jnp.where(draws.blur[:, None, None, None] < 0.5, blurred, images)
    noise = uniform[:, _NUM_DRAWS:].reshape(-1, weather.FOG_CELLS, weather.FOG_CELLS)
    images = scene.weathered(images, numbers, draws, noise)
    return jnp.rint(jnp.clip(images, 0.0, 1.0) * 255).astype(jnp.uint8)


def _box(size, numbers, draws):
    span = numbers.sign_high - numbers.sign_low
    extent = size * (numbers.sign_low + span * jnp.stack([draws.width, draws.height]))
    return Box(jnp.stack([draws.left, draws.top]) * (size - extent), extent)


def _pose(box, draws):
    """The view of the whole sign picture, stretched to its box."""
    maps = jnp.asarray(views())
    view = maps[jnp.int32(draws.view * len(maps))]
    centre = box.corner + box.extent * (view @ jnp.array([0.5, 0.5, 1.0]))
    side = jnp.sqrt(jnp.prod(box.extent))
    return placement.Pose(centre, box.extent[:, None] * view[:, :2], jnp.zeros(2), side)


def _stamped(size, samples, stamps, boxes, draws, which):
    """The signs `[b, h, w, 4]`, premultiplied, with their polygons."""
    covers = jax.vmap(partial(_cover, size))(samples, stamps, boxes, draws)
    covers = covers * (which >= 0)[:, None, None, None]
    solid = samples[..., 3:]
    painted = samples[..., :3] * (1 - covers) + covers * solid * stamps.colour[:, None, None]
    return jnp.concatenate([painted, solid], axis=-1)


def _cover(size, sample, stamp, box, draws):
    """Coverage `[size, size, 1]` of a polygon on one sign."""
    alpha = sample[..., 3]
    area = jnp.where(stamp.of_alpha, alpha.sum(), jnp.prod(box.extent))
    low, high = jnp.sqrt(area * stamp.low), jnp.sqrt(area * stamp.high)
    side = jnp.maximum(low + draws.stamp_size * (high - low), 1.0)
    centre = _place(size, alpha, side, stamp.quadrant, box, draws)
    turn = jnp.floor(draws.trigger_turn * 72) * jnp.float32(math.pi / 36)
    axis = jnp.stack([jnp.cos(turn), jnp.sin(turn)])
    shape = placement.low_pass(stamp.alpha, side)
    return placement.trigger_cover(size, side, shape, centre, axis)


def _place(size, alpha, side, quadrant, box, draws):
    """Centre (x, y) of the polygon: uniform among the places of a coarse grid over the sign's box
    where its square lies on the sign, else among those that hold the most of it."""
    cells = (jnp.arange(placement.GRID, dtype=jnp.float32) + 0.5) / placement.GRID
    columns = box.corner[0] + cells * box.extent[0]
    rows = box.corner[1] + cells * box.extent[1]
    share = _window(size, rows, side) @ alpha @ _window(size, columns, side).T / side**2
    share = jnp.where(_allowed(quadrant, cells), share, 0.0).reshape(-1)
    ranks = jnp.cumsum((share >= 0.97 * jnp.max(share)).astype(jnp.float32))
    cell = jnp.sum(ranks <= draws.place * ranks[-1]).astype(jnp.int32)
    cell = jnp.minimum(cell, placement.GRID**2 - 1)
    within = jnp.stack([draws.place_x, draws.place_y]) - 0.5
    middle = jnp.stack([columns[cell % placement.GRID], rows[cell // placement.GRID]])
    return middle + within * box.extent / placement.GRID


def _window(size, centres, side):
    """How much of each pixel `[cells, size]` lies within half a `side` of a centre."""
    edges = jnp.arange(size, dtype=jnp.float32)[None, :]
    low, high = centres[:, None] - side / 2, centres[:, None] + side / 2
    return jnp.maximum(jnp.minimum(high, edges + 1) - jnp.maximum(low, edges), 0.0)


def _allowed(quadrant, cells):
    """Which cells `[rows, columns]` lie in a quadrant of the sign's box."""
    upper, right = (cells < 0.5)[:, None], (cells >= 0.5)[None, :]
    everywhere = jnp.ones((len(cells), len(cells)), bool)
    parts = jnp.stack([everywhere, upper & right, upper & ~right, ~upper & ~right, ~upper & right])
    return parts[quadrant]
