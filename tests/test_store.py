import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from jaxtroj.errors import StoreError
from jaxtroj.file_names import file_stem
from jaxtroj.record import finite, identity, printable
from jaxtroj.store import RunStore, iter_records, read_records
from tests.stored import SETTINGS, fill, record


def test_records_come_back_as_written(tmp_path):
    fill(tmp_path / "run", "a", "b")
    assert read_records(tmp_path / "run") == [record("a"), record("b")]


def test_every_torn_end_loses_only_the_last_record(tmp_path):
    whole = fill(tmp_path, "a", "b")
    first = whole.index(b"\n") + 1
    for cut in (first, first + 1, len(whole) - 20, len(whole) - 1):
        (tmp_path / "records.jsonl").write_bytes(whole[:cut])
        assert read_records(tmp_path) == [record("a")]
        with RunStore(tmp_path, SETTINGS) as store:
            assert store.records == [record("a")]
            store.append(record("b"))
        assert (tmp_path / "records.jsonl").read_bytes() == whole


def test_damage_before_the_end_is_named_not_dropped(tmp_path):
    whole = fill(tmp_path, "a", "b")
    (tmp_path / "records.jsonl").write_bytes(b"\0" * 30 + whole[30:])
    with pytest.raises(StoreError, match="line 1: not a JSON record"):
        RunStore(tmp_path, SETTINGS)
    assert (tmp_path / "records.jsonl").read_bytes()[30:] == whole[30:]


def test_finished_needs_the_same_model_and_identity(tmp_path):
    fill(tmp_path, "a")
    with RunStore(tmp_path, SETTINGS) as store:
        assert store.finished("a", "k") == record("a")
        assert store.finished("a", "other") is None
        assert store.finished("b", "k") is None


def test_the_latest_record_of_a_model_counts(tmp_path):
    with RunStore(tmp_path, SETTINGS) as store:
        for probability in (0.25, 0.75):
            store.append(record("a", key=str(probability), probability=probability))
    assert [r.probability for r in read_records(tmp_path)] == [0.75]


def test_an_answer_that_is_used_again_becomes_the_latest(tmp_path):
    with RunStore(tmp_path, SETTINGS) as store:
        for key in ("first", "second"):
            store.append(record("a", key))
        assert store.reused("a", "first") == record("a", "first")
        assert store.reused("a", "first") == record("a", "first") and len(store) == 3
        assert store.reused("a", "other") is None
    assert read_records(tmp_path) == [record("a", "first")]


def test_a_superseded_answer_with_a_picture_stands_no_more(tmp_path):
    pictured = replace(record("a", "first"), trigger="triggers/a.png")
    with RunStore(tmp_path, SETTINGS) as store:
        store.append(pictured)
        assert store.finished("a", "first") == pictured
        store.append(record("a", "second"))
        assert store.identities("a") == ("second",) and store.reused("a", "first") is None


@pytest.mark.parametrize("trigger", [None, "triggers/a.png"])
def test_a_failure_that_was_tried_again_never_comes_back(tmp_path, trigger):
    failed = replace(record("a", "first"), status="failed")
    answer = replace(record("a", "first"), trigger=trigger)
    with RunStore(tmp_path, SETTINGS) as store:
        for each in (failed, answer, record("a", "second")):
            store.append(each)
        stands = None if trigger else answer  # a picture may be drawn over: it is made anew
        assert store.reused("a", "first") == stands
        assert set(store.identities("a")) == {"second"} | (set() if trigger else {"first"})


def test_other_settings_are_refused_by_name_until_restart(tmp_path):
    fill(tmp_path, "a")
    with pytest.raises(StoreError, match="seed was 0, now 1.*--restart"):
        RunStore(tmp_path, {**SETTINGS, "seed": 1})
    with RunStore(tmp_path, {**SETTINGS, "seed": 1}, restart=True) as store:
        assert store.records == []
    assert (tmp_path / "records.1.jsonl").exists()


@pytest.mark.parametrize("steps", range(3))
def test_a_restart_that_fails_leaves_a_folder_that_goes_on(tmp_path, monkeypatch, steps):
    written, left, replace_file = fill(tmp_path, "a"), iter(range(steps)), os.replace

    def fails(*paths):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace_file(*paths)

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="No space left"):
        patch.setattr(os, "replace", fails)
        RunStore(tmp_path, {**SETTINGS, "seed": 1}, restart=True)
    RunStore(tmp_path, {**SETTINGS, "seed": 1}, restart=True).close()
    assert (tmp_path / "records.1.jsonl").read_bytes() == written


def test_records_set_aside_are_never_written_over(tmp_path):
    written = fill(tmp_path, "a")
    (tmp_path / "records.3.jsonl").write_text("kept")  # somebody has removed the first two
    (tmp_path / "records.old.jsonl").touch()
    RunStore(tmp_path, SETTINGS, restart=True).close()
    assert (tmp_path / "records.3.jsonl").read_text() == "kept"
    assert (tmp_path / "records.4.jsonl").read_bytes() == written


