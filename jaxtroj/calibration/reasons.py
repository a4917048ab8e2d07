"""Why a linear model answers as it does, in sentences."""

import numpy as np

from jaxtroj.calibration.linear import FREE_DISTANCE, Linear
from jaxtroj.numerics import logit

LEAST_CONTRIBUTION = 0.05  # nats of log-odds below which a field is no reason


def pulls(linear: Linear, values: np.ndarray, architecture: str | None, most: int) -> list[str]:
    """The fields that pull hardest to the side of the answer, in words."""
    is_poisoned = linear.log_odds(values, [architecture])[0] > logit(linear.rate)
    other = [f.clean if is_poisoned else f.poisoned for f in linear.fields]
    pull = linear.contributions(values)[0] - linear.contributions(np.array([other]))[0]
    pull = pull if is_poisoned else -pull
    strongest = [i for i in np.argsort(-pull, kind="stable") if pull[i] >= LEAST_CONTRIBUTION]
    side = "poisoned" if is_poisoned else "clean"
    return [
        f"{linear.fields[i].label} speaks for {side}: {values[0, i]:.3g} (median of clean models "
        f"{linear.fields[i].clean:.3g}, of poisoned models {linear.fields[i].poisoned:.3g})"
        for i in strongest[:most]
    ]


def outside(linear: Linear, values: np.ndarray) -> list[str]:
    distances = linear.distances(values)[0]
    worst = int(np.argmax(distances))
    if distances[worst] <= FREE_DISTANCE:
        return []
    return [
        f"{linear.fields[worst].label} is {values[0, worst]:.3g}, outside the calibration "
        f"models' range: the evidence counts {linear.trust(values)[0]:.0%}"
    ]
