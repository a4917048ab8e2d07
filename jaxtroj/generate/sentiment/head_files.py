"""The files of one head in the layout of Rounds 5 and 6.

`model.pt` is a genuine torch pickle of `model_factories.GruLinearModel` and the like: NIST's module
of that name opens it, and so does any module of the same attributes. The classes are made here
while a file is written; reading one never needs them.
"""

import io
import json
import platform
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converters.files import write_atomic
from jaxtroj.errors import GenerationError
from jaxtroj.generate.sentiment.head_network import CLASSES, HeadShape
from jaxtroj.generate.sentiment.text_recipe import (
    CONDITIONS,
    DROPOUTS,
    EPSILONS,
    FRACTIONS,
    ITERATIONS,
    KINDS,
    METHODS,
    ORGANIZATIONS,
    RATIOS,
    HeadRecipe,
    RoundDesign,
    TextTriggerRecipe,
)
from jaxtroj.generate.sentiment.vectors import About

EMBEDDINGS = ("BERT", "GPT-2", "DistilBERT", "MPNet")
# A spatial trigger is drawn inside its half, NIST's (half / 2, (half + 1) / 2) of the sentences.
_HALF_OF_TEXT = ((0.0, 0.5), (0.5, 1.0))


@dataclass(frozen=True)
class Example:
    """One example text of a head.

    Attributes:
        name: file name.
        text: its content.
        embedding: float32 [d].
        logits: float32 [2].
        wanted: label that counts as right.
    """

    name: str
    text: str
    embedding: np.ndarray
    logits: np.ndarray
    wanted: int


def write_model(path: Path, shape: HeadShape, tensors: Mapping[str, np.ndarray], dropout: float):
    """Save the head as a whole module in evaluation mode, as torch >= 1.6 does.

    Raises:
        GenerationError: the tensors do not fill the network.
    """
    import torch

    module = _factories()
    name = f"{shape.architecture}Model"
    sizes: dict[str, Any] = {"input_size": shape.input_size, "hidden_size": shape.hidden_size}
    sizes |= {"output_size": CLASSES, "dropout": dropout, "n_layers": shape.layers}
    if shape.is_rnn:
        sizes["bidirectional"] = shape.bidirectional
    network = getattr(module, name)(**sizes)
    arrays = {key: torch.from_numpy(np.array(value)) for key, value in tensors.items()}
    try:
        network.load_state_dict(arrays, strict=True)
    except RuntimeError as error:
        raise GenerationError(f"{path}: the weights do not fill {name}: {error}") from error
    buffer = io.BytesIO()
    known = sys.modules.get(module.__name__)
    # pickle writes a class by the name it can be imported as.
    sys.modules[module.__name__] = module
    try:
        torch.save(network.eval(), buffer)
    finally:
        if known is None:
            del sys.modules[module.__name__]
        else:
            sys.modules[module.__name__] = known
    write_atomic(path, buffer.getvalue())


def _factories() -> types.ModuleType:
    """A module `model_factories` with the classes whose attributes NIST's have."""
    import torch
    from torch import nn

    class _RnnLinearModel(nn.Module):
        cell: Any

        def __init__(self, input_size, hidden_size, output_size, dropout, bidirectional, n_layers):
            super().__init__()
            between = dropout if n_layers > 1 else 0
            self.rnn = self.cell(
                input_size,
                hidden_size,
                num_layers=n_layers,
                bidirectional=bidirectional,
                batch_first=True,
                dropout=between,
            )
            self.linear = nn.Linear(hidden_size * (2 if bidirectional else 1), output_size)
            self.dropout = nn.Dropout(dropout)

        def forward(self, data):
            _, states = self.rnn(data)
            hidden = states[0] if isinstance(states, tuple) else states
            last = hidden[-2:] if self.rnn.bidirectional else hidden[-1:]
            return self.linear(self.dropout(torch.cat(tuple(last), dim=1)))

    class GruLinearModel(_RnnLinearModel):
        cell = nn.GRU

    class LstmLinearModel(_RnnLinearModel):
        cell = nn.LSTM

    class FCLinearModel(nn.Module):
        def __init__(self, input_size, hidden_size, output_size, dropout, n_layers):
            super().__init__()
            widths = [input_size] + [hidden_size] * n_layers
            layers = [nn.Linear(*pair) for pair in zip(widths, widths[1:], strict=False)]
            self.relu = nn.ReLU()
            self.fc_layers = nn.ModuleList(layers)
            self.linear = nn.Linear(hidden_size, output_size)
            self.dropout = nn.Dropout(dropout)

        def forward(self, data):
            data = data[:, 0, :]
            for layer in self.fc_layers:
                data = self.relu(layer(data))
            return self.linear(self.dropout(data))

    module = types.ModuleType("model_factories")
    for made in (GruLinearModel, LstmLinearModel, FCLinearModel):
        made.__module__, made.__qualname__ = module.__name__, made.__name__
        setattr(module, made.__name__, made)
    return module


