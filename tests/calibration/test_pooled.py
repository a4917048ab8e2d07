"""The pooled model on a synthetic zoo: each kind of trigger moves its own search alone."""

import json
from dataclasses import replace

import numpy as np
import pytest

from jaxtroj import scoring
from jaxtroj.calibration import Calibrator, Labelled, Origin, Scheme, leave_out
from jaxtroj.calibration.folds import assign_folds
from jaxtroj.calibration.labelled import make_population, matrix
from jaxtroj.calibration.pooled import PooledModel, PooledStage
from jaxtroj.calibration.pooled_files import pooled_of
from jaxtroj.calibration.pooled_reasons import pooled_reasons
from jaxtroj.calibration.pooling import fit_pooled, missing_by_side
from jaxtroj.calibration.searches import missing_share, pool_scores
from jaxtroj.calibration.tails import Searched, fit_tail, power_of
from jaxtroj.calibration.training import fit_judges, last_answers, out_of_fold
from jaxtroj.calibration.transfer import (
    UNMEASURED,
    Met,
    Temperature,
    Traits,
    Transfer,
    learn_temperature,
)
from jaxtroj.errors import CalibrationError
from jaxtroj.evidence.stage import SUPPORT

from .conftest import a_tail, with_straight_lines

OWN = {"patch": "window", "blend": "whole", "filter": "colour", "warp": "smooth"}
STAGES = {search: (f"{search}_score", f"{search}_size") for search in (*OWN.values(), "signs")}
DIRECTIONS = {name: -1 if name.endswith("size") else 1 for f in STAGES.values() for name in f}
SCHEME = Scheme(STAGES, DIRECTIONS, {"window_score": "the success of a window"}, is_pooled=True)
NAMES = tuple(name for fields in STAGES.values() for name in fields)


