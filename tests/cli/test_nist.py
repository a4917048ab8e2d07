"""The container interface, driven as TrojAI's harnesses drive it, on the two example models."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from PIL import Image

import jaxtroj
from jaxtroj.calibration import Calibrator
from jaxtroj.cli import infer, nist
from jaxtroj.cli.main import main
from jaxtroj.errors import DatasetError, UsageError
from jaxtroj.input_forms import CHANNEL_ORDERS, NORMALIZATIONS
from jaxtroj.leaderboard.metaparameters import (
    AUTO,
    LARGE_STAGES,
    Metaparameters,
    read_metaparameters,
)
from jaxtroj.leaderboard.predictions import read_predictions
from jaxtroj.rounds.single import entry_of
from jaxtroj.settings import DEFAULT_CALIBRATOR, DEFAULT_TEXT_CALIBRATOR
from tests.sentiment_head import text_head

pytestmark = pytest.mark.usefixtures("unguarded")

ROOT = Path(__file__).resolve().parents[2]
CONTAINERS = ROOT / "containers"
EXAMPLES = Path(jaxtroj.__file__).parent / "data" / "examples"
SHIPPED = {"id-00000000": "clean", "id-00000001": "poisoned"}


def run(*arguments) -> int:
    return main([str(word) for word in arguments])


@pytest.fixture
def container(tmp_path) -> Path:
    """What the image holds at its root, with the cheapest stage only."""
    home = tmp_path / "container"
    (home / "learned_parameters").mkdir(parents=True)
    shutil.copy(DEFAULT_CALIBRATOR, home / "learned_parameters" / "calibrator.json")
    shutil.copy(DEFAULT_TEXT_CALIBRATOR, home / "learned_parameters" / "text_calibrator.json")
    shutil.copy(CONTAINERS / "metaparameters_schema.json", home)
    values = json.loads((CONTAINERS / "metaparameters.json").read_text())
    (home / "metaparameters.json").write_text(json.dumps(values | {"last_stage": "weights"}))
    return home


@pytest.fixture
def dataset(tmp_path) -> Path:
    """A round of the two example models, the examples under the server's and the released name."""
    for name, kind in SHIPPED.items():
        home = tmp_path / "round" / "models" / name
        shutil.copytree(EXAMPLES / kind, home)
        (home / "ground_truth.csv").write_text(str(int(kind == "poisoned")))
    second = tmp_path / "round" / "models" / "id-00000001"
    (second / "example_data").rename(second / "clean_example_data")
    return tmp_path / "round"


def parameters(container: Path) -> list[object]:
    return [
        "--metaparameters_filepath",
        container / "metaparameters.json",
        "--schema_filepath",
        container / "metaparameters_schema.json",
        "--learned_parameters_dirpath",
        container / "learned_parameters",
    ]


def flags(active: Path, scratch: Path, examples: str) -> list[object]:
    return [
        "--model_filepath",
        active / "model.pt",
        "--result_filepath",
        active / "result.txt",
        "--scratch_dirpath",
        scratch,
        "--examples_dirpath",
        active / examples,
    ]


def harness(dataset: Path, tmp_path: Path, call) -> Path:
    """Copies each model to an active folder, calls the detector, collects its result file."""
    results, active = tmp_path / "results", tmp_path / "active"
    results.mkdir()
    for model in sorted((dataset / "models").iterdir()):
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        shutil.copytree(model, active, ignore=shutil.ignore_patterns("ground_truth.csv"))
        (examples,) = (path.name for path in active.iterdir() if path.is_dir())
        assert call(flags(active, scratch, examples)) == 0
        shutil.copy(active / "result.txt", results / f"{model.name}.txt")
        shutil.rmtree(active)
        shutil.rmtree(scratch)
    return results


def test_infer_answers_a_round_as_the_harness_asks(dataset, container, tmp_path, capsys):
    training = ["--round_training_dataset_dirpath", "none", "--source_dataset_dirpath=none"]
    results = harness(
        dataset, tmp_path, lambda given: run("infer", *given, *training, *parameters(container))
    )
    said = read_predictions(results).probabilities
    assert set(said) == set(SHIPPED) and all(0 < p < 1 for p in said.values())
    assert said["id-00000000"] < said["id-00000001"]
    assert run("evaluate", results, "--truth", dataset) == 0
    assert "all: 2 models, 1 poisoned" in capsys.readouterr().out


