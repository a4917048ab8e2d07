"""Seconds of warm, blocked calls; compiling is timed apart."""

import statistics
import time
from collections.abc import Callable
from typing import Any

REPEATS = 5
SETTLING = 3  # untimed turns: rivals that share a process also share the holes in its memory
PAUSE = 0.05  # seconds before a timed call: threads of the rival before go on spinning for a while


def median_seconds(function: Callable[..., Any], *arguments: Any, repeats: int = REPEATS) -> float:
    """Median wall seconds of several calls after a first one; waits for jax to finish each."""
    import jax

    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def interleaved_seconds(
    calls: dict[str, Callable[[], Any]], repeats: int = REPEATS
) -> dict[str, float]:
    """Median wall seconds of rivals that take turns, so that a busy moment hits all of them.

    Args:
        calls: name -> a call that returns when its work is done.
        repeats: turns after untimed ones.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(SETTLING):
        for call in calls.values():
            call()
    for _ in range(repeats):
        for name, call in calls.items():
            time.sleep(PAUSE)
            started = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - started)
    return {name: statistics.median(found) for name, found in times.items()}
