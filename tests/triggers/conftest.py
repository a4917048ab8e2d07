"""The network of one convolution, for tests of triggers."""

from tests.colour_network import examples, network

__all__ = ["examples", "network"]
