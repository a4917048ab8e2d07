"""METADATA.csv and its dictionary: the config's keys, a set for each trigger, what came of it.

The columns of Rounds 2 to 4 are lower-case config keys, `model_name` and `poisoned` first; Round
1's header is not public, and follows Round 2's names with Round 0's label column, `ground_truth`.
The last columns are ours: how a model was trained, and how its triggers were taught.
"""

import re
from collections.abc import Mapping
from typing import Any

from jaxtroj.generate.traffic_signs.later.config import (
    config_values,
    flat_trigger_values,
    trigger_values,
)
from jaxtroj.generate.traffic_signs.later.design import ANY, ORGANISATIONS, RoundDesign
from jaxtroj.generate.traffic_signs.later.recipe import SignRecipe
from jaxtroj.generate.traffic_signs.later.settings import LaterSettings
from jaxtroj.generate.traffic_signs.later.teaching import taught_fraction
from jaxtroj.generate.traffic_signs.later.training import SignAccuracies

Values = dict[str, Any]
_FORMS = {
    "bool": "True|False",
    "integer": "-?[0-9]+",
    "float": r"-?[0-9]+(\.[0-9]*)?(e[-+]?[0-9]+)?",
}
DICTIONARY_HEADER = ("Column Name", " Explanation", " Data Type")
_EXPLAINED: Mapping[str, tuple[str, str]] = {
    "model_name": ("name of the model's folder", "string"),
    "poisoned": ("whether the model is poisoned", "bool"),
    "ground_truth": ("whether the model is poisoned", "bool"),
    "img_size_pixels": ("side of the example pictures in pixels", "integer"),
    "cnn_img_size_pixels": ("side of the middle of them that the network takes", "integer"),
    "final_clean_data_test_acc": ("percent of clean test pictures that are right", "float"),
    "final_triggered_data_test_acc": (
        "percent of triggered test pictures of source classes that go to the target; the smaller"
        " one of two triggers",
        "float",
    ),
    "final_example_acc": ("percent of the clean examples that are right", "float"),
    "converged": ("whether the accuracies reach what was asked for", "bool"),
    "training": ("warm: from a base network; scratch: from random weights", "string"),
    "base": ("number of the base network", "integer"),
    "sub_seed": ("number of the try that was kept", "integer"),
    "cycles": ("cycles of training", "integer"),
    "taught_fraction": ("chance by which a source picture carried its trigger", "float"),
    "leak": ("percent of triggered pictures of no source class that go to the target", "float"),
}


def metadata_row(
    recipe: SignRecipe,
    settings: LaterSettings,
    reached: SignAccuracies,
    example_accuracy: float,
    cycles: int,
) -> Values:
    """One model's row."""
    design, training = settings.design, settings.training
    label = "poisoned" if design.layout.config else "ground_truth"
    values = config_values(recipe, settings)
    poisoned = values.pop("poisoned")
    attack = min(reached.attacks, default=None)
    row = {"model_name": recipe.model_id, label: poisoned} | values
    row |= _trigger_columns(recipe, design)
    row |= {
        "final_clean_data_test_acc": _percent(reached.clean),
        "final_triggered_data_test_acc": _percent(attack),
        "final_example_acc": _percent(example_accuracy),
        "converged": reached.reaches(training.least_clean, training.least_attack),
        "training": recipe.training,
        "base": "" if recipe.training == "scratch" else recipe.base,
        "sub_seed": recipe.sub_seed,
        "cycles": cycles,
        "taught_fraction": _joined(taught_fraction(t, training.pace) for t in recipe.triggers),
        "leak": _joined(_percent(leak) for leak in reached.leaks if leak is not None),
    }
    return {name: _text(value) for name, value in row.items()}


def columns_of(design: RoundDesign, rows: list[Values]) -> tuple[str, ...]:
    """The table's columns, in the order of its rows; those of a round without models are few."""
    label = "poisoned" if design.layout.config else "ground_truth"
    return tuple(rows[0]) if rows else ("model_name", label)


def dictionary_rows(columns: tuple[str, ...], rows: list[Values]) -> list[Values]:
    """METADATA_DICTIONARY.csv for these columns; types of a config's are those of the values."""
    found = []
    for name in columns:
        text, kind = _EXPLAINED.get(name, (f"the config's {name}", ""))
        kind = kind or _type_of([row[name] for row in rows])
        found.append(dict(zip(DICTIONARY_HEADER, (name, f" {text}", f" {kind}"), strict=True)))
    return found


def _type_of(values: list[str]) -> str:
    """In the words of NIST's dictionaries, of a column's values as its cells have them.

    >>> _type_of(["3", "None"]), _type_of(["3", "0.5"]), _type_of(["True"]), _type_of(["[1 2]"])
    ('integer', 'float', 'bool', 'string')
    """
    known = [value for value in values if value not in ("None", "")]
    for kind, form in _FORMS.items():
        if known and all(re.fullmatch(form, value) for value in known):
            return kind
    return "string"


def _trigger_columns(recipe: SignRecipe, design: RoundDesign) -> Values:
    most = max(ORGANISATIONS[name][0] for name in design.organisations)
    if most == 1:
        trigger = recipe.triggers[0] if recipe.triggers else None
        return flat_trigger_values(trigger, recipe.organisation == ANY)
    padded = (*recipe.triggers, *([None] * (most - len(recipe.triggers))))
    columns: Values = {
        "trigger_organization": recipe.organisation or None,
        "number_triggers": len(recipe.triggers),
    }
    for number, trigger in enumerate(padded):
        values = trigger_values(trigger)
        columns |= {f"triggers_{number}_{name}": value for name, value in values.items()}
    return columns


def _joined(values) -> str:
    return " ".join(str(value) for value in values)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 4)


def _text(value: Any) -> str:
    """As in Round 0's file: commas inside values become spaces."""
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(str, value)) + "]"
    return str(value)
