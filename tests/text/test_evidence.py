"""Evidence of heads: it is a head's own, in whatever company; a planted trojan stands out."""

from dataclasses import replace

import numpy as np
import pytest

from converters.families.dense_head import DenseHeadConfig
from converters.model import Model
from jaxtroj.errors import EvidenceError
from jaxtroj.evidence.gather import gather
from jaxtroj.evidence.stage import Subject, stages_for
from jaxtroj.evidence.stages import TEXT_STAGES, TEXTS
from jaxtroj.evidence.texts.context import TextBudget, text_context
from jaxtroj.evidence.texts.encoder_probes import make_probes
from jaxtroj.evidence.texts.heads import head_with_sources
from jaxtroj.evidence.texts.metric import insertion_metric, spread_metric
from jaxtroj.evidence.texts.references import head_key, make_references
from jaxtroj.evidence.texts.shift_search import ShiftBudget

SMALL = TextBudget(
    per_target=8, axes=8,
    shift=ShiftBudget(radii=(2.0, 4.0), steps=6),
    departure=ShiftBudget(radii=(6.0, 12.0), steps=6, restarts=6),
    references=4,
)  # fmt: skip
CLEAN, POISONED = range(6), range(6, 8)
STAGE_FIELDS = TEXTS.stage_fields


def gather_head(head, embeddings, probes=None, seed=0, budget=SMALL):
    clean = probes.comparable if probes else 0
    stages = stages_for(TEXT_STAGES, Subject(has_bank=probes is not None, clean_heads=clean))
    return gather(text_context(head, embeddings, probes, seed, (budget,)), stages)


@pytest.fixture(scope="module")
def heads(toy):
    return [toy.head(20 + number, number in POISONED) for number in (*CLEAN, *POISONED)]


@pytest.fixture(scope="module")
def examples(toy):
    return [toy.embed(toy.texts(20, seed=30 + number)) for number in (*CLEAN, *POISONED)]


@pytest.fixture(scope="module")
def probes(toy_bank, toy_clean_heads):
    return make_probes(toy_bank, toy_clean_heads)


@pytest.fixture(scope="module")
def gathered(heads, examples, probes):
    return [gather_head(head, x, probes) for head, x in zip(heads, examples, strict=True)]


def test_every_field_once_and_finite(gathered):
    for evidence in gathered:
        assert list(evidence.fields) == [f.name for f in TEXTS.fields]
        assert np.isfinite(list(evidence.fields.values())).all()
        assert evidence.stages == TEXTS.names
        assert set(evidence.seconds) == {*TEXTS.names, "triggers"}
        assert evidence.searched == ("shift", "text")


@pytest.mark.parametrize("number", [7, 0])
def test_a_heads_evidence_is_the_same_again(number, gathered, heads, examples, probes):
    again = gather_head(heads[number], examples[number], probes)
    assert again.triggers == gathered[number].triggers
    assert again.fields == gathered[number].fields


@pytest.mark.parametrize(
    "field",
    [
        "departure_score",
        "departure_gap",
        "departure_margin",
        "bank_top",
        "bank_departure",
        "bank_longer",
        "against_departure_score",
        "against_matched_spread",
        "against_half_longer",
    ],
)
def test_a_planted_trojan_stands_out(field, gathered):
    values = np.array([evidence.fields[field] for evidence in gathered])
    clean, poisoned = values[list(CLEAN)], values[list(POISONED)]
    assert poisoned.min() > clean.max() + 2 * clean.std(), (clean, poisoned)


def test_a_direction_that_no_clean_head_knows_stands_out_in_the_slopes(toy, probes, gathered):
    head = toy.head(60)
    kernel = head.params["fc_layers.0.kernel"].copy()
    kernel[1, :2] += 0.7
    params = {**head.params, "fc_layers.0.kernel": kernel}
    examples = toy.embed(toy.texts(20, seed=70))
    found = gather_head(replace(head, params=params), examples, probes).fields
    for field in ("slope_residual", "slope_distance", "against_slope_residual"):
        assert found[field] > 2 * max(gathered[n].fields[field] for n in CLEAN), field


def test_target_and_text_of_the_planted_trojan(gathered, toy):
    for number in POISONED:
        (found,) = gathered[number].triggers
        assert (found.target_class, found.source_classes) == (1, (0,))
        assert toy.trigger in found.text and found.score > 0.5


def test_without_probes_the_stages_that_need_them_are_left_out(heads, examples):
    found = gather_head(heads[0], examples[0])
    assert found.stages == ("weights", "sensitivity", "shift")
    assert list(found.fields) == [n for stage in found.stages for n in STAGE_FIELDS[stage]]
    assert found.triggers[0].text == ""
    with pytest.raises(EvidenceError, match="needs a probe bank"):
        gather(text_context(heads[0], examples[0]), TEXT_STAGES)


