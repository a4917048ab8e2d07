import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import jaxtroj
from jaxtroj.cli.main import main
from jaxtroj.cli.scan import _status
from jaxtroj.engine.jobs import Answer, Setup
from jaxtroj.engine.local import failed_record
from jaxtroj.rounds import LeftOut
from jaxtroj.settings import Settings
from jaxtroj.store import read_records


def run(*arguments) -> int:
    return main([str(word) for word in arguments])


@pytest.fixture
def dataset(tmp_path):
    for number in range(3):
        home = tmp_path / "round" / f"id-{number:08d}"
        (home / "example_data").mkdir(parents=True)
        (home / "model.pt").write_bytes(b"garbage" * number)
        (home / "ground_truth.csv").write_text(str(number % 2))
    return tmp_path / "round"


def test_scan_records_every_model_and_goes_on_where_it_stopped(dataset, tmp_path, capsys):
    arguments = ("scan", dataset, "--out", tmp_path / "run", "--evidence-only")
    assert run(*arguments, "--limit", 2) == 2
    first = capsys.readouterr()
    assert first.out.count("\n") == 2
    assert run(*arguments, "--json", "--truth") == 2
    captured = capsys.readouterr()
    objects = [json.loads(line) for line in captured.out.splitlines()]
    assert [found["model"] for found in objects] == [f"id-{n:08d}" for n in range(3)]
    assert "2 records" in captured.err and "3 failed" in captured.err
    assert "3 models, 1 poisoned  log score 0.6931" in captured.err
    assert run(*arguments, "--truth") == 2
    said = capsys.readouterr().out
    assert "3 models, 1 poisoned  log score 0.6931" in said
    assert "3 of them have no answer and count with the base rate" in said


def test_no_worker_is_there_without_a_model(dataset, tmp_path):
    arguments = ("scan", dataset, "--out", tmp_path / "run", "--evidence-only")
    assert run(*arguments, "--workers", 1_000) == 2
    reasons = [record.reason for record in read_records(tmp_path / "run")]
    assert len(reasons) == 3 and not any("memory" in reason for reason in reasons)
    assert (tmp_path / "run" / "log.txt").read_text().count(" started on ") <= 3


def test_other_settings_and_foreign_folders_are_refused(dataset, tmp_path, capsys):
    arguments = ("scan", dataset, "--out", tmp_path / "run", "--evidence-only")
    run(*arguments)
    assert run(*arguments, "--seed", 1) == 4
    assert "seed was 0, now 1" in capsys.readouterr().err
    assert run(*arguments, "--seed", 1, "--restart") == 2
    assert run("scan", dataset, "--out", dataset, "--evidence-only") == 4


def test_a_folder_without_models_has_nothing_to_scan(tmp_path, capsys):
    (tmp_path / "nothing").mkdir()
    assert run("scan", tmp_path / "nothing", "--out", tmp_path / "run") == 3
    assert "no model in" in capsys.readouterr().err


def test_a_missing_calibrator_stops_a_scan_before_it_starts(dataset, tmp_path, capsys):
    arguments = ("scan", dataset, "--out", tmp_path / "run", "--calibrator", tmp_path / "none.json")
    assert run(*arguments) == 4
    assert "none.json" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_ctrl_c_keeps_finished_records_and_exits_with_130(tmp_path):
    for number in range(3000):
        (tmp_path / "round").mkdir(exist_ok=True)
        (tmp_path / "round" / f"{number:04d}.pt").write_bytes(b"garbage")
    command = [sys.executable, "-m", "jaxtroj", "scan", str(tmp_path / "round"), "--evidence-only"]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=60)
    assert process.returncode == 130
    assert messages.endswith("jaxtroj: interrupted; finished records are kept\n")
    assert 3 <= len(read_records(tmp_path / "run")) < 3000


def plain_folder(folder, *names: bytes | str):
    folder.mkdir()
    for number, name in enumerate(names):
        with open(os.path.join(os.fsencode(folder), os.fsencode(name)), "wb") as file:
            file.write(b"garbage %d" % number)
    return folder


def test_odd_names_and_links_get_records(tmp_path, capsys):
    names = ["a b.pt", "line\nbreak.pt", b"not \xff utf8.pt", "-dash.pt", "<script>.pt"]
    folder = plain_folder(tmp_path / "models", *names)
    os.symlink("loop.pt", folder / "loop.pt")
    os.symlink("a b.pt", folder / "link.pt")
    os.mkfifo(folder / "pipe.pt")
    assert run("scan", folder, "--out", tmp_path / "run", "--evidence-only") == 2
    found = {record.model for record in read_records(tmp_path / "run")}
    assert found == {
        "a b.pt", "line\\nbreak.pt", "not \\xff utf8.pt", "-dash.pt", "<script>.pt", "link.pt",
    }  # fmt: skip
    assert capsys.readouterr().out.count("\n") == 6


