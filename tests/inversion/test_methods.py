"""What every inversion method owes the driver, as one table of checks over all methods."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.evidence.images.stages.inversion import INVERSION
from jaxtroj.inversion import driver
from jaxtroj.inversion.driver import Arms, ArmTask, Rung, begin, candidates, invert
from jaxtroj.inversion.neural_cleanse import NeuralCleanse
from jaxtroj.inversion.patch_search import PatchSearch
from jaxtroj.inversion.searches import SEARCHES, Known
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.patch import Patch, random_patches
from tests.documented import block_after, first_example

CLASSES = 3


def keyed(shape, keys: list[int]):
    """A start of each key: a random key, as `from_keys` gives them."""
    return jax.vmap(lambda k: jax.random.fold_in(jax.random.key(0), k))(jnp.asarray(keys))


def patched(shape, keys: list[int]):
    """A start of each key: a patch and how far it gets, as `from_patches` gives them."""
    bank = random_patches(jax.random.key(0), max(keys) + 1, shape[-1], (0.1, 0.15))
    chosen = jax.tree.map(lambda x: x[jnp.asarray(keys)], bank)
    return chosen, jnp.zeros(len(keys), jnp.float32)


@dataclass(frozen=True)
class MethodCase:
    """One method.

    Attributes:
      make: makes it.
      other: makes it with another hyperparameter.
      starts: the starts of arms, from the shape of a picture and one number for each arm.
      success: the field of its state that holds the attack success rate.
      margin: the field that holds the mean margin.
    """

    make: Any
    other: Any
    starts: Any
    success: str = "success"
    margin: str = "margin"


CASES = {
    "neural cleanse": MethodCase(NeuralCleanse, lambda: NeuralCleanse(learning_rate=0.2), keyed),
    "patch search": MethodCase(PatchSearch, lambda: PatchSearch(learning_rate=0.2), patched),
}
# The example of docs/adding-a-method.md, by the row that the page tells people to add.
with TemporaryDirectory() as folder:
    _example = first_example("adding-a-method.md", Path(folder))
CASES |= eval(f"{{{block_after('adding-a-method.md', 'case')}}}", {**vars(_example), **globals()})
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


def masks_of(triggers, shape) -> FreeMask | None:
    """Triggers as masks and patterns; None of kinds that have no mask."""
    if isinstance(triggers, Patch):
        return jax.vmap(lambda patch: patch.drawn(shape[:2], np.zeros(2, int)))(triggers)
    return triggers if isinstance(triggers, FreeMask) else None


def leaves(states) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(states)]


def test_every_search_has_a_case_and_its_kind_stands_in_records(examples):
    assert {row.method.name for row in SEARCHES} <= {case.make().name for case in CASES.values()}
    shape = examples.images.shape[1:]
    patches = random_patches(jax.random.key(0), CLASSES, shape[-1], (0.1,))
    known = Known(np.arange(CLASSES), patches, np.zeros(CLASSES), jax.random.key(1))
    arms = (begin(row.method, *row.starts(known), shape) for row in SEARCHES)
    found = [candidates(row.method, own) for row, own in zip(SEARCHES, arms, strict=True)]
    assert {one.triggers.kind for one in found} == set(INVERSION.kinds)


@every_method
def test_is_a_frozen_value(case):
    assert case.make() == case.make() and hash(case.make()) == hash(case.make())
    assert case.make() != case.other()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(case.make(), dataclasses.fields(case.make())[0].name, 1.0)


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
    triggers = jax.vmap(case.make().trigger)(found.states)
    stamped = jax.vmap(lambda one: one.apply(examples.images, examples.offsets()))(triggers)
    assert stamped.shape == (3, *examples.images.shape)
    parts = [stamped]
    if (masks := masks_of(triggers, shape)) is not None:
        assert masks.mask.shape == (3, *shape[:2], 1) and masks.pattern.shape == (3, *shape)
        parts += [masks.mask, masks.pattern]
    for part in parts:
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
    trigger = case.make().trigger(state)
    assert all(np.isfinite(leaf).all() for leaf in leaves(trigger))
    assert np.isfinite(trigger.apply(flat.images, flat.offsets())).all()
    assert np.isfinite(float(case.make().rank(state)))


@every_method
def test_all_examples_of_the_target_class(case, examples):
    """Nothing to flip: no success, no NaN."""
    state = jax.tree.map(lambda x: x[0], arms_of(case, examples).states)
    same = dataclasses.replace(examples, sources=jnp.ones(6, jnp.int32))
    forward = jax.jit(lambda x: x.mean(axis=(1, 2)))
    state = jax.jit(lambda s: steps_of(case, s, same, 1, 3, forward))(state)
    assert float(getattr(state, case.success)) == 0.0
    assert np.isfinite(float(case.make().rank(state)))


@every_method
def test_rank_prefers_what_works(case, network, examples):
    """The more examples go to the target, the larger the rank."""
    arms = arms_of(case, examples)
    state = jax.tree.map(lambda x: x[0], arms.states)
    better = [
        dataclasses.replace(state, **{case.success: jnp.asarray(s), case.margin: jnp.asarray(m)})
        for s, m in ((0.0, -20.0), (0.5, 0.0), (1.0, 5.0))
    ]
    ranks = [float(case.make().rank(one)) for one in better]
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
    """Every class has a trigger here, and each method reaches it in a few dozen steps."""
    found = invert(case.make(), network, examples, arms_of(case, examples), (Rung(3, 60),))
    assert np.asarray(getattr(found.states, case.margin)).max() > 0


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
