"""Folders of orders, and engines that obey them."""

from pathlib import Path

import pytest

from jaxtroj.engine.devices import Slot
from jaxtroj.engine.guard import Guard
from jaxtroj.engine.jobs import Setup
from jaxtroj.engine.local import LocalEngine
from jaxtroj.rounds import ModelEntry
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore

DETECTOR = "detectors_by_content:answer"
SETTINGS = Settings(calibrator=None, text_calibrator=None, early_stop=False, base_rate=0.3)
MIB = 2**20


@pytest.fixture(autouse=True)
def detector_path(monkeypatch):
    """Worker processes get this process's path, with the detector's folder on it."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def orders(tmp_path):
    """Writes a model file for each order; its entries, named by number and order."""

    def write(*words: str) -> list[ModelEntry]:
        folder = tmp_path / "models"
        folder.mkdir(exist_ok=True)
        entries = []
        for number, word in enumerate(words):
            path = folder / f"{number:04d}-{word.split()[0]}.pt"
            path.write_text(f"{word} padding {number}")
            entries.append(ModelEntry(path.name, path, None, None))
        return entries

    return write


@pytest.fixture
def engine(tmp_path):
    """Makes local engines on the detector that obeys orders."""

    def make(workers: int = 1, log: Path | None = None, **limits) -> LocalEngine:
        setup = Setup(SETTINGS, tmp_path / "run" / "triggers", DETECTOR)
        slots = [Slot(f"place {n}") for n in range(workers)]
        return LocalEngine(setup, slots, Guard(**limits), log)

    return make


@pytest.fixture
def store(tmp_path):
    """Opens the run folder."""

    def open_store() -> RunStore:
        return RunStore(tmp_path / "run", SETTINGS.as_json())

    return open_store
