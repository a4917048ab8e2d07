"""Registered dataclasses: structures of different classes differ, and all of jax takes them."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtroj
from jaxtroj.pytrees import pytree


@pytree
@dataclass(frozen=True)
class First:
    """Two fields."""

    a: Any
    b: Any

    def value(self):
        """Of this class."""
        return self.a + 0 * self.b


@pytree
@dataclass(frozen=True)
class Second:
    """As many."""

    a: Any
    b: Any

    def value(self):
        """Of this class."""
        return self.a + 100 * self.b


def test_two_classes_have_structures_that_differ():
    ones = jnp.ones(2)
    first, second = (jax.tree.structure(cls(ones, ones)) for cls in (First, Second))
    assert first != second and first == jax.tree.structure(First(2 * ones, ones))
    nested = [jax.tree.structure((cls(ones, ones), {"x": ones})) for cls in (First, Second)]
    assert nested[0] != nested[1]


def test_jax_takes_them():
    @jax.jit
    def value(thing):
        return thing.value()

    assert float(value(First(1.0, 2.0))) == 1 and float(value(Second(1.0, 2.0))) == 201
    many = First(jnp.arange(3.0), jnp.ones(3))
    np.testing.assert_array_equal(jax.vmap(lambda t: t.value())(many), [0, 1, 2])
    slopes = jax.grad(lambda t: t.value())(Second(1.0, 2.0))
    assert isinstance(slopes, Second) and (float(slopes.a), float(slopes.b)) == (1, 100)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(many)]
    assert paths == [".a", ".b"]
    carried, _ = jax.lax.scan(lambda t, _: (First(t.a + t.b, t.b), None), First(0.0, 2.0), length=3)
    assert float(carried.a) == 6


def test_static_fields_belong_to_the_structure():
    @pytree
    @dataclass(frozen=True)
    class Named:
        a: Any
        name: str = field(metadata={"static": True})

    @jax.jit
    def value(thing):
        return thing.a * len(thing.name)

    assert float(value(Named(2.0, "abc"))) == 6 and float(value(Named(2.0, "ab"))) == 4
    short, long = (jax.tree.structure(Named(1.0, name)) for name in ("a", "b"))
    assert short != long and len(jax.tree.leaves(Named(1.0, "a"))) == 1


@pytest.mark.parametrize("package", ["jaxtroj", "converters", "docs"])
def test_nobody_registers_them_in_jax_s_own_way(package):
    root = Path(jaxtroj.__file__).parent.parent / package
    texts = [path for end in ("py", "md") for path in root.rglob(f"*.{end}")]
    assert texts
    found = [p for p in texts if re.search(r"^@.*register_dataclass", p.read_text(), re.M)]
    assert not found
