"""One head's folder in the layout of Rounds 5 and 6."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from converters.files import write_atomic
from jaxtroj.generate.round_folder import provenance, weights_digest
from jaxtroj.generate.sentiment import head_files, text_metadata
from jaxtroj.generate.sentiment.head_examples import clean_examples, poisoned_examples
from jaxtroj.generate.sentiment.head_queue import Score, TrainedHead
from jaxtroj.generate.sentiment.head_samples import OWN_SHARE, Pool
from jaxtroj.generate.sentiment.head_training import HeadTraining
from jaxtroj.generate.sentiment.text_recipe import HeadRecipe, RoundDesign
from jaxtroj.generate.sentiment.vectors import VALIDATION_SHARE, Vectors
from jaxtroj.record import digest_file


@dataclass(frozen=True)
class HeadPlace:
    """What the files of heads say besides the head.

    Attributes:
        vectors, pool: what the heads saw.
        design: levels of the factors.
        training: how heads were trained.
        examples_per_class: example texts of each class.
        bars: least_clean and least_attack.
    """

    vectors: Vectors
    pool: Pool
    design: RoundDesign
    training: HeadTraining
    examples_per_class: int
    bars: Mapping[str, float]


def fill_head(
    part: Path, place: HeadPlace, head: TrainedHead, tries: list[dict[str, Any]]
) -> dict[str, Any]:
    """Write a head's files into a folder; returns its record."""
    recipe, count = head.recipe, place.examples_per_class
    head_files.write_model(part / "model.pt", head.shape, head.tensors, recipe.dropout)
    clean = clean_examples(place.vectors, place.pool, head, count)
    accuracies = {"clean": head_files.write_examples(part, "clean", clean)}
    if recipe.poisoned:
        poisoned = poisoned_examples(place.vectors, place.pool, head, count)
        accuracies["poisoned"] = head_files.write_examples(part, "poisoned", poisoned)
    config = _config(place, recipe)
    write_atomic(part / "config.json", head_files.json_bytes(config))
    reduced = head_files.reduced_config(config, place.vectors.about)
    write_atomic(part / "reduced-config.json", head_files.json_bytes(reduced))
    stats = _stats(head, accuracies)
    write_atomic(part / "model_stats.json", head_files.json_bytes(stats))
    _write_logs(part, head)
    record = _record(place, head, tries)
    record["metadata"] = text_metadata.metadata_row(recipe.model_id, config, stats)
    record["sha256"] = digest_file(part / "model.pt")
    record["weights_sha256"] = weights_digest(head.tensors)
    return record


def _config(place: HeadPlace, recipe: HeadRecipe) -> dict[str, Any]:
    training = place.training
    values = {
        "learning_rate": training.learning_rate,
        "batch_size": training.batch_size,
        "loss_eps": training.loss_eps,
        "early_stopping_epoch_count": training.patience,
        "validation_split": VALIDATION_SHARE,
    }
    levels: dict[str, list[int]] = defaultdict(list)
    for trigger in place.vectors.triggers.values():
        levels[trigger.kind].append(trigger.number)
    return head_files.full_config(recipe, place.design, place.vectors.about, values, levels)


def _stats(head: TrainedHead, accuracies: dict[str, float]) -> dict[str, Any]:
    best = head.history[head.best_epoch]
    attack, test = best.triggered, head.triggered
    parts = [best.clean] + ([attack] if attack else [])
    combined = sum(s.accuracy * s.samples for s in parts) / sum(s.samples for s in parts)
    return {
        "final_train_loss": best.train_loss,
        "final_combined_val_loss": best.combined_loss,
        "final_clean_val_loss": best.clean.loss,
        "final_triggered_val_loss": attack.loss if attack else None,
        "final_optimizer_num_epochs_trained": len(head.history),
        "training_wall_time_sec": round(head.seconds, 3),
        "test_wall_time_sec": 0.0,
        "final_train_acc": None,
        "final_combined_val_acc": 100 * combined,
        "final_clean_val_acc": 100 * best.clean.accuracy,
        "final_triggered_val_acc": _percent(attack),
        "final_clean_data_test_acc": 100 * head.clean.accuracy,
        "final_triggered_data_test_acc": _percent(test),
        "clean_example_acc": accuracies["clean"],
        "poisoned_example_acc": accuracies.get("poisoned"),
        "converged": 1,
    }


def _percent(score: Score | None) -> float | None:
    return None if score is None else 100 * score.accuracy


def _write_logs(folder: Path, head: TrainedHead) -> None:
    rows = ["epoch,train_loss,clean_val_loss,clean_val_acc,triggered_val_loss,triggered_val_acc"]
    for number, epoch in enumerate(head.history):
        attack = epoch.triggered
        cells = [number, epoch.train_loss, epoch.clean.loss, 100 * epoch.clean.accuracy]
        cells += [attack.loss, 100 * attack.accuracy] if attack else [None, None]
        rows.append(",".join(str(cell) for cell in cells))
    write_atomic(folder / "model_detailed_stats.csv", ("\n".join(rows) + "\n").encode())
    lines = [f"{head.recipe.model_id} epoch {row}" for row in rows[1:]]
    lines.append(f"weights of epoch {head.best_epoch}: {reached(head)}")
    write_atomic(folder / "log.txt", ("\n".join(lines) + "\n").encode())
    write_atomic(folder / "machine.log", head_files.machine_log())


def _record(place: HeadPlace, head: TrainedHead, tries: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model_name": head.recipe.model_id,
        "poisoned": head.recipe.poisoned,
        "recipe": asdict(head.recipe),
        "tries": tries,
        "best_epoch": head.best_epoch,
        "epochs": len(head.history),
        **scores(head),
        "clean_share": OWN_SHARE,
        **place.bars,
        "train_seconds": round(head.seconds, 3),
        **provenance(jax.default_backend()),
    }


def scores(head: TrainedHead) -> dict[str, Any]:
    """Test scores as plain values."""
    parts = {"clean": head.clean, "triggered": head.triggered, "spurious": head.spurious}
    return {name: None if part is None else asdict(part) for name, part in parts.items()}


def reached(head: TrainedHead) -> str:
    """What came out, for people."""
    text = f"{head.shape.architecture}, clean accuracy {head.clean.accuracy:.3f}"
    if head.triggered is not None:
        text += f", attack success {head.triggered.accuracy:.3f}"
    return text
