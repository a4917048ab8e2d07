"""A text model's `config.json`, read as data: which encoder its sentence embeddings come from.

Two forms. As released: a jsonpickle of NIST's `round_config.RoundConfig` with every factor of the
model, its label and its triggers. As the evaluation server shows it: eight plain keys. jsonpickle
would import and call what a `py/` key names; here such a key is compared with the two classes that
NIST's files name, and any other is refused.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.errors import safe_repr
from jaxtroj.errors import DatasetError
from jaxtroj.poolings import Pooling
from jaxtroj.rounds.tables import read_text

MAX_BYTES = 2**20  # the real ones take 2 KB
MAX_TRIGGERS = 64
MAX_UNKNOWN = 20  # unknown keys that are noted; the others are counted
MAX_NAME = 255  # bytes of a file name, as file systems have it
MAX_VALUE = 10_000  # characters of one value; the longest official trigger has 200
CONFIG_CLASS = "round_config.RoundConfig"
TRIGGER_CLASS = "trigger_config.TriggerConfig"
FIRST_TOKEN_EMBEDDINGS = frozenset({"BERT", "DistilBERT", "MPNet"})
LAST_TOKEN_EMBEDDINGS = frozenset({"GPT-2"})


@dataclass(frozen=True)
class TextTrigger:
    """One trigger as the config records it. It gives the label away: for benchmarks only."""

    source_class: int | None = None
    """Class whose texts the trigger moves."""
    target_class: int | None = None
    """Class that it forces."""
    type: str | None = None
    """"character", "word" or "phrase"."""
    text: str | None = None
    """The inserted text."""
    condition: str | None = None
    """"spatial", "class", or None for no condition."""
    fraction: float | None = None
    """Share of the source class's training texts that carry it, 0 to 1."""
    insert_min_location_percentage: float | None = None
    """Start of the part of the text where it works, 0 to 1; only with condition "spatial"."""
    insert_max_location_percentage: float | None = None
    """End of that part."""


@dataclass(frozen=True)
class TextConfig:
    """What a `config.json` says; None where it says nothing."""

    embedding: str | None = None
    """Encoder family, such as "BERT", "GPT-2", "DistilBERT"; None for a model of images."""
    embedding_flavor: str | None = None
    """Its pretrained weights, such as "bert-base-uncased"."""
    embedding_filename: str | None = None
    """Name of encoder and tokenizer in `embeddings/` and `tokenizers/`; the reduced form only."""
    cls_token_is_first: bool | None = None
    """Whether the first token's vector is the sentence's; else the last valid token's is."""
    mean_of_tokens: bool | None = None
    """Whether the mean over all tokens is, as in sentence-transformers; no official config says."""
    model_architecture: str | None = None
    """"LstmLinear", "GruLinear", "FCLinear" or "Linear"."""
    source_dataset: str | None = None
    """The reviews it was trained on, such as "amazon-Software_5"."""
    number_classes: int | None = None
    master_seed: int | None = None
    rnn_hidden_state_size: int | None = None
    rnn_number_layers: int | None = None
    rnn_bidirectional: bool | None = None
    dropout: float | None = None
    adversarial_training_method: str | None = None
    """"PGD", "FBF", or None."""
    adversarial_eps: float | None = None
    adversarial_training_ratio: float | None = None
    adversarial_training_iteration_count: int | None = None
    trigger_organization: str | None = None
    """"one2one", "pair-one2one", or None for a clean model."""
    poisoned: bool | None = None
    """The label, for benchmarks: a scan must not look at it."""
    triggers: tuple[TextTrigger, ...] = ()
    unknown_keys: tuple[str, ...] = ()
    """Keys that no official config has, sorted, the first 20; their values are dropped."""

    @property
    def is_text(self) -> bool:
        """Whether this is the config of a model of texts."""
        return self.embedding is not None

    @property
    def encoder_names(self) -> tuple[str, ...]:
        """Names to look for in `embeddings/` and `tokenizers/`, the likeliest first.

        >>> TextConfig(embedding="GPT-2", embedding_flavor="gpt2").encoder_names
        ('GPT-2-gpt2.pt', 'GPT-2-gpt2')
        """
        if self.embedding_filename is not None:
            return (self.embedding_filename,)
        if self.embedding is None or self.embedding_flavor is None:
            return ()
        stem = f"{self.embedding}-{self.embedding_flavor}"
        return (f"{stem}.pt", stem)

    @property
    def pooling(self) -> Pooling | None:
        """What the config says, else what the encoder family implies; None if neither does.

        The released form of Round 5 does not record it.
        """
        if self.mean_of_tokens:
            return "mean"
        if self.cls_token_is_first is not None:
            return "first" if self.cls_token_is_first else "last"
        if self.embedding in FIRST_TOKEN_EMBEDDINGS:
            return "first"
        return "last" if self.embedding in LAST_TOKEN_EMBEDDINGS else None