def test_the_containers_entry_point_takes_bare_flags_of_old_rounds(dataset, container, tmp_path):
    environment = {
        **os.environ,
        "JAXTROJ_PYTHON": sys.executable,
        "JAXTROJ_CONTAINER": str(container),
        "PYTHONPATH": str(ROOT),
    }
    script = ["sh", str(CONTAINERS / "entrypoint.sh")]
    active = dataset / "models" / "id-00000001"
    words = [str(word) for word in flags(active, tmp_path / "scratch", "example_data")]
    result = subprocess.run([*script, *words], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert 0.5 < float((active / "result.txt").read_text()) < 1
    assert "taking" in result.stderr and "clean_example_data" in result.stderr


def test_the_container_answers_for_text_heads_too(container, tmp_path):
    head = text_head(tmp_path / "active")
    given = flags(head, tmp_path / "scratch", "clean_example_data")
    assert run("infer", *given, "--cls_token_is_first", *parameters(container)) == 0
    assert 0 < float((head / "result.txt").read_text()) < 1


@pytest.mark.parametrize(
    ("words", "config", "pooling", "is_told"),
    [
        (["--embedding_filepath=e.pt", "--tokenizer_filepath=t.pt"], None, "last", True),
        (["--embedding_filepath=e.pt", "--cls_token_is_first"], None, "first", False),
        (["--embedding_filepath=e.pt"], {"embedding": "BERT"}, "first", False),
        (["--embedding_filepath=e.pt"], {"embedding": "GPT-2"}, "last", False),
        ([], None, None, False),
    ],
)
def test_the_flag_for_the_first_token_says_the_last_by_its_absence(
    words, config, pooling, is_told, tmp_path, capsys
):
    head = text_head(tmp_path / "active")
    if config is not None:
        (head / "config.json").write_text(json.dumps(config))
    subparsers = argparse.ArgumentParser().add_subparsers()
    infer.add_parser(subparsers)
    given = map(str, flags(head, tmp_path / "scratch", "clean_example_data"))
    args = subparsers.choices["infer"].parse_args([*given, *words])
    entry = nist.with_flags(entry_of(head / "model.pt"), args)
    assert (entry.text_config and entry.text_config.pooling) == pooling
    assert ("that of the last token" in capsys.readouterr().err) == is_told


def test_a_folder_with_one_calibrator_uses_it_for_all_kinds(container, tmp_path, capsys):
    (container / "learned_parameters" / "text_calibrator.json").unlink()
    head = text_head(tmp_path / "active")
    given = flags(head, tmp_path / "scratch", "clean_example_data")
    assert run("infer", *given, *parameters(container)) == 2
    assert float((head / "result.txt").read_text()) == 0.5
    assert "the calibrator cannot use this evidence" in capsys.readouterr().out


@pytest.mark.parametrize(
    "extra",
    [
        ("--cls_token_is_first", "--tokenizer_filepath", "t.pt", "--embedding_filepath", "e.pt"),
        ("--features_filepath", "f.csv", "--round_training_dataset_dirpath", "r"),
        ("--scale_parameters_filepath", "s.npy", "--source_dataset_dirpath", "d"),
    ],
)
@pytest.mark.parametrize("command", ["detect", "infer"])
def test_flags_of_every_round_are_taken_and_a_bad_model_has_an_answer(command, extra, tmp_path):
    (tmp_path / "model.pt").write_bytes(b"garbage")
    given = flags(tmp_path, tmp_path / "scratch", "example_data")
    assert run(command, *given, *extra) == 2
    assert float((tmp_path / "result.txt").read_text()) == 0.5


def test_wrong_parameters_leave_an_answer_and_one_line(container, tmp_path, capsys):
    (container / "metaparameters.json").write_text('{"seed": -1}')
    given = flags(tmp_path, tmp_path / "scratch", "example_data")
    assert run("infer", *given, *parameters(container)) == 4
    assert float((tmp_path / "result.txt").read_text()) == 0.5
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert "does not fit its schema" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["infer"], "missing --model_filepath, --result_filepath"),
        (["configure"], "missing --configure_models_dirpath"),
        (["detect", "m.pt", "--metaparameters_filepath", "m.json"], "need each other"),
        (["detect", "m.pt", "--learned_parameters_dirpath", "no"], "no calibrator.json or text_"),
        (
            ["detect", "m.pt", "--calibrator", "c", "--learned_parameters_dirpath", "."],
            "not both",
        ),
    ],
)
def test_what_is_missing_is_said_in_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 4
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1


