"""The sum over fields: a shape for each that rises with its value, all fitted at once."""

from dataclasses import replace

import numpy as np
import pytest

from jaxtroj.calibration.labelled import make_population, matrix
from jaxtroj.calibration.searches import summed
from jaxtroj.calibration.summing import fit_sum
from jaxtroj.calibration.tails import KNOTS, PIECES, Searched, fit_tail
from jaxtroj.evidence.stage import SUPPORT
from jaxtroj.numerics import sigmoid

from .conftest import a_tail
from .test_pooled import DIRECTIONS, NAMES, zoo


def test_a_sum_counts_from_the_clean_median_and_nothing_for_what_is_missing():
    tails = [a_tail("a"), a_tail("b", 2.0)]
    rows = np.array([[0.0, 0.0], [np.nan, np.nan], [1e300, 0.0], [-1e300, np.nan], [0.0, np.inf]])
    assert summed(tails, rows).tolist() == pytest.approx([0.0, 0.0, 3.5, -1.0, 7.0])


def test_a_shape_rises_where_its_rises_are_and_nowhere_else():
    """From z of 1 to 1.5 by 2, from 2.5 to 3 by 1; between them and beyond it is flat."""
    tail = a_tail("a")
    rises = np.zeros(PIECES)
    rises[KNOTS.index(1.0)], rises[KNOTS.index(2.5)] = 2.0, 1.0
    shaped = replace(tail, rises=tuple(rises.tolist()))
    values = tail.centre + tail.scale * np.sinh([-5.0, 0.0, 1.0, 1.25, 1.5, 2.5, 2.75, 3.0, 9.0])
    expected = [0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 2.5, 3.0, 3.0]
    assert shaped.lean(values).tolist() == pytest.approx(expected)


def test_a_field_that_never_varied_adds_nothing():
    constant = fit_tail(Searched("a", "", "s", "a", 1), np.ones(9), np.zeros(9, dtype=bool))
    assert constant.scale == 0 and not constant.passed(np.array([0.0, 1.0, np.nan])).any()


@pytest.mark.parametrize(
    "sign, other, expected",
    [(3.5, 3.5, 7.0), (3.5, 0.0, 0.0), (3.5, -1.0, -1.0), (-1.0, 3.5, 2.5), (-1.0, -1.0, -2.0)],
)
def test_signs_add_no_more_to_a_sum_than_all_others(sign, other, expected):
    far = {3.5: 1e300, -1.0: -1e300, 0.0: 0.0}
    row = np.array([[far[sign], far[other]]])
    assert summed([a_tail(SUPPORT), a_tail("a")], row)[0] == pytest.approx(expected)


def test_the_shapes_of_a_sum_are_those_of_an_independent_solver():
    from scipy.optimize import minimize

    population = make_population(zoo())
    values, poisoned = matrix(population.models.rows, NAMES), population.poisoned
    tails = [
        fit_tail(Searched(name, "", "s", name, DIRECTIONS[name]), column, poisoned)
        for name, column in zip(NAMES, values.T, strict=True)
    ]
    found = fit_sum(tails, values, poisoned, 10.0)
    passed = [tail.passed(values[:, i]) for i, tail in enumerate(tails)]
    design = np.concatenate(passed, axis=1)
    shares = np.repeat(np.isfinite(values).mean(axis=0), PIECES)

    def loss(solution):
        eta = solution[0] + design @ solution[1:]
        return (np.logaddexp(0, eta) - poisoned * eta).sum() + 5 * (
            shares * solution[1:] ** 2
        ).sum()

    bounds, start = [(None, None)] + [(0, None)] * len(shares), np.zeros(1 + len(shares))
    limits = {"maxfun": 10**6, "maxiter": 10**4}
    own = minimize(loss, start, bounds=bounds, method="L-BFGS-B", tol=1e-12, options=limits).x
    assert found.intercept == pytest.approx(own[0], abs=1e-4)
    rises = [rise for tail in found.tails for rise in tail.rises]
    assert rises == pytest.approx(own[1:].tolist(), abs=1e-3) and min(rises) >= 0


def test_the_penalty_of_a_field_is_relative_to_the_models_that_have_it():
    random = np.random.default_rng(0)
    poisoned = np.arange(80) % 2 == 1
    values = random.normal(size=(80, 1)) + poisoned[:, None]
    tails = [fit_tail(Searched("a", "", "s", "a", 1), values[:, 0], poisoned)]
    alone = fit_sum(tails, values, poisoned, 10.0)
    # The others move no intercept: they are poisoned as often as it says of them.
    more, labels = np.full((240, 1), np.nan), np.arange(240) < 240 * sigmoid(alone.intercept)
    everyone = np.concatenate([values, more]), np.concatenate([poisoned, labels])
    among = fit_sum(tails, *everyone, 40.0)
    assert among.tails[0].rises == pytest.approx(alone.tails[0].rises, rel=0.1, abs=1e-3)
    few = fit_sum(tails, more, labels, 30.0)
    assert few.tails[0].rises == pytest.approx([0.0] * (PIECES), abs=1e-6)
