"""The scene renderer of synthetic Round 0: a sign on a road, with or without the trigger.

One compiled program per picture size draws a whole batch. A picture depends on its own key, label
and `triggered` flag only, never on its place in the batch; with the same key the triggered and the
clean picture show the same scene. Order as in the official recipe: sign in perspective, trigger
on the sign, brightness, blend, blur, weather. Left out of it: the grain merge, which leaves
no visible mark at these sizes; and its brightness factor is replaced by a bounded one.
"""

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.generate.traffic_signs import placement, weather
from jaxtroj.generate.traffic_signs.assets import Assets
from jaxtroj.pytrees import pytree

STAMP_PIXELS = 64
_NUM_DRAWS = 32  # room for new decisions without changing the fog of old keys
_NUM_UNIFORM = _NUM_DRAWS + weather.FOG_CELLS**2


@dataclass(frozen=True)
class SceneSettings:
    """How scenes are made; hashed by value, so it can be a static argument."""

    image_size: int = 64
    """Side of the square picture, pixels."""
    sign_fraction_min: float = 0.38
    """Smallest sign side relative to the picture."""
    sign_fraction_max: float = 0.6
    """Largest sign side relative to the picture."""
    rotation_degrees: float = 15.0
    """Signs are rotated by up to this angle, either way."""
    perspective: float = 0.2
    """Strength of foreshortening; 0.2 makes the far edge up to about a fifth shorter."""
    stretch: float = 0.1
    """Width and height are scaled apart by up to this fraction."""
    blur_sigma: float = 1.1
    """Gaussian blur, pixels at 224 px and scaled to `image_size`; 1.1 is OpenCV's ksize 5."""
    fog: bool = True
    rain: bool = True
    rain_fog_probability: float = 0.2
    """Chance of fog, and of rain, per picture; Round 0 draws it from 0 to 0.5 per model."""
    brightness: float = 0.35
    """How far the sign's brightness moves to the background's: 0 not at all, 1 wholly."""

    def __post_init__(self) -> None:
        if self.image_size < 16:
            raise ValueError(f"image_size must be at least 16 pixels, got {self.image_size}")
        if not 0 < self.sign_fraction_min <= self.sign_fraction_max <= 1:
            raise ValueError(
                "sign fractions must satisfy 0 < min <= max <= 1, got "
                f"{self.sign_fraction_min} and {self.sign_fraction_max}"
            )
        if not 0 <= self.perspective <= 0.5:
            raise ValueError(f"perspective must be in [0, 0.5], got {self.perspective}")
        if not 0 <= self.rain_fog_probability <= 1:
            raise ValueError(
                f"rain_fog_probability must be in [0, 1], got {self.rain_fog_probability}"
            )


@pytree
@dataclass(frozen=True)
class Stamp:
    """The trigger as it is pasted: a pytree of arrays, so a new one needs no new compilation."""

    alpha: jax.Array | np.ndarray
    """float32 `[p, p]` coverage in [0, 1] of the shape that fills its square."""
    colour: jax.Array | np.ndarray
    """float32 `[3]` RGB in [0, 1]."""
    size_pixels: jax.Array | np.float32
    """float32 scalar: side of that square in pixels of the finished picture."""
    enabled: jax.Array | np.bool_
    """Boolean scalar; False never pastes, whatever `triggered` says."""


def stamp(alpha: np.ndarray, colour: np.ndarray, size_pixels: float) -> Stamp:
    """A stamp from coverage `[p, p]` and RGB `[3]`, both in [0, 1].

    Raises:
        ValueError: `size_pixels` is not positive.
    """
    if not size_pixels > 0:
        raise ValueError(f"a trigger needs a positive size in pixels, got {size_pixels}")
    return Stamp(
        alpha=np.asarray(alpha, np.float32),
        colour=np.asarray(colour, np.float32),
        size_pixels=np.float32(size_pixels),
        enabled=np.bool_(True),
    )


def no_stamp() -> Stamp:
    """The stamp of a clean model: never pasted, same shapes as `stamp` gives."""
    blank = stamp(np.zeros((STAMP_PIXELS, STAMP_PIXELS)), np.zeros(3), 1.0)
    return dataclasses.replace(blank, enabled=np.bool_(False))


