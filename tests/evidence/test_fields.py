"""The numbers of each stage on inputs whose answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.anchors import AnchoredExamples, anchor
from jaxtroj.evidence.images.inversion import inversion_fields
from jaxtroj.evidence.images.probes import Probed, probe_fields, try_patches
from jaxtroj.evidence.images.sensitivity import _ratio, _window
from jaxtroj.evidence.images.weights import head_gap, weight_fields
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.network import Network
from jaxtroj.numerics import logit
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.measure import Candidates, Measured
from jaxtroj.triggers.patch import Patch, random_patches


def head(rows) -> dict[str, np.ndarray]:
    """Parameters of a network with these rows in its last layer."""
    kernel = np.random.default_rng(0).normal(size=(3, 3, 8, 16)).astype(np.float32)
    return {"conv1.kernel": kernel, "fc.kernel": np.asarray(rows, np.float32).T}


def plain_rows(classes=6, features=32):
    return np.random.default_rng(1).normal(size=(classes, features))


def test_a_shifted_row_stands_out_by_its_mean():
    rows = plain_rows()
    shifted = rows + 2.0 * (np.arange(6) == 4)[:, None]
    plain, odd = (weight_fields({"conv.kernel": np.ones(300)}, r) for r in (rows, shifted))
    assert odd["head_mean_outlier"] > plain["head_mean_outlier"] + 3


def test_a_scaled_row_stands_out_by_its_norm():
    rows = plain_rows()
    scaled = rows * np.where(np.arange(6) == 2, 5.0, 1.0)[:, None]
    plain, odd = weight_fields(head(rows), rows), weight_fields(head(scaled), scaled)
    assert odd["head_norm_outlier"] > plain["head_norm_outlier"] + 3


def test_the_lead_is_of_the_row_that_leans_furthest():
    leaning = plain_rows(features=400) + np.array([0, 0, 0, 0.3, 0, 0.8])[:, None]
    fields = weight_fields(head(leaning), leaning)
    gaps = [head_gap(leaning, target) for target in range(6)]
    assert fields["head_lead_class"] == 5 == int(np.argmax(gaps))
    assert fields["head_lead"] == pytest.approx(gaps[5] - gaps[3]) and fields["head_lead"] > 0.2
    scaled = leaning * np.arange(1, 7)[:, None]
    assert weight_fields(head(scaled), scaled)["head_lead"] == pytest.approx(fields["head_lead"])


@pytest.mark.parametrize(
    "rows",
    [np.zeros((4, 8)), np.ones((4, 8)), np.ones((2, 8)), np.ones((1, 8)), 1e30 * np.eye(4, 8)],
    ids=["zeros", "equal", "two classes", "one class", "huge"],
)
def test_weight_fields_are_finite(rows):
    assert all(np.isfinite(value) for value in weight_fields(head(rows), rows).values())


def test_kurtosis_knows_normal_weights_from_heavy_tails():
    normal = head(plain_rows())
    heavy = dict(normal)
    heavy["conv1.kernel"] = np.random.default_rng(0).standard_t(2, (3, 3, 8, 16))
    assert weight_fields(normal, None)["layer_kurtosis"] == pytest.approx(3.0, abs=0.4)
    assert weight_fields(heavy, None)["layer_kurtosis"] > 6


def bank(scores, flips=None) -> Probed:
    scores = np.asarray(scores, float)
    patches = random_patches(jax.random.key(0), len(scores), 3, (0.1,))
    return Probed(patches, scores if flips is None else np.asarray(flips), scores, scores)


def test_probe_fields_of_one_clear_target():
    fields = probe_fields(bank([[0.1, 0.9, 0.2]] * 8))
    assert fields["probe_score"] == pytest.approx(0.9)
    assert fields["probe_gap"] == pytest.approx(0.7)
    assert fields["probe_agreement"] == 1.0 and fields["probe_wide_gap"] == pytest.approx(0.7)


def test_the_last_layer_is_asked_about_the_class_that_the_bank_reaches():
    rows = np.random.default_rng(0).normal(size=(3, 400))
    leaning = rows + np.array([[0.0], [0.5], [0.0]])
    probed = bank([[0.1, 0.9, 0.2]] * 8)
    assert probe_fields(probed, leaning)["probe_head_gap"] > 0.3
    assert probe_fields(probed, 7 * leaning)["probe_head_gap"] == pytest.approx(
        probe_fields(probed, leaning)["probe_head_gap"]
    )
    assert abs(probe_fields(probed, rows)["probe_head_gap"]) < 0.2
    # A row that leans says nothing for another class that patches reach.
    assert probe_fields(bank([[0.9, 0.1, 0.2]] * 8), leaning)["probe_head_gap"] < 0
    assert probe_fields(probed)["probe_head_gap"] == 0.0
    assert probe_fields(probed, np.zeros((3, 4)))["probe_head_gap"] == 0.0


def test_probe_fields_of_no_target():
    fields = probe_fields(bank(np.eye(3).repeat(4, axis=0)))
    assert fields["probe_gap"] == pytest.approx(0.0)
    assert fields["probe_agreement"] == pytest.approx(1 / 3)


def test_one_lucky_patch_is_no_trigger():
    lucky = np.zeros((12, 3))
    lucky[0, 1] = 1.0
    assert probe_fields(bank(lucky))["probe_gap"] < 0.2


@pytest.mark.parametrize("count", [1, 2, 5])
def test_probe_fields_of_few_patches(count):
    fields = probe_fields(bank([[0.2, 0.6]] * count))
    assert fields["probe_gap"] == pytest.approx(0.4)


def of_colour(colour, radius=0.15) -> Patch:
    return Patch(
        jnp.asarray([colour], jnp.float32),
        jnp.zeros((1, 2)),
        jnp.asarray([radius]),
        jnp.zeros(1),
        jnp.asarray([8]),
    )


def test_a_patch_lies_on_every_anchor():
    images = jnp.zeros((2, 20, 20, 3))
    patch = jax.tree.map(lambda x: x[0], of_colour([1.0, 0.5, 0.0]))
    pictures = patch.apply(images, jnp.asarray([[5, 5], [14, 9]]) - 10)
    assert pictures.shape == (2, 20, 20, 3)
    for picture, (row, column) in zip(pictures, [(5, 5), (14, 9)], strict=True):
        np.testing.assert_allclose(picture[row, column], [1.0, 0.5, 0.0], atol=0.1)
        assert float(picture[19, 19].max()) < 0.01 and float(picture[0, 19].max()) < 0.01


def test_patches_in_a_class_s_colour_reach_that_class(colours, make_pictures):
    network = Network(colours)
    examples = anchor(network, make_pictures([0, 1, 2, 0, 1, 2]), 6)
    for target in range(3):
        flips, scores = try_patches(network, examples, of_colour(np.eye(3)[target], 0.3))
        assert flips.shape == scores.shape == (1, 3)
        assert flips[0, target] == 1.0 and scores[0].argmax() == target
        assert np.delete(flips[0], target).max() == 0.0


def test_chunks_of_patches_cannot_be_seen(colours, make_pictures, monkeypatch):
    """A batch of 8 pictures makes several chunks of patches; the last is shorter."""
    network = Network(colours)
    examples = anchor(network, make_pictures([0, 1, 2, 0, 1, 2]), 6)
    patches = random_patches(jax.random.key(0), 13, 3, (0.1, 0.2))
    whole = try_patches(network, examples, patches)
    monkeypatch.setattr(Network, "batch", lambda self, images: 8)
    for a, b in zip(whole, try_patches(network, examples, patches), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_no_example_of_another_class_is_no_success(colours, make_pictures):
    network = Network(colours)
    examples = anchor(network, make_pictures([1, 1, 1]), 3)
    flips, scores = try_patches(network, examples, of_colour([0.0, 1.0, 0.0], 0.3))
    assert flips[0, 1] == 0.0 and scores[0, 1] == 0.0


@pytest.mark.parametrize("shape, size, expected", [
    ((2, 8, 8, 3), 0.25, (2, 2, 2, 3)),
    ((8, 12, 3), 0.5, (4, 6, 3)),
    ((2, 2, 1), 0.25, (1, 1, 1)),
])  # fmt: skip
def test_window_is_central(shape, size, expected):
    assert _window(jnp.zeros(shape), size).shape == expected
    marked = jnp.zeros((9, 9, 1)).at[4, 4].set(1.0)
    assert float(_window(marked, 0.25).sum()) == 1.0


@pytest.mark.parametrize("values, expected", [
    ([1.0, 1.0, 1.0], 0.0),
    ([1.0, 2.0, 8.0, 2.0], np.log(4.0)),
    ([3.0, 1.0], np.log(3.0)),
    ([0.0, 0.0], 0.0),
])  # fmt: skip
def test_ratio_of_the_largest_to_the_middle_of_the_others(values, expected):
    assert _ratio(values) == pytest.approx(expected, abs=1e-6)


def measured(method, targets, scores, sizes) -> Measured:
    arms, targets = len(targets), np.asarray(targets)
    triggers = FreeMask(jnp.zeros((arms, 2, 2, 1)), jnp.zeros((arms, 2, 2, 3)))
    found = Candidates(method, triggers, targets, np.ones(arms, bool))
    # One example of a class that none is for, so that its margin is the score's log-odds.
    return Measured(found, np.array([-1]), logit(scores)[:, None], np.asarray(sizes, float))


def both(patches, masks, classes):
    """Fields of a patch search and of Neural Cleanse."""
    found = (measured("patch search", *patches), measured("neural cleanse", *masks))
    return inversion_fields(found, classes)


def test_inversion_fields_of_one_clear_target():
    patches = ([0, 1, 2, 1], [0.2, 0.95, 0.1, 0.5], [0.02, 0.03, 0.04, 0.05])
    masks = ([0, 1, 2, 1], [0.9, 0.9, 0.9, 0.1], [0.2, 0.01, 0.3, 0.001])
    fields = both(patches, masks, 3)
    assert tuple(fields) == IMAGES.stage_fields["inversion"]
    assert fields["patch_score"] == pytest.approx(0.95)
    assert fields["patch_gap"] == pytest.approx(0.75)
    assert fields["patch_area"] == 0.03 and fields["mask_score"] == pytest.approx(0.9)
    # The smaller mask of class 1 does not work and does not count.
    assert fields["mask_size"] == pytest.approx(np.log(0.01))
    assert fields["mask_ratio"] == pytest.approx(np.log(20.0))


def test_masks_that_do_not_work_are_as_large_as_the_picture():
    nothing = ([0, 1], [0.1, 0.2], [0.01, 0.02])
    fields = both(nothing, nothing, 2)
    assert fields["mask_size"] == 0.0 and fields["mask_ratio"] == 0.0


def test_classes_without_an_arm_count_as_unreached():
    one = ([3], [0.9], [0.1])
    fields = both(one, one, 5)
    assert fields["patch_gap"] == pytest.approx(0.9) and fields["mask_ratio"] == pytest.approx(
        np.log(10.0)
    )


def test_anchored_examples_know_their_classes():
    logits = jnp.zeros((2, 7))
    images = jnp.zeros((2, 4, 4, 3))
    examples = AnchoredExamples(images, jnp.zeros((2, 2)), logits[:, 0], logits, 1.0)
    assert examples.classes == 7
