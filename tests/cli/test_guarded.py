"""Commands that open one model run in a child process under limits, and look as if they did not."""

import importlib
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import jaxtroj
from jaxtroj.cli.main import answered, main
from jaxtroj.engine.guard import Guard
from jaxtroj.engine.guarded_call import guarded_call
from jaxtroj.errors import LimitError

MIB = 2**20


@pytest.fixture
def bodies(monkeypatch):
    """The module of bodies; child processes get this process's path, with it there."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("guarded_bodies")


@pytest.mark.parametrize("capture", ["capsys", "capfd"])
def test_status_and_words_are_passed_on(request, capture, bodies):
    captured = request.getfixturevalue(capture)
    assert guarded_call(partial(answered, partial(bodies.says_and_leaves, 3)), Guard(), "it") == 3
    assert tuple(captured.readouterr()) == ("result é\n", "message\n")
    assert guarded_call(partial(answered, bodies.refuses), Guard(), "it") == 4
    assert tuple(captured.readouterr()) == ("", "jaxtroj: error: as ordered\n")


def test_limits_end_it(tmp_path, bodies):
    with pytest.raises(LimitError, match="^it was stopped after 1 s; see --timeout "):
        guarded_call(partial(bodies.sleeps, tmp_path / "mark"), Guard(timeout=1), "it")
    with pytest.raises(LimitError, match=r"^it took 0.\d\d GiB of memory, more than the 0.29"):
        guarded_call(bodies.grows, Guard(memory=300 * MIB), "it")
    with pytest.raises(LimitError, match="^it ended its process by SIGABRT$"):
        guarded_call(os.abort, Guard(), "it")


def lives(pid: str) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_it_ends_with_its_parent(tmp_path, bodies, number, status):
    mark = tmp_path / "mark"
    code = (
        # A shell's background jobs ignore SIGINT, and so would what they start.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        " import sys; import guarded_bodies as bodies; from functools import partial;"
        " from jaxtroj.cli.main import answered; from jaxtroj.engine.guard import Guard;"
        " from jaxtroj.engine.guarded_call import guarded_call;"
        " work = partial(answered, partial(bodies.sleeps, sys.argv[1]));"
        " sys.exit(answered(partial(guarded_call, work, Guard(), 'it')))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code, str(mark)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        while not (mark.exists() and mark.read_text()):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == status
    assert said == ("jaxtroj: interrupted\n" if status > 0 else "")
    for _ in range(50):
        if not lives(mark.read_text()):
            return
        time.sleep(0.1)
    pytest.fail("the child lives on")


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (("--memory", "0.05"), "GiB of memory, more than the 0.05 allowed; see --memory"),
        (("--timeout", "0.05"), "was stopped after 0.05 s; see --timeout"),
    ],
)
def test_convert_within_limits(tmp_path, capsys, limit, reason):
    (tmp_path / "model.onnx").write_bytes(b"garbage")
    command = ["convert", str(tmp_path / "model.onnx"), "--out", str(tmp_path / "out"), *limit]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and reason in said and "model.onnx" in said
    assert not (tmp_path / "out").exists()


def test_a_zoo_opens_networks_of_others_within_limits(tmp_path, capsys):
    (tmp_path / "net.onnx").write_bytes(b"garbage")
    command = ["generate", "zoo", "--out", str(tmp_path / "zoo"), "--models", "2"]
    command += ["--pictures", f"a={tmp_path}/a.npz", "--pretrained", f"n={tmp_path}/net.onnx"]
    assert main([*command, "--timeout", "0.05"]) == 2
    said = capsys.readouterr().err
    assert f"the process that runs {tmp_path}/net.onnx was stopped after 0.05 s" in said
    assert not (tmp_path / "zoo").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["report", "run"], "interrupted"),
        (["convert", "m.pt", "--out", "out"], "interrupted"),
        (["repair", "m.pt", "--out", "out"], "interrupted"),
        (["scan", "models", "--out", "run"], "interrupted; finished records are kept"),
        (
            ["generate", "round0", "--models", "2", "--out", "out"],
            "interrupted; models that are complete are kept,",
        ),
    ],
)
def test_an_interrupt_says_what_is_kept_where_something_is(monkeypatch, capsys, command, said):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"jaxtroj.cli.{command[0]}.run", interrupted)
    assert main(command) == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert line.removeprefix("jaxtroj: ")[: len(said)] == said
    assert said.endswith(("kept", "kept,")) or line.endswith("interrupted")


def test_a_few_bytes_are_not_told_as_none():
    assert "more than the 0.001 allowed" in str(Guard(memory=2**20).too_much(2**28))


EXAMPLE = Path(jaxtroj.__file__).parent / "data" / "examples" / "clean"


@pytest.mark.parametrize("platform", ["nonsense", "cuda,nonsense"])
@pytest.mark.parametrize(
    "command",
    [
        ["detect", f"{EXAMPLE}/model.pt"],
        ["scan", str(EXAMPLE.parent), "--out", "run"],
        ["convert", f"{EXAMPLE}/model.pt", "--out", "converted"],
    ],
    ids=lambda command: command[0],
)
def test_a_device_that_is_not_there_is_one_line(tmp_path, monkeypatch, capfd, command, platform):
    """Each model had a failed record, of an internal error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", platform)
    assert main(command) == 4
    out, err = capfd.readouterr()
    assert not out and not [p for p in tmp_path.glob("run/records.jsonl") if p.read_text()]
    (line,) = (line for line in err.splitlines() if "error" in line)
    assert line.startswith(f"jaxtroj: error: JAX_PLATFORMS is {platform!r}, and jax finds no such")
    assert line.endswith("; unset it, or set it to cpu")


def test_a_device_that_is_not_there_is_one_error_in_python(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "nonsense")
    with pytest.raises(jaxtroj.EngineError, match="JAX_PLATFORMS is 'nonsense'"):
        jaxtroj.detect(EXAMPLE)
    with pytest.raises(jaxtroj.EngineError, match="JAX_PLATFORMS is 'nonsense'"):
        list(jaxtroj.scan_folder(EXAMPLE.parent))