def labelled(folder: Path, count: int) -> Path:
    """The two example models many times, no two files the same: the last weight is a hair else."""
    for number in range(count):
        kind = ("clean", "poisoned")[number % 2]
        home = folder / "models" / f"id-{number:08d}"
        home.mkdir(parents=True)
        data = bytearray((EXAMPLES / kind / "model.pt").read_bytes())
        data[-4] ^= number
        (home / "model.pt").write_bytes(data)
        (home / "example_data").symlink_to(EXAMPLES / kind / "example_data")
        (home / "ground_truth.csv").write_text(str(number % 2))
    return folder


def test_configure_learns_parameters_that_infer_uses(container, tmp_path, capsys):
    learned, models = tmp_path / "learned", labelled(tmp_path / "many", 10)
    given = ["--scratch_dirpath", tmp_path / "scratch", "--configure_models_dirpath", models]
    words = [*given, *parameters(container)[:4], "--learned_parameters_dirpath", learned]
    assert run("configure", *words, "--automatic_configuration") == 0
    captured = capsys.readouterr()
    assert "up to weights: out-of-fold log score" in captured.out
    calibrator = Calibrator.load(learned / "calibrator.json")
    assert (calibrator.provenance.models, list(calibrator.stages)) == (10, ["weights"])
    container.joinpath("learned_parameters", "calibrator.json").unlink()
    metaparameters = json.loads((container / "metaparameters.json").read_text())
    assert json.loads((learned / "metaparameters.json").read_text()) == metaparameters
    changed = container / "metaparameters.json"
    changed.write_text(json.dumps(metaparameters | {"channel_order": "RGB"}))
    shutil.copytree(EXAMPLES / "poisoned", tmp_path / "active")
    answer = flags(tmp_path / "active", tmp_path / "scratch", "example_data")
    words = [*parameters(container)[:4], "--learned_parameters_dirpath", learned]
    assert run("infer", *answer, *words) == 0
    assert "channel_order was not given, now 'RGB'" in capsys.readouterr().err
    assert 0.5 < float((tmp_path / "active" / "result.txt").read_text()) < 1


def test_configure_of_too_few_models_writes_nothing(container, tmp_path, capsys):
    models = labelled(tmp_path / "few", 2)
    given = ["--scratch_dirpath", tmp_path / "scratch", "--configure_models_dirpath", models]
    words = [*parameters(container)[:4], "--learned_parameters_dirpath", tmp_path / "learned"]
    assert run("infer", "--configure_mode", *given, *words, "--timeout", "600") == 4
    assert "expected at least 10 models" in capsys.readouterr().err
    assert list((tmp_path / "learned").iterdir()) == []


def test_configure_reads_no_option_that_it_would_ignore(tmp_path, capsys):
    given = ["--scratch_dirpath", tmp_path, "--configure_models_dirpath", tmp_path]
    given += ["--learned_parameters_dirpath", tmp_path / "learned"]
    words = ["infer", "--configure_mode", *given, "--seed", "3", "--base-rate", "0.1"]
    assert run(*words) == 4
    assert "--base-rate, --seed: --configure_mode takes what" in capsys.readouterr().err


