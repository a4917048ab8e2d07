"""Benchmarks: every figure in README and notes comes from one of these."""
