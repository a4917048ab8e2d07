"""Settings and limits that no scan could use are refused with what was got and what is expected."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxtroj
from jaxtroj.errors import UsageError
from jaxtroj.evidence import versions
from jaxtroj.evidence.stages import IMAGES, TABLES
from jaxtroj.settings import DEFAULT_CALIBRATOR, Settings

SEED = "whole number from 0 to 2\\*\\*63 - 1, got"
NO_NUMBERS = [
    ({"seed": 1.5}, f"seed must be a {SEED} 1.5"),
    ({"seed": 2**70}, f"seed must be a {SEED} {2**70}"),
    ({"seed": 10**20 - 1}, f"seed must be a {SEED} {10**20 - 1}"),
    ({"seed": -1}, f"seed must be a {SEED} -1"),
    ({"seed": 10**6000}, f"seed must be a {SEED} an integer of more than 20 digits"),
    ({"seed": True}, f"seed must be a {SEED} True"),
    ({"seed": None}, f"seed must be a {SEED} None"),
    ({"base_rate": "0.5"}, "base_rate must be a number between 0 and 1, got '0.5'"),
    ({"base_rate": math.nan}, "base_rate must lie between 0 and 1, got nan"),
    ({"threshold": None}, "threshold must be a number between 0 and 1, got None"),
    ({"enough": "0.1"}, "enough must be a number between 0 and 0.5, got '0.1'"),
    ({"examples_per_class": 2.5}, "examples_per_class must be a whole number of at least 1, got"),
    ({"class_counts": 5}, "class_counts must be numbers above 0, one for each class, got 5"),
    (
        {"class_counts": (5,)},
        r"class_counts must be numbers above 0 and at most .*, two or more, got \(5\)",
    ),
    (
        {"class_counts": (5, 0)},
        r"class_counts must be numbers above 0 and at most .*, two or more, got \(5, 0\)",
    ),
    (
        {"class_counts": (5, math.inf)},
        "class_counts must be numbers above 0 and at most .*, two or more",
    ),
    ({"class_counts": (5, 10**400)}, "class_counts must be numbers above 0 and at most .*, two"),
    (
        {"class_counts": (5, math.nan)},
        "class_counts must be numbers above 0 and at most .*, two or more",
    ),
    ({"resize": 2.5}, "resize must be a whole number from 1 to 4096, got 2.5"),
    ({"resize": 0}, "resize must be from 1 to 4096 pixels, got 0"),
    (
        {"resize": 9, "image_size": (9, 10)},
        r"resize must be at least the sides .* \(9, 10\), got 9",
    ),
    ({"image_size": (64,)}, r"image_size must be height and width.* got \(64\)"),
    ({"image_size": (64, 64, 3)}, "image_size must be height and width"),
    ({"image_size": 64}, "image_size must be height and width.* got 64"),
    ({"image_size": (64.5, 64)}, "image_size must be height and width"),
    ({"image_size": (64, 5000)}, "image_size must be from 1 to 4096 pixels"),
    ({"bounds": ("0", "1")}, r"bounds must be two different finite numbers, got \('0', '1'\)"),
    ({"mean": 0.5}, "mean must be finite numbers, one for each channel, got 0.5"),
    ({"std": (None,)}, r"std must be finite numbers above 0, .* got \(None\)"),
    ({"stages": "weights"}, "stages: expected a tuple of names, got the text 'weights'"),
    ({"stages": 3}, "stages: expected a tuple of names, got 3"),
    ({"early_stop": "no"}, "early_stop must be True or False, got 'no'"),
    ({"recover_words": 1}, "recover_words must be True or False, got 1"),
    ({"calibrator": 3}, "calibrator must be a path or None, got 3"),
    ({"reference": 3}, "reference must be a path or None, got 3"),
    ({"bank": b"b"}, "bank must be a path or None, got b'b'"),
    ({"encoder": Path("a\0b")}, r"encoder must be a path or None, got 'a\\x00b'"),
    ({"special_calibrators": "a.json"}, "special_calibrators must be a tuple of paths, got 'a"),
    ({"special_calibrators": (3,)}, r"special_calibrators must be a tuple of paths, got \(3\)"),
    ({"round_calibrators": {"round0": "a"}}, r"round_calibrators must be a tuple of pairs \(round"),
    ({"channel_order": np.array(["RGB"])}, "channel_order must be a text or None, got a ndarray"),
    ({"channel_order": np.array(["RGB", "BGR"])}, "channel_order must be a text or None, got"),
    ({"normalization": 3}, "normalization must be a text or None, got 3"),
    ({"layout": ["NHWC"]}, r"layout must be a text or None, got \('NHWC'\)"),
    ({"output": 3}, "output must be a text or None, got 3"),
    ({"public_code": 3}, "public_code must be a text or None, got 3"),
    ({"seed": 1.5, "image_size": (64,)}, "seed must be .*; image_size must be"),
]


@pytest.mark.parametrize(
    ("values", "message"), NO_NUMBERS, ids=[str(n) for n in range(len(NO_NUMBERS))]
)
def test_settings_that_no_scan_could_use(values, message):
    with pytest.raises(UsageError, match=f"^settings: {message}"):
        Settings(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"seed": 0},
        {"seed": 2**63 - 1},
        {"image_size": (1, 4096)},
        {"resize": 64, "image_size": (64, 32)},
        {"class_counts": (1e-9, 1e9)},
        {"bounds": (-1, 1), "mean": [0.5], "std": (1, 0.5, 2.0)},
        {"base_rate": None, "enough": None, "examples_per_class": None},
    ],
    ids=str,
)
def test_settings_at_the_ends_of_their_ranges(values):
    settings = Settings(**values)
    assert all(getattr(settings, name) == value for name, value in values.items())


@pytest.mark.parametrize("name", ["timeout", "memory"])
@pytest.mark.parametrize("value", [math.nan, -1, 0, "60", True])
def test_limits_that_are_none(name, value):
    with pytest.raises(UsageError, match=f"{name} must be a number above 0, or None .* got"):
        jaxtroj.Guard(**{name: value})


def test_limits_that_are_some():
    assert jaxtroj.Guard(timeout=math.inf).too_long(1e9) is None
    assert jaxtroj.Guard(0.5, 2**30).too_long(1.0) is not None


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [("resize", 256, 256), ("class_counts", (5.0, 50.0), [5.0, 50.0])],
)
def test_what_an_answer_depends_on_only_where_it_is_said(name, value, stored):
    plain, said = Settings().as_json(), Settings(**{name: value}).as_json()
    assert name not in plain and said == plain | {name: stored}


def test_evidence_that_is_measured_otherwise_begins_a_scan_anew(monkeypatch):
    before = Settings().as_json()
    raised = replace(IMAGES, revision=IMAGES.revision + 1)
    monkeypatch.setattr(versions, "TABLES", TABLES | {IMAGES.kind: raised})
    after = Settings().as_json()
    assert {name for name in after if after[name] != before[name]} == {"evidence_revision"}


def test_paths_may_be_texts():
    usual: Any = str(DEFAULT_CALIBRATOR)
    named = Settings(calibrator=usual)
    assert named.calibrator == DEFAULT_CALIBRATOR and named.as_json() == Settings().as_json()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda limits: jaxtroj.detect("m.pt", limits=limits), r"limits are 600, expected jaxtroj"),
        (lambda limits: jaxtroj.scan_folder(".", limits=limits), "limits are 600, expected"),
        (lambda limits: next(jaxtroj.answer([], Settings(), limits)), "limits are 600, expected"),
        (lambda _: jaxtroj.detect("a\0b"), r"network is 'a\\x00b', which holds a NUL character"),
        (lambda _: jaxtroj.detect("a\ud800b"), r"network is 'a\\ud800b', which holds half of a"),
        (lambda _: jaxtroj.scan_folder("a\0b"), r"folder is 'a\\x00b', .*; expected a path"),
    ],
)
def test_arguments_that_are_none(call, said):
    with pytest.raises(UsageError, match=said):
        call(600)
