import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jaxtroj.engine.devices import Slot
from jaxtroj.engine.guard import Guard
from jaxtroj.engine.jobs import ScanJob, Setup, Watch
from jaxtroj.engine.local import LocalEngine
from jaxtroj.engine.run import run_scan
from jaxtroj.errors import EngineError
from jaxtroj.scan import identify
from jaxtroj.store import read_records

from .conftest import DETECTOR, MIB, SETTINGS

BAD = {
    "stuck": r"was stopped after 1.5 s, in the step read; see --timeout",
    "stuck-in-c": r"was stopped after 1.5 s, in the step read; see --timeout",
    "grows": r"GiB of memory, more than the 0.39 allowed; see --memory",
    "crashes": r"ended its process by SIGSEGV",
    "exits": r"ended its process with status 3",
    "raises": r"internal error: RuntimeError: as ordered",
    "panics": r"internal error: Panic: as ordered",
    "junk": r"spoke nonsense: b'\xff\x00 no JSON' is no line of JSON",
    "stranger": r"spoke nonsense: there is no ticket 10000",
    "unlikely": r"spoke nonsense: its answer is not a record: probability is 7.0",
}


def scan(entries, store, engine, **options):
    return list(run_scan(entries, SETTINGS, store, engine, **options))


def test_bad_models_are_stopped_recorded_and_the_others_stand(orders, engine, store):
    words = [order for bad in BAD for order in ("device 0", bad)] + ["device 0.01"] * 4
    entries = orders(*words)
    with store() as open_store:
        found = scan(entries, open_store, engine(timeout=1.5, memory=400 * MIB))
    records = {outcome.record.model: outcome.record for outcome in found}
    assert sorted(records) == [entry.model_id for entry in entries]
    for entry in entries:
        record, order = records[entry.model_id], entry.model_id[5:-3]
        if order in BAD:
            assert (record.status, record.probability) == ("failed", 0.3), record
            assert BAD[order] in record.reason
        else:
            assert record.status == "ok", record
        assert record.identity == identify(entry, SETTINGS)
    with store() as open_store:  # nothing finished is done again, the failed ones included
        again = scan(entries, open_store, engine(timeout=1.5))
    assert not any(outcome.fresh for outcome in again)
    assert {o.record.model: o.record for o in again} == records


def test_a_picture_lies_where_the_parent_has_it_whatever_the_worker_says(orders, engine, store):
    with store() as open_store:
        found = scan(orders("picture", "thief", "device 0"), open_store, engine())
        expected = [open_store.trigger_path(outcome.record.model) for outcome in found]
    shown = {outcome.record.model: outcome.record.trigger for outcome in found}
    assert list(shown.values()) == [str(expected[0]), str(expected[1]), None]
    assert expected[0].is_file() and not expected[1].exists()


def test_failed_ones_get_another_try_when_asked_for(orders, engine, store):
    entries = orders("device 0", "raises")
    with store() as open_store:
        scan(entries, open_store, engine())
    entries[1].model_path.write_text("device 0")
    with store() as open_store:
        assert [o.fresh for o in scan(entries, open_store, engine())] == [False, True]
        assert [r.status for r in read_records(open_store.folder)] == ["ok", "ok"]
    entries[1].model_path.write_text("raises padding 1")
    with store() as open_store:
        found = scan(entries, open_store, engine(), retry_failed=True)
    assert [(o.fresh, o.record.status) for o in found] == [(False, "ok"), (True, "failed")]


def test_reading_overlaps_the_device(orders, engine, store):
    entries = orders(*["both 0.4"] * 6)  # each reads and then holds the device
    with store() as open_store:
        outcomes = run_scan(entries, SETTINGS, open_store, engine())
        times = [time.monotonic() for _ in outcomes]
    assert 1.9 < times[-1] - times[0] < 3.0  # 5 * 0.4 on the device; without overlap 5 * 0.8


def test_waiting_for_the_device_is_not_counted(orders, engine, store):
    with store() as open_store:
        found = scan(orders(*["device 0.8"] * 3), open_store, engine(timeout=1.3))
    assert [o.record.status for o in found] == ["ok"] * 3


def test_a_worker_that_says_that_it_waits_for_nobody_is_ended(orders, engine, store):
    with store() as open_store:
        (found,) = scan(orders("waits"), open_store, engine(timeout=1.5))
    assert found.record.status == "failed" and "was stopped after 1.5 s" in found.record.reason


