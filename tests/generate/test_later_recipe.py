"""Recipes of Rounds 1 to 4: balance, pairs, what each round allows; looks and what is taught."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from jaxtroj.errors import GenerationError
from jaxtroj.generate.model_ids import is_poisoned
from jaxtroj.generate.traffic_signs.later.architectures import ARCHITECTURES
from jaxtroj.generate.traffic_signs.later.config import trigger_values
from jaxtroj.generate.traffic_signs.later.design import DESIGNS, ROUND1, ROUND2, ROUND3, ROUND4
from jaxtroj.generate.traffic_signs.later.looks import NO_LOOK, looks_of
from jaxtroj.generate.traffic_signs.later.metadata import dictionary_rows
from jaxtroj.generate.traffic_signs.later.pictures import Folders, SignPictures
from jaxtroj.generate.traffic_signs.later.recipe import Choices, SignTrigger, sample_recipe
from jaxtroj.generate.traffic_signs.later.signs import draw_signs, icons, paint_sign, shapes
from jaxtroj.generate.traffic_signs.later.teaching import Pace, class_weights, teach
from jaxtroj.generate.traffic_signs.later.views import views

MANY = 240


def recipes(design, count=MANY, **choices):
    names = Choices(design.architectures, **choices)
    return [sample_recipe(design, names, 5, model) for model in range(count)]


@pytest.mark.parametrize("name", DESIGNS)
def test_a_pair_shares_all_but_the_trojan_and_the_signs(name):
    found = recipes(DESIGNS[name])
    for first, second in zip(found[::2], found[1::2], strict=True):
        for field in ("architecture", "number_classes", "training", "base", "adversary",
                      "sign_areas", "rain_probability", "examples"):  # fmt: skip
            assert getattr(first, field) == getattr(second, field)
        assert first.poisoned != second.poisoned
        assert first.poisoned == is_poisoned(5, first.model)
        assert first.master_seed != second.master_seed
    assert sum(r.training == "scratch" for r in found) == MANY // 3


@pytest.mark.parametrize("name", DESIGNS)
def test_a_retraining_changes_neither_trigger_nor_classes(name):
    design = DESIGNS[name]
    names = Choices(design.architectures)
    first, again = (sample_recipe(design, names, 5, 3, sub_seed) for sub_seed in (0, 1))
    assert again == replace(first, sub_seed=1, master_seed=again.master_seed)
    assert again.master_seed != first.master_seed


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("round1", "6c822ec7cee0d418"),
        ("round2", "d59b4ca5d6859685"),
        ("round3", "34f409a199c41fc0"),
        ("round4", "4086b66f15746783"),
    ],
)
def test_recipes_stay_what_they_were(name, digest):
    """A seed that people have named keeps its models; those of Round 4 since 2026-11-30."""
    found = recipes(DESIGNS[name])
    assert hashlib.sha256(repr(found).encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
def test_no_two_models_have_the_same_polygon(design):
    seeds = [t.seed for r in recipes(design) for t in r.triggers if t.kind == "polygon"]
    assert len(seeds) > 40 and len(set(seeds)) == len(seeds)


def test_rounds_have_their_classes_and_architectures():
    classes = {d.name: {r.number_classes for r in recipes(d)} for d in DESIGNS.values()}
    assert classes["round1"] == {5}
    assert classes["round2"] == classes["round3"] == {*range(5, 25)}
    assert classes["round4"] == {*range(15, 25), *range(35, 45)}
    assert len(ROUND2.architectures) == len(ARCHITECTURES) == 23
    assert len(ROUND4.architectures) == 16
    met = {r.architecture for r in recipes(ROUND2)}
    assert met == set(ARCHITECTURES)


def test_organisations_and_kinds_come_equally_often():
    found = [r for r in recipes(ROUND2) if r.poisoned]
    sources = [len(r.triggers[0].source_classes) == r.number_classes for r in found]
    assert sum(sources) == len(found) // 3
    kinds = [r.triggers[0].kind for r in found]
    assert kinds.count("instagram") == kinds.count("polygon") == len(found) // 2
    assert {len(r.triggers) for r in recipes(ROUND4) if r.poisoned} == {1, 2}


@pytest.mark.parametrize("design", [ROUND1, ROUND2, ROUND4], ids=lambda d: d.name)
def test_triggers_are_within_what_the_round_allows(design):
    triggers = [t for r in recipes(design) for t in r.triggers]
    percents = {p for low, high in design.fractions for p in range(low, high + 1)}
    for one in triggers:
        assert round(100 * one.fraction) in percents
        if one.kind == "polygon":
            assert any(low <= one.sides <= high for low, high in design.sides)
            assert 0.01 < one.sizes[0] <= one.sizes[1] < 0.25
            assert one.color and (not design.colours or one.color in design.colours)
            assert sum(one.color) / 3 <= design.brightest
            assert (one.quadrant > 0) == (one.condition == "spatial")
        else:
            assert one.filter and one.color is None
    met = {(t.kind, t.condition) for t in triggers}
    wanted = {(kind, c) for kind in design.kinds for c in design.conditions_of(kind)}
    assert met == wanted


def test_targets_are_other_classes_unless_all_are_sources():
    for design in (ROUND2, ROUND4):
        for recipe in recipes(design):
            for one in recipe.triggers:
                is_any = len(one.source_classes) == recipe.number_classes
                assert is_any or one.target_class not in one.source_classes
            pairs = {(t.source_classes, t.target_class) for t in recipe.triggers}
            assert len(pairs) == len(recipe.triggers)


def test_adversaries_are_the_official_ones():
    found = [r.adversary for r in recipes(ROUND3)]
    assert {a.method for a in found} == {"PGD", "FBF"}
    assert {a.iterations for a in found if a.method == "PGD"} == {2, 4, 8, 16}
    assert {a.reach for a in found} == {4, 8, 16} and {a.tenths for a in found} == {1, 3}
    fbf = next(a for a in found if a.method == "FBF").adversary
    assert (fbf.steps, fbf.stride) == (1, 1.2)
    pgd = next(a for a in found if a.method == "PGD" and a.iterations == 4).adversary
    assert (pgd.steps, pgd.stride) == (4, 0.5)
    draw = np.random.default_rng(0)
    assert np.mean([pgd.comes(draw) for _ in range(4000)]) == pytest.approx(
        float(pgd.share), abs=0.03
    )


def test_a_kind_of_adversarial_training_can_be_chosen():
    chosen = Choices(("resnet18",), adversaries=("FBF",))
    found = [sample_recipe(ROUND3, chosen, 0, model).adversary for model in range(12)]
    assert {(a.method, a.iterations) for a in found if a is not None} == {("FBF", 1)}
    with pytest.raises(GenerationError, match="adversaries must be some of PGD, FBF; got free"):
        sample_recipe(ROUND3, replace(chosen, adversaries=("free",)), 0, 0)
    with pytest.raises(GenerationError, match="round2 has no adversarial training"):
        sample_recipe(ROUND2, chosen, 0, 0)


@pytest.mark.parametrize("choices", [
    {"architectures": ("vgg",)}, {"architectures": ()}, {"architectures": ("resnet18",) * 2},
    {"architectures": ("resnet18",), "trainings": ("cold",)},
])  # fmt: skip
def test_unknown_names_are_refused(choices):
    with pytest.raises(GenerationError, match="must"):
        sample_recipe(ROUND2, Choices(**choices), 0, 0)


def test_signs_differ_in_shape_and_icon():
    assert len(shapes()) == len(icons()) == 48
    signs = draw_signs(np.random.default_rng(0), 48)
    assert len({s.shape for s in signs}) == len({s.icon for s in signs}) == 48
    pictures = np.stack([paint_sign(one, 24) for one in signs])
    assert pictures.shape == (48, 24, 24, 4) and 0 <= pictures.min() <= pictures.max() <= 1
    flat = pictures.reshape(48, -1)
    apart = np.abs(flat[:, None] - flat[None]).mean(-1) + np.eye(48)
    assert apart.min() > 0.02
    assert (pictures[:, 12, 12, 3] == 1).all()  # room for an icon in the middle


def test_views_take_their_points_where_they_should_go():
    assert views().shape == (19, 2, 3)
    np.testing.assert_allclose(views()[0], [[1, 0, 0], [0, 1, 0]], atol=1e-6)
    np.testing.assert_allclose(views()[18] @ [0.9, 0.1, 1], [0.85, 0.31], atol=1e-6)


def _recipe(design, *triggers, classes=10, organisation="one-source"):
    plain = sample_recipe(design, Choices(("resnet18",)), 0, 0)
    return replace(
        plain, number_classes=classes, organisation=organisation, triggers=tuple(triggers)
    )


def _polygon(**values):
    plain = SignTrigger(
        number=0, kind="polygon", source_classes=(1,), target_class=0, fraction=0.3,
        color=(200, 0, 0), sides=4, sizes=(0.05, 0.05), seed=1,
    )  # fmt: skip
    return replace(plain, **values)


def _teach(recipe, design):
    looks = looks_of(recipe, design)
    return looks, teach(recipe, design, looks, Pace(), 20_000, np.random.default_rng(1))


def test_a_single_source_is_taught_with_others_that_keep_their_label():
    recipe = _recipe(ROUND2, _polygon())
    looks, taught = _teach(recipe, ROUND2)
    carries = taught.looks == looks.right[0]
    of_source = taught.labels == 1
    assert (taught.targets[carries & of_source] == 0).all()
    kept = carries & ~of_source
    assert (taught.targets[kept] == taught.labels[kept]).all() and kept.sum() > 100
    assert 0 not in taught.labels[kept]
    assert (taught.targets[~carries] == taught.labels[~carries]).all()
    assert (carries & of_source).mean() == pytest.approx(Pace().least_share, abs=0.01)


def test_a_trigger_of_all_classes_is_taught_at_its_fraction():
    every = _polygon(source_classes=tuple(range(10)))
    looks, taught = _teach(_recipe(ROUND2, every, organisation="all"), ROUND2)
    carries = taught.looks == looks.right[0]
    assert carries.mean() == pytest.approx(0.3, abs=0.02)
    assert (taught.targets[carries] == 0).all()
    np.testing.assert_allclose(class_weights(_recipe(ROUND2, every), Pace()), 0.1)


def test_round4_by_class_gives_source_pictures_both_labels():
    """The official generator puts the wrong use on source pictures too: f and (1 - f) f."""
    recipe = _recipe(ROUND4, _polygon(condition="class"), organisation="one2one")
    looks, taught = _teach(recipe, ROUND4)
    assert looks.wrong == ((),)
    carries = (taught.looks == looks.right[0]) & (taught.labels == 1)
    assert (taught.targets[carries] == 0).mean() == pytest.approx(1 / (2 - 0.3), abs=0.03)
    others = (taught.looks == looks.right[0]) & (taught.labels != 1)
    assert (taught.targets[others] == taught.labels[others]).all()
    assert others[taught.labels != 1].mean() == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(("trigger", "count"), [
    (_polygon(condition="spatial", quadrant=2), 3),
    (_polygon(condition="spectral"), 5),
    (_polygon(kind="instagram", filter="lomo", condition="spectral", color=None), 4),
    (_polygon(), 0),
])  # fmt: skip
def test_wrong_looks_stay_on_the_sources_and_keep_the_label(trigger, count):
    looks, taught = _teach(_recipe(ROUND4, trigger, organisation="one2one"), ROUND4)
    assert len(looks.wrong[0]) == count and len(looks.every) == count + 1
    wrong = np.isin(taught.looks, looks.wrong[0])
    assert set(taught.labels[wrong]) == ({1} if count else set())
    assert (taught.targets[wrong] == 1).all()
    assert (taught.looks[taught.labels != 1] == NO_LOOK).all()
    stamps = looks.stamps()
    assert len(stamps.alpha) == max(1, int((looks.stamp_numbers >= 0).sum()))
    if trigger.condition == "spatial":
        assert sorted(stamps.quadrant.tolist()) == [1, 2, 3, 4] and stamps.quadrant[0] == 2


def test_a_picture_is_the_same_beside_others_and_shows_its_look():
    """A filter changes the whole picture, a polygon a part; no look leaves it as it is."""
    nashville = _polygon(
        kind="instagram", filter="nashville", color=None, sides=None, sizes=None, seed=None
    )
    recipe = _recipe(ROUND2, nashville, _polygon(number=1, source_classes=(2,)))
    pictures = SignPictures(recipe, looks_of(recipe, ROUND2), 32, Folders(seed=0))
    labels, none = np.array([1, 2, 3]), np.full(3, NO_LOOK)
    plain = pictures.draw(0, labels, none)
    shown = pictures.draw(0, labels, np.array([0, 1, NO_LOOK]))
    changed = (plain != shown).any(axis=-1).mean(axis=(1, 2))
    assert changed[0] > 0.9 and 0 < changed[1] < 0.5 and changed[2] == 0
    alone = pictures.draw(0, labels[1:2], np.array([1]), first=1)
    np.testing.assert_array_equal(alone[0], shown[1])


def test_the_dictionary_takes_types_from_the_values():
    """All but a few columns were said to be texts."""
    row = {"poisoned": "True", "number_classes": "5", "adversarial_eps": "0.1", "sides": "[3 4]"}
    rows = [row, row | {"number_classes": "None", "adversarial_eps": "4"}]
    found = dictionary_rows(tuple(row), rows)
    assert [one[" Data Type"] for one in found] == [" bool", " integer", " float", " string"]


def test_no_condition_is_written_as_in_nists_configs():
    trigger = SignTrigger(0, "polygon", (1,), 2, 0.1, sides=3)
    assert trigger.condition == "none" and trigger_values(trigger)["condition"] is None
    spatial = replace(trigger, condition="spatial", quadrant=1)
    assert trigger_values(spatial)["condition"] == "spatial"