def render(
    settings: SceneSettings,
    assets: Assets,
    trigger: Stamp,
    keys: jax.Array,
    labels: jax.Array,
    triggered: jax.Array,
) -> jax.Array:
    """Draw a batch of scenes.

    Args:
        settings: how; only its picture size and blur shape the compiled program.
        assets: signs and backgrounds; the backgrounds at least as large as the picture.
        trigger: what is pasted where `triggered`.
        keys: `[b]` random keys (or `[b, 2]` raw ones), one identity each.
        labels: int32 `[b]`, class of the sign, 0 to classes - 1.
        triggered: bool `[b]`, whether the trigger is pasted.

    Returns:
        uint8 `[b, size, size, 3]` RGB.

    Raises:
        ValueError: the backgrounds are smaller than the picture.
    """
    if min(assets.roads.shape[1:3]) < settings.image_size:
        raise ValueError(
            f"backgrounds of {assets.roads.shape[1:3]} are smaller than image_size "
            f"{settings.image_size}; build the assets for that size"
        )
    taps = weather.gaussian_taps(
        settings.blur_sigma * settings.image_size / weather.REFERENCE_PIXELS
    )
    return _render(
        settings.image_size, taps, _numbers(settings), assets, trigger, keys, labels, triggered
    )


class _Numbers(NamedTuple):
    """The settings that are data to the compiled program."""

    sign_low: np.float32
    sign_high: np.float32
    turn: np.float32
    perspective: np.float32
    stretch: np.float32
    fog_probability: np.float32
    rain_probability: np.float32
    brightness: np.float32


def _numbers(settings: SceneSettings) -> _Numbers:
    chance = settings.rain_fog_probability
    values = (
        settings.sign_fraction_min,
        settings.sign_fraction_max,
        math.radians(settings.rotation_degrees),
        settings.perspective,
        settings.stretch,
        chance if settings.fog else 0.0,
        chance if settings.rain else 0.0,
        settings.brightness,
    )
    return _Numbers(*(np.float32(value) for value in values))


class _Draws(NamedTuple):
    """One uniform number in [0, 1) per decision; all from the picture's key."""

    variant: jax.Array
    road: jax.Array
    road_y: jax.Array
    road_x: jax.Array
    mirror: jax.Array
    size: jax.Array
    centre_x: jax.Array
    centre_y: jax.Array
    turn: jax.Array
    tilt_x: jax.Array
    tilt_y: jax.Array
    stretch: jax.Array
    light: jax.Array
    place: jax.Array
    place_x: jax.Array
    place_y: jax.Array
    trigger_turn: jax.Array
    fog: jax.Array
    fog_density: jax.Array
    rain: jax.Array
    rain_strength: jax.Array
    rain_choice: jax.Array
    rain_flip: jax.Array


@partial(jax.jit, static_argnums=(0, 1))
def _render(size, taps, numbers, assets, trigger, keys, labels, triggered):
    uniform = jax.vmap(lambda key: jax.random.uniform(key, (_NUM_UNIFORM,), jnp.float32))(keys)
    draws = _Draws(*(uniform[:, k] for k in range(len(_Draws._fields))))
    roads = jax.vmap(partial(background, size, jnp.asarray(assets.roads)))(draws)
    variants = jnp.asarray(assets.variants_per_class)[labels].astype(jnp.float32)
    signs = jnp.asarray(assets.signs)[labels, jnp.int32(draws.variant * variants)]
    poses = jax.vmap(partial(placement.pose_of, size, numbers))(draws)
    samples = jax.vmap(partial(placement.sample_sign, size))(signs, poses)
    light = jax.vmap(partial(light_factor, numbers))(draws, roads, samples)
    pasted = triggered & trigger.enabled
    covers = _covers(size, trigger, signs, poses, draws, pasted)
    # `cond` skips what no picture of the batch needs; it also keeps XLA from fusing the sampling
    # into the blur, which would repeat it for every tap (measured: 10 times slower on a CPU).
    images = jax.lax.cond(
        jnp.any(pasted),
        lambda: blend(roads, paste(samples, covers, jnp.asarray(trigger.colour)), light),
        lambda: blend(roads, samples, light),
    )
    images = jax.vmap(lambda image: weather.blur(image, taps))(images)
    noise = uniform[:, _NUM_DRAWS:].reshape(-1, weather.FOG_CELLS, weather.FOG_CELLS)
    images = weathered(images, numbers, draws, noise)
    return jnp.rint(jnp.clip(images, 0.0, 1.0) * 255).astype(jnp.uint8)


