import importlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import jaxtroj
from jaxtroj.cli.main import COMMANDS, Parser, answered, main
from jaxtroj.cli.options import message, settings_from

HEAVY = ("jax", "flax", "torch", "torchvision", "onnx", "transformers", "numpy", "sklearn")


def test_help_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys; from jaxtroj.cli.main import main; status = main(['--help'])\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)\n"
        "raise SystemExit(status)"
    )
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        seconds.append(time.perf_counter() - started)
        assert result.returncode == 0
        assert result.stderr == "[]\n"
        assert all(name in result.stdout for name in COMMANDS)
    assert min(seconds) < 0.5


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_imports_neither_jax_nor_torch(command):
    code = (
        "import sys; from jaxtroj.cli.main import main; status = main([sys.argv[1], '--help'])\n"
        "print([n for n in ('jax', 'torch') if n in sys.modules], file=sys.stderr)\n"
        "raise SystemExit(status)"
    )
    result = subprocess.run([sys.executable, "-c", code, command], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "[]\n")


def test_every_public_name_of_the_package_is_there():
    assert all(getattr(jaxtroj, name) is not None for name in jaxtroj.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        jaxtroj.nonsense  # noqa: B018


def test_every_error_that_the_guide_names_can_be_caught_by_that_name():
    text = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()
    names = set(re.findall(r"`jaxtroj\.(\w+Error)`", text))
    assert names >= {"ExamplesError", "UsageError", "EngineError", "CalibrationError", "ScanError"}
    assert all(issubclass(getattr(jaxtroj, name), jaxtroj.JaxtrojError) for name in names)
    assert not re.findall(r"`\w+Error`", text)


def test_importing_the_packages_loads_nothing_heavy():
    code = f"import sys, jaxtroj, converters; print([n for n in {HEAVY} if n in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "[]\n"


def test_a_process_that_waits_for_others_is_light():
    """Only those that convert and search load these; every command waits for its own start."""
    heavy = ("jax", "flax", "torch", "scipy")
    code = f"import sys, jaxtroj.engine.local; print([n for n in {heavy} if n in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nonsense"],
        ["explode"],
        ["scan", "somewhere"],
        ["detect", "--threshold", "1.5"],
        ["detect", "--base-rate", "many"],
        ["detect", "--stages", "weights,magic"],
        ["detect", "--evidence-only", "--calibrator", "c.json"],
        ["detect", "a.pt", "b.pt", "--result_filepath", "{tmp}/result.txt"],
        ["detect", "a.pt", "--seed", "99999999999999999999"],
        ["scan", "no-such-folder", "--out", "{tmp}/run"],
        ["evaluate", "{tmp}", "--truth", "no-such-file.csv"],
    ],
)
def test_usage_errors_exit_with_4_and_one_line(arguments, tmp_path, capsys):
    assert main([word.format(tmp=tmp_path) for word in arguments]) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error: " in captured.err and captured.err.count("\n") == 1


def test_no_command_prints_help(capsys):
    assert main([]) == 0
    assert "commands:" in capsys.readouterr().out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("jaxtroj ")


def test_a_reader_that_goes_away_is_no_crash():
    command = [sys.executable, "-m", "jaxtroj", "--help"]
    # Unbuffered, argparse meets the closed pipe itself and says nothing; test our own handling.
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


class Odd(Exception):
    pass


def _fails(error: BaseException):
    def work() -> int:
        raise error

    return work


def test_a_fault_nobody_foresaw_is_one_line_and_no_verdict(capsys, monkeypatch):
    monkeypatch.delenv("JAXTROJ_DEBUG", raising=False)
    assert answered(_fails(Odd("two\nlines " + "x" * 9000))) == 2
    said = capsys.readouterr().err
    assert said.startswith("jaxtroj: internal error: Odd: two lines xxx")
    assert said.endswith("); please report it\n") and "(test_main.py:" in said
    assert said.count("\n") == 1 and len(said) < 700


def test_names_in_messages_move_no_cursor(tmp_path, capsys):
    name = tmp_path / "a\x1b[2K\njaxtroj: all clean\udcff"
    assert main(["scan", str(name), "--out", str(tmp_path / "run")]) == 4
    message(f"{name} is odd")
    assert main(["scan", str(tmp_path), "--out", "run", "--engine", "a\x1b[2K"]) == 4
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all(line.isprintable() for line in lines)
    assert r"a\x1b[2K\njaxtroj: all clean\xff" in lines[0] and r"\x1b[2K\n" in lines[1]


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("0", False), ("", False)])
def test_the_traceback_of_a_fault_is_shown_on_request(capsys, monkeypatch, value, shown):
    monkeypatch.setenv("JAXTROJ_DEBUG", value)
    assert answered(_fails(Odd("as ordered"))) == 2
    said = capsys.readouterr().err
    assert ("Traceback" in said) is shown
    assert said.splitlines()[-1].startswith("jaxtroj: internal error: Odd: as ordered (")


def test_a_command_that_fails_in_no_foreseen_way(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("jaxtroj.cli.evaluate.run", lambda args: {}["nothing"])
    assert main(["evaluate", str(tmp_path), "--truth", str(tmp_path)]) == 2
    assert "internal error: KeyError: 'nothing' (test_main.py:" in capsys.readouterr().err


def test_what_ends_a_process_on_purpose_is_no_fault(capsys):
    assert answered(_fails(KeyboardInterrupt())) == 130
    assert answered(_fails(BrokenPipeError(32, "Broken pipe"))) == 4
    assert "internal error" not in capsys.readouterr().err
    with pytest.raises(SystemExit):
        answered(_fails(SystemExit(3)))


@pytest.mark.parametrize(
    ("arguments", "searched"),
    [
        (["detect", "m.pt"], True),
        (["detect", "m.pt", "--no-words"], False),
        (["scan", "d", "--out", "r"], False),
        (["scan", "d", "--out", "r", "--words"], True),
    ],
)
def test_words_are_searched_for_one_model_and_not_for_hundreds(arguments, searched):
    parser = Parser()
    importlib.import_module(f"jaxtroj.cli.{arguments[0]}").add_parser(parser.add_subparsers())
    assert settings_from(parser.parse_args(arguments)).recover_words is searched


@pytest.mark.parametrize("name", ["scan", "detect", "generate round1"])
def test_an_unknown_argument_is_told_by_the_command_that_met_it(name, capsys):
    given = {
        "scan": ("data", "--out", "run"),
        "detect": (),
        "generate round1": ("--out", "x", "--models", "2"),
    }
    assert main([*name.split(), *given[name], "--nonsense"]) == 4
    said = f"jaxtroj {name}: error: unrecognized arguments: --nonsense (see jaxtroj {name} --help)"
    assert capsys.readouterr().err == f"{said}\n"
