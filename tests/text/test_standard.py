"""Fields against those of clean heads: centred, scaled, and a head never beside itself."""

import json
from dataclasses import replace

import numpy as np
import pytest

from jaxtroj.errors import EvidenceError
from jaxtroj.evidence.gather import gather
from jaxtroj.evidence.stage import Subject, stages_for
from jaxtroj.evidence.stages import TEXT_STAGES
from jaxtroj.evidence.texts.bank.kept_standard import STANDARD, keep_standard, kept_standard
from jaxtroj.evidence.texts.comparison import SIZE, STEEPNESS
from jaxtroj.evidence.texts.context import text_context
from jaxtroj.evidence.texts.encoder_probes import make_probes
from jaxtroj.evidence.texts.references import head_key
from jaxtroj.evidence.texts.stages import beside
from jaxtroj.evidence.texts.stages.against import COMPARED, COMPARISON, identity_of
from jaxtroj.evidence.texts.standard import FEWEST, Standard, make_standard
from jaxtroj.settings import DEFAULT_TEXT_CALIBRATOR

KEYS = tuple("abcdefghijk")


def standard(values, steep=None) -> Standard:
    rows = zip(KEYS, values, np.zeros(11) if steep is None else steep, strict=True)
    found = ((key, {"x": x, "steep": s, "size": 1.0}) for key, x, s in rows)
    return make_standard(found, "steep", "size")


def told(
    known: Standard, value: float, key: str = "nobody", steep: float = 0.0, size: float = 1.0
) -> float:
    return known.deviations({"x": value, "steep": steep, "size": size}, key)["x"]


def test_a_value_is_told_in_deviations_of_the_others():
    values = np.linspace(-1.0, 1.0, 11)
    known = standard(values)
    assert told(known, 0.0) == pytest.approx(0)
    spread = 1.4826 * np.median(np.abs(values))
    assert told(known, 2.0) == pytest.approx(2 / spread)
    alone = told(known, 1.0, "k")
    others = values[:-1]
    wanted = (1 - np.median(others)) / (1.4826 * np.median(np.abs(others - np.median(others))))
    assert alone == pytest.approx(wanted)


@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0.0), (10.0, 3.0), (0.1, -100.0)])
def test_deviations_have_no_unit(scale, shift):
    values = np.random.default_rng(0).normal(size=11)
    plain = told(standard(values), 1.7)
    moved = told(standard(scale * values + shift), scale * 1.7 + shift)
    assert moved == pytest.approx(plain, rel=1e-2)


def test_what_steepness_explains_is_taken_off():
    draw = np.random.default_rng(3)
    steep, noise = np.linspace(-2, 2, 11), 0.1 * draw.normal(size=11)
    known = standard(3 * steep + noise, steep)
    assert abs(told(known, 3.6, steep=1.2)) < told(known, 3.6, steep=0.0) / 2
    flat = standard(noise, steep)
    assert told(flat, 0.5, steep=2.0) == pytest.approx(told(flat, 0.5), rel=0.4)


def test_larger_logits_are_steeper_and_nothing_else():
    draw = np.random.default_rng(4)
    steep = np.linspace(-2, 2, 11)
    known = standard(3 * steep + 0.1 * draw.normal(size=11), steep)
    usual = told(known, 4.0, steep=0.5)
    for factor in (1e-6, 0.1, 3.0, 1e6):
        scaled = told(known, 4.0, steep=0.5 + np.log(factor), size=factor)
        assert scaled == pytest.approx(usual)


def test_steepness_beyond_that_of_clean_heads_explains_no_more():
    known = standard(3 * np.linspace(-2, 2, 11), np.linspace(-2, 2, 11))
    beyond = told(known, 9.0, steep=50.0)
    assert told(known, 9.0, steep=1.2) == pytest.approx(beyond) and beyond > 3


def test_heads_that_agree_by_chance_do_not_make_the_scale_tiny():
    values = [0.0] * 8 + [1.0, 1.0, 1.0]
    assert told(standard(values), 1.0) < 5
    assert np.isfinite(told(standard([0.0] * 11), 1.0))


def test_too_few_clean_heads_are_refused():
    rows = ((key, {"x": 0.0, "steep": 0.0, "size": 1.0}) for key in KEYS[:FEWEST])
    few = make_standard(rows, "steep", "size")
    assert told(few, 0.0) == 0
    with pytest.raises(EvidenceError, match="too few to compare with"):
        told(few, 0.0, "a")


@pytest.fixture(scope="module")
def probes(toy_bank, toy_clean_heads):
    return make_probes(toy_bank, toy_clean_heads)


def fields(head, examples, probes):
    stages = stages_for(TEXT_STAGES, Subject(has_bank=True, clean_heads=probes.comparable))
    return gather(text_context(head, examples, probes), stages).fields


def test_a_reference_that_is_scanned_is_judged_by_the_others_alone(probes, toy_clean_heads):
    """Its own answers would make it look cleaner than a clean head that is no reference."""
    own, *others = toy_clean_heads
    among = fields(own.model, own.examples, probes)
    apart = fields(own.model, own.examples, make_probes(probes.bank, others))
    # The points of `directions` are placed by the example texts of all references, this one's too.
    other = ("against_", "departure_", "direction_")
    raw = [name for name in among if not name.startswith(other)]
    assert among["direction_residual"] == pytest.approx(apart["direction_residual"], rel=0.1)
    assert [among[name] for name in raw] == pytest.approx([apart[name] for name in raw], rel=1e-3)
    context = text_context(own.model, own.examples, probes)
    assert context.identity == head_key(own.model)
    assert context.bank_probes.references.count == len(others)