def test_entries_that_cannot_be_scanned_are_records_and_others_are_said(tmp_path, capsys):
    folder = tmp_path / "models"
    for name in ("nested/v2", "beside", ".hidden", "link"):
        (folder / name).mkdir(parents=True)
    for name in ("nested/v2/model.pt", "beside/model.pt", "beside/backdoored.pt", ".hidden/x.pt"):
        (folder / name).write_bytes(b"garbage")
    os.symlink("nowhere", folder / "link" / "model.pt")
    assert run("scan", folder, "--out", tmp_path / "run", "--evidence-only") == 2
    found = {record.model: record for record in read_records(tmp_path / "run")}
    assert {record.status for record in found.values()} == {"failed"}
    assert "backdoored.pt, model.pt" in found["beside"].reason
    assert "a symbolic link to nothing" in found["link"].reason and len(found) == 2
    said = capsys.readouterr().err, (tmp_path / "run/log.txt").read_text()
    for text in said:
        assert f"1 model file in {folder} was not looked at: nested/v2/model.pt;" in text
        assert f"1 hidden model file in {folder} was not looked at: .hidden/x.pt;" in text


@pytest.fixture
def clean_model(tmp_path):
    """A folder with one model that is scanned without a fault."""
    source = Path(jaxtroj.__file__).parent / "data" / "examples" / "clean"
    shutil.copytree(source, tmp_path / "models" / "net")
    return tmp_path / "models"


@pytest.mark.usefixtures("unguarded")
def test_a_clean_scan_that_left_files_out_is_not_done(clean_model, tmp_path, capsys):
    options = ("--out", tmp_path / "run", "--evidence-only", "--stages", "weights")
    (clean_model / ".x.pt").write_bytes(b"")
    assert run("scan", clean_model, *options) == 0
    assert "1 hidden model file" in capsys.readouterr().err
    (clean_model / "more" / "v2").mkdir(parents=True)
    (clean_model / "more" / "v2" / "x.pt").write_bytes(b"")
    assert run("scan", clean_model, *options) == 5
    assert "not looked at: more/v2/x.pt;" in capsys.readouterr().err


def test_a_budget_that_leaves_models_over_never_reads_as_done(dataset, tmp_path, capsys):
    arguments = ("scan", dataset, "--out", tmp_path / "run", "--evidence-only")
    assert run(*arguments, "--limit", 2) == 2
    assert run(*arguments, "--budget", "0.000001") == 5
    assert "the budget is spent" in capsys.readouterr().err
    accepted = tmp_path / "ours.toml"
    digest = "ab" * 32
    accepted.write_text(
        f'[[accepted]]\nsha256 = "{digest}"\nreason = "r"\nowner = "o"\nexpires = 2999-12-31\n'
    )
    fresh = (*arguments, "--out", tmp_path / "fresh", "--budget", "0.000001")
    assert run(*fresh, "--accept", accepted) == 5
    assert "no model of this run" not in capsys.readouterr().err
    assert run(*arguments, "--budget", "500") == 2
    assert len(read_records(tmp_path / "run")) == 3


@pytest.mark.usefixtures("unguarded")
def test_wrong_lines_of_a_manifest_fail_and_the_others_are_scanned(clean_model, tmp_path, capsys):
    manifest = tmp_path / "list.csv"
    lines = ["path,poisoned", "models/net,0", ",1", "gone.pt,0", "gone.pt,1", "models/net/,no"]
    manifest.write_text("\n".join(lines))
    options = ("--out", tmp_path / "run", "--evidence-only", "--stages", "weights")
    assert run("scan", manifest, *options) == 2
    found = {record.model: record for record in read_records(tmp_path / "run")}
    assert {name: record.status for name, record in found.items()} == {
        "models/net": "ok", "line 3": "failed", "gone.pt": "failed", "models/net/": "ok",
    }  # fmt: skip
    assert "names no model" in found["line 3"].reason
    assert found["gone.pt"].reason.startswith("several lines that differ (4 and 5)")
    assert "label 'no'" in found["models/net/"].reason
    manifest.write_text("\n".join([*lines[:2], "models/net/model.pt,1", *lines[5:]]))
    assert run("scan", manifest, *options) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("text", "status"),
    [("", 4), ("a,b\n1,2\n", 4), ("path,path\nx,y\n", 4), ("path\n\0\n", 4), ("path\n", 3)],
)
def test_a_malformed_manifest_is_a_file_that_cannot_be_used(tmp_path, capsys, text, status):
    (tmp_path / "list.csv").write_text(text)
    assert run("scan", tmp_path / "list.csv", "--out", tmp_path / "run") == status
    assert "list.csv" in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_a_manifest_is_scanned_smoke_first(tmp_path, capsys):
    folder = plain_folder(tmp_path / "models", *(f"{n}.pt" for n in range(6)))
    lines = ["path,poisoned,architecture"]
    lines += [f"models/{n}.pt,{n % 2},net{n // 3}" for n in range(6)]
    (tmp_path / "list.csv").write_text("\n".join([*lines, "models/gone.pt,1,net1"]))
    arguments = ("scan", tmp_path / "list.csv", "--out", tmp_path / "run", "--evidence-only")
    assert run(*arguments, "--smoke", "--limit", 5) == 2
    assert [r.model for r in read_records(tmp_path / "run")] == ["models/0.pt", "models/3.pt"]
    assert run(*arguments, "--truth", "--workers", 2) == 2
    captured = capsys.readouterr()
    assert "7 models, 4 poisoned  log score 0.6931" in captured.out
    assert "[7/7]" in captured.err and "log score 0.6931" in captured.err
    assert len(read_records(tmp_path / "run")) == 7
    assert len((tmp_path / "run" / "records.jsonl").read_text().splitlines()) == 7
    assert (
        "scan ends with 7 of 7 models done, 5 of them now" in (tmp_path / "run/log.txt").read_text()
    )
    sessions = json.loads((tmp_path / "run/environment.json").read_text())["sessions"]
    assert [s["workers"] for s in sessions] == [None, 2] and sessions[0]["engine"] == "local"
    assert folder.exists()


