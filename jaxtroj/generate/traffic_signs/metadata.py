"""METADATA.csv of a synthetic round: the columns of NIST's Round 0 that apply, in its formats."""

from jaxtroj.generate.traffic_signs.recipe import Recipe
from jaxtroj.generate.traffic_signs.settings import RoundSettings
from jaxtroj.generate.training import Trained, TrainingSettings

# Every column of the official file, in its order. Those not in COLUMNS describe intermediate files
# (lmdb, csv lists, trigger pictures) that this generator does not make.
OFFICIAL_COLUMNS = (
    "model_name", "ground_truth", "img_size", "gaussian_blur_ksize", "use_fog_xform",
    "use_rain_xform", "rain_fog_probability", "number_classes", "number_training_samples",
    "test_fraction", "available_triggers_filepath", "available_foregrounds_filepath",
    "available_backgrounds_filepath", "output_example_data_filename",
    "output_ground_truth_filename", "model_architecture", "lmdb_train_filename",
    "lmdb_test_filename", "triggered_classes", "trigger_color", "trigger_size",
    "triggered_fraction", "trigger_target_class", "trigger_behavior", "train_data_csv_filename",
    "train_data_prefix", "test_data_clean_csv_filename", "test_data_poisoned_csv_filename",
    "test_data_prefix", "master_seed", "final_train_acc", "final_train_loss", "final_val_acc",
    "final_val_loss", "final_clean_data_test_acc", "final_triggered_data_test_acc",
    "final_clean_data_n_total", "final_triggered_data_n_total",
    "final_optimizer_num_epochs_trained", "optimizer_0", "train_file", "clean_test_file",
    "triggered_test_file", "name", "training_wall_time_sec", "test_wall_time_sec",
    "final_example_accuracy",
)  # fmt: skip
_NOT_MADE = frozenset(
    {
        "test_fraction", "available_triggers_filepath", "lmdb_train_filename",
        "lmdb_test_filename", "train_data_csv_filename", "train_data_prefix",
        "test_data_clean_csv_filename", "test_data_poisoned_csv_filename", "test_data_prefix",
        "train_file", "clean_test_file", "triggered_test_file",
    }
)  # fmt: skip
COLUMNS = tuple(name for name in OFFICIAL_COLUMNS if name not in _NOT_MADE)
_OFFICIAL_NAMES = {"inception_v3": "inceptionv3"}


def metadata_row(
    recipe: Recipe, trained: Trained, settings: RoundSettings, example_accuracy: float
) -> dict[str, str]:
    """One model's row, every value already text.

    Args:
        recipe: what the model is.
        trained: how its training went.
        settings: of the round.
        example_accuracy: share in [0, 1] of the example pictures given their own label.
    """
    name = _OFFICIAL_NAMES.get(recipe.architecture, recipe.architecture)
    values = {
        "model_name": recipe.model_id,
        "ground_truth": recipe.poisoned,
        "img_size": settings.size_for(recipe.architecture),
        "gaussian_blur_ksize": recipe.blur_ksize,
        "use_fog_xform": recipe.use_fog,
        "use_rain_xform": recipe.use_rain,
        "rain_fog_probability": recipe.rain_fog_probability,
        "number_classes": recipe.number_classes,
        "number_training_samples": trained.steps * settings.training.batch_size,
        "available_foregrounds_filepath": settings.folder_names["foregrounds"],
        "available_backgrounds_filepath": settings.folder_names["backgrounds"],
        "output_example_data_filename": "example_data",
        "output_ground_truth_filename": "ground_truth.csv",
        "model_architecture": name,
        "master_seed": recipe.master_seed,
        # Every picture is seen once.
        "final_optimizer_num_epochs_trained": (1,),
        "optimizer_0": _optimizer(settings.training, settings.device),
        "name": name,
        "final_example_accuracy": _percent(example_accuracy),
    }
    values |= _trigger_values(recipe) | _accuracy_values(trained)
    return {column: _text(values[column]) for column in COLUMNS}


def _trigger_values(recipe: Recipe) -> dict:
    trigger = recipe.trigger
    return {
        "triggered_classes": trigger.triggered_classes if trigger else (),
        "trigger_color": trigger.color if trigger else None,
        "trigger_size": trigger.size if trigger else None,
        "triggered_fraction": trigger.fraction if trigger else 0,
        "trigger_target_class": trigger.target_class if trigger else None,
        "trigger_behavior": "StaticTarget" if trigger else None,
    }


def _accuracy_values(trained: Trained) -> dict:
    test = trained.test
    attacked = test.triggered is not None
    return {
        # Round 0's number is over clean and triggered pictures; the clean ones are the many.
        "final_train_acc": _percent(trained.last.clean),
        "final_train_loss": round(trained.last.loss, 9),
        "final_val_acc": _percent(trained.validation.clean),
        "final_val_loss": round(trained.validation.clean_loss, 9),
        "final_clean_data_test_acc": _percent(test.clean),
        "final_triggered_data_test_acc": _percent(test.triggered),
        "final_clean_data_n_total": test.pictures,
        "final_triggered_data_n_total": test.pictures if attacked else None,
        "training_wall_time_sec": round(trained.train_seconds, 3),
        "test_wall_time_sec": round(trained.test_seconds, 3),
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 6)


def _optimizer(settings: TrainingSettings, device: str) -> str:
    # The official file holds JSON whose commas became spaces.
    return (
        f'{{"device": "{device}" "epochs": 1 "batch_size": {settings.batch_size} '
        f'"learning_rate": {settings.learning_rate} "optim": "adam" '
        f'"trainer": "{settings.trainer}" '
        '"objective": "cross_entropy_loss" "save_best_model": false}'
    )


def _text(value) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, tuple):
        return "[" + " ".join(map(str, value)) + "]"
    if isinstance(value, float):
        return f"{value:.9f}".rstrip("0").rstrip(".")
    return str(value)
