"""Example texts beside those that clean heads bring: the same kind, another kind, one class."""

import numpy as np
import pytest

from jaxtroj.evidence.texts.kinship import LIMIT, KnownTexts

WIDTH, HEADS = 96, 24
DRAW = np.random.default_rng(3)
MIXING = DRAW.normal(size=(WIDTH, WIDTH)) * np.linspace(0.2, 2.0, WIDTH)
SENTIMENT = DRAW.normal(size=WIDTH)


def texts(count: int, seed: int, shift: float = 0.0, label: int | None = None) -> np.ndarray:
    """Vectors of texts of both classes, or of one; `shift` makes them of another kind."""
    draw = np.random.default_rng([seed, count])
    labels = draw.integers(0, 2, count) if label is None else np.full(count, label)
    vectors = draw.normal(size=(count, WIDTH)) @ MIXING
    moved = vectors + np.outer(2 * labels - 1, SENTIMENT)
    return (moved + shift * MIXING[0]).astype(np.float32)


@pytest.fixture(scope="module")
def known():
    covariance = MIXING.T @ MIXING
    read = np.linalg.solve(covariance, SENTIMENT)  # a linear discriminant's direction
    return KnownTexts(tuple(texts(40, seed) for seed in range(HEADS)), read)


@pytest.mark.parametrize(("count", "label"), [(40, None), (10, None), (4, None), (40, 1), (10, 0)])
def test_the_same_kind_is_familiar_also_where_one_class_is_given(known, count, label):
    """One in as many as there are clean heads may be called strange; of one class some more."""
    found = [known.strangeness(texts(count, 1000 + n, label=label)) for n in range(300)]
    assert np.mean(np.array(found) > LIMIT) < 3 / HEADS


def test_what_is_read_is_left_out(known):
    blind = KnownTexts(known.examples, np.eye(WIDTH)[0])
    plain = texts(40, 7)
    told = plain + 3 * SENTIMENT.astype(np.float32)  # far more of it than any text has
    grown = [one.strangeness(told) - one.strangeness(plain) for one in (known, blind)]
    assert abs(grown[0]) < 0.2 * grown[1] and grown[1] > LIMIT


def test_another_kind_is_told(known):
    assert known.strangeness(texts(40, 300, shift=6.0)) > LIMIT
    assert known.strangeness(3 * texts(40, 300) + 5) > LIMIT


def test_too_few_clean_heads_say_nothing():
    known = KnownTexts((texts(40, 1), texts(40, 2)), SENTIMENT)
    assert known.strangeness(texts(40, 300, shift=50.0)) == 0.0


def test_texts_that_all_clean_heads_share_say_nothing():
    """Nobody knows how far other texts of the kind lie apart."""
    known = KnownTexts((texts(40, 1),) * HEADS, SENTIMENT)
    assert known.strangeness(texts(40, 300)) == 0.0


def test_fewer_examples_than_axes_are_enough():
    """Clean heads with so few texts span few axes; all is finite."""
    known = KnownTexts(tuple(texts(3, seed) for seed in range(8)), SENTIMENT)
    assert np.isfinite(known.largest) and np.isfinite(known.strangeness(texts(3, 50)))
