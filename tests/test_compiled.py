"""Compiled programs go before a process has too many mappings of memory, and only then."""

import sys

import jax
import jax.numpy as jnp
import pytest

from jaxtroj import compiled

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of mappings")


def test_programs_stay_while_there_is_room_and_go_when_there_is_none():
    double = jax.jit(lambda x: 2 * x)
    size = double._cache_size  # pyright: ignore[reportAttributeAccessIssue]
    assert double(jnp.ones(3)).sum() == 6
    share = compiled.mappings()
    assert 0 < share < 1
    compiled.make_room(most=2 * share)
    assert size() == 1
    compiled.make_room(most=share / 2)
    assert size() == 0
    assert double(jnp.ones(3)).sum() == 6


def test_programs_take_mappings_and_give_them_back():
    before = compiled.mappings()
    many = [jax.jit(lambda x, n=n: jnp.sin(n * x) @ x) for n in range(30)]
    assert all(jnp.isfinite(one(jnp.eye(4))).all() for one in many)
    held = compiled.mappings()
    assert held > before
    compiled.drop()
    assert compiled.mappings() < held
