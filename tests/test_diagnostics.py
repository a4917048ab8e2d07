"""Flags: raised where they should be, silent where not, and told in docs/flags.md."""

import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax

import jaxtroj
from converters.input_form import InputForm, assumed_size
from converters.model import ImageConfig, Model
from jaxtroj.anchors import AnchoredExamples, Answered
from jaxtroj.diagnostics import (
    diagnose,
    diagnose_folders,
    diagnose_labels,
    diagnose_norms,
    diagnose_sizes,
)
from jaxtroj.flags import FLAGS, raised_in
from jaxtroj.form_choice import FormChoice, Tried
from jaxtroj.input_forms import PixelForm
from jaxtroj.label_shift import label_shift
from jaxtroj.outputs import as_probabilities
from jaxtroj.rounds import ModelEntry
from jaxtroj.rounds.example_names import label_of
from jaxtroj.scan import scan_model
from jaxtroj.settings import Settings

SHIPPED = Path(jaxtroj.__file__).parent / "data" / "examples" / "clean"
"""A DenseNet of five classes, in the form of Round 0."""


@dataclass(frozen=True)
class _Config(ImageConfig):
    num_classes: int = 3

    def build(self, rngs):
        raise AssertionError("only the parameters are looked at")


MODEL = Model(_Config(), {"fc.kernel": jnp.ones((5, 3))}, "small")
MODEL_OF_FIVE = Model(_Config(5), {"fc.kernel": jnp.ones((5, 5))}, "small")
HEADLESS = Model(_Config(), {"conv1.kernel": jnp.ones((1, 1, 3, 3))}, "small")
LOGITS = np.random.default_rng(0).normal(size=(6, 3)) * 3
GUESS = InputForm().unsaid
NOTE = ("the auxiliary head was left out", "the output 'was assumed' was left out; 'assumed'")
STUCK = np.array([[3.0, 0, 0]] * 6)
FORM = ("input form: there are no labelled examples: assumed RGB, pixels / 255",)


def _examples(logits=LOGITS, accuracy=1.0, labelled=6, gradient=0.1, led=1.0, not_finite=0.0):
    n, answers = len(logits), jnp.argmax(jnp.asarray(logits), axis=1)
    return AnchoredExamples(
        jnp.zeros((n, 4, 4, 3)), jnp.zeros((n, 2)), answers, jnp.asarray(logits),
        accuracy, labelled, gradient, led, not_finite=not_finite,
    )  # fmt: skip


def _names(examples, findings=()):
    seen = "" if examples is None else as_probabilities(np.asarray(examples.logits, np.float64))
    found = diagnose(MODEL, examples, findings, outputs=seen)
    return [raised.flag.name for raised in found]


@pytest.mark.parametrize(
    ("examples", "findings", "expected"),
    [
        (_examples(), (), []),
        (_examples(), GUESS, []),
        (_examples(accuracy=0.5), (), []),
        (_examples(accuracy=0.49), (), ["examples-misclassified"]),
        (_examples(accuracy=0.1, labelled=0), (), []),
        (_examples(accuracy=0.1), GUESS, ["examples-misclassified", "input-guessed"]),
        (_examples(labelled=0), GUESS, ["input-guessed"]),
        (_examples(STUCK), GUESS, ["input-guessed"]),
        (_examples(STUCK), (), []),
        (_examples(labelled=0), NOTE, []),
        (_examples(labelled=0), FORM, ["input-guessed"]),
        (_examples(labelled=0), (assumed_size((32, 32)),), ["input-guessed"]),
        (_examples(softmax(LOGITS, axis=1)), (), ["probabilities"]),
        (_examples(log_softmax(LOGITS, axis=1)), (), ["probabilities"]),
        (_examples(softmax(LOGITS, axis=1) * 1.1), (), []),
        (_examples(expit(3 * LOGITS)), (), ["probabilities"]),
        (_examples(expit(LOGITS / 9)), (), []),
        (_examples(gradient=0.0), (), ["gradients-zero"]),
        (_examples(gradient=float("nan")), (), []),
        (_examples(led=0.6), (), ["gradients-mislead"]),
        (_examples(led=0.7), (), []),
        (_examples(not_finite=0.1), (), ["gradients-not-finite"]),
        (_examples(gradient=0.0, not_finite=1.0), (), ["gradients-not-finite"]),
        (_examples(led=0.6, not_finite=0.1), (), ["gradients-mislead", "gradients-not-finite"]),
        (_examples(led=float("nan")), (), []),
        (None, GUESS, []),
    ],
)
def test_flags(examples, findings, expected):
    assert _names(examples, findings) == expected


def test_searches_without_held_out_examples_are_told():
    """6 examples of 3 classes: one search fits to 3 of them, the other to all that there are."""
    (raised,) = diagnose(MODEL, _examples(), fitted={"probes": 6, "inversion": 3})
    assert str(raised).startswith("no-held-out-examples: probes measured on the 6 examples that")
    assert str(raised).endswith("give 3 of each class") and raised_in([str(raised)])
    assert diagnose(MODEL, _examples(), fitted={"probes": 5, "inversion": 3}) == ()


