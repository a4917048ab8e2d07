"""The work of the stage in parts, and of very many classes."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.anchors import anchor
from jaxtroj.evidence.images import sensitivity
from jaxtroj.evidence.images.sensitivity import SensitivityBudget, sensitivity_fields
from jaxtroj.network import Network
from jaxtroj.rounds.examples import Examples

from .conftest import small_model

pytestmark = pytest.mark.usefixtures("quick_compilation")

SIDE, KEY = 12, jax.random.key(0)


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
    found = sensitivity_fields(network, examples, KEY, SensitivityBudget())
    assert found["gradient_outlier"] == pytest.approx(sensitivity._ratio(norms), rel=1e-3)


@pytest.mark.parametrize("classes, count", [(5, 10), (7, 13), (20, 40)])
def test_parts_change_no_bit(classes, count, monkeypatch):
    """Calibrators were fitted on the numbers of the whole."""
    network, examples = anchored(classes, count)
    whole = sensitivity_fields(network, examples, KEY, SensitivityBudget())
    used = len(examples.spread(SensitivityBudget().per_class).images)
    monkeypatch.setattr(sensitivity, "_PART", 1)
    parts = list(sensitivity._parts(network, examples.images[:used], classes))
    assert (
        used * (parts[0].stop - parts[0].start) % network.batch(examples.images) == 0
        or len(parts) == 1
    )
    assert sensitivity_fields(network, examples, KEY, SensitivityBudget()) == whole


def test_of_very_many_classes_some_are_looked_at(monkeypatch):
    """All classes at once took 5.6 GiB of a network of 1000 for pictures of 224 px."""
    network, examples = anchored(300, 90)
    most, gradients = [], Network.gradients
    budget = SensitivityBudget(best=3, others=5, few=10)

    def counted(self, images, weights):
        most.append(len(images))
        return gradients(self, images, weights)

    monkeypatch.setattr(Network, "gradients", counted)
    monkeypatch.setattr(sensitivity, "_PART", 100 * SIDE * SIDE * 3)
    found = sensitivity_fields(network, examples, KEY, budget)
    assert sum(most) == (3 + 5) * 10 and all(np.isfinite(list(found.values())))
    some, targets = sensitivity._looked_at(network, examples, KEY, budget)
    assert len(some.images) == 10 and np.all(np.diff(targets) > 0)


def test_among_very_many_classes_is_the_one_that_is_reached_most():
    """Its row of the last layer is five times as large: so are its gradients."""
    model, easy = small_model(300), 217
    head = np.array(model.params["fc.kernel"])
    head[:, easy] *= 5.0
    network, examples = anchored(300, 90, replace(model, params=model.params | {"fc.kernel": head}))
    _, targets = sensitivity._looked_at(network, examples, KEY, SensitivityBudget())
    assert easy in targets and len(targets) == 8 + 16


def test_work_is_done_in_parts_that_fit(monkeypatch):
    network, examples = anchored(40, 40)
    sizes, logits = [], Network.logits
    monkeypatch.setattr(Network, "logits", lambda s, x: sizes.append(len(x)) or logits(s, x))
    monkeypatch.setattr(sensitivity, "_PART", 400 * SIDE * SIDE * 3)
    sensitivity_fields(network, examples, KEY, SensitivityBudget())
    assert max(sizes) <= 400 and sum(sizes) == 40 * 40
