"""What every inversion method owes the driver, as one table of checks over all methods."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.inversion import driver
from jaxtroj.inversion.driver import Arms, ArmTask, Rung, begin, invert
from jaxtroj.inversion.neural_cleanse import NeuralCleanse
from jaxtroj.inversion.patch_search import PatchSearch
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.patch import random_patches

CLASSES = 3


@dataclass(frozen=True)
class MethodCase:
    """One method: how to make it, to start arms of it and to read their triggers."""

    make: Any
    other: Any

    def starts(self, shape, keys: list[int]):
        """What arms start at, one per key."""
        if isinstance(self.make(), NeuralCleanse):
            return jax.vmap(lambda k: jax.random.fold_in(jax.random.key(0), k))(jnp.asarray(keys))
        bank = random_patches(jax.random.key(0), max(keys) + 1, shape[-1], (0.1, 0.15))
        chosen = jax.tree.map(lambda x: x[jnp.asarray(keys)], bank)
        return chosen, jnp.zeros(len(keys), jnp.float32)

    def drawn(self, states, shape) -> FreeMask:
        """Triggers of states as masks and patterns."""
        triggers = jax.vmap(self.make().trigger)(states)
        if isinstance(triggers, FreeMask):
            return triggers
        return jax.vmap(lambda patch: patch.drawn(shape[:2], np.zeros(2, int)))(triggers)


CASES = {
    "neural cleanse": MethodCase(NeuralCleanse, lambda: NeuralCleanse(learning_rate=0.2)),
    "patch search": MethodCase(PatchSearch, lambda: PatchSearch(learning_rate=0.2)),
}
every_method = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def arms_of(case, examples, keys=(0, 1, 2)) -> Arms:
    shape, keys = examples.images.shape[1:], np.asarray(keys)
    labels = (keys % CLASSES, keys % 2 == 0)
    return begin(case.make(), case.starts(shape, keys.tolist()), labels, shape)


def steps_of(case, state, examples, target, steps, forward):
    method = case.make()
    task = ArmTask(examples.images, examples.offsets(), examples.sources, jnp.asarray(target))
    for _ in range(steps):
        state = method.step(state, forward, task)
    return state


def leaves(states) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(states)]


@every_method
def test_is_a_frozen_value(case):
    assert case.make() == case.make() and hash(case.make()) == hash(case.make())
    assert case.make() != case.other()
    with pytest.raises(dataclasses.FrozenInstanceError):
        case.make().learning_rate = 1.0


@every_method
def test_compiles_once_for_all_rungs_targets_and_equal_methods(case, network, examples):
    step: Any = driver._step
    step.clear_cache()
    for keys in ((0, 1, 2), (4, 3, 2, 1, 0)):
        arms = arms_of(case, examples, keys)
        rungs = (Rung(3, 2), Rung(2, 1))
        invert(case.make(), network, examples, arms, rungs)
    assert step._cache_size() == 1


@every_method
def test_a_step_keeps_shapes_and_types(case, network, examples):
    before = arms_of(case, examples).states
    after = invert(case.make(), network, examples, arms_of(case, examples), (Rung(3, 1),)).states
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (old.shape, old.dtype, old.weak_type) == (new.shape, new.dtype, new.weak_type)


@every_method
def test_triggers_are_in_range(case, network, examples):
    found = invert(case.make(), network, examples, arms_of(case, examples), (Rung(3, 20),))
    shape = examples.images.shape[1:]
    trigger = case.drawn(found.states, shape)
    assert trigger.mask.shape == (3, *shape[:2], 1) and trigger.pattern.shape == (3, *shape)
    for part in (trigger.mask, trigger.pattern):
        assert float(part.min()) >= 0 and float(part.max()) <= 1


@every_method
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4, 1e12])
@pytest.mark.parametrize("level", [0.0, 1.0])
def test_finite_on_flat_pictures_and_extreme_logits(case, scale, level, examples):
    """Dead networks (all logits equal) and huge ones leave a state that can be ranked and read."""
    flat = dataclasses.replace(examples, images=jnp.full_like(examples.images, level))
    state = jax.tree.map(lambda x: x[0], arms_of(case, examples).states)
    forward = jax.jit(lambda x: scale * x.mean(axis=(1, 2)))
    state = jax.jit(lambda s: steps_of(case, s, flat, 1, 3, forward))(state)
    single = jax.tree.map(lambda x: x[None], state)
    trigger = case.drawn(single, examples.images.shape[1:])
    assert np.isfinite(trigger.mask).all() and np.isfinite(trigger.pattern).all()
    assert np.isfinite(float(case.make().rank(state)))


@every_method
def test_all_examples_of_the_target_class(case, examples):
    """Nothing to flip: no success, no NaN."""
    state = jax.tree.map(lambda x: x[0], arms_of(case, examples).states)
    same = dataclasses.replace(examples, sources=jnp.ones(6, jnp.int32))
    forward = jax.jit(lambda x: x.mean(axis=(1, 2)))
    state = jax.jit(lambda s: steps_of(case, s, same, 1, 3, forward))(state)
    assert float(state.success) == 0.0
    assert np.isfinite(float(case.make().rank(state)))


@every_method
def test_rank_prefers_what_works(case, network, examples):
    """The more examples go to the target, the larger the rank."""
    arms = arms_of(case, examples)
    state = jax.tree.map(lambda x: x[0], arms.states)
    ranks = [
        float(case.make().rank(dataclasses.replace(state, success=jnp.asarray(s), margin=m)))
        for s, m in ((0.0, jnp.asarray(-20.0)), (0.5, jnp.asarray(0.0)), (1.0, jnp.asarray(5.0)))
    ]
    assert ranks == sorted(ranks) and len(set(ranks)) == 3


def test_neural_cleanse_ranks_smaller_working_masks_higher(examples):
    method = NeuralCleanse()
    state = method.init(jax.random.key(0), examples.images.shape[1:])
    never, large, small = (
        float(method.rank(dataclasses.replace(state, best_l1=jnp.asarray(size))))
        for size in (jnp.inf, 90.0, 10.0)
    )
    assert never < large < small


@every_method
def test_an_arm_is_the_same_whatever_runs_beside_it(case, network, examples):
    rungs = (Rung(8, 5),)

    def state_of(keys, key):
        found = invert(case.make(), network, examples, arms_of(case, examples, keys), rungs)
        place = [tuple(x) for x in zip(*found.labels(), strict=True)].index((key % 3, key % 2 == 0))
        return leaves(jax.tree.map(lambda x: x[place], found.states))

    alone = state_of((2,), 2)
    for keys in ((0, 1, 2), (2, 1, 0), (5, 2, 4, 1)):
        for a, b in zip(alone, state_of(keys, 2), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5)


@every_method
def test_finds_the_planted_colour(case, network, examples):
    """Every class has a trigger here, and both methods reach it in a few dozen steps."""
    found = invert(case.make(), network, examples, arms_of(case, examples), (Rung(3, 60),))
    assert np.asarray(found.states.margin).max() > 0


def test_neural_cleanse_keeps_the_smallest_trigger_that_worked(network, examples):
    method = NeuralCleanse()
    found = invert(
        method, network, examples, arms_of(CASES["neural cleanse"], examples), (Rung(3, 80),)
    )
    worked = np.isfinite(found.states.best_l1)
    assert worked.any()
    trigger = jax.vmap(method.trigger)(found.states)
    sizes = np.asarray(trigger.mask).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(sizes[worked], found.states.best_l1[worked], rtol=1e-5)
    start = arms_of(CASES["neural cleanse"], examples).states
    first = np.asarray(jax.vmap(method.trigger)(start).mask).sum(axis=(1, 2, 3))
    assert (sizes[worked] < first[worked]).any()


@every_method
def test_sixty_four_bit_mode_changes_no_types(case, network, examples):
    with jax.enable_x64(True):
        found = invert(case.make(), network, examples, arms_of(case, examples), (Rung(3, 2),))
    assert {leaf.dtype.itemsize for leaf in jax.tree.leaves(found.states)} == {4}
