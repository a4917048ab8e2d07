"""Changes of light, colour and sharpness, number by number."""

import numpy as np
import pytest

from jaxtroj.evidence.images.look import Look

GREY, COLOUR = (np.random.default_rng(3).uniform(0.2, 0.6, (2, 9, 9, c)) for c in (1, 3))


@pytest.mark.parametrize("images", [GREY, COLOUR], ids=["grey", "colour"])
def test_no_number_changes_nothing(images):
    np.testing.assert_allclose(Look().of(images), images, atol=1e-6)
    assert Look().of(images).dtype == np.float32


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (Look(light=0.3), COLOUR * np.exp(0.3)),
        (Look(gamma=0.5), COLOUR ** np.exp(0.5)),
        (Look(black=0.1), (COLOUR - 0.1) / 0.9),
        (Look(red=0.2, blue=-0.1), COLOUR * np.exp([0.2, 0.0, -0.1])),
        (Look(gamma=0.5, light=0.3), COLOUR ** np.exp(0.5) * np.exp(0.3)),
    ],
    ids=str,
)
def test_each_number_does_what_it_says(look, expected):
    np.testing.assert_allclose(look.of(COLOUR), np.clip(expected, 0, 1), atol=1e-6)


def test_contrast_keeps_the_mean_of_a_picture_and_sharpness_its_level():
    flat = Look(contrast=-0.5).of(COLOUR)
    np.testing.assert_allclose(flat.mean(axis=(1, 2, 3)), COLOUR.mean(axis=(1, 2, 3)), atol=1e-6)
    assert flat.std() == pytest.approx(np.exp(-0.5) * COLOUR.std(), rel=0.05)
    level = np.full((1, 9, 9, 3), 0.4)
    np.testing.assert_allclose(Look(sharpness=1.0).of(level), level, atol=1e-6)
    assert Look(sharpness=-1.0).of(COLOUR).std() < 0.7 * COLOUR.std()


def test_size_is_about_the_middle_and_edges_go_on_outwards():
    ramp = np.tile(np.linspace(0, 1, 9)[None, :, None, None], (1, 1, 9, 1))
    np.testing.assert_allclose(
        Look(size=np.log(2)).of(ramp)[0, :, 0, 0], np.linspace(0.25, 0.75, 9), atol=1e-6
    )
    small = Look(size=-np.log(2)).of(ramp)[0, :, 0, 0]
    np.testing.assert_allclose(small, [0, 0, 0, 0.25, 0.5, 0.75, 1, 1, 1], atol=1e-6)
    np.testing.assert_allclose(Look(size=0.2).of(ramp.swapaxes(1, 2))[0, 0, :, 0],
                               Look(size=0.2).of(ramp)[0, :, 0, 0], atol=1e-6)  # fmt: skip


def test_pictures_of_one_channel_have_no_colours():
    np.testing.assert_array_equal(Look(red=0.5, blue=0.5).of(GREY), Look().of(GREY))


def test_values_stay_between_black_and_white():
    wild = Look(0.3, 2.0, 1.0, -1.0, -0.3, 1.0, 0.5, 0.5).of(
        np.random.default_rng(4).random((2, 9, 9, 3))
    )
    assert np.isfinite(wild).all() and wild.min() >= 0 and wild.max() <= 1


def test_a_look_names_what_it_changes_alone():
    assert str(Look(sharpness=-0.5, contrast=np.log(0.9), light=np.log(1.25))) == (
        "sharpness -0.5, 0.90 times the contrast, 1.25 times as light"
    )
    assert str(Look(gamma=np.log(0.67), black=0.1, red=np.log(1.1), blue=np.log(0.9))) == (
        "gamma 0.67, black from 0.10, red 1.10 times, blue 0.90 times"
    )