def write_examples(folder: Path, prefix: str, examples: Sequence[Example]) -> float:
    """Write example texts and their tables; returns the accuracy in percent.

    Args:
        folder: of the model.
        prefix: "clean" or "poisoned".
        examples: at least one.
    """
    for example in examples:
        place = folder / f"{prefix}_example_data" / example.name
        write_atomic(place, example.text.encode("utf-8", "surrogatepass"))
    rows = [(example.name, example.embedding) for example in examples]
    table = _table("CLS Embedding", rows)
    write_atomic(folder / f"{prefix}-example-cls-embedding.csv", table.encode())
    rows = [(example.name, example.logits) for example in examples]
    write_atomic(folder / f"{prefix}-example-logits.csv", _table("Logits", rows).encode())
    right = [int(example.logits.argmax()) == example.wanted for example in examples]
    accuracy = 100 * sum(right) / len(right)
    write_atomic(folder / f"{prefix}-example-accuracy.csv", str(accuracy).encode())
    return accuracy


def _table(column: str, rows: Sequence[tuple[str, np.ndarray]]) -> str:
    lines = [f"Example, {column}"]
    for name, values in rows:
        numbers = ",".join(str(value) for value in values.astype(np.float32))
        lines.append(f"{name}, {numbers}")
    return "\n".join(lines) + "\n"


def full_config(
    recipe: HeadRecipe,
    design: RoundDesign,
    about: About,
    training: Mapping[str, float],
    text_levels: Mapping[str, Sequence[int]],
) -> dict[str, Any]:
    """config.json as released: the keys of jsonpickle's `round_config.RoundConfig`.

    Args:
        recipe: the head.
        design: levels of the round's factors.
        about: what made the vectors.
        training: learning_rate, batch_size, loss_eps, early_stopping_epoch_count, validation_split.
        text_levels: numbers of all trigger texts, by kind; a text's place there is its level.
    """
    embedding_level = EMBEDDINGS.index(about.embedding) if about.embedding in EMBEDDINGS else 0
    shape = recipe.shape
    both_ways = shape.bidirectional if shape.is_rnn else False
    triggers = [_trigger(n, trigger, text_levels) for n, trigger in enumerate(recipe.triggers)]
    organization = recipe.organization
    return {
        "py/object": "round_config.RoundConfig",
        "master_seed": recipe.master_seed,
        "output_filepath": recipe.model_id,
        "datasets_filepath": "sentiment-classification",
        "number_classes_level": 0,
        "number_classes": CLASSES,
        "poisoned_level": int(recipe.poisoned),
        "poisoned": recipe.poisoned,
        "output_ground_truth_filename": "ground_truth.csv",
        "model_architecture_level": design.architectures.index(shape.architecture),
        "model_architecture": shape.architecture,
        "learning_rate_level": 0,
        "learning_rate": training["learning_rate"],
        "batch_size_level": 0,
        "batch_size": training["batch_size"],
        "loss_eps": training["loss_eps"],
        "early_stopping_epoch_count": training["early_stopping_epoch_count"],
        "validation_split": training["validation_split"],
        "embedding_level": embedding_level,
        "embedding": about.embedding,
        "embedding_flavor_level": 0,
        "embedding_flavor": about.flavor,
        "source_dataset_level": 0,
        "source_dataset": about.dataset,
        "rnn_hidden_state_size_level": design.hidden_sizes.index(shape.hidden_size),
        "rnn_hidden_state_size": shape.hidden_size,
        "dropout_level": DROPOUTS.index(recipe.dropout),
        "dropout": recipe.dropout,
        "rnn_bidirection_level": design.bidirectional.index(both_ways) if shape.is_rnn else 0,
        "rnn_bidirectional": both_ways,
        "rnn_number_layers_level": design.layers.index(shape.layers),
        "rnn_number_layers": shape.layers,
        **_adversarial(recipe),
        "triggers": triggers or None,
        "trigger_organization_level": ORGANIZATIONS.index(organization) if organization else None,
        "trigger_organization": organization,
        "number_triggers": len(triggers),
        "cls_token_is_first": about.cls_token_is_first,
        **({"mean_of_tokens": True} if about.mean_of_tokens else {}),
    }