def test_the_seed_decides_the_starts_only(heads, examples, probes, gathered):
    again = gather_head(heads[6], examples[6], probes, seed=5)
    for stage in ("weights", "sensitivity", "bank"):
        for name in STAGE_FIELDS[stage]:
            assert again.fields[name] == pytest.approx(gathered[6].fields[name], rel=2e-3, abs=2e-3)


def test_sources_are_examples_outside_the_target(heads, examples):
    for head, embeddings in zip(heads, examples, strict=True):
        chosen = head_with_sources(head, embeddings, 8)
        assert chosen.sources.shape == (2, 8, embeddings.shape[1])
        assert chosen.fitting.shape == chosen.held_out.shape == (2, 4, embeddings.shape[1])
        for target in (0, 1):
            answers = np.asarray(head(chosen.sources[target])).argmax(axis=1)
            assert (answers != target).all()


def test_a_head_that_gives_one_class_only(heads, toy, examples):
    """The example nearest to another class stands in for those that there are none of."""
    params = heads[0].params | {"linear.bias": np.array([50.0, 0.0], np.float32)}
    chosen = head_with_sources(replace(heads[0], params=params), examples[0], 4)
    assert (
        len(np.unique(chosen.sources[0], axis=0)) == 1 < len(np.unique(chosen.sources[1], axis=0))
    )
    assert np.isfinite(chosen.sources).all()


def test_heads_and_examples_that_are_refused(heads, examples):
    odd = replace(
        heads[0], params=heads[0].params | {"linear.bias": np.full(2, np.nan, np.float32)}
    )
    with pytest.raises(EvidenceError, match="not finite"):
        gather_head(odd, examples[0])
    with pytest.raises(EvidenceError, match="all equal"):
        gather_head(heads[0], np.ones((5, 12), np.float32))


def test_a_head_beside_itself_alone_is_refused(toy, toy_bank, toy_clean_heads, examples):
    alone = make_probes(toy_bank, toy_clean_heads[:1])
    with pytest.raises(EvidenceError, match="the bank's only clean head is this one"):
        gather_head(toy_clean_heads[0].model, examples[0], alone)
    two = make_probes(toy_bank, toy_clean_heads[:2])
    found = gather_head(toy_clean_heads[0].model, examples[0], two)
    assert np.isfinite(list(found.fields.values())).all()


def test_a_metric_of_too_few_or_too_large_embeddings_says_which(toy):
    with pytest.raises(EvidenceError, match="got 1 example text, expected two or more"):
        spread_metric(np.ones((1, 4), np.float32), 2)
    with pytest.raises(EvidenceError, match="the 3 embeddings are not finite, or too large"):
        insertion_metric(np.full((3, 4), np.inf, np.float32), 2)


def test_metrics_are_second_moments(toy):
    draw = np.random.default_rng(0)
    rows = (draw.normal(size=(500, 5)) * (5, 3, 1, 0.5, 0.1) + 7).astype(np.float32)
    found = spread_metric(rows, 5)
    np.testing.assert_allclose(found.T @ found, np.cov(rows.T, bias=True), rtol=1e-3, atol=1e-4)
    shifted = insertion_metric(rows, 5)
    np.testing.assert_allclose(shifted.T @ shifted, rows.T @ rows / 500, rtol=1e-3, atol=1e-3)
    assert (np.linalg.norm(found, axis=1)[:-1] >= np.linalg.norm(found, axis=1)[1:]).all()
    assert spread_metric(rows[:3], 5)[2:].any() == False, "beyond the rank there is nothing"  # noqa: E712


def test_references_answer_like_the_heads_themselves(toy, examples):
    heads = [toy.head(number) for number in range(3)]
    known = make_references(heads)
    found = known.margins(examples[0])
    for head, margins in zip(heads, found, strict=True):
        logits = np.asarray(head(examples[0]))
        np.testing.assert_allclose(margins[:, 1], logits[:, 1] - logits[:, 0], rtol=1e-4, atol=1e-5)
    assert known.count == 3 and known.first(2).count == 2
    assert known.digest == make_references(heads).digest != make_references(heads[::-1]).digest


def test_a_head_is_left_out_of_its_own_references(toy, examples):
    other = DenseHeadConfig(toy.width, (4,), 2)
    params = {name: value[..., :4] if value.ndim == 1 or "fc" in name else value[:4]
              for name, value in toy.head(9).params.items()}  # fmt: skip
    params["linear.bias"] = toy.head(9).params["linear.bias"]
    heads = [*(toy.head(number) for number in range(4)), Model(other, params, "FCLinear")]
    known = make_references(heads)
    for number, head in enumerate(heads):
        found = known.without(head_key(head))
        rest = make_references([one for one in heads if one is not head])
        assert found.keys == rest.keys and found.count == 4
        np.testing.assert_array_equal(found.margins(examples[0]), rest.margins(examples[0]))
        alike = [len(next(iter(group.values()))) for group in found.first(3).params]
        assert alike == ([2, 1] if number < 4 else [3])
    assert known.without("nobody").keys == known.keys
