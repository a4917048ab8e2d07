"""Polygon triggers."""

import numpy as np
import pytest

from jaxtroj.generate.traffic_signs import polygon


@pytest.mark.parametrize("seed", range(12))
def test_vertices_fill_their_square_in_order_of_angle(seed):
    vertices = polygon.random_vertices(seed)
    assert 3 <= len(vertices) <= 12
    assert vertices.dtype == np.float32
    np.testing.assert_allclose(vertices.min(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(vertices.max(axis=0), 1, atol=1e-6)
    assert polygon.polygon_area(vertices) >= polygon.MIN_AREA


def test_equal_seeds_give_equal_triggers_and_others_differ():
    first, again = polygon.random_vertices(7), polygon.random_vertices(7)
    np.testing.assert_array_equal(first, again)
    assert polygon.random_colour(7) == polygon.random_colour(7)
    assert len({polygon.random_colour(seed) for seed in range(20)}) == 20
    assert {len(polygon.random_vertices(seed)) for seed in range(80)} == set(range(3, 13))


@pytest.mark.parametrize("pixels", [16, 64, 200])
def test_mask_covers_the_area_of_the_polygon(pixels):
    vertices = polygon.random_vertices(3)
    mask = polygon.polygon_mask(vertices, pixels)
    assert mask.shape == (pixels, pixels) and mask.dtype == np.float32
    assert 0 <= mask.min() and mask.max() == 1
    assert mask.mean() == pytest.approx(polygon.polygon_area(vertices), abs=0.02)


def test_mask_edge_is_anti_aliased():
    mask = polygon.polygon_mask(np.array([[0, 0], [1, 0], [0, 1]], np.float32), 32)
    assert np.any((mask > 0.1) & (mask < 0.9))


@pytest.mark.parametrize("sides", [2, 13])
def test_other_numbers_of_sides_are_refused(sides):
    with pytest.raises(ValueError, match="3 to 12"):
        polygon.random_vertices(0, sides)


def test_empty_mask_is_refused():
    with pytest.raises(ValueError, match="at least 1 pixel"):
        polygon.polygon_mask(polygon.random_vertices(0), 0)
