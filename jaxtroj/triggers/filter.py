"""Colour filters: the five of TrojAI's rounds 2 to 4, which photo sharing made known.

Each is a chain of steps on the whole picture, RGB in [0, 1]:

    modulate     lightness and saturation of the HSL colour times a factor
    tint         x -> (1 - a) x + a colour
    tone         a blend with the colour, opaque by m, the pixel's grey or its dark:
                 x -> ((1 - a) x + a m colour) / (1 - a + a m)
    gamma        x -> x^(1/g);  auto gamma: the g that takes the picture's mean to one half
    contrast     a sigmoid of slope 3 about one half, stretched to keep 0 and 1
    threshold    0 below one half and 1 above: levels whose black and white point coincide
    vignette     times a colour that fades in or out with the distance from the centre

The order of the steps and their numbers are those of the rounds' generator, which runs them in
ImageMagick. Pictures agree with those of ImageMagick 6.9 to one level of 255 (a test holds golden
ones); transparent colours under a product leave the picture as it is.

Reference:
  Karra et al., The TrojAI Software Framework, https://arxiv.org/abs/2003.07233, 2020.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.pytrees import pytree
from jaxtroj.triggers.change import CHANGE, change_of
from jaxtroj.triggers.trigger import Offset, Shape, difference_panels

_GREY = (0.2126, 0.7152, 0.0722)
_LEAST = 1e-6  # where powers and ratios would have no gradient
_REACH = 1.5  # the vignette's gradient is so much larger than the picture
_NIGHT, _SAND, _ORANGE = (34, 43, 109), (247, 218, 174), (255, 153, 0)
_MAROON, _BLUSH, _PEACH = (51, 0, 0), (205, 193, 197), (255, 153, 102)


@pytree
@dataclass(frozen=True)
class ColourFilter:
    """A known filter; `number [...]` int is its place in `FILTERS`.

    A picture of one channel is filtered as grey RGB, and what comes out is its luminance; other
    numbers of channels than 1 and 3 are refused. `order` is that of the channels, "RGB" or "BGR".
    """

    number: jax.Array
    order: str = field(default="RGB", metadata={"static": True})

    kind: ClassVar[str] = "filter"
    unit: ClassVar[str] = CHANGE

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """See `Trigger.apply`; it lies everywhere, whatever the offsets.

        Raises:
          ValueError: the pictures have neither 1 nor 3 channels.
        """
        channels = images.shape[-1]
        if channels not in (1, 3):
            raise ValueError(f"colour filters take pictures of 1 or 3 channels, got {channels}")
        rgb = jnp.broadcast_to(images, (*images.shape[:-1], 3))
        rgb = rgb[..., ::-1] if self.order == "BGR" else rgb
        shown = jax.lax.switch(self.number, tuple(FILTERS.values()), rgb)
        if channels == 1:
            return _grey(shown)
        return shown[..., ::-1] if self.order == "BGR" else shown

    def size(self, shape: Shape) -> jax.Array:
        """See `change_of`."""
        return change_of(self, shape, 3)

    def picture(self, clean: np.ndarray, offset: Offset) -> tuple[np.ndarray, ...]:
        """Clean, triggered, difference."""
        return difference_panels(self, clean, offset)

    def as_json(self, shape: Shape, offset: Offset) -> dict[str, Any]:
        """The filter's name."""
        return {"filter": tuple(FILTERS)[int(self.number)]}


def known_filters(order: str = "RGB") -> ColourFilter:
    """All of `FILTERS`, along one leading axis."""
    return ColourFilter(jnp.arange(len(FILTERS), dtype=jnp.int32), order)


def known_filter(name: str, order: str = "RGB") -> ColourFilter:
    """One of `FILTERS` by its name.

    Raises:
      KeyError: no filter has this name.
    """
    if name not in FILTERS:
        raise KeyError(f"no filter is named {name!r}; expected one of {', '.join(FILTERS)}")
    return ColourFilter(jnp.asarray(tuple(FILTERS).index(name), jnp.int32), order)


