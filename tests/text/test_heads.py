"""Heads in another basis answer alike; the fields that are judged by are those declared."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from converters.families.dense_head import DenseHeadConfig
from converters.families.rnn_head import RnnHeadConfig
from converters.model import apply, params_of
from jaxtroj.evidence.stages import TEXTS
from jaxtroj.evidence.texts.heads import in_basis, sums
from jaxtroj.schemas import FEW_HEADS

CONFIGS = [
    RnnHeadConfig("gru", 12, 5, 2, True, 2),
    RnnHeadConfig("gru", 12, 12, 1, False, 3, single_step=True),
    RnnHeadConfig("lstm", 12, 6, 3, True, 2, single_step=True),
    RnnHeadConfig("lstm", 12, 4, 1, False, 2, has_bias=False),
    DenseHeadConfig(12, (12, 12), 2),
    DenseHeadConfig(12, (), 3),
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_coordinates_are_answered_as_what_they_stand_for(config):
    params = jax.tree.map(jnp.asarray, params_of(config.build(nnx.Rngs(3))))
    draw = np.random.default_rng(0)
    basis = jnp.asarray(draw.normal(size=(7, 12)), np.float32)
    points = jnp.asarray(draw.normal(size=(9, 7)), np.float32)
    inner, moved = in_basis(config, params, basis)
    assert (inner.input_size, config.input_size) == (7, 12)
    np.testing.assert_allclose(
        apply(inner, moved, points), apply(config, params, points @ basis), rtol=1e-4, atol=1e-5
    )


def test_stacked_heads_go_into_a_basis_together():
    config = CONFIGS[0]
    heads = [
        jax.tree.map(jnp.asarray, params_of(config.build(nnx.Rngs(seed)))) for seed in range(3)
    ]
    stacked = {name: jnp.stack([head[name] for head in heads]) for name in heads[0]}
    basis = jnp.asarray(np.random.default_rng(1).normal(size=(4, 12)), np.float32)
    inner, moved = in_basis(config, stacked, basis)
    found = jax.vmap(lambda one: apply(inner, one, jnp.eye(4, dtype=np.float32)))(moved)
    for answer, head in zip(found, heads, strict=True):
        np.testing.assert_allclose(answer, apply(config, head, basis), rtol=1e-4, atol=1e-5)


def test_sums_name_every_row_plus_every_move():
    basis = np.random.default_rng(2).normal(size=(5, 3))
    found = sums(2, 3) @ basis
    np.testing.assert_allclose(found, basis[None, :2] + basis[2:, None], rtol=1e-6)


def test_what_is_judged_by_is_what_is_gathered_less_what_is_only_shown():
    judged = {name for names in TEXTS.judged_fields.values() for name in names}
    shown = {field.name for field in TEXTS.fields} - judged
    by_size = {"clean_margin", "jacobian_norm", "sweep_score", "sweep_gap"}  # of the logits
    assert shown == by_size and tuple(TEXTS.judged_fields) == TEXTS.names
    assert set(FEW_HEADS.fields) < judged and all(TEXTS.judged_fields.values())
    assert len(FEW_HEADS.fields) == 11