def test_shipped_metaparameters_are_the_defaults_and_fit_their_schema():
    found = read_metaparameters(
        CONTAINERS / "metaparameters.json", CONTAINERS / "metaparameters_schema.json"
    )
    assert found == Metaparameters()
    schema = json.loads((CONTAINERS / "metaparameters_schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == set(schema["properties"]) == set(vars(found))
    # What NIST's jsonschema_checker.py asks of the root and of each parameter.
    for name in ("$schema", "technique", "technique_description", "technique_changes"):
        assert name in schema
    assert set(schema["technique_type"]) <= {
        "Weight Analysis",
        "Trigger Inversion",
        "Attribution Analysis",
        "Jacobian Inspection",
        "Other",
    }
    assert {"commit_id", "repo_name"} <= set(schema)
    for entry in schema["properties"].values():
        assert entry["type"] != "string" or "enum" in entry
        assert entry["type"] not in ("number", "integer") or {"minimum", "maximum"} <= set(entry)
    assert tuple(schema["properties"]["last_stage"]["enum"]) == LARGE_STAGES
    assert tuple(schema["properties"]["channel_order"]["enum"]) == (AUTO, *CHANNEL_ORDERS)
    assert tuple(schema["properties"]["normalization"]["enum"]) == (AUTO, *NORMALIZATIONS)


STATED = {"channel_order": "BGR", "normalization": "min-max"}


@pytest.mark.parametrize(
    ("config", "stated", "expected"),
    [
        ({"CNN_IMG_SIZE_PIXELS": 32}, {}, ("RGB", "unit", "round")),
        (None, {}, ("BGR", "min-max", "examples")),
        ({"CNN_IMG_SIZE_PIXELS": 32}, STATED, ("BGR", "min-max", "settings")),
    ],
)
def test_the_input_form_is_the_rounds_unless_it_is_stated(
    config, stated, expected, container, tmp_path, capsys
):
    active, path = tmp_path / "active", container / "metaparameters.json"
    shutil.copytree(EXAMPLES / "clean", active)
    if config is not None:
        (active / "config.json").write_text(json.dumps(config))
    path.write_text(json.dumps(json.loads(path.read_text()) | stated))
    given = flags(active, tmp_path / "scratch", "example_data")
    assert run("detect", "--json", *given, *parameters(container)) in (0, 1)
    form = json.loads(capsys.readouterr().out)["input_form"]
    assert (form["channel_order"], form["normalization"], form["basis"]) == expected


def test_pictures_as_large_as_those_of_later_rounds_are_cut(container, tmp_path, capsys):
    active = tmp_path / "active"
    shutil.copytree(EXAMPLES / "clean", active)
    for path in (active / "example_data").iterdir():
        with Image.open(path) as image:
            image.resize((256, 256)).save(path)
    given = flags(active, tmp_path / "scratch", "example_data")
    assert run("detect", "--json", *given, *parameters(container)) in (0, 1)
    assert "the middle 224 pixels were taken" in capsys.readouterr().out


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("values", "schema", "message"),
    [
        ("{}", "{", "is not JSON"),
        ("\xff", "{}", "is not JSON"),
        ('{"a": 1, "a": 2}', "{}", "is not JSON: the name 'a' stands twice"),
        (DEEP, "{}", "nested too deeply"),
        ("{}", "[]", "expected a JSON schema"),
        ("{}", '{"type": 7}', "is no JSON schema"),
        ("{}", '{"$ref": "http://localhost:9/schema.json"}', "cannot be used"),
        ("{}", '{"$ref": "#"}', "cannot be used"),
        ('{"a": "b"}', '{"properties": {"a": {"pattern": "("}}}', "schema"),
        ('{"seed": 1.5}', '{"properties": {"seed": {"type": "integer"}}}', "does not fit"),
        ("[]", "{}", "expected an object"),
        ('{"speed": 1}', "{}", "unknown metaparameters"),
        ('{"seed": true}', "{}", "expected int"),
        ('{"last_stage": "magic"}', "{}", "expected one of weights"),
    ],
)
def test_hostile_parameters_are_refused_in_words(tmp_path, values, schema, message):
    (tmp_path / "values.json").write_text(values, encoding="utf-8")
    (tmp_path / "schema.json").write_text(schema)
    with pytest.raises(UsageError, match=message) as caught:
        read_metaparameters(tmp_path / "values.json", tmp_path / "schema.json")
    assert len(str(caught.value)) < 1000 and "\n" not in str(caught.value)


def test_parameters_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "values.json").write_bytes(b"\xff")
    with pytest.raises(DatasetError, match="not UTF-8"):
        read_metaparameters(tmp_path / "values.json", tmp_path / "values.json")


def test_recipes_copy_files_that_exist():
    docker = (CONTAINERS / "Dockerfile").read_text()
    copied = [line.split()[1:-1] for line in docker.splitlines() if line.startswith("COPY ")]
    recipe = (CONTAINERS / "jaxtroj.def").read_text()
    section = recipe.partition("%files\n")[2].partition("\n\n")[0]
    listed = [line.split()[0] for line in section.splitlines()]
    names = sorted(name for line in copied for name in line)
    assert names == sorted(listed)
    assert all((ROOT / name).exists() for name in names)
    assert os.access(CONTAINERS / "entrypoint.sh", os.X_OK)
