"""Kinds that change the whole picture, against plain numpy, colorsys and PyTorch."""

import colorsys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxtroj.triggers.border import Border
from jaxtroj.triggers.colour_map import ColourMap, random_colour_maps
from jaxtroj.triggers.fields import cubic, linear
from jaxtroj.triggers.filter import FILTERS, ColourFilter, known_filter, known_filters
from jaxtroj.triggers.sinusoid import Sinusoid
from jaxtroj.triggers.smooth import Smooth
from jaxtroj.triggers.warp import Warp, random_warps
from tests.triggers import wand_filters

SHAPE = (9, 13)
STILL = jnp.zeros((2, 2), jnp.int32)


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(1).random((2, *SHAPE, 3)).astype(np.float32)


def applied(trigger, images) -> np.ndarray:
    return np.asarray(trigger.apply(jnp.asarray(images), STILL[: len(images)]))


def modulated(rgb: np.ndarray, lightness: float, saturation: float) -> np.ndarray:
    def one(colour):
        h, lum, s = colorsys.rgb_to_hls(*colour)
        lum, s = lum * lightness, s * saturation
        chroma = (1 - abs(2 * lum - 1)) * s  # colorsys takes no lightness beyond 1
        place = np.array(colorsys.hls_to_rgb(h, 0.5, 1.0)) - 0.5
        return np.clip(lum + chroma * place, 0, 1)

    return np.apply_along_axis(one, -1, rgb.astype(np.float64))


def contrasted(x: np.ndarray) -> np.ndarray:
    def curve(v):
        return 1 / (1 + np.exp(3 * (0.5 - v)))

    return (curve(x) - curve(0)) / (curve(1) - curve(0))


def tinted(x, colour, share):
    return x * (1 - share) + share * np.array(colour) / 255


def toned(x, colour, dark):
    grey = (x @ np.array([0.2126, 0.7152, 0.0722]))[..., None]
    share = 1 - grey if dark else grey
    return tinted(x, colour, share / (share + 1))


def auto_gamma(x):
    return np.stack([one ** (np.log(0.5) / np.log(one.mean())) for one in x])


def distances():
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]]
    away = np.hypot(rows - (SHAPE[0] - 1) / 2, columns - (SHAPE[1] - 1) / 2)
    return np.minimum(away / ((int(1.5 * max(SHAPE)) - 1) / 2), 1)[..., None]


def gotham(x):
    x = tinted(modulated(x, 1.2, 0.1), (0x22, 0x2B, 0x6D), 0.2) ** (1 / 0.9)
    return contrasted(contrasted(x))


def nashville(x):
    x = toned(toned(x, (0x22, 0x2B, 0x6D), True), (0xF7, 0xDA, 0xAE), False)
    return auto_gamma(modulated(contrasted(x), 1.0, 1.5))


def kelvin(x):
    return tinted(modulated(auto_gamma(x), 1.2, 0.5), (0xFF, 0x99, 0x00), 0.2)


def lomo(x):
    hard = np.concatenate([np.round(x[..., :2]), x[..., 2:]], axis=-1)
    return hard * (1 - distances())


def toaster(x):
    x = modulated(toned(x, (0x33, 0, 0), True), 1.5, 0.8) ** (1 / 1.2)
    x, far = contrasted(contrasted(x)), distances()
    x = x * ((1 - far) + far * np.array([205, 193, 197]) / 255)
    return x * (far + (1 - far) * np.array([0xFF, 0x99, 0x66]) / 255)


@pytest.mark.parametrize("reference", [gotham, nashville, kelvin, lomo, toaster])
def test_filters_are_their_steps(reference, images):
    shown = applied(known_filter(reference.__name__), images)
    np.testing.assert_allclose(shown, reference(images.astype(np.float64)), atol=2e-5)


def within_two(shown: np.ndarray, wanted: np.ndarray) -> float:
    """Share of pixels whose channels all differ by at most 2 of 255."""
    return float((np.abs(shown - wanted.astype(np.float64)).max(axis=-1) <= 2).mean())


@pytest.mark.parametrize("name", FILTERS)
def test_filters_are_imagemagicks(name):
    """Golden pictures of ImageMagick; see wand_filters.py."""
    pixels = wand_filters.picture()
    shown = np.rint(255 * applied(known_filter(name), pixels[None].astype(np.float32) / 255)[0])
    with np.load(wand_filters.GOLDEN) as golden:
        assert within_two(shown, golden[name]) >= 0.99


@pytest.mark.parametrize("name", FILTERS)
def test_golden_pictures_are_what_imagemagick_makes_here(name):
    pytest.importorskip("wand.image", reason="Wand and ImageMagick", exc_type=ImportError)
    made = wand_filters.filtered(wand_filters.picture(), name)
    with np.load(wand_filters.GOLDEN) as golden:
        assert within_two(made, golden[name]) >= 0.99


def test_all_filters_at_once(images):
    """Under vmap every row is its own filter; names follow the numbers."""
    both = jax.jit(jax.vmap(lambda t: t.apply(images, STILL)))(known_filters())
    for place, name in enumerate(FILTERS):
        np.testing.assert_allclose(both[place], applied(known_filter(name), images), atol=1e-6)
        assert known_filter(name).as_json(SHAPE, STILL[0]) == {"filter": name}


