"""No command writes over what it reads: status 4, one line that says so, and the file is whole."""

import errno
import json
import os
from pathlib import Path

import pytest

from jaxtroj.cli.main import COMMANDS, main
from jaxtroj.cli.outputs import is_same, keep_inputs, keep_named
from jaxtroj.errors import UsageError
from jaxtroj.leaderboard.output import TABLES
from jaxtroj.record import Record
from jaxtroj.store import RunStore

FLAG = "--result_filepath"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A run, its truth, and files that any command might be given; the current folder."""
    monkeypatch.chdir(tmp_path)
    with RunStore(tmp_path / "run", {}) as store:
        for number in range(4):
            store.append(Record(f"id-{number}", "", 0.5, False, None, (), "ok", ""))
    lines = [f"id-{number},{number % 2},0.5" for number in range(4)]
    Path("t.csv").write_text("\n".join(["model_name,poisoned,probability", *lines]))
    for folder in ("examples", "hf", "learned"):
        Path(folder).mkdir()
    for name in ("m.pt", "k.json", "learned/calibrator.json", "examples/class_0_example_0.png"):
        Path(name).write_text(f"content of {name}")
    Path("examples/truth.txt").write_text("1")
    Path("hf/config.json").write_text('{"model_type": "bert"}')
    os.symlink("m.pt", "link.pt")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def refused(words: str, home: Path, capfd, said: str) -> None:
    before = contents(home)
    assert main(words.split()) == 4
    captured = capfd.readouterr()
    assert said in captured.err and len(captured.err.splitlines()) == 1, captured.err
    assert contents(home) == before


@pytest.mark.parametrize(
    "words",
    [
        "infer --model_filepath m.pt --result_filepath m.pt",
        "infer --model_filepath m.pt --result_filepath=m.pt --nonsense",
        "infer --model_filepath=m.pt --result_filepath ./m.pt",
        "infer --result_filepath m.pt --model_filepath ../{home}/m.pt",
        "infer --model_filepath link.pt --result_filepath m.pt",
        "infer --model_filepath m.pt --result_filepath link.pt",
        "infer --model_filepath absent.pt --result_filepath ./absent.pt",
        "infer --model_filepath m.pt --calibrator k.json --result_filepath k.json",
        "infer --model_filepath m.pt --metaparameters_filepath k.json --result_filepath k.json",
        "infer --model_filepath m.pt --result_filepath learned/calibrator.json"
        " --learned_parameters_dirpath learned",
        "infer --model_filepath m.pt --examples_dirpath=examples"
        " --result_filepath examples/class_0_example_0.png",
        "detect m.pt --result_filepath m.pt",
        "detect m.pt --network k.json:Net --result_filepath k.json",
        "detect . --result_filepath m.pt",
        "detect hf --result_filepath hf/config.json",
    ],
)
def test_a_result_file_is_no_input(home, capfd, words):
    refused(words.format(home=home.name), home, capfd, "would replace")


@pytest.mark.parametrize(
    "result",
    ["new.txt", "examples/new.txt", "examples/truth.txt", "elsewhere/old.txt", "scratch/old.txt"],
)
def test_the_base_rate_is_written_early_all_the_same(home, capfd, result):
    for folder in ("elsewhere", "scratch"):
        Path(folder).mkdir()
        Path(folder, "old.txt").write_text("no number")
    words = "infer --model_filepath m.pt --examples_dirpath examples --scratch_dirpath scratch"
    assert main([*words.split(), FLAG, result, "--nonsense"]) == 4
    assert float(Path(result).read_text()) == 0.5
    assert "unrecognized arguments: --nonsense" in capfd.readouterr().err


@pytest.mark.parametrize(("call", "number"), [("replace", errno.EBUSY), ("open", errno.EACCES)])
@pytest.mark.parametrize("old", ["", "0.25\n", "0.123456789012345678\n"])
def test_a_result_that_cannot_be_replaced_is_written_in_place(
    home, capfd, monkeypatch, call, number, old
):
    """As a file that is mounted by itself, and one in a folder that takes no files."""
    Path("result.txt").write_text(old)
    there = os.stat("result.txt").st_ino
    real = getattr(os, call)

    def fails(path, *rest, **more):
        if str(path).endswith(".part"):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(os, call, fails)
    assert main(["infer", "--model_filepath", "m.pt", FLAG, "result.txt", "--nonsense"]) == 4
    assert Path("result.txt").read_text() == "0.5\n" and os.stat("result.txt").st_ino == there
    said = f"result.txt cannot be replaced ({os.strerror(number)}): it was written in place"
    assert said in capfd.readouterr().err
    assert not list(home.glob(".*.part"))


@pytest.mark.parametrize("kind", ["absent", "a link", "a file on a full disk"])
def test_in_place_is_written_only_where_that_helps(home, capfd, monkeypatch, kind):
    number = errno.ENOSPC if "full" in kind else errno.EBUSY
    Path("old.txt").write_text("1")
    if kind == "a link":
        Path("result.txt").symlink_to("old.txt")
    elif kind != "absent":
        Path("result.txt").write_text("1")
    monkeypatch.setattr(os, "replace", lambda *paths: _fail(number))
    words = f"infer --model_filepath m.pt {FLAG} result.txt"
    refused(words, home, capfd, "cannot write the result file result.txt")


def _fail(number: int) -> None:
    raise OSError(number, os.strerror(number))


def test_a_device_is_no_file_that_could_be_lost():
    assert keep_named(Path("/dev/null"), ["/dev/null"], FLAG) is None
    assert keep_inputs(Path("/dev/null"), [Path("/dev/null")]) is None


def test_labels_of_a_model_are_no_earlier_result(home):
    Path("hf/ground_truth.csv").write_text("1")
    with pytest.raises(UsageError, match="would replace hf/ground_truth.csv"):
        keep_named(Path("hf/ground_truth.csv"), ["hf"], FLAG)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("calibrate run --truth t.csv --out t.csv", "would replace t.csv"),
        ("calibrate run --truth t.csv --out run/records.jsonl", "would replace run/records.jsonl"),
        ("calibrate run --truth t.csv --out run/settings.json", "would replace run/settings.json"),
        ("report run --format csv --out run/records.jsonl", "would replace run/records.jsonl"),
        ("report run --truth t.csv --out ./t.csv", "would replace t.csv"),
        ("report run --accept k.json --out k.json", "would replace k.json"),
        ("report run --beside run --out run/log.txt", "would replace run/log.txt"),
        ("report run --out run/lock", "would replace run/lock"),
        ("evaluate out/models.csv --truth t.csv --out out", "would replace out/models.csv"),
        ("evaluate t.csv --truth out/roc.csv --out out", "would replace out/roc.csv"),
        ("convert m.pt --out m.pt", "--out m.pt is a file; expected a folder"),
        ("convert m.pt --out hf", "config.json is not that of a checkpoint"),
        ("convert hf --out hf", "would replace hf/config.json"),
        ("convert cv/params.safetensors --out cv", "would replace cv/params.safetensors"),
        ("repair cv/model.onnx --out cv", "would replace cv/model.onnx"),
        ("repair cv --out cv", "would replace cv/model.onnx"),
        ("backgrounds evaluate m.pt hf --out m.pt", "would replace m.pt"),
        (
            "configure --configure_models_dirpath hf --scratch_dirpath s --schema_filepath"
            " learned/calibrator.json --learned_parameters_dirpath learned",
            "would replace learned/calibrator.json",
        ),
    ],
)
def test_an_output_is_none_of_the_inputs(home, capfd, words, said):
    for name in ("out/models.csv", "out/roc.csv", "cv/params.safetensors"):
        Path(name).parent.mkdir(exist_ok=True, parents=True)
        Path(name).write_text("input")
    Path("cv/model.onnx").write_text("input")
    Path("run/log.txt").write_text("input")
    refused(words, home, capfd, said)


def test_earlier_outputs_are_replaced(home, capfd):
    for _ in range(2):
        for words in (
            "report run",
            "report run --format csv --out run/report.csv",
            "evaluate run --truth t.csv --out run/scores",
        ):
            assert main(words.split()) == 0, capfd.readouterr().err
    assert {path.name for path in Path("run/scores").iterdir()} >= set(TABLES)
    keep_inputs(Path("run/calibrator.json"), [Path("run"), Path("t.csv"), None])


def test_one_place_by_two_names(home):
    os.link("k.json", "hard.json")
    assert is_same("k.json", "hard.json") and is_same("m.pt", "link.pt")
    assert is_same("new/x", "./new/../new/x") and not is_same("new/x", "new/y")
    assert not is_same("m.pt", "k.json") and not is_same("a\0b", "m.pt")


EMPTY = {
    "scan": [("", "--out", "x"), ("ds", "--out", "")],
    "detect": [("",), ("m.pt", "--calibrator", ""), ("m.pt", "--result_filepath=")],
    "infer": [("--model_filepath", ""), ("--model_filepath", "m", "--examples_dirpath=")],
    "configure": [("--metaparameters_filepath", "")],
    "calibrate": [("", "--truth", "t", "--out", "x"), ("run", "--truth", "t", "--out", "")],
    "evaluate": [("", "--truth", "t"), ("run", "--truth="), ("run", "--truth", "t", "--split", "")],
    "compare": [("", "b", "--truth", "t"), ("a", "", "--truth", "t")],
    "report": [("",), ("run", "--out", ""), ("run", "--backgrounds", "")],
    "bank": [("", "--out", "x", "--carriers", "c")],
    "repair": [("", "--out", "x")],
    "convert": [("", "--out", "x"), ("m.pt", "--out=")],
    "generate": [("zoo", "--pictures", "a=b", "--models", "2", "--out", "")],
    "backgrounds": [("evaluate", "", "data"), ("generate", "", "--seed", "1", "--masks", "m")],
}


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "bench"])
def test_empty_text_is_no_path(home, capfd, command):
    before = contents(home)
    for words in EMPTY[command]:
        assert main([command, *words]) == 4
        assert "expected a path, got ''" in (said := capfd.readouterr().err) or (
            "--split: expected a name, got ''" in said
        )
    assert contents(home) == before


def test_a_checkpoint_replaces_a_checkpoint_alone(home):
    from converters.checkpoint import CONFIG, check_folder

    check_folder(home / "absent")
    check_folder(home / "examples")
    for text in ("", "[]", "{", '{"format_version": 1}', '{"model_type": "vit"}'):
        Path("hf", CONFIG).write_text(text)
        with pytest.raises(FileExistsError, match="is not that of a checkpoint"):
            check_folder(home / "hf")
    Path("hf", CONFIG).write_text(json.dumps({"format_version": 9, "params_sha256": ""}))
    check_folder(home / "hf")
