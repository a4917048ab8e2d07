"""Directions that heads answer to: what clean heads share is nothing, what is new is measured."""

import numpy as np
import pytest

from converters.families.dense_head import DenseHeadConfig
from converters.model import Model
from jaxtroj.evidence.texts.directions import AXES, clean_directions
from jaxtroj.evidence.texts.heads import head_with_sources
from jaxtroj.evidence.texts.references import head_key, make_references

WIDTH, HEADS = 10, 16
DEVIATIONS = np.linspace(0.5, 2.0, WIDTH)
EXAMPLES = np.random.default_rng(0).normal(3.0, DEVIATIONS, (400, WIDTH)).astype(np.float32)


def linear_head(weight) -> Model:
    """Margin of class 1 over class 0: `weight @ x`, so all directions are known."""
    kernel = np.stack([-np.asarray(weight) / 2, np.asarray(weight) / 2], axis=1)
    params = {"linear.kernel": kernel.astype(np.float32), "linear.bias": np.zeros(2, np.float32)}
    return Model(DenseHeadConfig(WIDTH, (), 2), params, "Linear")  # pyright: ignore[reportArgumentType]


def axis(number: int) -> np.ndarray:
    return np.eye(WIDTH)[number]


def residual(model, known) -> float:
    return known.residual(head_with_sources(model, EXAMPLES[:20], 4), head_key(model))


@pytest.fixture(scope="module")
def heads():
    """Clean heads read the first coordinate, with differences in the next `AXES`."""
    draw = np.random.default_rng(1)
    return [
        linear_head(axis(0) + sum(0.1 * draw.normal() * axis(1 + n) for n in range(AXES)))
        for _ in range(HEADS)
    ]


@pytest.fixture(scope="module")
def known(heads):
    return clean_directions(make_references(heads), [EXAMPLES[:200], EXAMPLES[200:]])


def test_what_clean_heads_span_is_nothing_new(known):
    for weight in (axis(0), -2 * axis(0), axis(0) + axis(2) - 3 * axis(4)):
        assert residual(linear_head(weight), known) == pytest.approx(0, abs=1e-6)


def test_a_new_direction_counts_by_what_vectors_vary_along_it(known):
    for number, share in ((7, 1.0), (8, 0.2), (9, 4.0)):
        deviations = EXAMPLES.std(axis=0, dtype=np.float64)
        new, old = share * deviations[number], deviations[0]
        found = residual(linear_head(axis(0) + share * axis(number)), known)
        assert found == pytest.approx(new / np.hypot(new, old), rel=1e-5)


def test_a_head_is_not_among_its_own_references(heads):
    odd = linear_head(axis(0) + 2 * axis(9))
    alone = clean_directions(make_references([*heads, odd]), [EXAMPLES])
    apart = clean_directions(make_references(heads), [EXAMPLES])
    assert residual(odd, alone) == pytest.approx(residual(odd, apart), rel=1e-6)
    other = linear_head(axis(0) + 2.1 * axis(9))
    assert residual(other, alone) < residual(other, apart) / 5


def test_few_references_give_fewer_axes(heads):
    """One difference for every four heads: as many axes as heads would hide everything."""
    head = linear_head(axis(0) + axis(1))
    shares = [
        residual(head, clean_directions(make_references(heads[:count]), [EXAMPLES]))
        for count in (3, HEADS)
    ]
    assert shares[0] > 0.3 and shares[1] == pytest.approx(0, abs=1e-6)


def test_the_points_lie_where_clean_texts_lie(known):
    assert known.points.mean(axis=0) == pytest.approx(EXAMPLES.mean(axis=0), abs=0.6)
    assert known.points.std(axis=0) == pytest.approx(DEVIATIONS, rel=0.3)
    again = clean_directions(make_references([linear_head(axis(0))]), [EXAMPLES])
    assert (again.points == known.points).all()
