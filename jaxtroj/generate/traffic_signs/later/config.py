"""config.json of Rounds 2 to 4, and the columns of METADATA.csv that are made of it.

Round 2's is flat with upper-case keys; that of Rounds 3 and 4 is what jsonpickle makes of a
`round_config.RoundConfig` with a list of `trigger_config.TriggerConfig`. Keys of the official
files that describe folders of the machine that made them are left out.
"""

import json
from typing import Any

from jaxtroj.generate.traffic_signs.later.design import ANY
from jaxtroj.generate.traffic_signs.later.recipe import FILTERS, SignRecipe, SignTrigger
from jaxtroj.generate.traffic_signs.later.settings import LaterSettings
from jaxtroj.rounds.image_config import shown_side

Values = dict[str, Any]


def config_values(recipe: SignRecipe, settings: LaterSettings) -> Values:
    """What a config says of the model besides its triggers, by the names of Rounds 3 and 4."""
    side = settings.size_for(recipe.architecture)
    size = shown_side(side)
    low, high = recipe.sign_areas
    return {
        "master_seed": recipe.master_seed,
        "img_size_pixels": size if settings.design.layout.has_margin else side,
        "cnn_img_size_pixels": side,
        "gaussian_blur_ksize_min": 0,
        "gaussian_blur_ksize_max": 5,
        "rain_probability": recipe.rain_probability,
        "fog_probability": recipe.fog_probability,
        "number_classes": recipe.number_classes,
        "number_training_samples": settings.training.pictures,
        "number_test_samples": settings.training.tests,
        "number_example_images": recipe.examples,
        "poisoned": recipe.poisoned,
        "model_architecture": recipe.architecture,
        "foreground_size_percentage_of_image_min": low,
        "foreground_size_percentage_of_image_max": high,
        "foreground_size_pixels_min": int(size * low**0.5),
        "foreground_size_pixels_max": int(size * high**0.5),
        **_adversary_values(recipe),
    }


def trigger_values(trigger: SignTrigger | None) -> Values:
    """What a config says of one trigger, by the names of Rounds 3 and 4; None for no trigger."""
    if trigger is None:
        return dict.fromkeys(_TRIGGER_KEYS)
    low, high = trigger.sizes or (None, None)
    values = (
        list(trigger.source_classes),
        trigger.target_class,
        trigger.fraction,
        "StaticTarget",
        trigger.kind,
        FILTERS[trigger.filter] if trigger.filter else trigger.sides,
        None if trigger.color is None else list(trigger.color),
        low,
        high,
        None if trigger.condition == "none" else trigger.condition,  # as NIST's configs
        trigger.quadrant or None,
    )
    return dict(zip(_TRIGGER_KEYS, values, strict=True))


_TRIGGER_KEYS = (
    "source_class", "target_class", "fraction", "behavior", "type", "type_option", "color",
    "size_percentage_of_foreground_min", "size_percentage_of_foreground_max", "condition",
    "spatial_quadrant",
)  # fmt: skip


def flat_trigger_values(trigger: SignTrigger | None, is_any: bool) -> Values:
    """The same by Round 2's names, of which "triggered classes" is "all" for all of them."""
    found = trigger_values(trigger)
    return {
        "number_triggered_classes": "all" if is_any else len(found["source_class"] or ()),
        "triggered_classes": found["source_class"] or [],
        "trigger_color": found["color"],
        "trigger_size_percentage_of_foreground_min": found["size_percentage_of_foreground_min"],
        "trigger_size_percentage_of_foreground_max": found["size_percentage_of_foreground_max"],
        "triggered_fraction": found["fraction"] or 0.0,
        "trigger_target_class": found["target_class"],
        "trigger_behavior": found["behavior"],
        "trigger_type": found["type"],
        "trigger_type_option": found["type_option"],
    }


def config_bytes(recipe: SignRecipe, settings: LaterSettings) -> bytes:
    """The file, in the round's style."""
    values = config_values(recipe, settings)
    if settings.design.layout.config == "flat":
        trigger = recipe.triggers[0] if recipe.triggers else None
        flat = values | flat_trigger_values(trigger, recipe.organisation == ANY)
        return json.dumps({name.upper(): value for name, value in flat.items()}).encode()
    triggers = [
        {"py/object": "trigger_config.TriggerConfig", "number": one.number, **trigger_values(one)}
        for one in recipe.triggers
    ]
    named = {"py/object": "round_config.RoundConfig"} | values
    named |= {
        "trigger_organization": recipe.organisation or None,
        "number_triggers": len(triggers),
        "triggers": triggers or None,
    }
    return json.dumps(named).encode()


def _adversary_values(recipe: SignRecipe) -> Values:
    found = recipe.adversary
    if found is None:
        return {}
    return {
        "adversarial_training_method": found.method,
        "adversarial_eps": found.reach / 255,
        "adversarial_training_ratio": found.tenths / 10,
        "adversarial_training_iteration_count": found.iterations,
    }
