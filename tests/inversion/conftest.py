"""The network of one convolution, for every test of a method."""

from tests.colour_network import examples, network

__all__ = ["examples", "network"]
