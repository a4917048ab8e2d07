"""All stages together: what comes out, that it is the same each time, and odd models and examples.

The networks are untrained and small; what evidence is worth is in `test_planted`.
"""

from dataclasses import replace
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from converters.families.densenet import DenseNetConfig
from converters.families.folding import fold
from converters.model import Model, params_of
from jaxtroj import network
from jaxtroj.errors import EvidenceError, ExamplesError
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.triggers.kinds import KINDS

from .conftest import gather_images as gather

FIELDS, STAGE_FIELDS = IMAGES.fields, IMAGES.stage_fields
STAGES = ("weights", "probes", "sensitivity", "inversion")  # others have tests of their own
WITHOUT_GRADIENTS = ("weights", "probes")
# Unit -> smallest and largest possible value.
RANGES = {
    "fraction 0-1": (0.0, 1.0),
    "share of the picture": (0.0, 1.0),
    "cosine": (0.0, 1.0),
    "difference of cosines": (-2.0, 2.0),
    "log ratio": (0.0, np.inf),
    "log share": (-np.inf, 0.0),
    "deviations": (-np.inf, np.inf),
    "dimensionless": (0.0, np.inf),
    "logits": (0.0, np.inf),
    "difference of fractions": (-2.0, 2.0),
    "difference of logs": (-np.inf, np.inf),
    "clean margins": (-np.inf, np.inf),
    "class": (-1.0, np.inf),
}
LABELS = [0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 1, 2]


