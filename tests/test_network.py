"""Batched programs against the plain function, for numbers of images around the batch size."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from converters.families.densenet import DenseNetConfig
from converters.model import Model, apply, params_of
from jaxtroj import network as network_module
from jaxtroj.network import Network, apply_searched, margin_weights, usual_count

CLASSES, BATCH = 4, 10
CONFIG = DenseNetConfig(8, (((8, 4),), ((8, 4),)), (6,), CLASSES)


@pytest.fixture(scope="module")
def network() -> Network:
    params = params_of(CONFIG.build(nnx.Rngs(0)))
    return Network(Model(CONFIG, {k: jnp.asarray(v) for k, v in params.items()}, "densenet"))


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Batches of 10 pictures of any size, so that few pictures already make several batches."""
    monkeypatch.setattr(network_module, "_CPU_PIXELS", 1)
    monkeypatch.setattr(network_module, "_GPU_FACTOR", 1)


def pictures(n, height=20, width=20):
    return np.random.default_rng(0).random((n, height, width, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(network):
    """Weights, logits and gradients of 16 pictures by the plain function, in one batch."""
    weights = np.random.default_rng(1).normal(size=(2 * BATCH, CLASSES)).astype(np.float32)

    def total(images):
        logits = apply(CONFIG, network.model.params, images)
        return (weights * logits).sum(), logits

    gradients, logits = jax.jit(jax.grad(total, has_aux=True))(pictures(2 * BATCH))
    return weights, logits, gradients


counts = pytest.mark.parametrize("n", [1, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH])


@counts
def test_logits_are_the_model_s(n, network, expected):
    assert network.batch(pictures(n)) == BATCH
    logits = network.logits(pictures(2 * BATCH)[:n])
    np.testing.assert_allclose(logits, expected[1][:n], atol=1e-5)


@counts
def test_gradients_are_those_of_jax(n, network, expected):
    weights, logits, gradients = expected
    found, answers = network.gradients(pictures(2 * BATCH)[:n], weights[:n])
    np.testing.assert_allclose(found, gradients[:n], atol=1e-5)
    np.testing.assert_allclose(answers, logits[:n], atol=1e-5)
    assert float(np.abs(found).max()) > 1e-4, "nothing was compared"


@counts
def test_margin_gradients_are_those_of_the_margin(n, network, expected):
    _, logits, _ = expected
    images = pictures(2 * BATCH)[:n]
    found, answers = network.margin_gradients(images)
    by_hand, _ = network.gradients(images, margin_weights(logits[:n]))
    np.testing.assert_allclose(found, by_hand, atol=1e-6)
    np.testing.assert_allclose(answers, logits[:n], atol=1e-5)


def test_a_gradient_is_its_picture_s_alone(network):
    """Pictures of one batch do not see each other: batch norms run on stored statistics."""
    images, weights = jnp.asarray(pictures(3)), jnp.ones((3, CLASSES))
    together, _ = network.gradients(images, weights)
    alone, _ = network.gradients(images[1:2], weights[1:2])
    np.testing.assert_allclose(together[1:2], alone, atol=1e-6)


def test_compiles_once_whatever_the_number(network):
    logits: Any = network_module._logits
    gradients: Any = network_module._gradients
    logits.clear_cache()
    gradients.clear_cache()
    for n in (1, BATCH, BATCH + 3, 2 * BATCH):
        network.logits(pictures(n))
        network.gradients(pictures(n), np.ones((n, CLASSES), np.float32))
        network.margin_gradients(pictures(n))
    assert logits._cache_size() == 1
    assert gradients._cache_size() == 1


def test_models_of_one_architecture_share_the_program(network):
    logits: Any = network_module._logits
    logits.clear_cache()
    other = Network(Model(CONFIG, {k: v + 0.01 for k, v in network.model.params.items()}, "other"))
    same = DenseNetConfig(8, (((8, 4),), ((8, 4),)), (6,), CLASSES)
    third = Network(Model(same, network.model.params, "third"))
    answers = [np.asarray(net.logits(pictures(2))) for net in (network, other, third)]
    assert logits._cache_size() == 1
    assert not np.allclose(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


@pytest.mark.parametrize("height, width", [(20, 28), (33, 17)])
def test_pictures_need_not_be_square(height, width, network):
    images = pictures(2, height, width)
    assert network.logits(images).shape == (2, CLASSES)
    gradients, _ = network.gradients(images, np.ones((2, CLASSES), np.float32))
    assert gradients.shape == images.shape


@pytest.mark.parametrize("side, least", [(28, 8), (64, 8), (224, 8), (2000, 8)])
def test_batch_never_falls_below_a_useful_size(side, least, network, monkeypatch):
    monkeypatch.undo()
    assert network.batch(np.zeros((1, side, side, 3), np.float32)) >= least


def test_small_pictures_are_not_padded_to_hundreds(network, monkeypatch):
    monkeypatch.undo()
    small, large = (np.zeros((1, side, side, 3), np.float32) for side in (32, 64))
    assert network.batch(small) == network.batch(large) == 64
    assert usual_count(small) == 256, "how many examples are asked does not depend on batches"


def test_margin_weights_are_the_margin_of_the_predicted_class():
    logits = jnp.asarray([[1.0, 5.0, 3.0], [2.0, 2.0, -1.0], [0.0, -3.0, -1.0]])
    gain = (margin_weights(logits) * logits).sum(-1)
    np.testing.assert_allclose(gain, [2.0, 0.0, 1.0])
    np.testing.assert_array_equal(margin_weights(logits).sum(-1), 0.0)


def test_margin_weights_of_two_classes():
    np.testing.assert_array_equal(margin_weights(jnp.asarray([[1.0, 3.0]])), [[-1.0, 1.0]])


def test_gradients_that_are_no_numbers_count_0_in_sums_over_pictures(network, monkeypatch):
    """0 / 0 where a picture's first pixel is 0; the gradients of all others stay to the bit."""
    images, weights = pictures(3), np.ones((3, CLASSES), np.float32)
    whole = np.asarray(network.gradients(images, weights)[0])

    def broken(config, params, given):
        first = given[:, :1, 0, 0]
        root = jnp.where(first > 0, 0 * first, 0 * jnp.sqrt(first))
        return apply(config, params, given) + root

    programs: tuple[Any, Any] = network_module._gradients, network_module._logits
    for program in programs:
        program.clear_cache()
    monkeypatch.setattr(network_module, "apply", broken)
    images[1, 0, 0, 0] = 0
    found, raw = network.gradients(images, weights)[0], network.margin_gradients(images)[0]
    summed = jax.grad(lambda x: apply_searched(CONFIG, network.model.params, x).sum())(images)
    programs[0].clear_cache()
    for made in (found, summed):
        assert np.isfinite(made).all() and made[1, 0, 0, 0] == 0 and np.abs(made[1]).max() > 0
    np.testing.assert_array_equal(found[::2], whole[::2])
    assert np.isnan(raw[1]).any() and np.isfinite(raw[::2]).all(), "anchors are told"
