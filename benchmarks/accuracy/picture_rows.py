"""Networks of generated folders with their evidence: rows to fit and judge calibrators on.

A row is one line of an `.evidence.jsonl` file. What a network is (its pictures, trigger, sources,
training) is read from the METADATA.csv of its folder, which `jaxtroj generate zoo` or `round1` to
`round4` wrote.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.accuracy.round0_accuracy import ImageRow
from jaxtroj.calibration import Labelled, Scheme
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.record import Record
from jaxtroj.rounds import ModelEntry, iter_models
from jaxtroj.scan import scan
from jaxtroj.schemas import scheme_for
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore

NOT_JUDGED = ("pairs",)
"""Stages whose fields the general calibrator does not judge by, so that scans leave them out.

On 195 networks log scores were the same without `pairs`, then on 40 fresh ones too, and a pair's
trigger was the strongest mostly where it served the wrong class (docs/history.md)."""
_COUNTS = defaultdict(lambda: "several", {0: "all", 1: "one", 2: "two"})
_KINDS = {"polygon": "polygon", "instagram": "filter"}
_NAMES = ("type", "target_class", "source_class", "condition")


@dataclass(frozen=True)
class PictureRow(ImageRow):
    """One labelled network of a zoo or of a round.

    Attributes:
        dataset: its pictures.
        family: its architecture as METADATA names it; `architecture` is what the scan recognised.
        kind: of trigger, those of two joined by "+"; "" for a clean one.
        sources: "all", "one", "two" or "several" classes, "each" for one that sends each class to
            the next; "" for a clean one.
        training: "scratch", "warm", "adversarial" ...
        base: the network it started from; "" for none.
        success: attack success rate of its trigger on test pictures, 0 to 1; None for a clean one.
        side: of its pictures, pixels. classes: how many it tells apart.
        pair: what it shares with its twin.
        second_target: class of a second trigger; None for none.
        condition: on which a trigger works; "" for none.
        adversary: method of adversarial training; "" for none.
        augmentation: what was done to its training pictures; "" where nobody says.
        labels: how they were taught; schedule: of the learning rate; "" where nobody says.
        class_shares: how many training pictures of each class it saw, see `generate.zoo`.
        converged: whether its accuracies reached what was asked for, as far as its folder says.
        revision: of the evidence, see `jaxtroj.evidence.stages`; 0 where the row does not say.
    """

    dataset: str
    family: str
    kind: str
    sources: str
    training: str
    base: str
    success: float | None
    side: int
    classes: int
    pair: str
    second_target: int | None = None
    condition: str = ""
    adversary: str = ""
    augmentation: str = ""
    labels: str = ""
    schedule: str = ""
    class_shares: str = ""
    converged: bool = True
    revision: int = 0

    @property
    def has_norms(self) -> bool:
        """Whether its file has batch norms to look at."""
        return "norm_shift" in self.evidence

    @property
    def has_right_target(self) -> bool:
        """Whether the class that the scan names is that of a trigger."""
        return self.found_target is not None and self.found_target in (
            self.target_class, self.second_target,
        )  # fmt: skip


def read_rows(
    source: Path, work: Path, limit: int | None = None, stages: tuple[str, ...] | None = None
) -> list[PictureRow]:
    """Labelled rows of a zoo's folder, or of the evidence that an earlier run wrote.

    Args:
        source: folder or file.
        work: where run folders go.
        limit: how many networks, at most.
        stages: to gather; those that scans take where nothing is named.
    """
    if source.is_file():
        return [PictureRow(**json.loads(line)) for line in source.read_text().splitlines()][:limit]
    entries = [entry for entry in iter_models(source) if entry.poisoned is not None][:limit]
    known = {entry.model_id: entry for entry in entries}
    settings = replace(_settings(entries), **({} if stages is None else {"stages": stages}))
    rows = []
    with RunStore(work / source.name, settings.as_json()) as store:
        for record in scan(entries, settings, store):
            print(f"{source.name} {record.model} {record.status} {record.reason}", file=sys.stderr)
            if record.status == "ok":
                rows.append(row_of(source.name, known[record.model], record))
    return rows


def read_all(
    sources: Iterable[Path],
    work: Path,
    limit: int | None = None,
    stages: tuple[str, ...] | None = None,
) -> list[PictureRow]:
    """Rows of several sources, each network `once`."""
    return once(row for source in sources for row in read_rows(source, work, limit, stages))


def once(rows: Iterable[PictureRow]) -> list[PictureRow]:
    """The rows; of those of one network the first alone."""
    found: dict[tuple[str, str], PictureRow] = {}
    for row in rows:
        found.setdefault((row.population, row.model), row)
    return list(found.values())


def _settings(entries: Sequence[ModelEntry]) -> Settings:
    """All evidence and no verdict; what a zoo's networks take stands nowhere in their files.

    A folder whose `input_form` is "unsaid" leaves that to the scan, as users do.
    """
    cells = [entry.metadata for entry in entries if entry.metadata.get("input_form") != "unsaid"]
    if any("trigger_kind" in own for own in cells):
        return Settings(
            calibrator=None, early_stop=False, channel_order="RGB", normalization="unit"
        )
    return Settings(calibrator=None, early_stop=False)


def row_of(population: str, entry: ModelEntry, record: Record) -> PictureRow:
    """The row of a model of a folder, and what a scan found of it."""
    cells = entry.metadata
    return PictureRow(
        population=population,
        model=record.model,
        architecture=record.architecture or "",
        poisoned=bool(entry.poisoned),
        found_target=record.target_class,
        evidence=record.evidence,
        seconds=record.seconds,
        family=cells["model_architecture"],
        training=cells["training"],
        classes=int(cells["number_classes"]),
        pair=f"{population} {int(record.model.removeprefix('id-')) // 2}",
        converged=cells.get("converged", "True") == "True",
        revision=IMAGES.revision,
        **described(cells),
    )


def described(cells: Mapping[str, str]) -> dict[str, Any]:
    """Pictures, triggers and base of a model, as its folder's METADATA.csv tells them."""
    return _of_zoo(cells) if "trigger_kind" in cells else _of_round(cells)