def zoo(models=96, seed=0):
    """Half poisoned; networks of architecture "d" have no batch norm, so no signs."""
    random = np.random.default_rng(seed)
    rows, kinds, architectures = [], [], []
    for index in range(models):
        kind = list(OWN)[index // 2 % 4] if index % 2 else ""
        row = {name: DIRECTIONS[name] * float(random.normal()) for name in NAMES}
        for name in STAGES.get(OWN.get(kind, ""), ()):
            row[name] += DIRECTIONS[name] * float(4 + random.exponential())
        architectures.append("abcd"[index // 8 % 4])
        if architectures[-1] == "d":
            row = {name: value for name, value in row.items() if not name.startswith("signs")}
        rows.append(row)
        kinds.append(kind)
    return Labelled(
        rows,
        [bool(kind) for kind in kinds],
        architectures,
        kinds,
        datasets=[f"set{index // 32}" for index in range(models)],
        sides=[28 + 4 * (index // 32) for index in range(models)],
        classes=[10] * models,
        pairs=[str(index // 2) for index in range(models)],
    )


@pytest.fixture(scope="module")
def general():
    return Calibrator.fit(zoo(), SCHEME, Origin(population="synthetic zoo"))


@pytest.fixture(scope="module")
def fresh():
    return zoo(200, 1)


def said(calibrator, labelled):
    return np.array([calibrator.probability(row) for row in labelled.rows])


def test_fresh_networks_are_told_apart(general, fresh):
    found = scoring.score(said(general, fresh), fresh.truth)
    assert found.roc_auc > 0.93 and found.log_score < 0.4


def test_a_kind_that_the_fit_never_met_is_found_by_its_own_search():
    labelled = zoo()
    pooled = leave_out(labelled, SCHEME, labelled.kinds)
    assert pooled.log_score < 0.45 and pooled.groups[pooled.worst].log_score < 0.65
    assert all(part.found > 0.6 for part in pooled.groups.values())


def test_a_regression_on_raw_fields_does_not_find_it():
    complete = zoo().take([i for i, name in enumerate(zoo().architectures) if name != "d"])
    linear = Scheme({"all": NAMES}, DIRECTIONS)
    raw = leave_out(complete, linear, complete.kinds)
    pooled = leave_out(complete, SCHEME, complete.kinds)
    assert pooled.log_score < raw.log_score - 0.1


@pytest.mark.parametrize("trial", range(20))
def test_a_larger_field_never_lowers_the_probability(general, fresh, trial):
    random = np.random.default_rng(trial)
    row = dict(fresh.rows[trial])
    name = random.choice(list(row))
    before = general.probability(row)
    for step in (0.1, 1.0, 10.0, 1e6):
        after = general.probability(row | {name: row[name] + DIRECTIONS[name] * step})
        assert after >= before
        before = after


@pytest.mark.parametrize("trial", range(20))
def test_a_search_that_was_not_made_counts_at_least_as_one_that_found_nothing(
    general, fresh, trial
):
    random = np.random.default_rng(trial)
    row = dict(fresh.rows[trial])
    kept = dict(row)
    for search in random.permutation(list(STAGES))[:3]:
        nothing = {name: -DIRECTIONS[name] * 50.0 for name in STAGES[search]}
        row |= nothing
        for name in nothing:
            kept.pop(name, None)
        if not kept:
            break
        assert general.probability(kept) >= general.probability(row)


def test_a_mixture_says_nothing_of_the_base_rate(general):
    assert general.base_rate == 0.5 and general.provenance.poisoned > 0


def test_an_early_end_is_less_sure_of_clean(general):
    quiet = {name: -DIRECTIONS[name] * 50.0 for name in NAMES}
    early = {name: quiet[name] for name in STAGES["window"]}
    assert general.probability(early) > general.probability(quiet)
    assert general.stages["window"].model.missing > 0


def test_scores_are_capped_and_one_sided(general):
    model = general.stages["window"].model
    row = {name: 0.0 for name in NAMES}
    far = [general.probability(row | {"window_score": value}) for value in (1e3, 1e9, 1e300)]
    assert far[0] == far[1]
    low = [general.probability(row | {"window_score": value}) for value in (0.0, -5.0, -1e9)]
    assert low[0] == low[1] == low[2]
    scores = [tail.score(np.array([-1e9, 1e9]), model.cap) for tail in model.tails]
    worths = [tail.worth for tail in model.tails]
    assert np.min(scores) == 0.0 and max(worths) <= 1
    np.testing.assert_allclose(np.max(scores, axis=1), np.multiply(worths, model.cap))


def test_a_field_counts_by_the_kind_that_it_tells_best():
    kinds = np.array(["a"] * 4 + ["b"] * 4 + [""] * 6)
    bad = kinds != ""
    values = np.r_[[9.0] * 4, [0.0] * 4, np.arange(6.0)]
    error = np.sqrt((4 + 6 + 1) / (12 * 4 * 6))
    assert power_of(1, values, bad, kinds) == pytest.approx((1 - 2 * error) ** 3)
    # b, with a tie
    assert power_of(-1, values, bad, kinds) == pytest.approx((5 / 6 - 2 * error) ** 3)
    assert power_of(1, values[4:], bad[4:], kinds[4:]) == 0.0
    assert power_of(1, np.where(kinds == "a", values, np.nan), bad, kinds) == 0.0
    many = [np.tile(x, 50) for x in (values, bad, kinds)]
    assert 0.8 < power_of(1, *many) < 1.0, "the same of more models is surer"
    noise = np.random.default_rng(0).normal(size=(40, 14))
    assert np.mean([power_of(1, own, bad, kinds) for own in noise]) < 0.03


def test_two_sided_fields_stay_out():
    scheme = replace(SCHEME, directions={"window_score": 1, "whole_score": 1})
    model = fit_pooled(make_population(zoo()), scheme, 0)
    assert model.names == ("window_score", "whole_score")
    with pytest.raises(CalibrationError, match="no field has a direction"):
        fit_pooled(make_population(zoo()), replace(SCHEME, directions={}), 0)


def test_fields_of_one_search_are_no_second_witness():
    scores = np.array([[3.0, 3.0, 0.0], [3.0, 0.0, 3.0]])
    one, two = pool_scores(scores, ["a", "a", "b"], "largest", 3.0)
    assert one.tolist() == [1.0, 0.0, 0.5] and two.tolist() == [1.0, 1.0, 1.0]


def test_signs_that_only_support_say_no_more_than_the_strongest_search():
    scores = np.array([[3.0, 0.0, 0.0], [4.0, 2.0, 0.0], [1.0, 2.0, 0.0]])
    found = pool_scores(scores, [SUPPORT, "a", "b"], "largest", 4.0) * 4.0
    np.testing.assert_allclose(found, [[0, 0, 0], [2, 2, 4 / 3], [2, 1, 1]])


def test_missing_shares_of_usual_sets():
    searches, usual = ["a", "b", "c"], [("a", "b"), ("a", "c")]
    made = np.array([[1, 1, 0], [1, 0, 1], [1, 0, 0], [0, 0, 0]], dtype=bool)
    assert missing_share(made, searches, usual).tolist() == [0, 0, 0.5, 1]


def test_a_field_unknown_in_clean_models_has_no_say():
    known = Searched("x", "x", "s", "s", 1)
    bad = np.array([True] * 3 + [False] * 3)
    never = fit_tail(known, np.array([5.0, 6.0, 7.0, np.nan, np.nan, np.nan]), bad)
    assert never.score(np.array([100.0]), 3.0) == 0.0
    still = fit_tail(known, np.array([5.0, 6.0, 7.0, 0.0, 0.0, 0.0]), bad)
    assert still.score(np.array([6.0]), 3.0) > 0.5
    assert np.isnan(still.score(np.array([np.nan]), 3.0)).all()


def test_order_of_models_changes_nothing(general):
    order = np.random.default_rng(3).permutation(96)
    mixed = zoo().take(order.tolist())
    again = fit_pooled(make_population(mixed), SCHEME, 0)
    assert again == general.stages["window"].model


def test_reasons_name_what_carried_the_pool(general, fresh):
    clean = {name: 0.0 for name in NAMES}
    found = general.explain(clean | {"window_score": 9.0, "window_size": -9.0}, Traits("a"))
    assert found[0].startswith("the success of a window speaks for poisoned: 9, as in one of")
    assert "median of clean models" in found[0]
    (quiet,) = general.explain(clean, Traits("a"))
    assert quiet.startswith("none of 5 searches found what clean models do not show")
    model = general.stages["window"].model
    loud_one = np.array([[9.0 if name == "window_score" else 0.0 for name in model.names]])
    (loud,) = pooled_reasons(model.tails, loud_one, model.cap, poisoned=False)
    assert loud.startswith("1 of 5 searches found what few clean models show, too little in sum; ")
    assert "the rarest is the success of a window: 9, as in one of " in loud


def test_what_was_found_of_each_kind(general):
    assert set(general.kinds) == set(OWN)
    assert all(found.models == 12 for found in general.kinds.values())
    assert all(found.above_half <= found.above_base for found in general.kinds.values())
    assert 0.5 < np.mean(list(general.found.values())) <= 1


def test_temperatures_never_amplify(general):
    for learnt in (general.transfer.architecture, general.transfer.dataset):
        assert learnt.value >= 1 and learnt.log_score <= learnt.log_score_before
    truth = np.arange(40) % 2 == 0
    sure_and_right = np.where(truth, 9.0, -9.0)
    assert learn_temperature(sure_and_right, truth, ["x", "y"]).value == 1.0
    coin = np.where(np.arange(40) % 4 < 2, 9.0, -9.0)
    assert learn_temperature(coin, truth, ["x", "y"]).value == 20.0


def test_what_was_not_met_counts_less_and_is_named(general, fresh):
    hot = Temperature(2.0, 0.3, 0.4, 4, 96)
    cautious = replace(general, transfer=Transfer(hot, replace(hot, value=4.0)))
    row = fresh.rows[1]
    odds = [
        np.log(p / (1 - p))
        for p in (
            cautious.probability(row, traits)
            for traits in (
                Traits("a", side=32, classes=10),
                Traits("z", side=32, classes=10),
                Traits("z", side=224, classes=10),
                Traits("a", side=32, classes=1000),
            )
        )
    ]
    assert odds[1] == pytest.approx(odds[0] / 4) and odds[2] == pytest.approx(odds[0] / 4)
    assert odds[3] == pytest.approx(odds[0] / 4)
    traits = Traits("graph:cffa3d2b", "conv x13, linear x1", 224, 10)
    (caveat,) = cautious.caveats(traits)
    assert caveat == (
        "the calibrator has met no graph:cffa3d2b (conv x13, linear x1), only a, b, c, d, and no"
        " pictures of 224 pixels, only of 28 to 36: its evidence counts 25%"
    )
    assert cautious.caveats(Traits("a", side=32, classes=10)) == ()
    assert Met(("a",)).strange_shape(Traits("a", side=9, classes=9)) == ()


def test_a_file_brings_back_the_same_answers(general, fresh, tmp_path):
    path = tmp_path / "general.json"
    general.save(path)
    again = Calibrator.load(path)
    assert again == general
    assert said(again, fresh).tolist() == said(general, fresh).tolist()


def test_a_file_of_before_has_no_sum_over_fields(general, fresh, tmp_path):
    path = tmp_path / "general.json"
    general.save(path)
    document = json.loads(path.read_text())
    del document["pooled"]["sides"]
    for tail in document["pooled"]["tails"]:
        del tail["rises"]
    path.write_text(json.dumps(document | {"schema": 2}))
    model = pooled_of(Calibrator.load(path).stages)
    assert model is not None and {tail.rises for tail in model.tails} == {()}
    path.write_text(json.dumps(document))
    with pytest.raises(CalibrationError, match="lacks 'rises'"):
        Calibrator.load(path)


def test_shapes_of_files_of_before_are_one_straight_line(general, tmp_path):
    path = tmp_path / "general.json"
    general.save(path)
    document = json.loads(path.read_text())
    path.write_text(json.dumps(with_straight_lines(document, 5, 0.4)))
    model = pooled_of(Calibrator.load(path).stages)
    assert model is not None
    tail = model.tails[0]
    at = tail.direction * tail.scale * np.sinh([-9.0, -1.0, -0.3, 0.0, 0.7, 2.0, 3.5, 9.0])
    expected = 0.4 * np.array([-1.0, -1.0, -0.3, 0.0, 0.7, 2.0, 3.5, 3.5])
    assert tail.lean(tail.centre + at).tolist() == pytest.approx(expected.tolist())


def test_where_no_search_is_loud_the_fields_that_lean_are_the_reasons():
    tails = (replace(a_tail("a", 2.0), label="the size of a"), a_tail(SUPPORT, 9.0))
    model = PooledModel(
        tails, (("a",),), "mean", 4.0, (1.0, 0.0, 0.0), 0.0, 0.0, 0.5, 0.01, 0.99, 1.0, 10
    )
    row = np.array([[tails[0].centre + 0.3 * tails[0].scale] * 2])
    (reason,) = PooledStage(model, "stage").reasons(row, None)
    assert reason.startswith("the size of a leans to poisoned: 0.89 (median of clean models 0,")


def test_usual_are_the_searches_that_pictures_of_a_size_can_get():
    tails = tuple(a_tail(name, 0.0) for name in ("small", "large", "all", "norms"))
    usual = (("small", "all"), ("large", "all"), ("large", "all", "norms"))
    sides = (("small", 1, 32), ("large", 33, 64))
    model = PooledModel(
        tails, usual, "mean", 4.0, (1.0, 0.0, 0.0), 2.0, 0.0, 0.5, 0.01, 0.99, 1.0, 10, sides
    )
    assert model.for_side(None) is model
    assert model.for_side(28).usual == (("small", "all", "norms"),)
    assert model.for_side(48).usual == (("large", "all", "norms"),)
    assert model.for_side(224).usual == (("all", "norms"),)
    quiet = np.array([[np.nan, np.nan, 0.0, np.nan]])
    shares = [model.for_side(side).missing_share(quiet)[0] for side in (None, 28, 48, 224)]
    assert shares == pytest.approx([0.5, 2 / 3, 2 / 3, 0.5])


def test_networks_without_batch_norms_miss_what_looks_at_them_in_the_fit_as_in_use():
    labelled, scheme = zoo(), replace(SCHEME, sides={"window": (1, 64)})
    model = fit_pooled(make_population(labelled), scheme, 0)
    has_none = np.array([name == "d" for name in labelled.architectures])
    values, sides = matrix(labelled.rows, model.names), np.array(labelled.sides)
    assert missing_by_side(model, values, sides).tolist() == (0.2 * has_none).tolist()
    unknown = missing_by_side(model, values, np.zeros(len(sides)))
    assert not unknown.any(), "where nobody knows the size, what the fit often had is enough"


def test_a_group_that_is_left_out_is_judged_as_a_scan_would_judge_it():
    """By the size of its pictures: of those above 30 px no blends are missed."""
    labelled, scheme = zoo(), replace(SCHEME, sides={"window": (1, 64), "whole": (1, 30)})
    groups = ["none" if name == "d" else "norms" for name in labelled.architectures]
    held = [place for place, name in enumerate(groups) if name == "none"]
    rest = labelled.take([place for place, name in enumerate(groups) if name == "norms"])
    (*_, judge) = fit_judges(make_population(rest), scheme, 0).values()
    assert isinstance(judge, PooledStage)
    answers = last_answers(out_of_fold(labelled, scheme, 0, groups)).log_odds[held]
    rows = [matrix([labelled.rows[place]], judge.names) for place in held]
    sides = [labelled.sides[place] for place in held]
    asked = [
        judge.for_network(side, None).log_odds(row, [None])[0]
        for side, row in zip(sides, rows, strict=True)
    ]
    assert answers == pytest.approx(asked) and len(set(sides)) == 3
    assert judge.for_network(28, None).model.missing_share(rows[0])[0] > 0


def test_the_sides_of_searches_come_from_their_stages(general, fresh):
    scheme = replace(SCHEME, sides={"window": (1, 64), "blend": (1, 64)})
    model = fit_pooled(make_population(zoo()), scheme, 0)
    assert model.sides == (("window", 1, 64),)


POOLED = ("pooled",)
HOSTILE = [
    ((*POOLED, "weights"), [1.0, -1.0, 0.0]),
    ((*POOLED, "weights"), [1.0, 1.0]),
    ((*POOLED, "missing"), -0.1),
    ((*POOLED, "cap"), 0),
    ((*POOLED, "cap"), 1e9),
    ((*POOLED, "way"), "median"),
    ((*POOLED, "way"), ["mean"]),
    ((*POOLED, "low"), 0),
    ((*POOLED, "rate"), 1),
    ((*POOLED, "usual"), [["unheard"]]),
    ((*POOLED, "usual"), [[]]),
    ((*POOLED, "tails"), []),
    ((*POOLED, "sides"), [["window", 64, 1]]),
    ((*POOLED, "sides"), [["window", 64]]),
    ((*POOLED, "tails", 0, "direction"), 0),
    ((*POOLED, "tails", 0, "length"), 0),
    ((*POOLED, "tails", 0, "scale"), 5e-324),
    ((*POOLED, "tails", 0, "worth"), 1.5),
    ((*POOLED, "tails", 0, "rises", 0), -0.1),
    ((*POOLED, "tails", 0, "rises"), [0.1]),
    ((*POOLED, "tails", 0, "name"), "window_size"),
    ((*POOLED, "tails", 0, "stage"), "signs"),
    ((*POOLED, "tails", 0, "start"), 1e9),
    (("stages", 0, "stage"), "unheard"),
    (("met", "sides"), [32, 28]),
    (("met", "architectures"), [7]),
    (("transfer", "architecture", "value"), 0.5),
    (("transfer", "dataset", "groups"), 1),
    (("kinds", "patch", "above_half"), 13),
    (("kinds", "patch", "models"), 0),
    (("schema",), 1),
]


@pytest.mark.parametrize(
    ("path", "value"), HOSTILE, ids=[".".join(map(str, p)) for p, _ in HOSTILE]
)
def test_hostile_files_are_refused(general, tmp_path, path, value):
    file = tmp_path / "general.json"
    general.save(file)
    document = place = json.loads(file.read_text())
    *steps, last = path
    for step in steps:
        place = place[step]
    place[last] = value
    file.write_text(json.dumps(document))
    with pytest.raises(CalibrationError, match="calibrator"):
        Calibrator.load(file)


def test_values_are_read_without_those_of_other_stages(general):
    judge = general.stages["colour"]
    assert judge.names == NAMES[:6]
    row = matrix([{"colour_score": 1.0}], judge.names)
    assert judge.usable(row) and not general.stages["whole"].usable(row[:, :4])
    assert general.last_complete({"colour_score": 1.0}) == "colour"
    assert general.last_complete({}) is None


ONE_OF_ALL = Met(("bert classifier",), None, (2, 2))
SEVERAL = Met(("a", "b"), None, (2, 5))


@pytest.mark.parametrize(
    ("met", "traits", "is_measured"),
    [
        (ONE_OF_ALL, Traits("bert classifier", classes=2), True),
        (ONE_OF_ALL, Traits("bert classifier"), True),
        (ONE_OF_ALL, Traits(), True),
        (ONE_OF_ALL, Traits("gpt2 classifier", classes=2), False),
        (ONE_OF_ALL, Traits("bert classifier", classes=4), False),
        (SEVERAL, Traits("c", classes=9), True),
    ],
)
def test_what_nothing_was_learnt_about_counts_a_third(met, traits, is_measured):
    assert Transfer().is_measured(met, traits) == is_measured
    assert Transfer().factor(met, traits) == (1 if is_measured else UNMEASURED)


def test_copies_of_a_row_share_a_fold():
    """Dealt in turn, a copy was judged by a fit that had met it."""
    keys = [f"k{place % 10}" for place in range(40)]
    dealt = assign_folds(keys, np.array([k in "k0k2k4" for k in keys]), [None] * 40, 5, "0")
    for key in set(keys):
        assert (
            len({int(fold) for fold, other in zip(dealt, keys, strict=True) if other == key}) == 1
        )
    assert len(set(dealt.tolist())) == 5
    few = assign_folds(keys, np.arange(40) % 2 == 0, [None] * 40, 6, "0")
    assert np.bincount(few).min() >= 6