def distances(shape: Shape) -> jax.Array:
    """How far each pixel is from the picture's centre `[h, w, 1]`: 1 at the edge of a circle whose
    diameter is 1.5 times the longer side, and beyond."""
    rows, columns = (np.arange(size) - (size - 1) / 2 for size in shape)
    radius = (int(_REACH * max(shape)) - 1) / 2  # ImageMagick's, from first to last pixel
    return jnp.asarray(np.minimum(np.hypot(rows[:, None], columns) / radius, 1.0)[..., None])


def _modulate(x: jax.Array, lightness: float, saturation: float) -> jax.Array:
    """HSL with the hue kept: colours keep their direction from grey, so no hue is computed."""
    top, low = x.max(axis=-1, keepdims=True), x.min(axis=-1, keepdims=True)
    old = (top + low) / 2
    new = lightness * old
    # The largest chroma at a lightness; the share of it that a colour has is its saturation.
    room_old, room_new = (1 - jnp.abs(2 * level - 1) for level in (old, new))
    ratio = saturation * room_new / jnp.maximum(room_old, _LEAST)
    return jnp.clip(new + (x - old) * ratio, 0.0, 1.0)


def _tint(x: jax.Array, colour: tuple[int, int, int], share) -> jax.Array:
    return x + share * (_rgb(colour, x) - x)


def _tone(x: jax.Array, colour: tuple[int, int, int], share: float, dark: bool) -> jax.Array:
    grey = _grey(x)
    weight = share * (1 - grey if dark else grey)
    return _tint(x, colour, weight / (weight + 1 - share))


def _gamma(x: jax.Array, gamma) -> jax.Array:
    return jnp.maximum(x, _LEAST) ** (1 / gamma)


def _auto_gamma(x: jax.Array) -> jax.Array:
    mean = jnp.clip(x.mean(axis=(-3, -2, -1), keepdims=True), 0.01, 0.99)
    return _gamma(x, jnp.log(mean) / np.log(0.5))


def _contrast(x: jax.Array) -> jax.Array:
    low, high = (1 / (1 + np.exp(3 * (0.5 - end))) for end in (0.0, 1.0))
    return jnp.clip((jax.nn.sigmoid(3 * (x - 0.5)) - low) / (high - low), 0.0, 1.0)


def _threshold(x: jax.Array, channel: int) -> jax.Array:
    return x.at[..., channel].set((x[..., channel] > 0.5).astype(x.dtype))


def _vignette(x: jax.Array, colour: tuple[int, int, int], outward: bool) -> jax.Array:
    """Times a colour that is transparent at the centre, or `outward` at the edge."""
    far = distances((x.shape[-3], x.shape[-2])).astype(x.dtype)
    return x * (1 - (1 - far if outward else far) * (1 - _rgb(colour, x)))


def _rgb(colour: tuple[int, int, int], like: jax.Array) -> jax.Array:
    return jnp.asarray(colour, like.dtype) / 255


def _grey(x: jax.Array) -> jax.Array:
    return (x * jnp.asarray(_GREY, x.dtype)).sum(axis=-1, keepdims=True)


def _gotham(x: jax.Array) -> jax.Array:
    x = _tint(_modulate(x, 1.2, 0.1), _NIGHT, 0.2)
    return _contrast(_contrast(_gamma(x, 0.9)))


def _nashville(x: jax.Array) -> jax.Array:
    x = _tone(_tone(x, _NIGHT, 0.5, dark=True), _SAND, 0.5, dark=False)
    return _auto_gamma(_modulate(_contrast(x), 1.0, 1.5))


def _kelvin(x: jax.Array) -> jax.Array:
    return _tint(_modulate(_auto_gamma(x), 1.2, 0.5), _ORANGE, 0.2)


def _lomo(x: jax.Array) -> jax.Array:
    return _vignette(_threshold(_threshold(x, 0), 1), (0, 0, 0), outward=False)


def _toaster(x: jax.Array) -> jax.Array:
    x = _modulate(_tone(x, _MAROON, 0.5, dark=True), 1.5, 0.8)
    x = _contrast(_contrast(_gamma(x, 1.2)))
    return _vignette(_vignette(x, _BLUSH, outward=False), _PEACH, outward=True)


FILTERS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gotham": _gotham,
    "nashville": _nashville,
    "kelvin": _kelvin,
    "lomo": _lomo,
    "toaster": _toaster,
}
"""Name -> `[n, h, w, 3]` to the same; the order is that of `ColourFilter.number`."""
