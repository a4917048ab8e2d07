"""An answer stands for the files that it is about, and for no others."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import jaxtroj
from jaxtroj.detection import answer_with_panels
from jaxtroj.rounds import ModelEntry, iter_models
from jaxtroj.scan import identify, scan, scan_entry, scan_model
from jaxtroj.scan.file_states import state_of
from jaxtroj.scan.folder import identified
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore, read_records

EXAMPLES = Path(jaxtroj.__file__).parent / "data" / "examples"
SETTINGS = Settings(calibrator=None, early_stop=False, base_rate=0.3)
SAID = "its files changed while it was scanned, scan it again"


def other(path):
    path.write_bytes(b"changed")


def other_for_a_moment(path):
    content = path.read_bytes()
    path.write_bytes(b"changed")
    path.write_bytes(content)


def moved_for_a_moment(path):
    os.rename(path, path.with_name("aside"))
    os.rename(path.with_name("aside"), path)


CHANGES = [other, other_for_a_moment, moved_for_a_moment, os.unlink]


@pytest.fixture
def entry(tmp_path) -> ModelEntry:
    """A model of random bytes with an example, neither of which is written at the moment."""
    (tmp_path / "net" / "examples").mkdir(parents=True)
    for name in ("model.pt", "examples/class_0_example_0.png"):
        (tmp_path / "net" / name).write_bytes(bytes(range(200, 256)))
    home = tmp_path / "net"
    return ModelEntry("net", home / "model.pt", home / "examples", None)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["model.pt", "examples/class_0_example_0.png"])
def test_an_answer_about_files_that_changed_meanwhile_has_no_identity(entry, name, change):
    def answer():
        change(entry.model_path.parent / name)
        return scan_model(entry, SETTINGS)

    record = identified(entry, SETTINGS, answer)
    assert record.identity == "" and record.findings[0] == SAID
    assert record.reason.startswith(f"{SAID}; ") and record.status == "failed"


@pytest.mark.parametrize("door", [scan_entry, answer_with_panels])
def test_a_model_that_changes_at_a_step_is_told_from_one_that_is_there_to_stay(entry, door):
    key = identify(entry, SETTINGS)
    record = door(entry, SETTINGS, None, lambda model, step: other(entry.model_path))
    assert record.identity == "" and identify(entry, SETTINGS) != key
    steady = door(entry, SETTINGS, None, lambda model, step: None)
    assert steady.identity == identify(entry, SETTINGS) and SAID not in steady.reason


def test_what_is_read_and_what_appears_beside_it_is_no_change(entry, tmp_path):
    """A scan of plain files may write its run folder among them."""
    before = state_of(entry)
    entry.model_path.read_bytes()
    (entry.model_path.parent / "run").mkdir()
    (entry.model_path.parent / "other.pt").write_bytes(b"")
    assert state_of(entry) == before
    (entry.model_path.parent / "clean-example-logits.csv").write_text("")
    assert state_of(entry) != before


def test_a_network_that_was_there_for_a_moment_answers_for_itself_alone(tmp_path):
    """Its answer was kept for the file that came back, and the next session gave it."""
    home = tmp_path / "data" / "net"
    shutil.copytree(EXAMPLES / "clean", home)
    own, passing = ((EXAMPLES / name / "model.pt").read_bytes() for name in ("clean", "poisoned"))
    settings = replace(SETTINGS, stages=("weights",))

    def step(model, name):
        if name in ("read", "weights"):
            (home / "model.pt").write_bytes(passing if name == "read" else own)

    run = tmp_path / "run"
    with RunStore(run, settings.as_json()) as store:
        first = next(scan(iter_models(home.parent), settings, store, step))
    with RunStore(run, settings.as_json()) as store:
        second = next(scan(iter_models(home.parent), settings, store))
        third = next(scan(iter_models(home.parent), settings, store))
    assert first.status == second.status == "ok" and first.sha256 != second.sha256
    assert (first.identity, third) == ("", second) and len(read_records(run)) == 1