def test_second_writer_is_refused_and_a_closed_one_lets_go(tmp_path):
    with RunStore(tmp_path, SETTINGS):
        with pytest.raises(StoreError, match=f"another process .{os.getpid()}.*wait"):
            RunStore(tmp_path, SETTINGS)
    RunStore(tmp_path, SETTINGS).close()


def test_lock_of_a_killed_process_is_no_obstacle(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from jaxtroj.store import RunStore\n"
        "store = RunStore(Path(sys.argv[1]), {'seed': 0, 'stages': ['weights']})\n"
        "print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match="another process"):
            RunStore(tmp_path, SETTINGS)
        process.send_signal(signal.SIGKILL)
    RunStore(tmp_path, SETTINGS).close()


def test_kill_while_writing_leaves_whole_records(tmp_path):
    code = (
        "import sys; from pathlib import Path; from dataclasses import replace\n"
        "from jaxtroj.record import Record; from jaxtroj.store import RunStore\n"
        "store = RunStore(Path(sys.argv[1]), {'seed': 0, 'stages': ['weights']})\n"
        "for n in range(10**6):\n"
        "    store.append(Record(str(n), '', .5, False, None, (), 'ok', 'x' * 5000))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as process:
        records = tmp_path / "records.jsonl"
        while not records.exists() or records.stat().st_size < 50_000:
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
    with RunStore(tmp_path, SETTINGS) as store:
        assert [r.model for r in store.records] == [str(n) for n in range(len(store.records))]
        assert len(store.records) >= 9


def test_what_is_kept_of_a_record_is_where_it_lies(tmp_path):
    with RunStore(tmp_path, SETTINGS) as store:
        for number in range(3):
            store.append(record("a", str(number)))
        store.append(replace(record("a", "f"), status="failed"))
        store.append(record("b"))
        assert len(store) == 5
        assert store.identities("a") == ("0", "1", "2", "f")
        assert store.identities("a", failed=False) == ("0", "1", "2")
        assert store.finished("a", "1") == record("a", "1")
    with RunStore(tmp_path, SETTINGS) as store:
        assert len(store) == 5 and store.finished("a", "2") == record("a", "2")
    assert [r.identity for r in iter_records(tmp_path)] == ["f", "k"]


def test_a_disk_that_fails_late_is_told_and_the_record_counts(tmp_path, monkeypatch):
    with RunStore(tmp_path, SETTINGS) as store:
        store.append(record("a"))
        monkeypatch.setattr("jaxtroj.store.SYNC_SECONDS", 0.0)
        with monkeypatch.context() as patched:
            patched.setattr("jaxtroj.store.os.fsync", _failing)
            for act in (store.sync, lambda: store.append(record("b"))):
                store._unsynced = True
                with pytest.raises(StoreError, match="cannot add to .*: Input/output error"):
                    act()
        assert store.finished("b", record("b").identity) == record("b")


@pytest.mark.parametrize("how", ["removed", "moved", "replaced", "with its folder"])
def test_records_that_are_taken_away_end_the_scan(tmp_path, how):
    """They were written where nobody finds them, with status 0."""
    (tmp_path / "other").write_text("")
    path = tmp_path / "run" / "records.jsonl"
    does = {
        "removed": path.unlink,
        "moved": lambda: path.rename(tmp_path / "moved"),
        "replaced": lambda: (tmp_path / "other").rename(path),
        "with its folder": lambda: path.parent.rename(tmp_path / "away"),
    }
    with pytest.raises(StoreError, match="records.jsonl was removed, moved or replaced"):
        with RunStore(path.parent, SETTINGS) as store:
            store.append(record("a"))
            does[how]()
            for act in (store.sync, lambda: store.append(record("b"))):
                with pytest.raises(StoreError, match="during the scan.*the same command goes on"):
                    act()


def _failing(_: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_records_are_forced_to_the_disk_within_a_second(tmp_path, monkeypatch):
    now, forced = [100.0], []
    monkeypatch.setattr("jaxtroj.store.time.monotonic", lambda: now[0])
    monkeypatch.setattr("jaxtroj.store.os.fsync", lambda number: forced.append(now[0]))
    with RunStore(tmp_path, SETTINGS) as store:
        forced.clear()
        for number in range(3):
            store.append(record(str(number)))
        assert forced == [100.0]
        now[0] = 100.9
        store.sync()
        assert forced == [100.0]
        now[0] = 101.0
        store.sync()
        store.sync()
        assert forced == [100.0, 101.0]
        store.append(record("last"))
    assert forced == [100.0, 101.0, 101.0]


def test_the_log_takes_any_line(tmp_path):
    with RunStore(tmp_path, SETTINGS) as store:
        store.log("model \udcff\n")
        assert b"model \\udcff" in store.log_path.read_bytes()


def test_a_full_disk_is_told_and_leaves_whole_lines(tmp_path):
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from jaxtroj.record import Record; from jaxtroj.store import RunStore\n"
        "from jaxtroj.errors import StoreError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "store = RunStore(Path(sys.argv[1]), {'seed': 0, 'stages': ['weights']})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20500, 20500))\n"
        "try:\n"
        "    for n in range(100):\n"
        "        store.append(Record(str(n), '', .5, False, None, (), 'ok', 'x' * 3000))\n"
        "except StoreError as error:\n"
        "    print(n, len(store), error)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("6 6 cannot add to"), done.stderr
    assert [r.model for r in read_records(tmp_path)] == [str(n) for n in range(6)]


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match="not a run folder"):
        RunStore(tmp_path, SETTINGS)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("damage", [(b'"ok"', b'"ok'), (b'{"model"', b'["model"')])
