"""What repair is measured on: clean pictures of a network's data set, and what a scan recovered.

The pictures are drawn out of the data set's test part by the network's name: `LEARN` of each class
to scan and to repair with, up to `HELD` others to measure on. Where a class has fewer than `LEARN +
HELD_LEAST` test pictures, the ones to learn from are training pictures and all test pictures are
held out. What a scan recovered is kept in a folder, so that methods can be compared again without
searching again.
"""

import io
import json
import zlib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from converters.files import write_atomic
from converters.rewriting import open_rewritable
from jaxtroj.generate.small.labelled_pictures import LabelledPictures, as_picture
from jaxtroj.repair.data import Labelled, RepairData
from jaxtroj.repair.mend import Patient, examined
from jaxtroj.repair.outcome import Attack
from jaxtroj.repair.training import Stamp
from jaxtroj.rounds import ModelEntry
from jaxtroj.settings import Settings
from jaxtroj.triggers.kinds import KINDS

LEARN, HELD, HELD_LEAST = 20, 40, 10
"""Pictures of each class."""
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Found:
    """What a scan said: probability, and the triggers that repair starts from."""

    probability: float
    attacks: tuple[Attack, ...]


def case_data(pictures: LabelledPictures, name: str) -> RepairData:
    """The pictures of one network, drawn by its name; equal arguments give equal pictures."""
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    least = np.bincount(pictures.test_labels, minlength=pictures.classes).min()
    test = _ordered(pictures.test_labels, draw)
    if least >= LEARN + HELD_LEAST:
        learn = _take(pictures.test_images, test, 0, LEARN)
        return RepairData(learn, _take(pictures.test_images, test, LEARN, HELD))
    train = _ordered(pictures.labels, draw)
    learn = _take(pictures.images, train, 0, LEARN)
    return RepairData(learn, _take(pictures.test_images, test, 0, HELD))


def _ordered(labels: np.ndarray, draw: np.random.Generator) -> list[np.ndarray]:
    return [draw.permutation(np.flatnonzero(labels == k)) for k in range(int(labels.max()) + 1)]


def _take(images: np.ndarray, places: list[np.ndarray], start: int, count: int) -> Labelled:
    chosen = [own[start : start + count] for own in places]
    labels = np.concatenate([np.full(len(own), k) for k, own in enumerate(chosen)])
    return Labelled(images[np.concatenate(chosen)].astype(np.float32) / 255, labels)


def patient_of(
    entry: ModelEntry, data: RepairData, settings: Settings, folder: Path, kept: Path
) -> Patient:
    """The network as `mended` takes it; it is searched only where `kept` has no answer yet.

    Args:
        entry: the network.
        data: its pictures; only those to learn from are scanned with.
        settings: of the scan.
        folder: empty, for pictures.
        kept: file of what was found, ending in .npz.
    """
    for place, (image, label) in enumerate(zip(data.learn.images, data.learn.labels, strict=True)):
        picture = as_picture(np.round(image * 255).astype(np.uint8))
        picture.save(folder / f"class_{label}_example_{place}.png")
    if not kept.exists():
        patient = examined(replace(entry, examples_path=folder), settings)
        assert patient.record.probability is not None
        write_atomic(kept, as_bytes(Found(patient.record.probability, patient.attacks)))
    found = from_file(kept)
    file = open_rewritable(entry.model_path, settings.input_form(), data.learn.images.shape[1:3])
    return Patient(file, file.model, data, found.attacks, found)


def as_bytes(found: Found) -> bytes:
    """What `from_file` reads: an .npz archive of numbers and one JSON text."""
    arrays: Arrays = {}
    told = []
    for number, attack in enumerate(found.attacks):
        trigger: Any = attack.stamp.trigger
        plain = {}
        for part in fields(trigger):
            value = getattr(trigger, part.name)
            if part.metadata.get("static"):
                plain[part.name] = value
            else:
                arrays[f"{number}/{part.name}"] = np.asarray(value)
        told.append(
            {
                "kind": trigger.kind,
                "static": plain,
                "reach": [int(r) for r in attack.stamp.reach],
                "target": int(attack.target_class),
                "sources": [int(c) for c in attack.source_classes],
            }
        )
    said = json.dumps({"probability": found.probability, "attacks": told})
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, told=np.array(said), **arrays)
    return file.getvalue()


def from_file(path: Path) -> Found:
    """What `as_bytes` gave."""
    with np.load(path, allow_pickle=False) as file:
        said = json.loads(str(file["told"]))
        attacks = [_attack(one, number, file) for number, one in enumerate(said["attacks"])]
    return Found(said["probability"], tuple(attacks))


def _attack(told: dict[str, Any], number: int, file: Any) -> Attack:
    kind: Any = KINDS[told["kind"]]
    names = [part.name for part in fields(kind) if not part.metadata.get("static")]
    arrays = {name: jnp.asarray(file[f"{number}/{name}"]) for name in names}
    stamp = Stamp(kind(**arrays, **told["static"]), tuple(told["reach"]))
    return Attack(stamp, told["target"], tuple(told["sources"]))
