"""The work of the stage in parts, and of very many classes."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.anchors import anchor
from jaxtroj.evidence.images import sensitivity
from jaxtroj.evidence.images.sensitivity import SensitivityBudget, sensitivity_fields
from jaxtroj.network import Network
from jaxtroj.rounds.examples import Examples

from .conftest import small_model

SIDE = 12


def anchored(classes, count, model=None):
    draw = np.random.default_rng(0)
    images = draw.uniform(size=(count, SIDE, SIDE, 3)).astype(np.float32)
    names = tuple(map(str, range(count)))
    network = Network(model or small_model(classes))
    examples = Examples(images, np.arange(count) % classes, names, "rgb")
    return network, anchor(network, examples, count)


def test_the_fields_are_those_of_all_classes_at_once():
    """Against the sums as they are written down, in one piece."""
    network, examples = anchored(5, 10)
    n, classes = 10, 5
    towards = jnp.eye(classes) - (1 - jnp.eye(classes)) / (classes - 1)
    images = jnp.tile(examples.images, (classes, 1, 1, 1))
    gradients, _ = network.gradients(images, jnp.repeat(towards, n, axis=0))
    aligned = sensitivity._aligned(gradients, jnp.tile(examples.offsets(), (classes, 1)))
    aligned = np.asarray(aligned, np.float64).reshape(classes, n, SIDE, SIDE, 3)
    others = np.asarray(examples.sources)[None] != np.arange(classes)[:, None]
    means = [
        a[o].mean(axis=0) if o.any() else 0 * a[0] for a, o in zip(aligned, others, strict=True)
    ]
    norms = [float(np.linalg.norm(sensitivity._window(mean, 0.25))) for mean in means]
    found = sensitivity_fields(network, examples, SensitivityBudget())
    assert found["gradient_outlier"] == pytest.approx(sensitivity._ratio(norms), rel=1e-3)


@pytest.mark.parametrize("classes, count", [(5, 10), (7, 13), (20, 40)])
def test_parts_change_no_bit(classes, count, monkeypatch):
    """Calibrators were fitted on the numbers of the whole."""
    network, examples = anchored(classes, count)
    whole = sensitivity_fields(network, examples, SensitivityBudget())
    used = len(examples.spread(SensitivityBudget().per_class).images)
    monkeypatch.setattr(sensitivity, "_PART", 1)
    parts = list(sensitivity._parts(network, examples.images[:used], classes))
    assert (
        used * (parts[0].stop - parts[0].start) % network.batch(examples.images) == 0
        or len(parts) == 1
    )
    assert sensitivity_fields(network, examples, SensitivityBudget()) == whole


def test_of_very_many_classes_the_nearest_are_looked_at(monkeypatch):
    """All classes at once took 5.6 GiB of a network of 1000 for pictures of 224 px."""
    classes, count, most = 300, 90, []
    network, examples = anchored(classes, count)
    gradients = Network.gradients

    def counted(self, images, weights):
        most.append(len(images))
        return gradients(self, images, weights)

    monkeypatch.setattr(Network, "gradients", counted)
    monkeypatch.setattr(sensitivity, "_PART", 100 * SIDE * SIDE * 3)
    found = sensitivity_fields(network, examples, SensitivityBudget(classes=8, few=10))
    assert sum(most) == 8 * 10 and all(np.isfinite(list(found.values())))
    some, targets = sensitivity._looked_at(examples, SensitivityBudget(classes=8, few=10))
    assert len(some.images) == 10 and np.all(np.diff(targets) > 0)
    logits = np.asarray(examples.logits)
    margins = (logits - logits.max(axis=1, keepdims=True)).mean(axis=0)
    margins[np.asarray(examples.sources)] = -np.inf  # this network has one class for all examples
    assert len(set(np.asarray(examples.sources).tolist())) == 1
    assert set(targets) == set(np.argsort(-margins, kind="stable")[:8])


def test_work_is_done_in_parts_that_fit(monkeypatch):
    network, examples = anchored(40, 40)
    sizes, logits = [], Network.logits
    monkeypatch.setattr(Network, "logits", lambda s, x: sizes.append(len(x)) or logits(s, x))
    monkeypatch.setattr(sensitivity, "_PART", 400 * SIDE * SIDE * 3)
    sensitivity_fields(network, examples, SensitivityBudget())
    assert max(sizes) <= 400 and sum(sizes) == 40 * 40