def test_a_damaged_line_is_named_by_its_number(tmp_path, damage):
    fill(tmp_path, "a", "b", "c")
    path = tmp_path / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(*damage) + lines[2])
    for read in (read_records, lambda folder: list(iter_records(folder))):
        with pytest.raises(StoreError, match=r"records.jsonl, line 2: not a JSON record"):
            read(tmp_path)


def test_run_folder_that_is_a_file(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(StoreError, match="cannot use"):
        RunStore(tmp_path / "run", SETTINGS)


@pytest.mark.parametrize(
    "name", ["lock", "log.txt", "records.jsonl", "settings.json", "environment.json"]
)
@pytest.mark.parametrize("kind", ["a symbolic link", "a named pipe"])
def test_what_a_stranger_planted_is_refused_and_leads_nowhere(tmp_path, name, kind):
    (tmp_path / "rc").write_text("years of work")
    run = tmp_path / "run"
    fill(run, "a")
    (run / name).unlink(missing_ok=True)
    if kind == "a symbolic link":
        (run / name).symlink_to("../rc")
    else:
        os.mkfifo(run / name)
    with pytest.raises(StoreError, match=rf"{name} is {kind}, expected a plain file; remove it"):
        with RunStore(run, SETTINGS) as store:
            store.log("begins")
    assert (tmp_path / "rc").read_text() == "years of work"


def test_damaged_settings_are_named(tmp_path):
    fill(tmp_path, "a")
    (tmp_path / "settings.json").write_text("[")
    with pytest.raises(StoreError, match="settings.json is damaged"):
        RunStore(tmp_path, SETTINGS)


def test_environment_lists_every_session(tmp_path):
    fill(tmp_path, "a")
    fill(tmp_path, "b")
    sessions = json.loads((tmp_path / "environment.json").read_bytes())["sessions"]
    assert len(sessions) == 2
    assert sessions[0]["packages"]["numpy"]


@pytest.mark.parametrize("model", ["a\nb", 'q"', "\u2028", printable("\udcff"), "x" * 5000])
def test_any_model_name_survives(tmp_path, model):
    fill(tmp_path, model, "after", model)
    assert [r.model for r in read_records(tmp_path)] == [model, "after"]
    assert list(iter_records(tmp_path)) == read_records(tmp_path)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a\nb", "\udcff", "", ".", "x" * 300, "é"])
def test_file_stems_stay_inside_and_apart(name):
    stem = file_stem(name)
    assert "/" not in stem and stem.isascii() and 0 < len(stem) < 100 and stem.strip(".")
    assert stem != file_stem(name + "_")


def test_a_line_nested_without_end_is_damage_like_any_other(tmp_path):
    whole = fill(tmp_path, "a")
    (tmp_path / "records.jsonl").write_bytes(whole + b"[" * 200_000 + b"\n")
    for read in (
        read_records,
        lambda folder: list(iter_records(folder)),
        lambda folder: RunStore(folder, SETTINGS),
    ):
        with pytest.raises(StoreError, match="line 2: not a JSON record"):
            read(tmp_path)


@pytest.mark.parametrize("name", ["settings.json", "environment.json"])
@pytest.mark.parametrize(
    "content", ["[" * 200_000, '{"sessions": 5}', '{"seed": 0, "seed": 0}', "NaN"]
)
def test_damaged_files_beside_the_records_are_named(tmp_path, name, content):
    fill(tmp_path, "a")
    (tmp_path / name).write_text(content)
    with pytest.raises(StoreError, match=f"{name} is damaged|other settings"):
        RunStore(tmp_path, SETTINGS)


def test_records_hold_no_nan():
    with pytest.raises(ValueError):
        record("a", probability=float("nan")).to_json()
    assert finite({"a": float("inf"), "b": 2}) == {"b": 2.0}


def test_identity_follows_each_part_and_nothing_else():
    base = identity("m", "e", {"a": 1, "b": 2})
    assert base == identity("m", "e", {"b": 2, "a": 1})
    others = [
        identity("n", "e", {"a": 1, "b": 2}),
        identity("m", "f", {"a": 1, "b": 2}),
        identity("m", "e", {"a": 1, "b": 3}),
        identity("m", "e", {"a": 1, "b": 2}, schema=99),
    ]
    assert len({base, *others}) == 5
