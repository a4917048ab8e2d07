"""Benchmarks: every figure in README and notes comes from one of these."""

from jaxtroj import runtime

# As every jaxtroj command does, and as early: a thread that has memory of its own keeps it.
runtime.prepare()
