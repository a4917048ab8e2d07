"""The network of one convolution, for every test of a method."""

import pytest

from tests.colour_network import examples, network

__all__ = ["examples", "network"]


@pytest.fixture(autouse=True)
def _compiled_quickly(quick_compilation):
    """Programs of these tests run a few times each."""
