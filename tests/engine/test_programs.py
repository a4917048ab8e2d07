"""Programs of many networks: dropped when a process has grown too far, and only then."""

import sys

import jax
import jax.numpy as jnp
import pytest

from jaxtroj.engine.programs import Programs

MIB = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of memory")
def test_programs_go_when_the_process_has_grown_and_are_made_again():
    double = jax.jit(lambda x: 2 * x)
    size = double._cache_size  # pyright: ignore[reportAttributeAccessIssue]
    assert double(jnp.ones(3)).sum() == 6
    programs = Programs(most=64 * MIB)
    assert not programs.too_many()
    small = bytearray(b"1" * (8 * MIB))
    assert not programs.too_many()
    large = bytearray(b"1" * (128 * MIB))
    assert programs.too_many()
    assert size() == 1
    programs.drop()
    assert size() == 0
    assert not programs.too_many(), "what is held now is no growth"
    assert double(jnp.ones(3)).sum() == 6
    del small, large
