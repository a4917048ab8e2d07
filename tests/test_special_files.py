"""Devices, pipes, sockets and links where a file or folder is expected: named, never waited for."""

import os
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from converters.files import what_is, write_atomic
from jaxtroj.calibration import Calibrator
from jaxtroj.cli.main import main
from jaxtroj.errors import CalibrationError
from jaxtroj.record import Record
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore


@pytest.fixture
def special(tmp_path, monkeypatch):
    """One of each kind, by what it is called."""
    monkeypatch.chdir(tmp_path)  # names of sockets must be short
    os.mkfifo("pipe")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
        yield {
            "a named pipe": tmp_path / "pipe",
            "a socket": tmp_path / "socket",
            "a device": "/dev/zero",
            "unreadable (Too many levels of symbolic links)": tmp_path / "loop",
            "absent": tmp_path / "nothing",
        }


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"garbage")
    return tmp_path / "model.pt"


def test_every_argument_says_what_it_is(special, model, tmp_path, capsys):
    with RunStore(tmp_path / "run", {}):
        pass
    for kind, path in special.items():
        assert what_is(path) == kind
        for command in (
            ["scan", path, "--out", tmp_path / "new", "--evidence-only"],
            ["detect", model, "--evidence-only", "--examples", path],
            ["detect", model, "--evidence-only", "--bank", path],
            ["generate", "small", "--models", 2, "--out", tmp_path / "new", "--pictures", path],
        ):
            assert main([str(word) for word in command]) == 4
            assert f"{path} is {kind}; expected" in capsys.readouterr().err
        for command in (
            ["detect", model, "--calibrator", path],
            ["scan", tmp_path, "--out", tmp_path / "new", "--calibrator", path],
            ["evaluate", tmp_path / "run", "--truth", path],
        ):
            assert main([str(word) for word in command]) == 4
            assert str(path) in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", ["a named pipe", "a device"])
@pytest.mark.parametrize(
    "words",
    [
        "report RUN --format csv",
        "evaluate RUN --truth t.csv",
        "compare RUN RUN --truth t.csv",
        "calibrate RUN --truth t.csv --out c.json",
        "report good --beside RUN --out new.html",
    ],
)
def test_records_that_are_no_file_are_not_waited_for(special, tmp_path, capsys, words, kind):
    for name in ("RUN", "good"):
        with RunStore(tmp_path / name, {}) as store:
            store.append(Record("m", "", 0.5, False, None, (), "ok", ""))
    (tmp_path / "t.csv").write_text("model,poisoned\nm,1\n")
    (tmp_path / "RUN" / "records.jsonl").unlink()
    (tmp_path / "RUN" / "records.jsonl").symlink_to(special[kind])
    assert main(words.split()) == 4
    said = f"RUN is not a run folder: records.jsonl: it is {kind}, expected a file"
    assert said in capsys.readouterr().err


def test_a_calibrator_is_read_before_any_model(special, model, tmp_path, capsys):
    (tmp_path / "text.json").write_text("{}")
    for path in (*special.values(), tmp_path / "text.json", tmp_path):
        with pytest.raises(CalibrationError):
            Settings(calibrator=path)
        with pytest.raises(CalibrationError):
            Settings(text_calibrator=path)
        with pytest.raises(CalibrationError):
            Calibrator.load(path)
        result = tmp_path / "result.txt"
        flags = ["--model_filepath", model, "--result_filepath", result, "--calibrator", path]
        assert main(["infer", *map(str, flags)]) == 4
        assert result.read_text() == "0.5\n"
        captured = capsys.readouterr()
        assert "read" not in captured.out and "calibrator" in captured.err


def test_what_is_no_file_is_never_replaced_by_one(special):
    write_atomic(special["a named pipe"].with_name("file"), b"text")
    for kind in ("a named pipe", "a socket"):
        with pytest.raises(OSError):  # nobody reads
            write_atomic(special[kind], b"text")
        assert what_is(special[kind]) == kind
    reader = os.open(special["a named pipe"], os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(special["a named pipe"], b"text")
    assert os.read(reader, 10) == b"text" and what_is(special["a named pipe"]) == "a named pipe"
    os.close(reader)


def test_a_pipe_gets_all_of_a_large_file(special):
    data = os.urandom(2**20)  # a pipe takes 64 KiB at once
    reader = os.open(special["a named pipe"], os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    with ThreadPoolExecutor(1) as pool, open(reader, "rb") as file:
        writing = pool.submit(write_atomic, special["a named pipe"], data)
        select.select([file], [], [])  # before there is a writer, reading ends at once
        assert file.read(len(data)) == data
        writing.result()


@pytest.mark.parametrize("folder", ["/proc/self/fd", "/dev/fd"])
def test_an_open_file_is_written_to_where_it_stands(tmp_path, folder):
    (tmp_path / "file").write_bytes(b"0123456789")
    with open(tmp_path / "file", "r+b", buffering=0) as file:
        number = file.fileno()
        (tmp_path / "stdout").symlink_to(f"{folder}/{number}")  # as /dev/stdout is one
        (tmp_path / "link").symlink_to("stdout")
        for name in ("stdout", "link"):
            file.read(2)
            write_atomic(tmp_path / name, b"--")
            assert (tmp_path / name).is_symlink()
        write_atomic(Path(folder, str(number)), b"+")
    assert (tmp_path / "file").read_bytes() == b"01--45--+9"


def test_a_link_to_a_plain_file_is_replaced(tmp_path):
    (tmp_path / "file").write_bytes(b"kept")
    (tmp_path / "link").symlink_to("file")
    write_atomic(tmp_path / "link", b"new")
    assert [(tmp_path / name).read_bytes() for name in ("file", "link")] == [b"kept", b"new"]