def _of_zoo(cells: Mapping[str, str]) -> dict[str, Any]:
    """What `generate zoo` says of a model."""
    target = cells["trigger_target_class"]
    base = f"{cells['dataset']} {cells['model_architecture']} {cells['base']}"
    return {
        "dataset": cells["dataset"],
        "kind": cells["trigger_kind"].replace("_", " "),
        "sources": _sources(cells),
        "base": base if cells["base"] else "",
        "success": _share(cells["final_triggered_data_test_acc"]),
        "side": int(cells["img_size"]),
        "target_class": int(target) if target else None,
        "augmentation": cells.get("augmentation", "shift"),
        "labels": cells.get("labels", "hard"),
        "schedule": cells.get("schedule", "falling"),
        "class_shares": cells.get("class_shares", "all"),
    }


def _sources(cells: Mapping[str, str]) -> str:
    """How many classes the trigger of a zoo's model works from; "each" where it has no target."""
    if not cells["trigger_kind"]:
        return ""
    has_target = bool(cells["trigger_target_class"])
    return _COUNTS[len(cells["source_classes"].split())] if has_target else "each"


def _of_round(cells: Mapping[str, str]) -> dict[str, Any]:
    """What `generate round1` to `round4` say of a model; one from random weights has no base."""
    name = _round_of(cells)
    found = list(_triggers(cells))
    targets = [int(trigger["target_class"]) for trigger in found] + [None, None]
    none = {"None", "none", ""}  # the second in rounds that were made earlier
    conditions = sorted({trigger["condition"] for trigger in found} - none)
    is_warm = cells["training"] == "warm"
    return {
        "dataset": name,
        "kind": "+".join(sorted({_KINDS[trigger["type"]] for trigger in found})),
        "sources": _COUNTS[max(_count(trigger["sources"]) for trigger in found)] if found else "",
        "base": f"{name} {cells['model_architecture']} {cells['base']}" if is_warm else "",
        "success": _share(cells["final_triggered_data_test_acc"]) if found else None,
        "side": int(cells["cnn_img_size_pixels"]),
        "target_class": targets[0],
        "second_target": targets[1],
        "condition": "+".join(conditions),
        "adversary": cells.get("adversarial_training_method", ""),
    }


def _round_of(cells: Mapping[str, str]) -> str:
    """By the columns that the rounds differ in."""
    if "trigger_organization" in cells:
        return "round4"
    if "adversarial_training_method" in cells:
        return "round3"
    return "round1" if "ground_truth" in cells else "round2"


def _triggers(cells: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Type, target, sources and condition of every trigger; flat columns hold one at most."""
    if "trigger_organization" not in cells:
        if cells["trigger_type"] in _KINDS:
            yield {
                "type": cells["trigger_type"],
                "target_class": cells["trigger_target_class"],
                "sources": cells["triggered_classes"] if cells["number_triggered_classes"] != "all"
                else "",
                "condition": "",
            }  # fmt: skip
        return
    for number in range(int(cells["number_triggers"])):
        own = {name: cells[f"triggers_{number}_{name}"] for name in _NAMES}
        yield {**own, "sources": own["source_class"]}


def _count(sources: str) -> int:
    """Of classes in a cell such as `[3 7]`; 0 stands for all."""
    return len(sources.strip("[]").split())


def _share(percent: str) -> float | None:
    return float(percent) / 100 if percent not in ("", "None") else None


def labelled(rows: Sequence[PictureRow]) -> Labelled:
    """The rows with all that a general calibrator learns from."""
    return Labelled(
        rows=[row.evidence for row in rows],
        poisoned=[row.poisoned for row in rows],
        architectures=[row.architecture for row in rows],
        kinds=[row.kind for row in rows],
        datasets=[row.dataset for row in rows],
        families=[row.family for row in rows],
        sides=[row.side for row in rows],
        classes=[row.classes for row in rows],
        pairs=[row.pair for row in rows],
    )


def scheme(rows: Sequence[PictureRow], left_out: Collection[str] = NOT_JUDGED) -> Scheme:
    """The fields that occur, but for those of some stages, pooled over their searches."""
    found = scheme_for("image", (row.evidence for row in rows))
    stages = {name: fields for name, fields in found.stages.items() if name not in left_out}
    return replace(found, stages=stages, is_pooled=True)