def test_of_very_many_classes_no_example_of_each_is_asked_for():
    model = Model(_Config(300), {"fc.kernel": jnp.ones((5, 300))}, "small")
    examples = _examples(np.random.default_rng(0).normal(size=(20, 300)))
    (raised,) = diagnose(model, examples, fitted={"probes": 30, "inversion": 8})
    assert str(raised).endswith("too few examples, give more than 30")


def test_class_folders_that_are_not_all_classes_are_told():
    assert diagnose_folders((), 50) == ()
    (raised,) = diagnose_folders(tuple("abcdef"), 50)
    said = "classes-unknown: 6 class folders (a, b, c, d and 2 more), the network has 50 classes"
    assert str(raised) == f"{said}: the pictures count as unlabelled"
    assert raised_in([str(raised)])
    (raised,) = diagnose_folders(("images",), 50, ["labels.csv"])
    assert str(raised).endswith("count as unlabelled (labels.csv beside them is not read)")


@pytest.mark.parametrize(("labels", "tables", "end"), [
    ([-1, -1], [], "put them into a folder for each class"),
    ([-1, -1], ["labels.csv"], "each class (labels.csv beside them is not read)"),
    ([-1, -1], ["a.csv", "b.csv"], "each class (a.csv, b.csv beside them are not read)"),
    ([-1, 0], ["labels.csv"], None),
])  # fmt: skip
def test_pictures_of_which_none_names_its_class_are_told(labels, tables, end):
    found = [str(raised) for raised in diagnose_labels(np.array(labels), tables)]
    assert len(found) == (end is not None) and raised_in(found) == tuple(found)
    start = "examples-unlabelled: no picture names its class, so that the input form was not"
    assert all(text.startswith(start) and text.endswith(end) for text in found)


def test_the_accuracy_is_told():
    (raised,) = diagnose(MODEL, _examples(accuracy=0.25))
    assert "clean accuracy 0.25 on 6 labelled examples" in str(raised)


def test_a_network_without_a_last_layer_is_told():
    assert [raised.flag.name for raised in diagnose(HEADLESS, _examples())] == ["no-last-layer"]


@pytest.mark.parametrize(("share", "names"), [(0.5, []), (0.51, ["examples-left-out"])])
def test_pictures_that_were_mostly_left_out_are_told(share, names):
    assert [raised.flag.name for raised in diagnose_sizes(share)] == names


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, []),
        ({"norm_accuracy_drop": np.nan}, []),
        ({"norm_accuracy_drop": -0.04}, []),
        ({"norm_accuracy_drop": -0.05}, ["statistics-lag"]),
        ({"norm_accuracy_drop": 0.90 - 0.95}, ["statistics-lag"]),
    ],
)
def test_running_statistics_that_lag_are_told(fields, names):
    found = diagnose_norms(fields)
    assert [raised.flag.name for raised in found] == names
    assert all(str(raised).startswith("statistics-lag: 5% more of the") for raised in found)


def test_every_flag_stands_in_the_document():
    text = (Path(__file__).parents[1] / "docs" / "flags.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \| (.*) \|$", text, re.MULTILINE)
    assert rows == [(flag.name, flag.raised, flag.remedy) for flag in FLAGS]


@pytest.mark.parametrize(
    ("classes", "accuracy", "accused"),
    [(10, 0.5, False), (10, 0.33, False), (10, 0.3, True), (2, 0.62, True), (2, 0.63, False)],
)
def test_low_accuracy_is_judged_beside_guessing(classes, accuracy, accused):
    model = Model(_Config(classes), {"fc.kernel": jnp.ones((5, classes))}, "small")
    found = diagnose(model, _examples(accuracy=accuracy), ())
    assert [raised.flag.name for raised in found] == ["examples-misclassified"] * accused


@pytest.mark.parametrize(("right", "expected"), [(6, []), (1, ["examples-misclassified"])])
def test_answers_of_a_stage_that_anchors_no_example_count_too(right, expected):
    labels = np.array([0, 1, 2, 0, 1, 2, -1])
    said = np.where(np.arange(7) < right, labels, (labels + 1) % 3)
    answered = Answered(np.zeros((7, 4, 4, 3)), labels, np.eye(3)[said])
    found = diagnose(MODEL, None, answered=answered)
    assert [raised.flag.name for raised in found] == expected
    assert not expected or "clean accuracy 0.17 on 6 labelled examples" in str(found[0])
    unknown = Answered(answered.images, np.full(7, -1), answered.logits)
    assert diagnose(MODEL, None, answered=unknown) == ()


