"""Signs of examples count by themselves where these are drawn as the training pictures were."""

from dataclasses import replace

import numpy as np
import pytest

from jaxtroj.calibration import Labelled, Scheme
from jaxtroj.calibration.labelled import make_population
from jaxtroj.calibration.pooling import fit_pooled, known_fields
from jaxtroj.evidence.stage import SUPPORT
from jaxtroj.numerics import sigmoid


@pytest.mark.parametrize("trusts, expected", [(False, SUPPORT), (True, "statistics")])
def test_signs_of_examples_are_a_search_of_their_own_where_the_examples_are_trusted(
    trusts, expected
):
    scheme = Scheme(
        {"statistics": ("shift", "lift")},
        {"shift": 1, "lift": 1},
        searches={"shift": SUPPORT, "lift": "lift"},
        trusts_examples=trusts,
    )
    assert [one.search for one in known_fields(scheme)] == [expected, "lift"]


def test_trusted_examples_alone_make_a_network_poisoned():
    rows = [{"shift": float(i % 2) * 4 + i % 5 / 10, "other": i % 7 / 10} for i in range(60)]
    models = Labelled(rows, [i % 2 == 1 for i in range(60)], [None] * 60)
    plain = Scheme(
        {"statistics": ("shift",), "other": ("other",)},
        {"shift": 1, "other": 1},
        searches={"shift": SUPPORT},
        is_pooled=True,
    )
    said = []
    for scheme in (plain, replace(plain, trusts_examples=True)):
        model = fit_pooled(make_population(models), scheme, 0)
        said.append(float(sigmoid(model.raw_log_odds(np.array([[4.2, 0.1]])))[0]))
    assert said[0] < 0.75 < 0.95 < said[1]
