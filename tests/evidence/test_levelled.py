"""Networks whose logits are scaled: nothing that they answer changes, nor what is said of them."""

import numpy as np
import pytest

import jaxtroj
from converters.adjusted_logits import adjusted, unadjusted
from converters.errors import ConversionError
from jaxtroj import Settings
from jaxtroj.evidence.images.levelled import LEAST, MOST, Level, level, levelled
from jaxtroj.network import Network

from .conftest import colour_model, pictures, small_model

EXAMPLES = pictures([0, 1, 2] * 6)


def margin(model) -> float:
    """Mean margin of a network's answers on the examples."""
    rows = np.sort(np.asarray(Network(model).logits(EXAMPLES.images), np.float64), axis=1)
    return float((rows[:, -1] - rows[:, -2]).mean())


@pytest.mark.parametrize("power", [-90, -20, -6, 0, 6, 20])
def test_margins_come_to_those_of_trained_networks(power):
    plain = colour_model()
    own = 4 / margin(plain) * 2.0**power
    network = adjusted(plain, own)
    found = level(network, EXAMPLES)
    assert found.outputs == ""
    usual = float(np.clip(4 * 2.0**power, LEAST, MOST))
    assert margin(levelled(network, found.factor)) == pytest.approx(usual, rel=0.45)
    assert np.log2(found.factor).is_integer(), "no logit is rounded"
    assert (found.factor == 1) == (power == 0)


def test_usual_networks_stay_as_they_are():
    network = adjusted(colour_model(), 4 / margin(colour_model()))
    assert level(network, EXAMPLES) == Level()
    assert levelled(network, 1.0) is network


@pytest.mark.parametrize("factor", [0.0, np.inf, np.nan])
def test_where_nothing_tells_nothing_is_done(factor):
    plain = small_model()
    params = {**plain.params, "fc.kernel": plain.params["fc.kernel"] * factor}
    params["fc.bias"] = plain.params["fc.bias"] * factor
    assert level(type(plain)(plain.config, params, plain.architecture), EXAMPLES).factor == 1


def test_factors_stay_in_the_range_of_floats():
    tiny = adjusted(colour_model(), 1e-38)
    assert np.isfinite(margin(levelled(tiny, level(tiny, EXAMPLES).factor)))


@pytest.mark.parametrize("factor", [0.0, -1.0, np.inf, np.nan])
def test_a_factor_that_changes_answers_is_refused(factor):
    with pytest.raises(ConversionError, match="expected one above 0"):
        adjusted(small_model(), factor)


def test_all_that_was_done_to_logits_is_taken_off():
    plain = small_model()
    changed = adjusted(adjusted(plain, 3.0), shifts=[1.0, 0.0, -1.0])
    expected = 3 * np.asarray(Network(plain).logits(EXAMPLES.images)) + [1, 0, -1]
    np.testing.assert_allclose(Network(changed).logits(EXAMPLES.images), expected, rtol=1e-5)
    assert unadjusted(changed).config is plain.config


def detected(factor: float) -> jaxtroj.Record:
    settings = Settings(calibrator=None, early_stop=False, stages=("weights", "probes"),
                        normalization="unit", channel_order="RGB")  # fmt: skip
    model = adjusted(colour_model(), factor / margin(colour_model()))
    pixels = np.round(EXAMPLES.images * 255).astype(np.uint8)
    return jaxtroj.detect(model, pixels, EXAMPLES.labels, settings).record


def test_scaled_logits_hide_nothing():
    """All below the least give the same evidence; a finding says that they were scaled."""
    usual, least, small, tiny = (detected(LEAST * part) for part in (4, 0.5, 1 / 64, 2.0**-20))
    assert not any("logits are" in finding for finding in usual.findings)
    assert any("times smaller than those of trained" in finding for finding in small.findings)
    for record in (small, tiny):
        assert record.status == "ok" and record.evidence["probe_score"] > 0
        assert record.evidence == pytest.approx(least.evidence, rel=1e-4, abs=1e-5)
