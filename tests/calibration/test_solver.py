"""Regressions that projected Newton does not end in time are ended by L-BFGS-B."""

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from jaxtroj.calibration import solver
from jaxtroj.errors import CalibrationError
from jaxtroj.numerics import sigmoid


def problem_of_networks():
    """Design, labels, penalties and signs of 38 networks in a folder that mixed populations.

    In the file: signs, penalties, then a label and a row of the design a line. Many of the 26
    fields say the same, and all but one may only rise.
    """
    table = np.loadtxt(Path(__file__).parent / "slow_regression.csv", delimiter=",")
    return table[2:, 1:], table[2:, 0] == 1, table[1, 1:], table[0, 1:].astype(int)


def random_problem(trial):
    random = np.random.default_rng(trial)
    models, width = int(random.integers(10, 60)), int(random.integers(2, 20))
    design = random.normal(size=(models, width)) @ random.normal(size=(width, width))
    label = np.arange(models) % 2 == 0
    ridge = np.r_[0.0, np.full(width, 10.0 ** random.integers(-1, 3))]
    return np.c_[np.ones(models), design], label, ridge, np.r_[0, random.integers(-1, 2, width)]


def loss_and_slope(design, label, ridge, solution):
    eta = design @ solution
    loss = np.logaddexp(0, eta).sum() - eta[label].sum() + 0.5 * (ridge * solution**2).sum()
    return loss, design.T @ (sigmoid(eta) - label) + ridge * solution


def optimum(problem):
    """What scipy finds at its tightest."""
    design, label, ridge, signs = problem
    bounds = [{0: (None, None), 1: (0, None), -1: (None, 0)}[sign] for sign in signs.tolist()]
    options = {"ftol": 1e-16, "gtol": 1e-9, "maxiter": 20_000}
    return minimize(
        lambda x: loss_and_slope(design, label, ridge, x),
        np.zeros(len(ridge)),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options=options,
    )


def check_minimised(problem):
    design, label, ridge, signs = problem
    found = solver.minimise(design, label, ridge, signs, np.zeros(len(ridge)))
    assert np.all(found * signs >= 0)
    best = optimum(problem)
    assert loss_and_slope(design, label, ridge, found)[0] <= best.fun * (1 + 1e-8)
    np.testing.assert_allclose(found, best.x, atol=1e-4)


@pytest.fixture
def handed_over(monkeypatch):
    """Counts the problems that L-BFGS-B ended."""
    ended, slowly = [], solver._slowly
    monkeypatch.setattr(solver, "_slowly", lambda *given: ended.append(1) or slowly(*given))
    return ended


def test_fields_that_say_the_same_are_fitted(handed_over):
    check_minimised(problem_of_networks())
    assert handed_over == [1]


@pytest.mark.parametrize("trial", range(12))
def test_what_newton_leaves_undone_is_ended(monkeypatch, handed_over, trial):
    monkeypatch.setattr(solver, "MOST_STEPS", 1)
    check_minimised(random_problem(trial))
    assert handed_over == [1]


@pytest.mark.parametrize("trial", range(12))
def test_what_newton_ends_is_left_to_it(handed_over, trial):
    check_minimised(random_problem(trial))
    assert handed_over == []


def test_what_does_not_converge_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(solver, "MOST_SLOW_STEPS", 1)
    design, label, ridge, signs = problem_of_networks()
    with pytest.raises(CalibrationError, match="did not converge: its gradient is .* fit fewer"):
        solver.minimise(design, label, ridge, signs, np.zeros(len(ridge)))