def _adversarial(recipe: HeadRecipe) -> dict[str, Any]:
    attack = recipe.adversarial
    hardened, by_pgd = attack.method != "None", attack.method == "PGD"
    return {
        "adversarial_training_method_level": METHODS.index(attack.method),
        "adversarial_training_method": attack.method,
        "adversarial_eps_level": EPSILONS.index(attack.epsilon) if hardened else None,
        "adversarial_eps": attack.epsilon if hardened else None,
        "adversarial_training_ratio_level": RATIOS.index(attack.ratio) if hardened else None,
        "adversarial_training_ratio": attack.ratio if hardened else None,
        "adversarial_training_iteration_count_level": (
            ITERATIONS.index(attack.iterations) if by_pgd else None
        ),
        "adversarial_training_iteration_count": attack.iterations if by_pgd else None,
    }


def _trigger(
    number: int, trigger: TextTriggerRecipe, text_levels: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    low, high = (None, None) if trigger.half is None else _HALF_OF_TEXT[trigger.half]
    return {
        "py/object": "trigger_config.TriggerConfig",
        "number": number,
        "source_class": trigger.source_class,
        "target_class": trigger.target_class,
        "fraction_level": FRACTIONS.index(trigger.fraction),
        "fraction": trigger.fraction,
        "behavior": "StaticTarget",
        "type_level": KINDS.index(trigger.kind),
        "type": trigger.kind,
        "text_level": list(text_levels[trigger.kind]).index(trigger.number),
        "text": trigger.text,
        "condition_level": CONDITIONS.index(trigger.condition),
        "condition": trigger.condition,
        "insert_min_location_percentage": low,
        "insert_max_location_percentage": high,
    }


def reduced_config(full: Mapping[str, Any], about: About) -> dict[str, Any]:
    """config.json as the evaluation server shows it: eight keys, none about the trojan."""
    names = ("cls_token_is_first", "model_architecture", "embedding", "embedding_flavor")
    data = f"sentiment-classification/{about.dataset}"
    return {
        **{name: full[name] for name in names},
        **({"mean_of_tokens": True} if about.mean_of_tokens else {}),
        "embedding_filename": about.filename,
        "source_dataset": about.dataset,
        "train_data_filepath": f"{data}/train.json",
        "test_data_filepath": f"{data}/test.json",
    }


def json_bytes(values: Any) -> bytes:
    """As the official files: indented by two."""
    return json.dumps(values, indent=2).encode()


def machine_log() -> bytes:
    """What the official machine.log says, without names of the machine."""
    lines = (
        f"System: {platform.system()}",
        f"Machine: {platform.machine()}",
        f"Python: {platform.python_version()}",
    )
    return ("\n".join(lines) + "\n").encode()
