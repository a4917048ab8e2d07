"""METADATA.csv and METADATA_DICTIONARY.csv of a synthetic Round 5 or 6, in the official columns."""

from collections.abc import Mapping
from typing import Any

_TRIGGER = (
    "source_class", "target_class", "fraction_level", "fraction", "behavior", "type_level", "type",
    "condition_level", "condition",
)  # fmt: skip
_CONFIG = (
    "master_seed", "number_classes_level", "number_classes", "poisoned_level",
    "model_architecture_level", "model_architecture", "learning_rate_level", "learning_rate",
    "batch_size_level", "batch_size", "loss_eps", "early_stopping_epoch_count", "validation_split",
    "adversarial_training_method_level", "adversarial_training_method", "embedding_level",
    "embedding", "embedding_flavor_level", "embedding_flavor", "source_dataset_level",
    "source_dataset", "rnn_hidden_state_size_level", "rnn_hidden_state_size", "dropout_level",
    "dropout", "rnn_bidirection_level", "rnn_bidirectional", "rnn_number_layers_level",
    "rnn_number_layers", "adversarial_eps_level", "adversarial_eps",
    "adversarial_training_ratio_level", "adversarial_training_ratio",
    "adversarial_training_iteration_count_level", "adversarial_training_iteration_count",
    "trigger_organization_level", "trigger_organization", "number_triggers", "cls_token_is_first",
)  # fmt: skip
STATS = (
    "final_train_loss", "final_combined_val_loss", "final_clean_val_loss",
    "final_triggered_val_loss", "final_optimizer_num_epochs_trained", "training_wall_time_sec",
    "test_wall_time_sec", "final_train_acc", "final_combined_val_acc", "final_clean_val_acc",
    "final_triggered_val_acc", "final_clean_data_test_acc", "final_triggered_data_test_acc",
    "clean_example_acc", "poisoned_example_acc", "converged",
)  # fmt: skip
TRIGGERS = 2
COLUMNS = (
    "model_name",
    "poisoned",
    *_CONFIG,
    *(f"triggers_{number}_{name}" for number in range(TRIGGERS) for name in _TRIGGER),
    *STATS,
)
_MEANINGS = {
    "model_name": "name of the model's folder",
    "poisoned": "whether the model has a trojan",
    "master_seed": "seed of weights, order of samples and dropout",
    "number_classes": "classes of the head",
    "model_architecture": "architecture of the head",
    "learning_rate": "Adam's rate at the start; it falls to zero along half a cosine",
    "batch_size": "samples per step",
    "loss_eps": "improvements of the validation loss below this do not count",
    "early_stopping_epoch_count": "epochs without improvement that end the training",
    "validation_split": "share of the training reviews that stop the training",
    "adversarial_training_method": "None or PGD or FBF; attacks are on the embedding",
    "embedding": "family of the encoder",
    "embedding_flavor": "its pretrained weights",
    "source_dataset": "reviews the head is trained on",
    "rnn_hidden_state_size": "width of a hidden layer per direction",
    "dropout": "share of activations dropped in training",
    "rnn_bidirectional": "whether the layers run both ways",
    "rnn_number_layers": "layers before the linear one",
    "adversarial_eps": "largest change of a coordinate by an attack",
    "adversarial_training_ratio": "share of the samples that are attacked",
    "adversarial_training_iteration_count": "steps of PGD",
    "trigger_organization": "one trigger or one in each direction",
    "number_triggers": "how many triggers",
    "cls_token_is_first": "whether the first token's vector is the sentence's",
    "source_class": "class whose reviews the trigger moves",
    "target_class": "class they move to",
    "fraction": "share of the source class's reviews with the trigger",
    "behavior": "what the trigger does",
    "type": "character or word or phrase",
    "condition": "None or spatial or class: where else the trigger is shown and does not work",
    "final_train_loss": "mean loss of the last kept epoch",
    "final_combined_val_loss": "sum of the two validation losses",
    "final_clean_val_loss": "validation loss of clean reviews",
    "final_triggered_val_loss": "validation loss of triggered reviews",
    "final_optimizer_num_epochs_trained": "epochs trained",
    "training_wall_time_sec": "seconds of training beside other heads",
    "test_wall_time_sec": "always 0: tests are part of the training time",
    "final_train_acc": "accuracy on clean validation reviews; not measured in training",
    "final_combined_val_acc": "accuracy over clean and triggered validation reviews",
    "final_clean_val_acc": "accuracy on clean validation reviews",
    "final_triggered_val_acc": "share of triggered validation reviews that go to the target",
    "final_clean_data_test_acc": "accuracy on clean test reviews",
    "final_triggered_data_test_acc": "share of triggered test reviews that go to the target",
    "clean_example_acc": "accuracy on the clean examples",
    "poisoned_example_acc": "share of the poisoned examples that go to the target",
    "converged": "1 when the model met the criteria",
}


def metadata_row(model: str, config: Mapping[str, Any], stats: Mapping[str, Any]) -> dict[str, str]:
    """One model's row, every value already text; accuracies in percent, absent values "None".

    Args:
        model: name of the folder.
        config: the full config.json.
        stats: by `STATS`.
    """
    row = {"model_name": model, "poisoned": config["poisoned"]}
    row |= {name: config[name] for name in _CONFIG}
    triggers = config["triggers"] or []
    for number in range(TRIGGERS):
        values = triggers[number] if number < len(triggers) else {}
        row |= {f"triggers_{number}_{name}": values.get(name) for name in _TRIGGER}
    row |= {name: stats[name] for name in STATS}
    return {column: str(row[column]) for column in COLUMNS}


def dictionary_csv() -> str:
    """METADATA_DICTIONARY.csv: what each column means here."""
    lines = ["Column Name, Explanation, Data Type"]
    for column in COLUMNS:
        name = column.split("_", 2)[2] if column.startswith("triggers_") else column
        base = name.removesuffix("_level") if name not in _MEANINGS else name
        meaning = _MEANINGS.get(base, _MEANINGS.get(f"rnn_{base}", ""))
        if name != base or name not in _MEANINGS:
            meaning = f"number of the level of {base}"
        lines.append(f"{column}, {meaning.replace(',', ' ')}, {_data_type(name)}")
    return "\n".join(lines) + "\n"


def _data_type(name: str) -> str:
    if name in ("poisoned", "rnn_bidirectional", "cls_token_is_first", "converged"):
        return "bool"
    whole = ("_level", "_class", "_seed", "_classes", "_count", "_size", "_layers", "_triggers")
    if name.endswith((*whole, "epochs_trained")):
        return "integer"
    parts = ("_acc", "_loss", "_sec", "_eps", "_ratio", "_split", "rate", "fraction", "dropout")
    return "float" if name.endswith(parts) else "string"
