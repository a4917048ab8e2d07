import argparse
import json
import os
import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from torchvision import models

from converters import convert, fold, load_checkpoint, save_checkpoint
from converters.errors import ConversionError, ConverterError, CorruptFileError, LoadError
from jaxtroj.cli import convert as convert_command
from jaxtroj.cli.main import main

pytestmark = pytest.mark.usefixtures("unguarded")

DenseNet: Any = models.DenseNet  # typed for four blocks; it takes as many as there are

IMAGES = np.random.default_rng(0).random((2, 40, 36, 3), np.float32)


@pytest.fixture(scope="module")
def model(fill, artifact_of):
    return convert(artifact_of(fill(lambda: DenseNet(8, (2, 1), 16, num_classes=3))))


@pytest.fixture(scope="module")
def residual(fill, artifact_of):
    basic = models.resnet.BasicBlock
    return convert(artifact_of(fill(lambda: models.ResNet(basic, [1, 1, 1, 1], 3))))


def check_same(got, expected):
    assert (got.config, got.architecture, got.findings) == (
        expected.config,
        expected.architecture,
        expected.findings,
    )
    assert set(got.params) == set(expected.params)
    for name, value in expected.params.items():
        np.testing.assert_array_equal(got.params[name], value)


def test_round_trip(model, residual, tmp_path):
    for number, each in enumerate((model, residual, fold(model), fold(residual))):
        folder = save_checkpoint(each, tmp_path / "new" / str(number))
        check_same(load_checkpoint(folder), each)


def test_loaded_model_runs(model, tmp_path):
    loaded = load_checkpoint(save_checkpoint(model, tmp_path))
    np.testing.assert_array_equal(loaded(IMAGES), model(IMAGES))


def test_other_tools_can_read_it(model, tmp_path):
    from safetensors.numpy import load_file

    save_checkpoint(model, tmp_path, "ab" * 32)
    described = json.loads((tmp_path / "config.json").read_text())
    assert described["family"] == "densenet" and described["config"]["stem"] == 16
    assert described["source_sha256"] == "ab" * 32
    assert set(load_file(tmp_path / "params.safetensors")) == set(model.params)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "params.safetensors"]


def test_saving_again_replaces_the_checkpoint(model, residual, tmp_path):
    save_checkpoint(model, tmp_path)
    check_same(load_checkpoint(save_checkpoint(residual, tmp_path)), residual)


def test_half_a_replacement_is_refused(model, residual, tmp_path):
    old = save_checkpoint(model, tmp_path / "old")
    new = save_checkpoint(residual, tmp_path / "new")
    (new / "params.safetensors").replace(old / "params.safetensors")
    with pytest.raises(CorruptFileError, match="not the file that config.json describes"):
        load_checkpoint(old)


def test_other_types_are_not_stored(model, tmp_path):
    with pytest.raises(ConversionError, match="float16"):
        save_checkpoint(model.astype(jnp.float16), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["config.json", "params.safetensors"])
def test_missing_file(name, model, tmp_path):
    save_checkpoint(model, tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(LoadError, match=re.escape(name)):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "params.safetensors"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(name, model, tmp_path):
    save_checkpoint(model, tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(LoadError, match="is a named pipe"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("keep", [0, 1, 7, 100, -2])
@pytest.mark.parametrize("name", ["config.json", "params.safetensors"])
def test_truncated_file(name, keep, model, tmp_path):
    save_checkpoint(model, tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:keep])
    with pytest.raises(LoadError):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        "[" * 20_000,
        '{"config": ' * 4_000,
        "NaN",
        "9" * 5_000,
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
        " " * 70_000,
    ],
    ids=range(10),
)
def test_config_that_is_no_object(text, model, tmp_path):
    save_checkpoint(model, tmp_path)
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(LoadError):
        load_checkpoint(tmp_path)


DEEP = []
for _ in range(300):
    DEEP = [DEEP]
HUGE = 10**400
CHANGED = [
    ("format_version", 2),
    ("format_version", True),
    ("family", "vgg"),
    ("family", None),
    ("family", "resnet"),
    ("architecture", "densenet121"),
    ("config", []),
    ("config", {}),
    ("params_sha256", "0" * 64),
    ("source_sha256", 5),
    ("findings", "text"),
    ("findings", [1]),
    ("extra", 1),
    ("config.stem", 0),
    ("config.stem", -1),
    ("config.stem", 16.0),
    ("config.stem", "16"),
    ("config.stem", True),
    ("config.stem", 17),
    ("config.stem", 2**24),
    ("config.stem", HUGE),
    ("config.stem", None),
    ("config.stem", DEEP),
    ("config.eps", 0),
    ("config.eps", 0.0),
    ("config.eps", float("nan")),
    ("config.eps", float("inf")),
    ("config.folded", 0),
    ("config.folded", True),
    ("config.num_classes", 4),
    ("config.channels", 2**24),
    ("config.blocks", []),
    ("config.blocks", [[]]),
    ("config.blocks", [[], []]),
    ("config.blocks", [[[32, 8, 1]], [[32, 8]]]),
    ("config.blocks", [[[32, 8]] * 2, [[32, 8]] * 2]),
    ("config.blocks", [[[32, 8]] * 3000, [[32, 8]]]),
    ("config.blocks", DEEP),
    ("config.transitions", []),
    ("config.transitions", [16, 16]),
    ("config.extra", 1),
]


