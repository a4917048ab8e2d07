"""What the benchmark of repair works on: pictures that lie apart, triggers kept as they are."""

import jax
import numpy as np
import pytest

from benchmarks.accuracy.repair_cases import HELD, LEARN, Found, as_bytes, case_data, from_file
from jaxtroj.generate.small.labelled_pictures import LabelledPictures
from jaxtroj.generate.zoo.triggers import MAKERS
from jaxtroj.repair.outcome import Attack
from jaxtroj.repair.training import Stamp


def numbered(train: int, test: int) -> LabelledPictures:
    """Three classes of so many pictures; the pixel says which, those of testing from 128 on."""
    arrays = []
    for count, first in ((train, 0), (test, 128)):
        images = (first + np.arange(3 * count)).astype(np.uint8)
        arrays += [np.tile(images[:, None, None, None], (1, 2, 2, 1)), np.arange(3 * count) % 3]
    return LabelledPictures(*arrays)


@pytest.mark.parametrize(("test", "learns_from_test"), [(40, True), (30, True), (29, False)])
def test_no_picture_is_learnt_from_and_held_out(test, learns_from_test):
    data = case_data(numbered(25, test), "id-00000001")
    learn, held = (np.rint(255 * part.images[:, 0, 0, 0]) for part in (data.learn, data.held))
    assert len(learn) == 3 * LEARN and not set(learn) & set(held)
    assert (learn >= 128).all() == learns_from_test and (held >= 128).all()
    assert len(held) == 3 * min(HELD, test - LEARN if learns_from_test else test)
    for part, values in ((data.learn, learn), (data.held, held)):
        assert ((values - np.where(values >= 128, 128, 0)) % 3 == part.labels).all()
    again, other = (case_data(numbered(25, test), f"id-0000000{n}") for n in (1, 2))
    np.testing.assert_array_equal(data.learn.images, again.learn.images)
    assert not np.array_equal(data.learn.images, other.learn.images)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_trigger_comes_back_as_it_was(kind, tmp_path):
    made = MAKERS[kind](np.random.default_rng(3), (16, 16, 3))
    found = Found(
        0.75, (Attack(Stamp(made.trigger, (2, 3)), 5, (1, 4)), Attack(Stamp(made.trigger), 0))
    )
    (tmp_path / "a.npz").write_bytes(as_bytes(found))
    again = from_file(tmp_path / "a.npz")
    assert again.probability == 0.75
    for attack, old in zip(again.attacks, found.attacks, strict=True):
        assert (attack.target_class, attack.source_classes) == (
            old.target_class,
            old.source_classes,
        )
        assert attack.stamp.reach == old.stamp.reach
        assert jax.tree.structure(attack.stamp.trigger) == jax.tree.structure(old.stamp.trigger)
        images = np.random.default_rng(0).uniform(size=(2, 16, 16, 3)).astype(np.float32)
        stamped = attack.stamp.on(images, np.random.default_rng(1))
        np.testing.assert_array_equal(stamped, old.stamp.on(images, np.random.default_rng(1)))