@pytest.mark.parametrize(
    ("shift", "stages", "raised"),
    [(0, "weights,statistics", False), (1, "weights,statistics", True), (1, "weights", False)],
)
def test_a_scan_by_statistics_alone_tells_wrong_labels(tmp_path, shift, stages, raised):
    for path in (SHIPPED / "example_data").glob("class_*_example_[0-3].png"):
        label, number = (label_of(path.name) + shift) % 5, path.stem[-1]
        shutil.copy(path, tmp_path / f"class_{label}_example_{number}.png")
    entry = ModelEntry("clean", SHIPPED / "model.pt", tmp_path, None)
    settings = Settings(
        stages=tuple(stages.split(",")),
        calibrator=None,
        early_stop=False,
        channel_order="BGR",
        normalization="min-max",
    )
    record = scan_model(entry, settings)
    assert record.status == "ok", record.reason
    assert record.reason.startswith("examples-misclassified: clean accuracy 0.0") == raised


SHIFTS = {1: ("less", "lower"), -1: ("plus", "higher")}
"""Labels less answers -> how the flag calls it, and what it asks for."""


@pytest.mark.parametrize("by", SHIFTS)
def test_labels_that_are_all_off_by_one_are_told(by):
    labels = np.array([1, 2, 3, 1, 2, 3, -1])
    answers = labels - by
    answers[[0, 6]] = 0  # by 1 the first is right
    labels[0] = 3
    answered = Answered(np.zeros((7, 4, 4, 3)), labels, np.eye(5)[answers])
    (raised,) = diagnose(MODEL_OF_FIVE, None, answered=answered)
    moved, way = SHIFTS[by]
    said = f"the answers are the labels {moved} 1 for 0.83 of the examples"
    assert str(raised).endswith(f"; {said}: number their classes one {way}")


@pytest.mark.parametrize(
    ("labels", "answers"),
    [
        ([1, 2, 3, 1, 2], [0, 1, 2, 0, 1]),  # too few
        ([1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]),  # a network stuck on one class
        ([1, 1, 1, 1, 1, 1, 2], [0, 0, 0, 0, 0, 0, 0]),
        ([1, 2, 3, 1, 2], [3, 1, 2, 3, 1]),  # too few of them
        ([-1, -1, -1, -1, -1, -1, -1], [-2, 0, 0, 0, 0, 0, 0]),
        ([0, 1, 2, 0, 1, 2], [2, 0, 1, 2, 0, 1]),  # around the end
    ],
)
def test_no_shift_of_the_labels_is_made_up(labels, answers):
    assert label_shift(np.array(answers), np.array(labels)) is None


def test_a_scan_tells_files_that_are_numbered_from_one(tmp_path):
    """Class 4 of the network has no file: with one, the examples are of a class that it lacks."""
    for path in (SHIPPED / "example_data").glob("class_[0-3]_example_[0-3].png"):
        label, number = label_of(path.name) + 1, path.stem[-1]
        shutil.copy(path, tmp_path / f"class_{label}_example_{number}.png")
    entry = ModelEntry("clean", SHIPPED / "model.pt", tmp_path, None)
    searched = Settings(stages=("sensitivity",), calibrator=None, early_stop=False)
    known = replace(searched, channel_order="BGR", normalization="min-max")
    for settings in (known, searched):
        record = scan_model(entry, settings)
        assert record.reason.startswith("examples-misclassified: clean accuracy 0."), record.reason
        assert "the answers are the labels less 1 for 1.00 of the examples" in record.reason
    shutil.copy(tmp_path / "class_4_example_0.png", tmp_path / "class_5_example_0.png")
    record = scan_model(entry, settings)
    assert record.status == "failed" and "an example is of class 5" in record.reason
    assert record.reason.endswith("they begin with class 1: number them from class 0")


def test_the_accuracy_is_that_of_the_best_form_that_was_tried():
    form = FormChoice(PixelForm("pixels / 255"), "examples", "", 0.2, 40, None, 12)
    for examples in (_examples(), None):
        (raised,) = diagnose(MODEL, examples, (), form)
        assert "clean accuracy 0.20 on 40 labelled examples (0.33 is guessing)" in str(raised)
        assert str(raised).endswith("none of 12 usual input forms has a clearly better log score")


def test_another_form_with_more_right_answers_is_told():
    scores, right = np.zeros(40), np.arange(40) < 12
    other = Tried(PixelForm("pixels / 255", channel_order="BGR"), scores, right, 0.33)
    form = FormChoice(PixelForm("pixels / 255"), "examples", "", 0.2, 40, other, 12)
    (raised,) = diagnose(MODEL, None, (), form)
    said = "a clearly better log score, though clean accuracy is 0.30 by BGR, pixels / 255"
    assert str(raised).endswith(said)


def test_examples_of_one_class_confirm_no_guess():
    """Some answers of another class do not change that; examples of several classes do."""
    for why, expected in (("examples of one class only", 1), ("only 4 labelled examples", 0)):
        form = FormChoice(PixelForm("pixels / 255"), "assumed", why)
        found = diagnose(MODEL, _examples(accuracy=0.9), (str(form),), form)
        assert [raised.flag.name for raised in found] == ["input-guessed"] * expected