@pytest.mark.parametrize(("field", "value"), CHANGED, ids=range(len(CHANGED)))
def test_changed_config_is_refused(field, value, model, tmp_path):
    save_checkpoint(model, tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    inner, _, name = field.rpartition(".")
    (described[inner] if inner else described)[name] = value
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(LoadError) as caught:
        load_checkpoint(tmp_path)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("what", ["missing", "unknown", "misshapen", "float64", "nan"])
def test_parameters_that_do_not_fit(what, model, tmp_path):
    import hashlib

    from safetensors.numpy import save

    save_checkpoint(model, tmp_path)
    arrays = {name: np.asarray(value).copy() for name, value in model.params.items()}
    bias = arrays.pop("classifier.bias")
    if what != "missing":
        arrays["classifier.bias"] = {
            "unknown": bias,
            "misshapen": np.ones(4, np.float32),
            "float64": bias.astype(np.float64),
            "nan": bias * np.float32("nan"),
        }[what]
    if what == "unknown":
        arrays["other.bias"] = bias
    data = save(arrays)
    (tmp_path / "params.safetensors").write_bytes(data)
    described = json.loads((tmp_path / "config.json").read_text())
    described["params_sha256"] = hashlib.sha256(data).hexdigest()
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(CorruptFileError, match=r"1 parameters are .*(classifier|other)\.bias"):
        load_checkpoint(tmp_path)


# ---- the command


@pytest.fixture
def model_file(fill, pickled):
    return pickled(fill(lambda: DenseNet(8, (2, 1), 16, num_classes=3)))


def test_convert_writes_checkpoint_and_report(model_file, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["convert", str(model_file), "--out", str(out), "--check"]) == 0
    printed = capsys.readouterr().out
    assert "densenet, 3 classes" in printed and "parity: folded, float64, 1x75x107" in printed
    report = json.loads((out / "parity.json").read_text())
    assert report["passed"] and len(report["comparisons"]) == 8
    assert load_checkpoint(out).num_classes == 3
    described = json.loads((out / "config.json").read_text())
    assert described["source_sha256"] == report["sha256"]


def test_convert_compares_at_the_size_asked_for(model_file, tmp_path, capsys):
    words = ["convert", str(model_file), "--out", str(tmp_path / "out"), "--check"]
    assert main([*words, "--image-size", "33x48"]) == 0
    assert "densenet, 3 classes" in capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "parity.json").read_text())
    assert report["passed"]
    assert {tuple(c["shape"]) for c in report["comparisons"]} == {(1, 33, 48), (3, 33, 48)}


def test_convert_says_what_images_are_too_small(model_file, tmp_path, capsys):
    words = ["convert", str(model_file), "--out", str(tmp_path / "out"), "--check"]
    assert main([*words, "--image-size", "4x4"]) == 2
    assert "pictures of 4 x 4 pixels are too small for this network" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_convert_refuses_a_size_that_changes_nothing(model_file, tmp_path, capsys):
    words = ["convert", str(model_file), "--out", str(tmp_path / "out")]
    assert main([*words, "--image-size", "33x48"]) == 4
    said = capsys.readouterr().err
    assert "--image-size 33x48 changes nothing: " in said and "takes images of any size" in said
    assert "leave it out, or add --check" in said
    assert not (tmp_path / "out").exists()


def test_the_report_of_another_network_is_gone_before_the_new_one_is_there(
    model_file, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    out.mkdir()
    (out / "parity.json").write_text('{"passed": true}')
    seen = []

    def dies(model, folder, sha256):
        seen.append((folder / "parity.json").exists())
        raise KeyboardInterrupt  # as if it was killed here

    monkeypatch.setattr("converters.checkpoint.save_checkpoint", dies)
    parser = argparse.ArgumentParser()
    convert_command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["convert", str(model_file), "--out", str(out)])
    with pytest.raises(KeyboardInterrupt):
        convert_command._convert(args)
    assert seen == [False] and not list(out.iterdir())


def test_converting_another_model_to_the_same_folder(model_file, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "parity.json").write_text('{"passed": true}')
    assert main(["convert", str(model_file), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "params.safetensors"]


def test_convert_of_a_file_that_is_no_model(tmp_path, capsys):
    (tmp_path / "model.pt").write_text("not a model")
    assert main(["convert", str(tmp_path / "model.pt"), "--out", str(tmp_path / "out")]) == 2
    assert "error: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_convert_to_where_a_file_stands(model_file, tmp_path, capsys):
    (tmp_path / "out").write_text("in the way")
    assert main(["convert", str(model_file), "--out", str(tmp_path / "out")]) == 4
    assert "--out" in capsys.readouterr().err
    assert (tmp_path / "out").read_text() == "in the way"


def test_errors_are_converter_errors():
    assert issubclass(CorruptFileError, ConverterError)


@pytest.mark.parametrize("levels", [100, 960, 970, 975, 980, 985, 990, 5000])
def test_a_config_that_is_nested_deeply_is_refused_at_any_depth(model, tmp_path, levels):
    """A reader that recurses ends a little before, or after, whoever goes through what it read."""
    path = save_checkpoint(model, tmp_path) / "config.json"
    described = json.loads(path.read_text()) | {"config": {"x": 0}}
    deep = "[" * levels + "]" * levels
    path.write_text(json.dumps(described).replace('"x": 0', f'"x": {deep}'))
    with pytest.raises(
        CorruptFileError, match="is not JSON: (lists and objects|maximum recursion)"
    ):
        load_checkpoint(tmp_path)