def test_what_cannot_be_scanned_is_refused(tmp_path, capsys):
    (tmp_path / "model.pt").write_bytes(b"x")
    assert run("scan", tmp_path / "model.pt", "--out", tmp_path / "run") == 4
    assert "use: jaxtroj detect" in capsys.readouterr().err
    for option in ("--timeout", "--memory", "--budget"):
        for value in ("0", "-1", "nan", "inf", "soon"):
            assert run("scan", tmp_path, "--out", tmp_path / "run", f"{option}={value}") == 4
    assert not (tmp_path / "run").exists()


_FULL_DISK = """
set -e
mount -t tmpfs -o size=64k none "$1/disk"
set +e
scan() {
    "$2" -m jaxtroj scan "$1/models" --out "$1/disk/run" --evidence-only >/dev/null 2>"$1/$3"
    echo $?
}
scan "$1" "$2" full
cp "$1/disk/run/records.jsonl" "$1/full.jsonl"
mount -o remount,size=4m none "$1/disk"
scan "$1" "$2" room
cp "$1/disk/run/records.jsonl" "$1/room.jsonl"
mount -o remount,ro none "$1/disk"
scan "$1" "$2" readonly
"""


def test_a_full_disk_loses_nothing_and_the_scan_goes_on_with_room(tmp_path):
    probe = ["unshare", "-Urm", "true"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("needs unshare with mounts, to make a small disk")
    plain_folder(tmp_path / "models", *(f"{n:04d}.pt" for n in range(150)))
    (tmp_path / "disk").mkdir()
    command = ["unshare", "-Urm", "sh", "-c", _FULL_DISK, "sh", str(tmp_path), sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["4", "2", "4"], done.stderr
    messages = (tmp_path / "full").read_text()
    assert "No space left on device" in messages and "Traceback" not in messages
    first = (tmp_path / "full.jsonl").read_bytes()
    assert first.endswith(b"\n") and 10 < first.count(b"\n") < 150
    whole = (tmp_path / "room.jsonl").read_bytes()
    assert whole.startswith(first)
    names = [json.loads(line)["model"] for line in whole.splitlines()]
    assert sorted(names) == [f"{n:04d}.pt" for n in range(150)]
    assert "Read-only file system" in (tmp_path / "readonly").read_text()


class Talkative:
    """An engine that prints, as Ray does when one of its processes dies."""

    def run(self, jobs, watch):
        for job in jobs:
            print("(raylet) A worker died")
            yield Answer(job.entry, "k", failed_record(job.entry, Setup(Settings()), "gone", "k"))

    def close(self) -> None:
        print("(raylet) good-bye")


def test_what_an_engine_prints_is_no_result(dataset, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("jaxtroj.cli.scan._engine", lambda *_: Talkative())
    assert run("scan", dataset, "--out", tmp_path / "run", "--evidence-only", "--json") == 2
    captured = capsys.readouterr()
    assert [json.loads(line)["status"] for line in captured.out.splitlines()] == ["failed"] * 3
    assert captured.err.count("A worker died") == 3 and "good-bye" in captured.err


def test_a_ray_cluster_that_is_not_there_ends_the_scan_at_once(dataset, tmp_path, capsys):
    pytest.importorskip("ray", reason="needs the extra `ray`")
    with socket.socket() as taken:  # bound and not listening: nobody else can be there
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ("--out", tmp_path / "run", "--evidence-only", "--engine", "ray")
        assert run("scan", dataset, *arguments, "--address", address) == 4
    assert f"cannot use the Ray cluster at {address}" in capsys.readouterr().err


def test_a_search_that_was_cut_is_not_done():
    """Of what lies too deep, or after too many files, nobody knows whether it is a model."""
    root = Path("data")
    for others, expected in [
        (LeftOut(root, deep=("a/b/c/d/e",), is_partial=True), 5),
        (LeftOut(root, is_cut=True, is_partial=True), 5),
        (LeftOut(root, hidden=(".x.pt",), is_cut=True), 0),
    ]:
        assert _status(0, 0, others) == expected
        assert (_status(1, 0, others), _status(2, 0, others)) == (1, 2)
