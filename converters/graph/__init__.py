"""Any network as a graph of ATen calls, replayed in JAX through one registry of lowerings."""
