"""The whole engine on real models, and on files that change under it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

import jaxtroj
from jaxtroj.engine.devices import Slot
from jaxtroj.engine.guard import Guard
from jaxtroj.engine.jobs import Setup, Watch
from jaxtroj.engine.local import LocalEngine
from jaxtroj.engine.progress import Tally
from jaxtroj.engine.run import run_scan
from jaxtroj.record import Record
from jaxtroj.rounds import ModelEntry, iter_models
from jaxtroj.scan import scan_model
from jaxtroj.scoring import log_score
from jaxtroj.store import RunStore, read_records

from .conftest import SETTINGS

EXAMPLES = Path(jaxtroj.__file__).parent / "data" / "examples"
WEIGHTS = replace(SETTINGS, stages=("weights",))


def timeless(record: Record) -> Record:
    return replace(record, seconds={}, identity="")


def test_records_are_those_of_scan_model(tmp_path):
    entries = list(iter_models(EXAMPLES))
    with RunStore(tmp_path / "run", WEIGHTS.as_json()) as store:
        engine = LocalEngine(Setup(WEIGHTS, store.pictures), [Slot("here")], Guard(300))
        found = [outcome.record for outcome in run_scan(entries, WEIGHTS, store, engine)]
    assert [record.status for record in found] == ["ok", "ok"]
    for entry, record in zip(entries, found, strict=True):
        assert timeless(record) == timeless(scan_model(entry, WEIGHTS))
        assert len(record.identity) == 32


def test_a_real_model_that_takes_too_long_is_stopped(tmp_path):
    entries = list(iter_models(EXAMPLES))[:1]
    settings = replace(SETTINGS, stages=("inversion",))
    log = tmp_path / "log.txt"
    with RunStore(tmp_path / "run", settings.as_json()) as store:
        engine = LocalEngine(Setup(settings), [Slot("here")], Guard(timeout=0.5), log)
        (outcome,) = run_scan(entries, settings, store, engine)
    assert "was stopped after 0.5 s" in outcome.record.reason
    assert "most recent call first" in log.read_text()  # where it was stuck


def test_files_that_vanish_or_change_after_listing_are_records(orders, engine, store):
    entries = orders("device 0.3", "device 0", "device 0", "device 0")
    entries[1].model_path.unlink()
    entries[2].model_path.unlink()
    os.mkfifo(entries[2].model_path)
    with store() as open_store:
        found = run_scan(entries, SETTINGS, open_store, engine(timeout=2))
        next(found)
        entries[3].model_path.write_text("device 0 changed")
        outcomes = {o.entry.model_id: o.record for o in found}
    assert [outcomes[e.model_id].status for e in entries[1:]] == ["failed", "failed", "ok"]
    assert "FileNotFoundError" in outcomes[entries[1].model_id].reason
    assert "was stopped after 2 s" in outcomes[entries[2].model_id].reason


def test_a_model_that_is_changed_back_has_its_old_record_as_the_latest(orders, engine, store):
    (entry,) = orders("reads 0 first")
    words = entry.model_path.read_text(), "reads 0 second", "picture 0"
    places = (0, 1, 0, 2, 1, 2)
    fresh = []
    for place in places:
        entry.model_path.write_text(words[place])
        with store() as open_store:
            (outcome,) = run_scan([entry], SETTINGS, open_store, engine())
        fresh.append(outcome.fresh)
        assert read_records(open_store.folder) == [outcome.record]
    # The picture may be another scan's by now, so its model is scanned again.
    assert fresh == [True, True, False, True, False, True]


def test_skipped_models_have_one_record_and_need_no_worker(tmp_path, engine, store):
    entry = ModelEntry("a", tmp_path / "a.pt", None, None, skip_reason="an erratum says so")
    lines: list[str] = []
    for fresh in (True, False):
        with store() as open_store:
            (outcome,) = run_scan([entry], SETTINGS, open_store, engine(), Watch(log=lines.append))
        assert (outcome.fresh, outcome.record.status) == (fresh, "skipped")
    assert lines == []


def test_a_tally_counts_and_scores_without_the_records():
    records = [
        Record("a", "", 0.9, True, 1, (), "ok", "why not", evidence={"x": 1.0}),
        Record("b", "", 0.2, False, None, (), "ok", ""),
        Record("c", "", 0.5, False, None, (), "failed", "broken"),
        Record("d", "", 0.5, False, None, (), "skipped", "erratum"),
    ]
    tally = Tally(5)
    for record, truth in zip(records, (True, False, None, True), strict=True):
        tally.add(record, fresh=record.model != "a", poisoned=truth)
    assert (tally.done, tally.fresh) == (4, 3)
    assert tally.log_score == pytest.approx(log_score([0.9, 0.2], [True, False]))
    scores = tally.scores()
    assert scores is not None and (scores.models, scores.poisoned) == (2, 1)
    assert [r.status for r in tally.kinds()] == ["ok", "ok", "failed", "skipped"]
    assert Tally(1).scores() is None and Tally(1).log_score is None
    assert tally.at_base_rate == 0


def test_a_tally_tells_answers_from_base_rates():
    tally = Tally(4)
    tally.add(Record("a", "", 0.9, True, 1, (), "ok", ""), True, True)
    tally.add(Record("b", "", 0.5, False, None, (), "failed", "broken"), True, True)
    tally.add(Record("c", "", 0.5, False, None, (), "ok", "evidence only"), True, False)
    tally.add(Record("d", "", 0.5, False, None, (), "failed", "broken"), True, None)
    assert tally.at_base_rate == 2
