"""The penalised log loss minimised under sign constraints, which every fit comes down to."""

from collections.abc import Callable

import numpy as np

from jaxtroj.errors import CalibrationError
from jaxtroj.numerics import sigmoid, softplus

MOST_STEPS = 200
TOLERANCE = 1e-7  # of the gradient, in nats a unit of z
CLOSE = 1e-5  # the same where float64 lets L-BFGS-B come no nearer
MOST_SLOW_STEPS = 20_000
NEAR_BOUND = 1e-3  # coordinates this close to 0 that push outwards step apart from the others
JITTER = 1e-9  # keeps the curvature of the free intercept invertible

_Slope = Callable[[np.ndarray], np.ndarray]


def minimise(
    design: np.ndarray,
    poisoned: np.ndarray,
    ridge: np.ndarray,
    signs: np.ndarray,
    start: np.ndarray,
) -> np.ndarray:
    """Projected Newton on the penalised log loss; sign +1 keeps a coordinate >= 0, -1 <= 0.

    Far quicker here than L-BFGS-B (a nested fit solves thousands of problems of ten unknowns); the
    tests compare the two. Where many fields say the same, coordinates that are held at 0 step too
    little, so L-BFGS-B ends what has not converged in MOST_STEPS. Reference: Bertsekas, Projected
    Newton methods for optimization problems with simple constraints, SIAM J. Control and
    Optimization 20, 1982.

    Args:
        design: [n, unknowns], finite.
        poisoned: booleans [n].
        ridge: penalty of each unknown, >= 0.
        signs: constraint of each unknown, -1, 0 or +1.
        start: of the unknowns; it keeps the constraints.

    Raises:
        CalibrationError: L-BFGS-B did not converge, either.
    """
    label = poisoned.astype(np.float64)

    def loss(solution: np.ndarray) -> float:
        eta = design @ solution
        return float((softplus(eta) - label * eta).sum() + 0.5 * (ridge * solution**2).sum())

    def slope(solution: np.ndarray) -> np.ndarray:
        return design.T @ (sigmoid(design @ solution) - label) + ridge * solution

    solution, value = start, loss(start)
    for _ in range(MOST_STEPS):
        chance = sigmoid(design @ solution)
        gradient = design.T @ (chance - label) + ridge * solution
        residual = _residual(solution, gradient, signs)
        if residual < TOLERANCE:
            return solution
        near = np.abs(solution) <= min(NEAR_BOUND, residual)
        held = (signs != 0) & near & (gradient * signs > 0)
        part = design[:, ~held]
        curvature = (part.T * (chance * (1 - chance))) @ part + np.diag(ridge[~held] + JITTER)
        step = -gradient
        step[~held] = np.linalg.solve(curvature, step[~held])
        tried, found = _search(loss, solution, value, gradient, step, signs)
        if found >= value:  # no descent left in float64
            return solution
        solution, value = tried, found
    return _slowly(loss, slope, signs, solution)


def _slowly(
    loss: Callable[[np.ndarray], float], slope: _Slope, signs: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """L-BFGS-B from `start`. Raises CalibrationError where it does not converge."""
    from scipy.optimize import minimize

    bounds = [(0 if sign > 0 else None, 0 if sign < 0 else None) for sign in signs.tolist()]
    options = {"ftol": 0.0, "gtol": TOLERANCE, "maxiter": MOST_SLOW_STEPS}
    options["maxfun"] = 10 * MOST_SLOW_STEPS
    found = minimize(loss, start, jac=slope, method="L-BFGS-B", bounds=bounds, options=options).x
    residual = _residual(found, slope(found), signs)
    if residual < CLOSE:
        return found
    raise CalibrationError(
        f"the regression did not converge: its gradient is {residual:.2g} after {MOST_STEPS} Newton"
        f" steps and up to {MOST_SLOW_STEPS} of L-BFGS-B, expected below {CLOSE:g}; fit fewer"
        " stages, or leave out models whose evidence lies far from all others'"
    )


def _residual(solution: np.ndarray, gradient: np.ndarray, signs: np.ndarray) -> float:
    """Largest entry of the gradient that the constraints leave open."""
    return float(np.abs(solution - _projected(solution - gradient, signs)).max())


def _projected(solution: np.ndarray, signs: np.ndarray) -> np.ndarray:
    return np.where(solution * signs < 0, 0.0, solution)


def _search(loss, solution, value, gradient, step, signs) -> tuple[np.ndarray, float]:
    """Halves a step until the projected point is lower by Armijo's rule; the start if none is."""
    for halvings in range(40):
        moved = _projected(solution + step * 0.5**halvings, signs)
        found = loss(moved)
        if found <= value + 1e-4 * float(gradient @ (moved - solution)):
            return moved, found
    return solution, value