@pytest.fixture(scope="module", autouse=True)
def small_batches(quick_module):
    """Batches of 32 small pictures: the usual ones hold 1820, nearly all of them padding here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "_CPU_PIXELS", 32 * 12 * 12)
        patch.setattr(network, "_GPU_FACTOR", 1)
        yield


@pytest.fixture(scope="module")
def whole(make_model, make_pictures, quick):
    """Evidence of all stages."""
    return gather(make_model(), make_pictures(LABELS), STAGES, budgets=quick)


def check_evidence(evidence, examples, classes, stages=STAGES):
    """What holds for the evidence of any model."""
    assert evidence.stages == stages
    assert list(evidence.fields) == [name for stage in stages for name in STAGE_FIELDS[stage]]
    for field in FIELDS:
        if field.name in evidence.fields:
            value = evidence.fields[field.name]
            least, most = RANGES[field.unit]
            assert type(value) is float and np.isfinite(value), field.name
            assert least - 1e-6 <= value <= most + 1e-6, f"{field.name} is {value}"
    assert set(stages) <= set(evidence.seconds)
    assert all(seconds >= 0 for seconds in evidence.seconds.values())
    for trigger in evidence.triggers:
        check_trigger(trigger, examples.images.shape[1:], classes)


def check_trigger(trigger, shape, classes):
    assert 0 <= trigger.target_class < classes
    assert set(trigger.source_classes) <= set(range(classes)) - {trigger.target_class}
    drawn = trigger.trigger.drawn(trigger.shape, trigger.offset)
    assert drawn.mask.shape == (*shape[:2], 1) and drawn.pattern.shape == shape
    for part in (drawn.mask, drawn.pattern):
        assert part.min() >= 0 and part.max() <= 1
    assert 0 <= trigger.attack_success_rate <= 1
    facts = trigger.as_json()
    assert facts["mask_l1"] == pytest.approx(float(drawn.mask.sum()), rel=1e-5)
    # A patch of the probe bank is cut off at the edges, and its size is that of the whole.
    assert facts["mask_l1"] <= trigger.size * shape[0] * shape[1] * (1 + 1e-5)
    assert facts["kind"] in KINDS and 0 <= trigger.size <= 1
    assert trigger.method


def test_every_field_is_gathered_and_in_range(whole, make_pictures):
    check_evidence(whole, make_pictures(LABELS), 3)
    assert {t.method for t in whole.triggers} == {"probe", "patch search", "neural cleanse"}
    rates = [trigger.attack_success_rate for trigger in whole.triggers]
    assert rates == sorted(rates, reverse=True)


def test_bit_equal_on_repeat_and_after_other_models(whole, make_model, make_pictures, quick):
    gather(make_model(seed=5), make_pictures([2, 1, 0]), STAGES, budgets=quick)
    again = gather(make_model(), make_pictures(LABELS), STAGES, budgets=quick)
    assert again.fields == whole.fields
    for old, new in zip(whole.triggers, again.triggers, strict=True):
        assert (old.target_class, old.method) == (new.target_class, new.method)
        assert (old.as_json(), old.size) == (new.as_json(), new.size)
        for a, b in zip(jax.tree.leaves(old.trigger), jax.tree.leaves(new.trigger), strict=True):
            np.testing.assert_array_equal(a, b)


def test_examples_and_parameters_are_left_as_they_were(make_model, make_pictures, quick):
    model, examples = make_model(), make_pictures(LABELS)
    params = {k: np.array(v) for k, v in model.params.items()}
    images = examples.images.copy()
    gather(model, examples, STAGES, budgets=quick)
    np.testing.assert_array_equal(examples.images, images)
    for path, value in params.items():
        np.testing.assert_array_equal(model.params[path], value)


SUBSETS = [part for size in (1, 2, 3) for part in combinations(STAGES, size)]


@pytest.mark.parametrize("stages", SUBSETS, ids="+".join)
def test_any_part_of_the_stages_gives_its_part_of_the_fields(
    stages, whole, make_model, make_pictures, quick
):
    examples = make_pictures(LABELS)
    part = gather(make_model(), examples, stages, budgets=quick)
    check_evidence(part, examples, 3, stages)
    assert part.fields == {name: whole.fields[name] for name in part.fields}


def test_the_seed_matters(whole, make_model, make_pictures, quick):
    other = gather(make_model(), make_pictures(LABELS), STAGES, seed=1, budgets=quick).fields
    assert other["probe_score"] != whole.fields["probe_score"]
    assert other["head_mean_outlier"] == whole.fields["head_mean_outlier"]


@pytest.mark.parametrize("last", STAGES[1:])
def test_stops_when_told_to(last, whole, make_model, make_pictures, quick):
    told = []

    def stop(stage, fields, has_trigger):
        told.append((stage, dict(fields)))
        return stage == last

    examples = make_pictures(LABELS)
    part = gather(make_model(), examples, STAGES, budgets=quick, stop=stop)
    done = STAGES[: STAGES.index(last) + 1]
    check_evidence(part, examples, 3, done)
    # The weights search for no trigger, so there would be none to show.
    assert tuple(stage for stage, _ in told) == done[1:]
    for i, (_, fields) in enumerate(told):
        assert list(fields) == [name for stage in done[: i + 2] for name in STAGE_FIELDS[stage]]
    assert told[-1][1] == part.fields and part.triggers


EDGES = {
    "two classes": (2, [0, 1, 0, 1]),
    "one example of each class": (3, [0, 1, 2]),
    "fewer examples than classes": (5, [0, 1, 2]),
    "one example": (3, [1]),
    "a class without examples": (3, [0, 0, 0, 2, 2]),
    "no label known": (3, [-1, -1, -1, -1]),
    "many classes": (43, list(range(43)) * 2),
}


@pytest.mark.parametrize("classes, labels", EDGES.values(), ids=EDGES)
def test_odd_examples(classes, labels, make_model, make_pictures, quick):
    examples = make_pictures(labels)
    evidence = gather(make_model(classes), examples, STAGES, budgets=quick)
    check_evidence(evidence, examples, classes)


@pytest.mark.parametrize("height, width, channels", [(10, 17, 1), (28, 20, 4)])
def test_pictures_of_any_shape(height, width, channels, make_model, make_pictures, quick):
    examples = make_pictures([0, 1, 2, 0, 1, 2], height, width, channels)
    evidence = gather(make_model(channels=channels), examples, STAGES, budgets=quick)
    check_evidence(evidence, examples, 3)


@pytest.mark.parametrize("favourite", [0, 2])
def test_a_network_with_one_answer_only(favourite, make_model, make_pictures, quick):
    """All examples count as of the target class: nothing can be flipped, nothing is NaN."""
    model = make_model()
    bias = jnp.zeros(3).at[favourite].set(1e4)
    stuck = replace(model, params=model.params | {"fc.bias": bias})
    examples = make_pictures(LABELS)
    check_evidence(gather(stuck, examples, STAGES, budgets=quick), examples, 3)


def test_a_network_that_answers_nothing(make_model, make_pictures, quick):
    """All weights zero: every logit ties, every gradient vanishes."""
    model = make_model()
    dead = replace(model, params={k: jnp.zeros_like(v) for k, v in model.params.items()})
    examples = make_pictures(LABELS)
    check_evidence(gather(dead, examples, STAGES, budgets=quick), examples, 3, WITHOUT_GRADIENTS)


def test_pictures_of_one_value(make_model, make_pictures, quick):
    examples = make_pictures(LABELS)
    flat = replace(examples, images=np.zeros_like(examples.images))
    check_evidence(gather(make_model(), flat, STAGES, budgets=quick), flat, 3, WITHOUT_GRADIENTS)


def test_sixty_four_bit_mode_does_not_change_the_answer(whole, make_model, make_pictures, quick):
    examples = make_pictures(LABELS)
    stages = STAGES[:3]  # inversion: tests/inversion
    with jax.enable_x64(True):
        wide = gather(make_model(), examples, stages, budgets=quick)
    check_evidence(wide, examples, 3, stages)
    for name in (*STAGE_FIELDS["weights"], *STAGE_FIELDS["sensitivity"]):
        assert wide.fields[name] == pytest.approx(whole.fields[name], rel=1e-3, abs=1e-5), name


def test_folding_first_changes_nothing(make_pictures, quick):
    config = DenseNetConfig(8, (((8, 4),), ((8, 4),)), (6,), 3)
    params = params_of(config.build(nnx.Rngs(0)))
    model = Model(config, {k: jnp.asarray(v) for k, v in params.items()}, "densenet")
    examples = make_pictures(LABELS, 24, 24)
    stages = ("weights", "probes")
    plain = gather(model, examples, stages, budgets=quick)
    folded = gather(fold(model), examples, stages, budgets=quick)
    check_evidence(plain, examples, 3, stages)
    assert plain.fields == folded.fields


def refuse(model, examples, error, words):
    with pytest.raises(error) as caught:
        gather(model, examples, STAGES)
    message = str(caught.value)
    assert all(word in message for word in words), message


def test_examples_of_other_channels_are_refused(make_model, make_pictures):
    refuse(make_model(), make_pictures([0, 1], channels=1), ExamplesError, ["1 channel", "3"])


def test_examples_of_another_model_are_refused(make_model, make_pictures):
    refuse(make_model(3), make_pictures([0, 3]), ExamplesError, ["class 3", "0 to 2"])


def test_no_examples_are_refused(make_model, make_pictures):
    none = replace(
        make_pictures([0]), images=np.zeros((0, 12, 12, 3)), labels=np.zeros(0, int), names=()
    )
    refuse(make_model(), none, ExamplesError, ["no example"])


def test_a_model_of_one_output_is_refused(make_model, make_pictures):
    """A scan makes two of one before."""
    words = ["1 output", "two classes", "converters.one_output.two_classes"]
    refuse(make_model(1), make_pictures([0]), EvidenceError, words)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_answers_are_refused(bad, make_model, make_pictures):
    model = make_model()
    broken = replace(model, params=model.params | {"fc.bias": jnp.full(3, bad)})
    refuse(broken, make_pictures([0, 1]), EvidenceError, ["not finite", "expected"])
