"""Records, and run folders that hold them."""

from pathlib import Path

from jaxtroj.record import Record
from jaxtroj.store import RunStore

SETTINGS = {"seed": 0, "stages": ["weights"]}


def record(model: str, key: str = "k", probability: float = 0.25) -> Record:
    """A record of a clean model."""
    return Record(
        model=model,
        sha256="ab" * 32,
        probability=probability,
        poisoned=False,
        target_class=None,
        source_classes=(0, 2),
        status="ok",
        reason="",
        seconds={"read": 0.5},
        evidence={"mask_l1": 3.0},
        identity=key,
    )


def fill(folder: Path, *models: str) -> bytes:
    """A run folder of these models; what its records are on the disk."""
    with RunStore(folder, SETTINGS) as store:
        for model in models:
            store.append(record(model))
    return (folder / "records.jsonl").read_bytes()
