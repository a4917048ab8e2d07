"""Cutting, joining and padding rows: what jax would give, without a program for each shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.rows import joined, padded, taken

_TREE = {
    "pictures": np.arange(24, dtype=np.float32).reshape(6, 2, 2),
    "classes": np.arange(6, dtype=np.int32),
    "moves": np.array([True, False] * 3),
}


def _same(found, expected) -> None:
    for own, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(own, jax.Array)
        assert (own.dtype, own.shape) == (wanted.dtype, wanted.shape)
        assert np.array_equal(own, wanted)


@pytest.mark.parametrize("device", ["cpu", "another"])
@pytest.mark.parametrize("index", [2, slice(1, 4), slice(9), np.array([5, 1, 1]), None])
def test_rows_of_every_leaf(monkeypatch, device, index):
    monkeypatch.setattr(jax, "default_backend", lambda: device)
    expected = {name: leaf[index] for name, leaf in _TREE.items()}
    _same(taken(jax.tree.map(jnp.asarray, _TREE), index), expected)
    _same(taken(_TREE, index), expected)


@pytest.mark.parametrize("device", ["cpu", "another"])
@pytest.mark.parametrize("cuts", [(6,), (0, 6), (2, 5, 6)])
def test_joined_parts_are_the_whole(monkeypatch, device, cuts):
    monkeypatch.setattr(jax, "default_backend", lambda: device)
    starts = (0, *cuts[:-1])
    parts = [taken(_TREE, slice(*cut)) for cut in zip(starts, cuts, strict=True)]
    _same(joined(parts), _TREE)


@pytest.mark.parametrize("device", ["cpu", "another"])
@pytest.mark.parametrize(("rows", "size"), [(0, 2), (1, 4), (3, 3)])
def test_zeros_stand_after_the_rows(monkeypatch, device, rows, size):
    monkeypatch.setattr(jax, "default_backend", lambda: device)
    given = np.ones((rows, 2, 3), np.float32)
    _same(padded(given, size), np.concatenate([given, np.zeros((size - rows, 2, 3), np.float32)]))


def test_more_rows_than_the_size_are_refused():
    with pytest.raises(ValueError):
        padded(np.ones((3, 2)), 2)


@pytest.mark.parametrize(("device", "of"), [("cpu", jnp), ("cpu", np), ("another", np)])
def test_no_shape_of_what_is_off_the_device_costs_a_program(monkeypatch, caplog, device, of):
    """Nor is all of it moved to a device for some rows, which would compile a copy here."""
    monkeypatch.setattr(jax, "default_backend", lambda: device)
    given = of.asarray(np.ones((41, 7, 11), np.float32))
    jax.config.update("jax_log_compiles", True)
    try:
        taken({"some": given}, slice(3, 17))
        taken(given, np.array([1, 5]))
        joined([given[3:17], given[20:]]) if of is np else padded(taken(given, slice(5)), 97)
    finally:
        jax.config.update("jax_log_compiles", False)
    assert "Finished XLA compilation" not in caplog.text
