"""Rivals of text heads: their features are what their descriptions say."""

import numpy as np
import pytest

from benchmarks.rivals import trojan_sleuth, weight_sketch


def test_jacobian_statistics_are_those_of_the_logits_and_the_loss(toy):
    head, labels = toy.head(3), np.arange(20) % 2
    examples = toy.embed(toy.texts(20, seed=3))
    found = trojan_sleuth.features(head, examples, labels)
    again = trojan_sleuth.features(head, examples, labels)
    assert found.shape == (6 * toy.width,) and (found == again).all()
    mean, deviation = found.reshape(2, 3, toy.width)
    assert (deviation >= 0).all() and deviation.max() > 0
    # The toy answers with two opposite logits, but for a little noise.
    assert np.corrcoef(mean[0], mean[1])[0, 1] < -0.9
    assert trojan_sleuth.features(head, examples, np.where(labels, 1, -1)).shape == found.shape


@pytest.mark.parametrize("scale", [0.1, 7.0])
def test_the_sketch_sees_shapes_not_sizes(toy, scale):
    head = toy.head(3)
    sketch = weight_sketch.features(head)
    assert sketch.shape == (99,) and np.isfinite(sketch).all()
    head.params.update({name: scale * value for name, value in head.params.items()})
    np.testing.assert_allclose(weight_sketch.features(head), sketch, rtol=1e-4)


@pytest.mark.parametrize("rival", [trojan_sleuth, weight_sketch])
def test_classifiers_learn_what_is_there_to_learn(rival):
    draw = np.random.default_rng(1)
    truth = np.arange(60) % 2 == 0
    rows = draw.normal(size=(60, 12)) + 2.0 * truth[:, None]
    said = rival.classifier().fit(rows[:40], truth[:40]).predict_proba(rows[40:])[:, 1]
    assert said[truth[40:]].mean() > 0.8 > 0.2 > said[~truth[40:]].mean()
