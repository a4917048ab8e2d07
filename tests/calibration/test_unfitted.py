"""Why a fit leaves stages out: too few models, or none that has all stages before."""

import numpy as np

from jaxtroj.calibration import Calibrator, Labelled, Scheme
from jaxtroj.calibration.linear import Few
from jaxtroj.calibration.unfitted import unfitted_stages

STAGES = {"weights": ("w",), "small": ("s",), "large": ("l", "m"), "more": ("n",), "whole": ("x",)}
SIDES = {"small": (1, 32), "large": (33, 2**31 - 1), "more": (33, 2**31 - 1)}
SCHEME = Scheme(STAGES, sides=SIDES)
SMALL, LARGE = ("weights", "small", "whole"), ("weights", "large", "more", "whole")


def models(*stages_of_each):
    """Every second one poisoned, each with all fields of its stages."""
    random = np.random.default_rng(0)
    rows = [
        {field: float(random.normal() + i % 2) for name in stages for field in STAGES[name]}
        for i, stages in enumerate(stages_of_each)
    ]
    return Labelled(rows, [i % 2 == 1 for i in range(len(rows))], [None] * len(rows))


def said(labelled, scheme=SCHEME):
    left_out = Calibrator.fit(labelled, scheme).unfitted
    return {one.stage: str(one) for one in unfitted_stages(labelled, scheme, left_out)}


def test_stages_that_exclude_each_other_are_named_with_the_pictures_they_are_for():
    found = said(models(*[SMALL] * 24, *[LARGE] * 16))
    assert list(found) == ["large", "more", "whole"]
    assert found["whole"] == (
        "whole is not fitted: 40 models have its fields, but none of them has those of all stages"
        " before it (24 lack large and more (of pictures from 33 px), 16 lack small (of pictures of"
        " up to 32 px)); calibrate models with the same stages apart"
    )
    assert found["large"].startswith("large is not fitted: 16 models have its fields, but none")


def test_a_few_complete_models_are_counted():
    mixed = models(*[SMALL] * 24, *[LARGE] * 16, *[tuple(STAGES)] * 2)
    assert "42 models have its fields, but 2 of them have those of all" in said(mixed)["whole"]


def test_where_too_few_models_have_the_stage_itself_the_count_is_the_cause():
    found = said(models(*[("weights",)] * 24, *[LARGE] * 6))
    assert found["whole"] == "with so few models whole is not fitted"
    assert found["small"] == "with so few models small is not fitted"


def test_what_the_fit_of_few_leaves_out_has_no_other_cause():
    few = Few(models=60, fields=("w",), penalty=1.0, clip=0.03)
    complete = models(*[tuple(STAGES)] * 40)
    assert said(complete, Scheme(STAGES, few=few))["whole"].startswith("with so few models")
    assert said(complete) == {}


def test_of_few_models_the_fields_that_count_for_few_are_named():
    """Whoever lacks another field is fitted all the same."""
    few = Few(models=60, fields=("w", "s", "x"), penalty=1.0, clip=0.03)
    found = said(models(*[SMALL] * 24, *[LARGE] * 16), Scheme(STAGES, few=few, sides=SIDES))
    assert "whole" not in found and found["large"].startswith("with so few models")
    swapped = Scheme(dict(reversed(STAGES.items())), few=few)
    assert "(16 lack small)" in said(models(*[SMALL] * 4, *[LARGE] * 16), swapped)["weights"]