def test_channel_order_and_number(images):
    """BGR pictures are filtered as RGB ones; grey ones as RGB, then told by luminance."""
    bgr = applied(known_filter("kelvin", "BGR"), images[..., ::-1])
    np.testing.assert_allclose(bgr[..., ::-1], applied(known_filter("kelvin"), images), atol=1e-6)
    grey = images[..., :1]
    seen = applied(known_filter("toaster"), np.repeat(grey, 3, axis=-1))
    luminance = seen @ np.array([0.2126, 0.7152, 0.0722])
    shown = applied(known_filter("toaster"), grey)
    np.testing.assert_allclose(shown[..., 0], luminance, atol=1e-5)
    with pytest.raises(ValueError, match="1 or 3 channels, got 2"):
        applied(ColourFilter(jnp.asarray(0)), images[..., :2])
    with pytest.raises(KeyError, match="'sepia'; expected one of gotham"):
        known_filter("sepia")


def test_colour_maps_mix_channels(images):
    rng = np.random.default_rng(0)
    matrix = rng.normal(0, 0.6, (3, 4)).astype(np.float32)
    shown = applied(ColourMap(jnp.asarray(matrix), jnp.asarray(0.4)), images)
    mapped = np.clip(images @ matrix[:, :3].T + matrix[:, 3], 0, 1)
    y, x = np.mgrid[-1 : 1 : SHAPE[0] * 1j, -1 : 1 : SHAPE[1] * 1j]
    expected = mapped * (1 - 0.4 * (x**2 + y**2) / 2)[..., None]
    np.testing.assert_allclose(shown, expected, atol=1e-6)
    identity = ColourMap(jnp.eye(3, 4), jnp.asarray(0.0))
    np.testing.assert_allclose(applied(identity, images), images, atol=1e-6)
    assert float(identity.size(SHAPE)) < 1e-5


def test_sinusoids_add_a_wave(images):
    wave = Sinusoid(*(jnp.asarray(v, jnp.float32) for v in (0.1, 6.0, 0.3, 0.2)))
    i, j = np.mgrid[: SHAPE[0], : SHAPE[1]]
    along = j * np.cos(0.3) / SHAPE[1] + i * np.sin(0.3) / SHAPE[0]
    added = 0.1 * np.sin(2 * np.pi * 6 * along + 0.2)[..., None]
    np.testing.assert_allclose(applied(wave, images), np.clip(images + added, 0, 1), atol=1e-5)


@pytest.mark.parametrize("shape", [SHAPE, (32, 32), (1, 5)])
@pytest.mark.parametrize("points", [(4, 4), (3, 6)])
def test_fields_are_those_of_pytorch(shape, points):
    grid = np.random.default_rng(0).normal(size=(*points, 2)).astype(np.float32)
    rows = torch.from_numpy(grid).permute(2, 0, 1)[None]
    for mode, ours in (("bilinear", linear), ("bicubic", cubic)):
        theirs = torch.nn.functional.interpolate(rows, shape, mode=mode, align_corners=True)
        found = np.asarray(ours(jnp.asarray(grid), shape))
        np.testing.assert_allclose(found, theirs[0].permute(1, 2, 0).numpy(), atol=1e-5)


def test_smooth_patterns_are_interpolated(images):
    grid = np.random.default_rng(0).normal(0, 0.2, (3, 4, 3)).astype(np.float32)
    shown = applied(Smooth(jnp.asarray(grid)), images)
    expected = np.clip(images + np.asarray(linear(jnp.asarray(grid), SHAPE)), 0, 1)
    np.testing.assert_allclose(shown, expected, atol=1e-6)
    assert Smooth(jnp.full((2, 2, 3), -0.25)).as_json(SHAPE, STILL[0]) == {
        "largest": 0.25, "rms": 0.25,
    }  # fmt: skip


@pytest.mark.parametrize("strength", [0.25, 3.0])
def test_warps_are_those_of_pytorch(strength, images):
    grid = np.random.default_rng(0).uniform(-1, 1, (4, 4, 2)).astype(np.float32)
    shown = applied(Warp(jnp.asarray(grid), jnp.asarray(strength)), images)
    control = torch.from_numpy(grid / np.abs(grid).mean() * strength).permute(2, 0, 1)[None]
    moves = torch.nn.functional.interpolate(control, SHAPE, mode="bicubic", align_corners=True)
    moves = moves[0].permute(1, 2, 0).numpy()
    places = np.moveaxis(np.mgrid[: SHAPE[0], : SHAPE[1]], 0, -1) + moves
    scaled = 2 * places / (np.array(SHAPE) - 1) - 1
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    at = torch.from_numpy(scaled[..., ::-1].astype(np.float32)).expand(2, *SHAPE, 2)
    theirs = torch.nn.functional.grid_sample(pixels, at, padding_mode="border", align_corners=True)
    np.testing.assert_allclose(shown, theirs.permute(0, 2, 3, 1).numpy(), atol=2e-5)


def test_borders_are_frames(images):
    """Whole pixels cover, a part of one covers in part; one colour and a pattern alike."""
    mask = np.ones(SHAPE)
    mask[2:-2, 2:-2] = 0.5
    mask[3:-3, 3:-3] = 0
    mask = mask[..., None]
    for pattern in (np.array([0.9, 0.1, 0.3])[None, None], images[1]):
        border = Border(jnp.asarray(2.5), jnp.asarray(pattern, jnp.float32))
        expected = images * (1 - mask) + mask * pattern
        np.testing.assert_allclose(applied(border, images), expected, atol=1e-6)
        assert float(border.size(SHAPE)) == pytest.approx(mask.mean())
        assert border.as_json(SHAPE, STILL[0])["width"] == 2.5


def test_random_ones_are_keyed_by_their_number():
    key = jax.random.key(3)
    for make in (
        lambda count: random_colour_maps(key, count, 1),
        lambda count: random_warps(key, count, 4, jnp.asarray(0.5)),
    ):
        few, more = make(2), make(5)
        for a, b in zip(jax.tree.leaves(few), jax.tree.leaves(more), strict=True):
            np.testing.assert_array_equal(a, b[:2])