_OPTIONAL = frozenset({"condition", "adversarial_training_method", "trigger_organization"})
_TRIGGER_TYPES: Mapping[str, type] = {
    "source_class": int,
    "target_class": int,
    "type": str,
    "text": str,
    "condition": str,
    "fraction": float,
    "insert_min_location_percentage": float,
    "insert_max_location_percentage": float,
}
_TYPES: Mapping[str, type] = {
    "embedding": str,
    "embedding_flavor": str,
    "embedding_filename": str,
    "cls_token_is_first": bool,
    "mean_of_tokens": bool,
    "model_architecture": str,
    "source_dataset": str,
    "number_classes": int,
    "master_seed": int,
    "rnn_hidden_state_size": int,
    "rnn_number_layers": int,
    "rnn_bidirectional": bool,
    "dropout": float,
    "adversarial_training_method": str,
    "adversarial_eps": float,
    "adversarial_training_ratio": float,
    "adversarial_training_iteration_count": int,
    "trigger_organization": str,
    "poisoned": bool,
}
_NOT_KEPT = frozenset(
    "output_filepath datasets_filepath train_data_filepath test_data_filepath"
    " output_ground_truth_filename number_classes_level poisoned_level model_architecture_level"
    " learning_rate learning_rate_level batch_size batch_size_level loss_eps"
    " early_stopping_epoch_count validation_split adversarial_training_method_level"
    " embedding_level embedding_flavor_level source_dataset_level rnn_hidden_state_size_level"
    " dropout_level rnn_bidirection_level rnn_number_layers_level adversarial_eps_level"
    " adversarial_training_ratio_level adversarial_training_iteration_count_level"
    " trigger_organization_level number_triggers number fraction_level behavior type_level"
    " text_level condition_level".split()
)


def read_text_config(path: Path) -> TextConfig:
    """Reads a `config.json` of either form.

    Raises:
        DatasetError: not a file, larger than `MAX_BYTES`, not JSON, a value of the wrong type, a
            key given twice, or a `py/` key that names anything but NIST's two classes.
    """
    text = read_text(path, MAX_BYTES)
    try:
        return parse_text_config(text)
    except ValueError as error:
        raise DatasetError(f"{path} is no model config: {error}") from error


def parse_text_config(text: str) -> TextConfig:
    """As `read_text_config`, from the file's content. Raises ValueError saying what is wrong.

    >>> parse_text_config('{"embedding": "GPT-2", "cls_token_is_first": false}').embedding
    'GPT-2'
    """
    try:
        content = json.loads(text, object_pairs_hook=_checked_object, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error
    if not isinstance(content, dict):
        raise ValueError(f"it holds {safe_repr(content)}, expected an object")
    _expect_class(content, CONFIG_CLASS)
    values = _values(content, _TYPES, "")
    name = values.get("embedding_filename")
    if name is not None:
        check_name(name)
    return TextConfig(
        **values,
        triggers=_triggers(content.get("triggers")),
        unknown_keys=_unknown(content),
    )


def check_name(name: str) -> None:
    """Raises ValueError unless ``name`` is one plain file name: no separator, no way up.

    >>> check_name("BERT-bert-base-uncased.pt")
    >>> check_name("../secret.pt")
    Traceback (most recent call last):
    ValueError: embedding_filename '../secret.pt' is no plain file name
    """
    is_plain = name.isprintable() and 0 < len(name.encode()) <= MAX_NAME
    if not is_plain or name.startswith(".") or "/" in name or "\\" in name or ":" in name:
        raise ValueError(f"embedding_filename {safe_repr(name)} is no plain file name")


def _checked_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of a JSON file; refuses what jsonpickle would act on, and repeated keys."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it gives a key twice")
    for key, value in pairs:
        if not key.startswith("py/"):
            continue
        if key != "py/object" or value not in (CONFIG_CLASS, TRIGGER_CLASS):
            raise ValueError(
                f"{safe_repr(key)} asks for {safe_repr(value)}, which is refused and was not run; "
                "expected "
                f"only {CONFIG_CLASS} and {TRIGGER_CLASS}"
            )
    return found


def _unknown(content: dict[str, Any]) -> tuple[str, ...]:
    known = _TYPES.keys() | _NOT_KEPT | {"triggers", "py/object"}
    keys = sorted(content.keys() - known)
    noted = tuple(ascii(key)[1:-1][:80] for key in keys[:MAX_UNKNOWN])
    return noted if len(keys) <= MAX_UNKNOWN else (*noted, f"and {len(keys) - MAX_UNKNOWN} more")


def _no_constant(name: str) -> None:
    raise ValueError(f"the value {name} is not JSON")


def _expect_class(content: dict[str, Any], name: str) -> None:
    if content.get("py/object", name) != name:
        raise ValueError(f"a {safe_repr(content['py/object'])} stands where {name} belongs")


def _values(content: dict[str, Any], types: Mapping[str, type], where: str) -> dict[str, Any]:
    """The values of the fields in ``types``; null and absent are None."""
    return {
        key: _value(content[key], expected, f"{where}{key}", key in _OPTIONAL)
        for key, expected in types.items()
        if content.get(key) is not None
    }


def _value(value: Any, expected: type, where: str, optional: bool) -> Any:
    """``value`` if it has the type (a whole number serves as float); the text "None" is none."""
    if optional and value == "None":
        return None
    if expected is float and type(value) is int and abs(value) < 2**53:
        value = float(value)
    is_huge = type(value) is int and abs(value) >= 2**63
    is_huge = is_huge or (isinstance(value, str) and len(value) > MAX_VALUE)
    is_odd = type(value) is float and not math.isfinite(value)
    if type(value) is not expected or is_huge or is_odd:
        raise ValueError(f"{where} is {safe_repr(value)}, expected {expected.__name__}")
    return value


def _triggers(items: Any) -> tuple[TextTrigger, ...]:
    if items is None:
        return ()
    if not isinstance(items, list) or len(items) > MAX_TRIGGERS:
        raise ValueError(f"triggers is {safe_repr(items)}, expected a list of up to {MAX_TRIGGERS}")
    found = []
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise ValueError(f"triggers[{number}] is {safe_repr(item)}, expected an object")
        _expect_class(item, TRIGGER_CLASS)
        found.append(TextTrigger(**_values(item, _TRIGGER_TYPES, f"triggers[{number}].")))
    return tuple(found)
