"""Repair of generated poisoned networks: unlearning beside fine-pruning and fine-tuning.

Each poisoned network of a folder that `jaxtroj generate zoo` wrote is scanned, repaired and
measured with the trigger that was planted, which the repair never sees. The pictures are others of
the network's data set, see `repair_cases`: 20 of each class to scan and to repair with.

    python -m benchmarks.accuracy.repair --zoo FOLDER --seed N --pictures FOLDER --out repair.json

`--seed` is the one that the folder was generated with, `--pictures` holds the .npz files that it
was generated from. What scans found is kept beside the result, in repair.found. A run that was
stopped goes on. `--seen` names networks that were in view while the method was made: they are
summed up apart from the others.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.repair_cases import case_data, patient_of
from benchmarks.provenance import provenance
from converters.files import write_atomic
from jaxtroj.errors import JaxtrojError
from jaxtroj.generate.model_ids import draw_for
from jaxtroj.generate.small.labelled_pictures import LabelledPictures, load_pictures
from jaxtroj.generate.zoo import recipe as zoo
from jaxtroj.generate.zoo.triggers import MAKERS
from jaxtroj.repair.mend import GOAL, METHODS, is_kept, mended
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


def row_of(
    entry: ModelEntry, seed: int, pictures_of: Callable[[str], LabelledPictures], found: Path
) -> dict[str, Any]:
    """Figures of one network.

    Args:
        entry: the network.
        seed: of its zoo.
        pictures_of: the pictures of a data set.
        found: folder of what scans found.
    """
    home = entry.model_path.parent
    about = json.loads((home / "generation.json").read_text())["metadata"]
    data, kept = case_data(pictures_of(about["dataset"]), home.name), found / f"{home.name}.npz"
    with tempfile.TemporaryDirectory() as name:
        patient = patient_of(entry, data, SETTINGS, Path(name), kept)
    started = time.perf_counter()
    done = mended(patient, planted_in(home, seed))
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
        "before": asdict(done.before),
        "after": {method: asdict(one) for method, one in done.after.items()},
        "converged": done.converged,
        "methods_seconds": round(time.perf_counter() - started, 1),
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
                after["planted"] <= GOAL and is_kept(before["accuracy"], after["accuracy"])
                for before, after in done
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
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=24)
    parser.add_argument("--seen", nargs="*", default=[], metavar="ID")
    args = parser.parse_args()
    found = args.out.with_suffix(".found")

    @lru_cache(2)
    def pictures_of(name: str) -> LabelledPictures:
        return load_pictures(args.pictures / f"{name}.npz", args.seed, (1, 3))

    known = json.loads(args.out.read_text()) if args.out.exists() else {}
    rows, left_out = known.get("rows", []), known.get("left_out", {})
    poisoned = [entry for entry in iter_models(args.zoo) if entry.poisoned]
    poisoned.sort(key=_cost)
    for entry in poisoned[: args.limit]:
        name = entry.model_path.parent.name
        if name in {row["model"] for row in rows} or name in left_out:
            continue
        try:
            rows.append(row_of(entry, args.seed, pictures_of, found))
            print(json.dumps(rows[-1]), flush=True)
        except JaxtrojError as error:  # one network too few pictures were left of
            left_out[name] = str(error)
        parts = {"all": rows}
        if args.seen:
            parts["seen"] = [row for row in rows if row["model"] in args.seen]
            parts["fresh"] = [row for row in rows if row["model"] not in args.seen]
        sums = {part: summary(own) for part, own in parts.items()}
        result = {"provenance": provenance(), "summary": sums, "left_out": left_out}
        write_atomic(args.out, json.dumps(result | {"rows": rows}, indent=1).encode() + b"\n")


def _cost(entry: ModelEntry) -> tuple[bool, int, str]:
    """Plain networks on small pictures first: so a run that is stopped early has the most rows."""
    about = json.loads((entry.model_path.parent / "generation.json").read_text())["metadata"]
    is_plain = about["model_architecture"].startswith(("plain", "vgg"))
    return not is_plain, about["img_size"], entry.model_id


if __name__ == "__main__":
    main()
