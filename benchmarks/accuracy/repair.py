"""Repair of generated poisoned networks: unlearning beside fine-pruning and fine-tuning.

Each poisoned network of a folder that `jaxtroj generate zoo` wrote is scanned, repaired and
measured with the trigger that was planted, which the repair never sees. Its own example pictures,
and those of its clean partner, which are others of the same data set, make the examples: the first
half of each class to repair with, the second to measure on.

    python -m benchmarks.accuracy.repair --zoo FOLDER --seed N --out repair.json

`--seed` is the one that the folder was generated with. A run that was stopped goes on.
"""

import argparse
import json
import shutil
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import provenance
from converters.files import write_atomic
from jaxtroj.errors import JaxtrojError
from jaxtroj.generate.model_ids import draw_for
from jaxtroj.generate.zoo import recipe as zoo
from jaxtroj.generate.zoo.triggers import MAKERS
from jaxtroj.repair.mend import GOAL, METHODS, MOST_LOST, examined, mended
from jaxtroj.repair.outcome import Attack
from jaxtroj.repair.training import Stamp
from jaxtroj.rounds import ModelEntry, iter_models
from jaxtroj.settings import Settings

SETTINGS = Settings(channel_order="RGB", normalization="unit")
"""As the zoo's networks were trained."""


def planted_in(folder: Path, seed: int) -> Attack:
    """The trigger of a generated model, drawn again as its recipe says.

    Raises ValueError where the seed is another zoo's.
    """
    said = json.loads((folder / "generation.json").read_text())
    recipe, about = said["recipe"], said["metadata"]
    number, sub_seed = recipe["model"], recipe["sub_seed"]
    master = int(draw_for(seed, zoo._MASTER, number, sub_seed).integers(2**32))
    draw = draw_for(seed, zoo._MODEL, number, sub_seed)
    draw.permutation(about["number_classes"])
    shape = (about["img_size"], about["img_size"], about["channels"])
    made = MAKERS[recipe["trigger"]["kind"]](draw, shape)
    if master != recipe["master_seed"] or made.style != recipe["trigger"]["style"]:
        raise ValueError(f"{folder} was not generated with seed {seed}")
    target, sources = recipe["trigger"]["target_class"], recipe["trigger"]["source_classes"]
    return Attack(Stamp(made.trigger, made.reach), target, tuple(sources))


def pooled_examples(entry: ModelEntry, partner: Path, folder: Path) -> ModelEntry:
    """The entry with its own examples and, numbered after them, its clean partner's."""
    assert entry.examples_path is not None
    for path in entry.examples_path.glob("*.png"):
        shutil.copy(path, folder / path.name)
    own = {path.read_bytes() for path in folder.iterdir()}
    for path in (partner / "example_data").glob("*.png"):
        if path.read_bytes() not in own:
            head, _, number = path.stem.rpartition("_")
            shutil.copy(path, folder / f"{head}_{int(number) + 1000}.png")
    return replace(entry, examples_path=folder)


def row_of(entry: ModelEntry, seed: int, settings: Settings) -> dict[str, Any]:
    """Figures of one network."""
    home = entry.model_path.parent
    partner = home.with_name(f"id-{int(home.name[3:]) ^ 1:08d}")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        patient = examined(pooled_examples(entry, partner, Path(name)), settings)
    searched = time.perf_counter()
    found = mended(patient, planted_in(home, seed))
    about = json.loads((home / "generation.json").read_text())["metadata"]
    return {
        "model": home.name,
        **{k: about[k] for k in ("dataset", "model_architecture", "trigger_kind", "training")},
        "source_classes": about["source_classes"],
        "probability": patient.record.probability,
        "recovered_target_right": [
            attack.target_class == about["trigger_target_class"] for attack in patient.attacks
        ],
        "recovered_kinds": [str(a.stamp.trigger.kind) for a in patient.attacks],
        "learn": len(patient.data.learn),
        "held": len(patient.data.held),
        "before": asdict(found.before),
        "after": {method: asdict(one) for method, one in found.after.items()},
        "converged": found.converged,
        "seconds": {
            "search": round(searched - started, 1),
            "methods": round(time.perf_counter() - searched, 1),
        },
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """For each method how many networks reach the goals, and the middle figures."""
    told = {}
    for method in METHODS:
        done = [(row["before"], row["after"][method]) for row in rows if method in row["after"]]
        lost = [before["accuracy"] - after["accuracy"] for before, after in done]
        rates = [after["planted"] for _, after in done]
        told[method] = {
            "networks": len(done),
            "planted_at_most_goal": sum(rate <= GOAL for rate in rates),
            "and_accuracy_kept": sum(
                rate <= GOAL and loss <= MOST_LOST for rate, loss in zip(rates, lost, strict=True)
            ),
            "median_planted": float(np.median(rates)) if rates else None,
            "median_accuracy_lost": float(np.median(lost)) if lost else None,
        }
    return told


def main() -> None:
    """Measure, and write the result after every network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=24)
    args = parser.parse_args()
    known = json.loads(args.out.read_text()) if args.out.exists() else {}
    rows, left_out = known.get("rows", []), known.get("left_out", {})
    poisoned = [entry for entry in iter_models(args.zoo) if entry.poisoned]
    poisoned.sort(key=_cost)
    for entry in poisoned[: args.limit]:
        name = entry.model_path.parent.name
        if name in {row["model"] for row in rows} or name in left_out:
            continue
        try:
            rows.append(row_of(entry, args.seed, SETTINGS))
            print(json.dumps(rows[-1]), flush=True)
        except JaxtrojError as error:  # one network too few pictures were left of
            left_out[name] = str(error)
        result = {"provenance": provenance(), "summary": summary(rows), "left_out": left_out}
        write_atomic(args.out, json.dumps(result | {"rows": rows}, indent=1).encode() + b"\n")


def _cost(entry: ModelEntry) -> tuple[bool, int, str]:
    """Plain networks on small pictures first: so a run that is stopped early has the most rows."""
    about = json.loads((entry.model_path.parent / "generation.json").read_text())["metadata"]
    is_plain = about["model_architecture"].startswith(("plain", "vgg"))
    return not is_plain, about["img_size"], entry.model_id


if __name__ == "__main__":
    main()
