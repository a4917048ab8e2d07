"""Recipes: deterministic, balanced, in the ranges of Round 0, independent of the round's size."""

import dataclasses

import pytest

from jaxtroj.errors import GenerationError
from jaxtroj.generate.model_ids import partner
from jaxtroj.generate.networks import ROUND0
from jaxtroj.generate.traffic_signs.recipe import pairs_by_architecture, sample_recipe

RECIPES = [sample_recipe(5, model) for model in range(120)]


def test_equal_arguments_give_an_equal_recipe():
    assert RECIPES[17] == sample_recipe(5, 17)


def test_every_part_of_the_key_matters():
    changed = [sample_recipe(6, 17), sample_recipe(5, 18), sample_recipe(5, 17, sub_seed=1)]
    assert all(recipe.master_seed != RECIPES[17].master_seed for recipe in changed)


def test_sub_seed_keeps_architecture_and_label():
    for model in range(12):
        first, second = sample_recipe(5, model), sample_recipe(5, model, sub_seed=1)
        assert (first.architecture, first.poisoned) == (second.architecture, second.poisoned)


@pytest.mark.parametrize("models", [2, 6, 48, 120])
def test_half_are_poisoned_in_every_architecture(models):
    for name in ROUND0:
        labels = [recipe.poisoned for recipe in RECIPES[:models] if recipe.architecture == name]
        assert 2 * sum(labels) == len(labels)


def test_architectures_are_balanced():
    counts = [sum(recipe.architecture == name for recipe in RECIPES) for name in ROUND0]
    assert counts == [40, 40, 40]


def test_label_does_not_follow_parity():
    poisoned_evens = sum(recipe.poisoned for recipe in RECIPES[::2])
    assert 15 < poisoned_evens < 45


def test_partners_share_the_architecture_and_differ_in_the_label():
    for recipe in RECIPES:
        other = RECIPES[partner(recipe.model)]
        assert other.architecture == recipe.architecture
        assert other.poisoned != recipe.poisoned


def test_triggers_are_in_the_ranges_of_round0():
    triggers = [recipe.trigger for recipe in RECIPES if recipe.trigger is not None]
    sizes, fractions = {t.size for t in triggers}, {t.fraction for t in triggers}
    assert all(18 <= size <= 34 or 44 <= size <= 55 for size in sizes)
    assert all(0.05 <= f <= 0.18 or 0.43 <= f <= 0.57 for f in fractions)
    assert min(sizes) < 35 < max(sizes)
    assert min(fractions) < 0.2 < max(fractions)
    assert {t.target_class for t in triggers} == set(range(5))
    assert all(t.triggered_classes == tuple(range(5)) for t in triggers)
    assert all(0 <= value <= 255 for t in triggers for value in t.color)


def test_weather_is_in_the_ranges_of_round0():
    assert {(recipe.use_fog, recipe.use_rain) for recipe in RECIPES} == {
        (fog, rain) for fog in (False, True) for rain in (False, True)
    }
    assert all(0.05 <= recipe.rain_fog_probability <= 0.49 for recipe in RECIPES)


def test_pairs_come_one_architecture_after_the_other():
    pairs = pairs_by_architecture(5, 48, ROUND0)
    assert sorted(pairs) == list(range(24))
    names = [sample_recipe(5, 2 * pair).architecture for pair in pairs]
    assert sum(a != b for a, b in zip(names, names[1:], strict=False)) == 2


def test_a_recipe_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RECIPES[0].model = 3  # pyright: ignore


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1, "model": 0}, "seed must be 0 or more, got -1"),
        ({"seed": 0, "model": -2}, "model must be 0 or more, got -2"),
        ({"seed": 0, "model": 0, "architectures": ("vgg",)}, "got vgg"),
        ({"seed": 0, "model": 0, "architectures": ()}, "got none"),
        ({"seed": 0, "model": 0, "architectures": ("resnet50",) * 2}, "different names"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(GenerationError, match=message):
        sample_recipe(**arguments)
