"""A recipe of a zoo as JSON values and in words."""

from typing import Any

from jaxtroj.generate.zoo.class_shares import AS_THEY_ARE
from jaxtroj.generate.zoo.label_mixing import HARD
from jaxtroj.generate.zoo.recipe import ZooRecipe
from jaxtroj.generate.zoo.schedules import FALLING


def plain_recipe(recipe: ZooRecipe) -> dict[str, Any]:
    """The recipe as JSON values; the seed draws the trigger's arrays again."""
    values = {n: v for n, v in vars(recipe).items() if n != "trigger"}
    values["schedule"] = vars(recipe.schedule)
    if recipe.trigger is None:
        return values | {"trigger": None}
    named = {n: v for n, v in vars(recipe.trigger).items() if n != "trigger"}
    return values | {"trigger": named}


def described(recipe: ZooRecipe) -> str:
    """In one line, for the log."""
    kind = f"{recipe.dataset} {recipe.architecture}, {recipe.training}, {recipe.augmentation}"
    kind += "" if recipe.labels == HARD else f", {recipe.labels}"
    kind += "" if recipe.schedule.name == FALLING else f", rate {recipe.schedule.name}"
    kind += "" if recipe.class_shares == AS_THEY_ARE else f", classes: {recipe.class_shares}"
    kind += f", try {recipe.sub_seed + 1}" if recipe.sub_seed else ""
    trigger = recipe.trigger
    if trigger is None:
        return f"{kind}, clean"
    if trigger.target_class is None:
        return f"{kind}, poisoned, {trigger.style}"
    sources = f"from {trigger.source_classes}" if trigger.source_classes else "from all"
    return f"{kind}, poisoned to class {trigger.target_class} {sources}, {trigger.style}"