def test_several_workers_share_the_models_and_keep_their_groups(orders, engine, store):
    entries = orders(*["device 0.3"] * 12)
    entries = [
        replace(e, metadata={"model_architecture": f"arch{n % 2}"}) for n, e in enumerate(entries)
    ]
    lines: list[str] = []
    with store() as open_store:
        found = scan(entries, open_store, engine(2), watch=Watch(log=lines.append))
    assert len({o.record.model for o in found}) == 12
    assert len([line for line in lines if "started on place" in line]) == 2


def test_a_worker_that_is_found_dead_when_it_gets_a_job_costs_no_model(orders, engine):
    first, second = orders("device 0", "device 0")
    lines: list[str] = []
    ours = engine()
    try:
        assert len(list(ours.run([ScanJob(first)], Watch(log=lines.append)))) == 1
        pid = int(lines[0].split()[1])
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # all its threads have gone
        (answer,) = ours.run([ScanJob(second)], Watch(log=lines.append))
    finally:
        ours.close()
    assert answer.record is not None and answer.record.status == "ok"
    assert lines[1] == f"worker {pid} ended: it stopped listening"


def test_the_budget_leaves_the_rest_for_the_next_session(orders, engine, store):
    entries = orders(*["device 0.2"] * 3, "stuck", *["device 0.2"] * 3)
    with store() as open_store:
        watch = Watch(deadline=time.monotonic() + 4)
        first = scan(entries, open_store, engine(), watch=watch)
        assert 0 < len(first) < 7
    entries[3].model_path.write_text("device 0")
    with store() as open_store:
        second = scan(entries, open_store, engine())
    assert len(second) == 7 and sum(o.fresh for o in second) == 7 - len(first)


def test_workers_that_do_not_start_end_the_scan(orders, store, tmp_path):
    setup = Setup(SETTINGS, None, "no_such_module:answer")
    engine = LocalEngine(setup, [Slot("here")], Guard(), tmp_path / "log.txt")
    with store() as open_store, pytest.raises(EngineError, match="do not start"):
        scan(orders("device 0"), open_store, engine)
    assert "no_such_module" in (tmp_path / "log.txt").read_text()


def test_a_suspended_scan_charges_nobody(orders, engine, store, monkeypatch):
    clock = time.monotonic
    jumps = iter([0.0] * 40 + [1e6] * 10**6)  # as if the machine had slept for days
    monkeypatch.setattr("jaxtroj.engine.local.time.monotonic", lambda: clock() + next(jumps))
    with store() as open_store:
        found = scan(orders(*["device 0.05"] * 60), open_store, engine(timeout=5))
    assert [o.record.status for o in found] == ["ok"] * 60


_DRIVER = """
import sys
from pathlib import Path
from jaxtroj.engine.devices import Slot
from jaxtroj.engine.guard import Guard
from jaxtroj.engine.jobs import Setup
from jaxtroj.engine.local import LocalEngine
from jaxtroj.engine.run import run_scan
from jaxtroj.rounds import iter_models
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore
settings = Settings(calibrator=None, text_calibrator=None, early_stop=False, base_rate=0.3)
entries = list(iter_models(sys.argv[1]))
with RunStore(Path(sys.argv[2]), settings.as_json()) as store:
    engine = LocalEngine(Setup(settings, None, sys.argv[3]), [Slot("here")], Guard())
    for outcome in run_scan(entries, settings, store, engine):
        print(outcome.record.model, engine._seats[0].worker.pid, outcome.fresh, flush=True)
"""


def drive(folder: Path, run: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(folder), str(run), DETECTOR],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_kill_9_loses_only_models_in_flight_and_leaves_no_process(orders, tmp_path):
    entries = orders(*["device 0.1"] * 12)
    folder, run = entries[0].model_path.parent, tmp_path / "run"
    with drive(folder, run) as process:
        assert process.stdout is not None
        printed = [process.stdout.readline().split() for _ in range(4)]
        process.send_signal(signal.SIGKILL)
    for _ in range(50):
        if not Path(f"/proc/{printed[0][1]}").exists():
            break
        time.sleep(0.1)
    else:
        pytest.fail("the worker outlived its parent")
    kept = {record.model for record in read_records(run)}
    assert {line[0] for line in printed} <= kept
    with drive(folder, run) as process:
        output, _ = process.communicate(timeout=60)
    lines = [line.split() for line in output.splitlines()]
    assert {line[0] for line in lines if line[2] == "False"} == kept
    lines = (run / "records.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["model"] for line in lines) == sorted(
        entry.model_id for entry in entries
    )