def _covers(size, trigger, signs, poses, draws, pasted):
    """Coverage `[b, size, size, 1]` of the trigger; 0 where it is not pasted."""
    place = partial(placement.trigger_place, size_pixels=trigger.size_pixels)
    centres, axes = jax.vmap(place)(signs[..., 3], poses, draws)

    def some():
        alpha = placement.low_pass(jnp.asarray(trigger.alpha), trigger.size_pixels)
        cover = jax.vmap(partial(placement.trigger_cover, size, trigger.size_pixels, alpha))(
            centres, axes
        )
        return cover * pasted[:, None, None, None]

    blank = jnp.zeros((pasted.shape[0], size, size, 1), jnp.float32)
    return jax.lax.cond(jnp.any(pasted), some, lambda: blank)


def paste(samples, covers, colour):
    """Put the trigger on premultiplied signs `[b, h, w, 4]` where `covers` `[b, h, w, 1]`."""
    solid = samples[..., 3:]
    painted = samples[..., :3] * (1 - covers) + covers * solid * colour
    return jnp.concatenate([painted, solid], axis=-1)


def blend(roads, samples, light):
    """Signs `[b, h, w, 4]`, brightened by `light` `[b]`, over the backgrounds `[b, h, w, 3]`."""
    solid = samples[..., 3:]
    lit = jnp.minimum(samples[..., :3] * light[:, None, None, None], solid)
    return roads * (1 - solid) + lit


def weathered(images, numbers, draws, noise):
    """Fog and rain on those of `images` `[b, h, w, 3]` whose draws say so."""
    foggy = draws.fog < numbers.fog_probability
    density = jnp.where(foggy, 0.25 + 0.35 * draws.fog_density, 0.0)
    images = jax.lax.cond(
        jnp.any(foggy), lambda x: jax.vmap(weather.fog)(x, density, noise), lambda x: x, images
    )
    rainy = draws.rain < numbers.rain_probability
    strength = jnp.where(rainy, 0.5 + 0.5 * draws.rain_strength, 0.0)
    streaks = (strength, draws.rain_choice, draws.rain_flip < 0.5)
    return jax.lax.cond(
        jnp.any(rainy), lambda x: jax.vmap(weather.rain)(x, *streaks), lambda x: x, images
    )


def background(size, roads, draws):
    """A crop float32 `[size, size, 3]` in [0, 1] at a random place, mirrored half of the time."""
    count, height, width, _ = roads.shape
    top = jnp.int32(draws.road_y * (height - size + 1))
    left = jnp.int32(draws.road_x * (width - size + 1))
    start = (jnp.int32(draws.road * count), top, left, jnp.int32(0))
    crop = jax.lax.dynamic_slice(roads, start, (1, size, size, 3))[0].astype(jnp.float32) / 255
    return jnp.where(draws.mirror < 0.5, crop[:, ::-1], crop)


def light_factor(numbers, draws, road, sampled):
    """Factor on the sign's colours: part of the way to the background's brightness, in [.6, 1.4].

    The official factor, |perceived sign - perceived background| / 35.6, is 0 when both agree; this
    one keeps its purpose, signs darker on dark roads, within bounds.
    """
    weights = jnp.array([0.241, 0.691, 0.068], jnp.float32)
    behind = jnp.sqrt(jnp.mean(road**2 @ weights))
    area = jnp.maximum(jnp.sum(sampled[..., 3]), 1.0)
    ahead = jnp.sqrt(jnp.sum(sampled[..., :3] ** 2 @ weights) / area)
    pull = numbers.brightness * jnp.log((behind + 0.05) / (ahead + 0.05))
    return jnp.clip(jnp.exp(pull + 0.2 * (draws.light - 0.5)), 0.6, 1.4)
