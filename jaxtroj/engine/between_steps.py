"""Limits on work that cannot leave the caller's process: looked at as each of its steps begins."""

import os
import time

from jaxtroj import runtime
from jaxtroj.engine.guard import Guard
from jaxtroj.engine.jobs import START_STEP
from jaxtroj.errors import LimitError
from jaxtroj.scan.attempt import OnStep


def between_steps(limits: Guard) -> OnStep:
    """What an attempt tells of its steps, and what ends it where it has taken too much by then.

    The memory is that of the whole process, and what happens inside a step is not seen.

    Args:
        limits: of one model, counted from now.

    Returns:
        A function that raises LimitError: when the attempt is over time or memory, with the step
        that had begun before.
    """
    started, steps = time.monotonic(), [START_STEP]

    def begin(model: str, step: str) -> None:
        where = f", after the step {steps[-1]}"
        seconds = time.monotonic() - started
        reason = limits.too_much(runtime.resident(os.getpid())) or limits.too_long(seconds, where)
        if reason is not None:
            raise LimitError(reason)
        steps.append(step)

    return begin
