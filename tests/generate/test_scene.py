"""The scene renderer."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.generate.traffic_signs import scene, weather
from jaxtroj.generate.traffic_signs.assets import procedural_assets
from jaxtroj.generate.traffic_signs.polygon import polygon_mask, random_colour, random_vertices
from jaxtroj.generate.traffic_signs.scene import SceneSettings, no_stamp, render, stamp

SIZE = 48
CLEAR = SceneSettings(image_size=SIZE, fog=False, rain=False)
BATCH = 16
NONE, ALL = np.zeros(BATCH, bool), np.ones(BATCH, bool)
LABELS = np.arange(BATCH, dtype=np.int32) % 5


@pytest.fixture(scope="module")
def assets():
    return procedural_assets(0, 5, image_size=SIZE, roads=6)


@pytest.fixture(scope="module")
def keys():
    return jax.vmap(lambda n: jax.random.fold_in(jax.random.key(4), n))(np.arange(BATCH))


def polygon_stamp(seed, size_pixels):
    """A polygon of a colour, by seed."""
    colour = np.array(random_colour(seed), np.float32) / np.float32(255)
    mask = polygon_mask(random_vertices(seed), scene.STAMP_PIXELS)
    return stamp(mask, colour, size_pixels)


def pictures(*arguments):
    return np.asarray(render(*arguments)).astype(np.int32)


def test_pictures_are_rgb_bytes_with_content(assets, keys):
    labels, none = jnp.asarray(LABELS), jnp.asarray(NONE)
    drawn = np.asarray(render(CLEAR, assets, no_stamp(), keys, labels, none))
    assert drawn.shape == (BATCH, SIZE, SIZE, 3) and drawn.dtype == np.uint8
    assert drawn.std(axis=(1, 2, 3)).min() > 8
    assert len({picture.tobytes() for picture in drawn}) == BATCH


def test_a_picture_depends_on_its_key_and_not_on_its_place(assets, keys):
    trigger, flags = polygon_stamp(1, 10.0), np.arange(BATCH) % 2 == 0
    once = pictures(CLEAR, assets, trigger, keys, LABELS, flags)
    np.testing.assert_array_equal(once, pictures(CLEAR, assets, trigger, keys, LABELS, flags))
    order = np.random.default_rng(0).permutation(BATCH)
    shuffled = pictures(CLEAR, assets, trigger, keys[order], LABELS[order], flags[order])
    np.testing.assert_array_equal(once[order], shuffled)


def test_company_in_the_batch_changes_nothing(assets, keys):
    settings = dataclasses.replace(CLEAR, fog=True, rain=True, rain_fog_probability=0.4)
    trigger = polygon_stamp(1, 10.0)
    mixed = pictures(settings, assets, trigger, keys, LABELS, np.arange(BATCH) % 2 == 0)
    clean = pictures(settings, assets, trigger, keys, LABELS, NONE)
    alone = pictures(settings, assets, trigger, keys[1:2], LABELS[1:2], NONE[:1])
    # different programs may round a value to the other side of .5
    assert np.abs(mixed[1::2] - clean[1::2]).max() <= 1
    assert np.abs(alone[0] - clean[1]).max() <= 1


def test_trigger_is_the_only_difference_and_lies_on_the_sign(assets, keys):
    trigger = polygon_stamp(2, 10.0)
    clean = pictures(CLEAR, assets, trigger, keys, LABELS, NONE)
    triggered = pictures(CLEAR, assets, trigger, keys, LABELS, ALL)
    blank = dataclasses.replace(assets, signs=np.zeros_like(assets.signs))
    on_sign = np.abs(clean - pictures(CLEAR, blank, trigger, keys, LABELS, NONE)).max(axis=-1) > 1
    changed = np.abs(triggered - clean).max(axis=-1) > 1
    assert changed.any(axis=(1, 2)).all()
    for changed_here, sign_here in zip(changed, on_sign, strict=True):
        rows, cols = np.nonzero(sign_here)
        sign_box = np.zeros_like(sign_here)
        sign_box[rows.min() : rows.max() + 1, cols.min() : cols.max() + 1] = True
        assert not (changed_here & ~sign_box).any()


@pytest.mark.parametrize("size_pixels", [6.0, 10.0, 13.5])
def test_trigger_covers_the_area_asked_for(assets, keys, size_pixels):
    # a full square of a colour far from all others, on signs that are wholly opaque and black
    solid = np.zeros_like(assets.signs)
    solid[..., 3] = 1
    square = scene.stamp(np.ones((64, 64)), np.array([1.0, 0.0, 1.0]), size_pixels)
    settings = dataclasses.replace(CLEAR, brightness=0.0, blur_sigma=0.0)
    black = dataclasses.replace(assets, signs=solid)
    clean = pictures(settings, black, square, keys, LABELS, NONE)
    change = pictures(settings, black, square, keys, LABELS, ALL) - clean
    full = change[..., 0].max(axis=(1, 2))  # brightness varies by picture
    area = change[..., 0].sum(axis=(1, 2)) / full
    np.testing.assert_allclose(area, size_pixels**2, rtol=0.12)


@pytest.mark.parametrize("relative", [18 / 224, 34 / 224, 55 / 224])
def test_most_of_the_polygon_lands_on_the_sign(assets, keys, relative):
    trigger = dataclasses.replace(polygon_stamp(4, relative * SIZE), colour=np.ones(3, np.float32))
    full = dataclasses.replace(assets, signs=assets.signs * np.array([0, 0, 0, 1], np.float32))
    settings = dataclasses.replace(CLEAR, brightness=0.0, blur_sigma=0.0)
    clean = pictures(settings, full, trigger, keys, LABELS, NONE)
    change = (pictures(settings, full, trigger, keys, LABELS, ALL) - clean)[..., 0]
    expected = np.mean(trigger.alpha) * (relative * SIZE) ** 2
    area = change.sum(axis=(1, 2)) / np.maximum(change.max(axis=(1, 2)), 1)
    assert np.median(area) > 0.8 * expected
    assert area.min() > 0.4 * expected


def test_disabled_stamp_is_never_pasted(assets, keys):
    trigger = dataclasses.replace(polygon_stamp(2, 12.0), enabled=np.bool_(False))
    clean = pictures(CLEAR, assets, trigger, keys, LABELS, NONE)
    np.testing.assert_array_equal(clean, pictures(CLEAR, assets, trigger, keys, LABELS, ALL))
    np.testing.assert_array_equal(clean, pictures(CLEAR, assets, no_stamp(), keys, LABELS, ALL))


@pytest.mark.parametrize("effect", ["fog", "rain"])
def test_weather_changes_pictures_as_often_as_asked(assets, keys, effect):
    clear = pictures(CLEAR, assets, no_stamp(), keys, LABELS, NONE)

    def share_changed(probability):
        weathered = {effect: True, "rain_fog_probability": probability}
        settings = dataclasses.replace(CLEAR, **weathered)
        drawn = pictures(settings, assets, no_stamp(), keys, LABELS, NONE)
        return np.mean(np.abs(drawn - clear).mean(axis=(1, 2, 3)) > 1)

    assert share_changed(0.0) == 0
    assert share_changed(1.0) == 1
    assert 0.1 < share_changed(0.5) < 0.9


def test_fog_whitens_and_rain_darkens_with_bright_streaks(assets, keys):
    def drawn(**changes):
        settings = dataclasses.replace(CLEAR, rain_fog_probability=1.0, **changes)
        return pictures(settings, assets, no_stamp(), keys, LABELS, NONE)

    clear, fog, rain = drawn(), drawn(fog=True), drawn(rain=True)
    assert fog.mean() > clear.mean() + 15 and fog.std() < clear.std()
    assert rain.mean() < clear.mean() - 3
    streaks = (rain - clear > 15).mean(axis=(1, 2, 3))
    assert streaks.min() > 0 and streaks.mean() > 0.003 and streaks.max() < 0.3


def test_blur_smooths(assets, keys):
    sharp, soft = (
        pictures(dataclasses.replace(CLEAR, blur_sigma=s), assets, no_stamp(), keys, LABELS, NONE)
        for s in (0.0, 6.0)
    )
    assert np.abs(np.diff(soft, axis=2)).mean() < 0.8 * np.abs(np.diff(sharp, axis=2)).mean()


def test_taps_sum_to_one_and_match_the_official_kernel_at_224():
    assert weather.gaussian_taps(0.0) == (1.0,)
    for sigma in (0.31, 0.7, 1.1, 2.0):
        taps = weather.gaussian_taps(sigma)
        assert len(taps) % 2 == 1
        assert sum(taps) == pytest.approx(1)
    assert len(weather.gaussian_taps(1.1)) == 5


def test_settings_are_values():
    assert hash(SceneSettings()) == hash(SceneSettings())
    assert SceneSettings() == SceneSettings() != SceneSettings(image_size=32)


@pytest.mark.parametrize(
    "wrong",
    [
        {"image_size": 8},
        {"sign_fraction_min": 0.7, "sign_fraction_max": 0.5},
        {"rain_fog_probability": 1.5},
        {"perspective": 2.0},
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        SceneSettings(**wrong)


def test_small_backgrounds_are_refused(assets, keys):
    large = SceneSettings(image_size=100)
    with pytest.raises(ValueError, match="smaller than image_size 100"):
        render(large, assets, no_stamp(), keys, jnp.asarray(LABELS), jnp.asarray(NONE))


def test_a_trigger_without_size_is_refused():
    with pytest.raises(ValueError, match="positive size"):
        polygon_stamp(0, 0.0)


def test_nothing_is_drawn_beyond_the_horizon_of_a_steep_sign(assets, keys):
    steep = dataclasses.replace(
        CLEAR, sign_fraction_min=0.2, sign_fraction_max=0.2, perspective=0.5, brightness=0.0
    )
    blank = dataclasses.replace(assets, signs=np.zeros_like(assets.signs))
    trigger = no_stamp()
    drawn = pictures(steep, assets, trigger, keys, LABELS, NONE)
    changed = np.abs(drawn - pictures(steep, blank, trigger, keys, LABELS, NONE)).max(axis=-1) > 1
    assert changed.any(axis=(1, 2)).all()
    assert changed.mean(axis=(1, 2)).max() < 0.15
