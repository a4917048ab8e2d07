"""Lowerings of ATen operators to JAX, one family per file; each registers itself on import."""