@pytest.mark.parametrize("factor", [1e-6, 0.1, 3.0, 1e6])
def test_the_size_of_logits_is_no_evidence_of_the_calibrator_that_ships(toy, probes, factor):
    head, examples = toy.head(50, poisoned=True), toy.embed(toy.texts(20, seed=306))
    params = {n: v * factor if n.startswith("linear.") else v for n, v in head.params.items()}
    usual, scaled = (fields(one, examples, probes) for one in (head, replace(head, params=params)))
    (fitted,) = json.loads(DEFAULT_TEXT_CALIBRATOR.read_text())["stages"]
    names = [field["name"] for field in fitted["fields"]]
    assert {"against_direction_residual", "jacobian_steepness"} <= set(names)
    assert [scaled[name] for name in names] == pytest.approx(
        [usual[name] for name in names], rel=1e-3
    )


def test_clean_heads_lie_about_zero_and_a_trojan_above(toy, probes, toy_clean_heads):
    examples = [toy.embed(toy.texts(20, seed=300 + n)) for n in range(7)]
    clean = [fields(toy.head(40 + n), examples[n], probes) for n in range(6)]
    bad = fields(toy.head(50, poisoned=True), examples[6], probes)
    names = [f"against_{name}" for name in (*COMPARED, *beside.COMPARISON.compared)]
    middle = np.median([[one[name] for name in names] for one in clean], axis=0)
    assert (np.abs(middle) < 3).all(), dict(zip(names, middle, strict=True))
    assert bad["against_matched_spread"] > 5 and bad["against_departure_score"] > 5


def test_fewer_references_leave_the_stage_out(toy_bank, toy_clean_heads):
    few = make_probes(toy_bank, toy_clean_heads[: FEWEST - 1])
    stages = stages_for(TEXT_STAGES, Subject(has_bank=True, clean_heads=few.comparable))
    assert stages[-1].name == "bank"


def test_copies_of_a_clean_head_count_once(toy_bank, toy_clean_heads):
    few = [*toy_clean_heads[: FEWEST - 1], *toy_clean_heads[: FEWEST - 1]]
    assert make_probes(toy_bank, few).comparable == FEWEST - 1


@pytest.fixture(scope="module")
def computed(probes):
    return COMPARISON.compute_standard(probes)


def kept_in(folder, probes, change=None):
    """Probes of the same bank whose folder holds what clean heads show, changed by a function."""
    found = replace(probes, folder=folder, standards={})
    content = json.loads((folder / STANDARD).read_bytes())
    if change is not None:
        (folder / STANDARD).write_bytes(change(content))
    return found


def test_what_is_kept_with_a_bank_is_what_would_be_computed(
    probes, computed, toy_clean_heads, tmp_path
):
    keep_standard(tmp_path, computed, identity_of(probes, 0))
    own = toy_clean_heads[0]
    plain = fields(own.model, own.examples, probes)
    kept = kept_in(tmp_path, probes)
    assert fields(own.model, own.examples, kept) == plain
    known = kept.standards["against", 0, ()]
    assert known.keys == computed.keys and set(known.values) == set(computed.values)

    def doubled(content):
        column = content["values"]["matched_spread"]
        content["values"]["matched_spread"] = [2 * value for value in column]
        return json.dumps(content).encode()

    taken = fields(own.model, own.examples, kept_in(tmp_path, probes, doubled))
    assert taken["against_matched_spread"] != plain["against_matched_spread"], "it was not read"


@pytest.mark.parametrize(
    "change",
    [
        lambda content: json.dumps(content | {"identity": "ab" * 32}).encode(),
        lambda content: b"",
        lambda content: b"[1]",
        lambda content: json.dumps(content | {"keys": []}).encode(),
        lambda content: json.dumps(content | {"keys": None}).encode(),
        lambda content: json.dumps(content | {"values": {}}).encode(),
        lambda content: json.dumps(content | {"values": [1]}).encode(),
        lambda content: json.dumps(content | {"values": {STEEPNESS: ["a"]}}).encode(),
        lambda content: json.dumps(content).replace("0.", "NaN, 0.", 1).encode(),
        lambda content: json.dumps(content | {"values": {STEEPNESS: [1e999]}}).encode(),
    ],
)
def test_damaged_or_foreign_values_are_not_taken(change, probes, computed, tmp_path):
    identity = identity_of(probes, 0)
    keep_standard(tmp_path, computed, identity)
    assert kept_standard(tmp_path, identity, STEEPNESS, SIZE) is not None
    kept_in(tmp_path, probes, change)
    assert kept_standard(tmp_path, identity, STEEPNESS, SIZE) is None


def test_another_seed_or_another_reference_has_another_identity(probes, toy_clean_heads):
    fewer = make_probes(probes.bank, toy_clean_heads[1:])
    found = {identity_of(probes, 0), identity_of(probes, 1), identity_of(fewer, 0)}
    assert len(found) == 3


def test_other_examples_or_vectors_have_another_identity(probes, toy_clean_heads):
    """What clean heads show follows from both, and `bank.json` says nothing of them."""
    first, *others = toy_clean_heads
    moved = make_probes(probes.bank, [replace(first, examples=first.examples + 1), *others])
    bank = replace(probes.bank, vectors=probes.bank.vectors + np.float16(1))
    found = {identity_of(one, 0) for one in (probes, moved, make_probes(bank, toy_clean_heads))}
    assert len(found) == 3 and identity_of(make_probes(probes.bank, toy_clean_heads), 0) in found
