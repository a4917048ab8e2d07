"""MLflow's model folders and registries, written by the real mlflow where it is installed."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import jaxtroj
from converters import open_model
from converters.errors import ConverterError, CorruptFileError, LoadError
from converters.hub.redirections import MLFLOW
from converters.mlflow_folder import (
    fetch_model,
    is_mlflow_address,
    is_mlflow_folder,
    model_of,
)
from jaxtroj.rounds import iter_models
from jaxtroj.rounds.single import entry_of
from jaxtroj.scan import identify
from tests.door.conftest import cheap
from tests.door.hub_folders import change
from tests.door.text_folders import write_text_folder, write_tokenizer

_ONNX = "onnx: {data: model.onnx, onnx_version: 1.17}"
_TORCH = "pytorch: {model_data: data, pytorch_version: 2.14}"
_TEXTS = "transformers: {model_binary: model, task: text-classification}"
_ANY_ONNX = "python_function: {loader_module: mlflow.onnx, data: model.onnx}"
_ANY_TORCH = "python_function: {loader_module: mlflow.pytorch, data: data}"
_ANY_TEXTS = "python_function: {loader_module: mlflow.transformers}"


def described(folder: Path, *flavors: str) -> Path:
    (folder / MLFLOW).write_text("".join(["flavors:\n", *(f"  {one}\n" for one in flavors)]))
    return folder


def test_the_networks_file_is_found(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"onnx")
    described(tmp_path, _ANY_ONNX, _ONNX)
    assert is_mlflow_folder(tmp_path) and model_of(tmp_path).path == tmp_path / "model.onnx"
    (entry,) = iter_models(tmp_path)
    assert entry.model_path == tmp_path / "model.onnx" and entry.problem is None
    # A file that MLmodel does not name is loaded by nobody.
    (tmp_path / "data").mkdir()
    for name in ("model.pth", "model.pt2"):
        (tmp_path / "data" / name).write_bytes(b"torch")
        for pyfunc in (
            _ANY_TORCH,
            f"python_function: {{loader_module: mlflow.pytorch, data: data/{name}}}",
        ):
            assert model_of(described(tmp_path, pyfunc, _TORCH)).path == tmp_path / "data" / name
        (tmp_path / "data" / name).unlink()


def test_a_text_classifier_has_its_tokenizer_beside_it(tmp_path):
    write_text_folder(tmp_path / "model", "bert")
    home = tmp_path / "components" / "tokenizer"
    home.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (tmp_path / "model" / name).rename(home / name)
    kind = "pipeline_model_type: BertForSequenceClassification, source_model_name: bert"
    described(tmp_path, _ANY_TEXTS, _TEXTS.replace("}", f", {kind}}}"))
    entry = entry_of(tmp_path)
    assert entry.problem is None
    assert entry.model_path == tmp_path / "model" and entry.tokenizer_path == home
    assert entry.kind == "text-classifier"


USUAL = {
    "of today": ("code: null", "mlflow.pytorch.pickle_module"),
    "before there was one": ("pickle_module_name: pickle", None),
    "with a line's end": ("pickle_module_name: cloudpickle", "cloudpickle\n"),
    "an empty folder of modules": ("code: code", "mlflow.pytorch.pickle_module"),
}


@pytest.mark.parametrize("name", USUAL)
def test_what_mlflow_says_by_default_is_read(tmp_path, name):
    said, unpickler = USUAL[name]
    for place in ("data", "code"):
        (tmp_path / place).mkdir()
    (tmp_path / "data" / "model.pth").write_bytes(b"torch")
    if unpickler is not None:
        (tmp_path / "data" / "pickle_module_info.txt").write_text(unpickler)
    described(tmp_path, *(one.replace("}", f", {said}}}") for one in (_ANY_TORCH, _TORCH)))
    assert model_of(tmp_path).path == tmp_path / "data" / "model.pth"


@pytest.mark.parametrize(
    ("flavor", "said"),
    [
        (_TORCH.replace("}", ", code: code}"), "has modules loaded from 'code', which may change"),
        (_TORCH.replace("}", ", code: 3}"), "has modules loaded from 3, which may change"),
        (_TORCH.replace("}", ", code: missing}"), "has modules loaded from 'missing'"),
        (_TORCH.replace("}", ", pickle_module_name: evil}"), "the module 'evil' unpickles it"),
    ],
)
@pytest.mark.parametrize("any_of_them", [False, True])
def test_modules_of_the_folders_own_are_refused(tmp_path, flavor, said, any_of_them):
    """They come before torch's, and before what unpickles."""
    for name in ("data/model.pth", "code/torchvision/models/resnet.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"torch")
    flavors = (flavor,)
    if any_of_them:
        addition = flavor.removeprefix(_TORCH[:-1]).removesuffix("}")
        flavors = (_ANY_TORCH.replace("}", f"{addition}}}"), _TORCH)
    with pytest.raises(CorruptFileError, match=f"{said}.*; expected one. Scan the file"):
        model_of(described(tmp_path, *flavors))


def test_another_unpickler_in_its_file_is_refused(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("model.pth", "pickle_module_info.txt"):
        (tmp_path / "data" / name).write_text("evil")
    with pytest.raises(CorruptFileError, match="the module 'evil' unpickles it, expected one of m"):
        model_of(described(tmp_path, _ANY_TORCH, _TORCH))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("BertTokenizer", ""),
        ("BertTokenizerFast", ""),
        ("RobertaTokenizer", "has a 'RobertaTokenizer' made of the files of a BertTokenizer"),
    ],
)
def test_the_tokenizer_is_of_its_own_class(tmp_path, kind, said):
    write_tokenizer(tmp_path / "components" / "tokenizer", "bert")
    (tmp_path / "model").mkdir()
    described(tmp_path, _ANY_TEXTS, _texts(f"tokenizer_type: {kind}"))
    if not said:
        assert model_of(tmp_path).path == tmp_path / "model"
        return
    with pytest.raises(CorruptFileError, match=said):
        model_of(tmp_path)


_PICTURES = _TEXTS.replace("text-", "image-")


def with_processor(vit: Path, folder: Path, name: str) -> Path:
    """An MLflow folder of an image classifier, its processor beside it; returns the network's."""
    home = folder / "components" / name
    home.mkdir(parents=True)
    shutil.copytree(vit, folder / "model")
    (folder / "model" / "preprocessor_config.json").rename(home / "preprocessor_config.json")
    described(folder, _ANY_TEXTS, _PICTURES.replace("}", f", {name}_type: ViTImageProcessorFast}}"))
    return folder / "model"


@pytest.mark.parametrize("name", ["image_processor", "feature_extractor"])
def test_an_image_classifier_has_its_processor_beside_it(vit, tmp_path, name):
    model = with_processor(vit, tmp_path / "net", name)
    assert model_of(tmp_path / "net").path == model
    found, expected = (open_model(path).folder_form for path in (model, vit))
    assert found is not None and expected is not None
    assert (found.size, found.mean, found.std) == (expected.size, expected.mean, expected.std)
    said = tmp_path / "net" / "components" / name / "preprocessor_config.json"
    before = identify(entry_of(tmp_path / "net"), cheap("weights"))
    change(said.parent, said.name, image_mean=[0.9] * 3)
    assert identify(entry_of(tmp_path / "net"), cheap("weights")) != before
    shutil.copy(said, model)
    assert open_model(model).folder_form.mean == (0.9, 0.9, 0.9)  # what older versions wrote twice
    change(said.parent, said.name, image_mean=[0.1] * 3)
    with pytest.raises(CorruptFileError, match="MLflow prepares pictures as .* says, otherwise"):
        open_model(model)


def test_a_processor_of_another_class_is_refused(vit, tmp_path):
    with_processor(vit, tmp_path, "image_processor")
    other = "image_processor_type: ConvNextImageProcessor"
    described(tmp_path, _ANY_TEXTS, _PICTURES.replace("}", f", {other}}}"))
    with pytest.raises(
        CorruptFileError, match="'ConvNextImageProcessor' made of the files of a Vi"
    ):
        model_of(tmp_path)


def _texts(said: str) -> str:
    return _TEXTS.replace("}", f", {said}}}")


@pytest.mark.parametrize(
    ("flavors", "said"),
    [
        ((_ONNX, _TORCH), "MLmodel names the flavors 'onnx' and 'pytorch'"),
        ((_ANY_ONNX, _TORCH, _ONNX), "MLmodel names the flavors 'pytorch' and 'onnx'"),
        ((_ONNX, "keras: {data: data}"), "MLmodel names the flavors 'onnx' and 'keras'"),
        ((_TEXTS, _TORCH), "MLmodel names the flavors 'transformers' and 'pytorch'"),
        ((_ANY_TORCH, _TORCH), "it holds .*model.pt2 and .*model.pth"),
        ((_ONNX, "python_function: {loader_module: os}"), "loads it by 'os', expected mlflow.onnx"),
        ((_ONNX, "python_function: {}"), "loads it by None, expected mlflow.onnx"),
        ((_ONNX, _ANY_TORCH), "loads it by 'mlflow.pytorch', expected mlflow.onnx"),
        ((_ONNX, _ANY_ONNX.replace("model.onnx}", "b.onnx}")), "loads .*b.onnx, not .*model.onnx"),
        ((_ONNX, "python_function: {loader_module: mlflow.onnx}"), "loads .*net, not .*model.onnx"),
        ((_TEXTS, _ANY_TEXTS.replace("}", ", data: b}")), "loads .*b, not .*model"),
        ((_texts("peft_adaptor: peft"),), "MLmodel says peft_adaptor, other weights"),
        ((_texts("source_model_revision: a1"),), "MLmodel says source_model_revision, other"),
        ((_texts("has_local_base_model_path: true"),), "says has_local_base_model_path, other"),
        ((_texts("torch_dtype: torch.float16"),), "weights of 'torch.float16', its config.json"),
        (
            (_texts("pipeline_model_type: BertForTokenClassification"),),
            "is a 'BertForTokenClassification', its config.json says otherwise",
        ),
    ],
)
def test_a_folder_of_two_networks_is_refused(tmp_path, flavors, said):
    folder = tmp_path / "net"
    for name in ("model.onnx", "b.onnx", "data/model.pth", "data/model.pt2", "model/config.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"architectures": ["BertForSequenceClassification"]}')
    expected = f"may be more than one network: .*{said}.*; expected one. Scan the file"
    with pytest.raises(CorruptFileError, match=expected):
        model_of(described(folder, *flavors))
    (entry,) = iter_models(folder)
    assert entry.problem and "may be more than one network" in entry.problem
    assert entry_of(folder / "model.onnx").problem is None


def test_weights_beside_mlmodel_are_another_network(tmp_path):
    write_text_folder(tmp_path, "bert")
    (tmp_path / "model.onnx").write_bytes(b"onnx")
    (entry,) = iter_models(described(tmp_path, _ONNX))
    assert entry.problem and "and config.json the weights beside it; expected one" in entry.problem
    (entry,) = iter_models(described(tmp_path, _TEXTS.replace("model,", ".,")))
    assert entry.problem == f"other model files in {tmp_path.name} were not looked at: model.onnx"
    assert entry.model_path.resolve() == tmp_path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("flavors: {sklearn: {pickled_model: model.pkl}}", "was saved with 'sklearn'; expected"),
        ("flavors: {}", "was saved with no flavor"),
        ("flavors: {onnx: {data: model.onnx}}", "was saved with 'onnx'; expected"),
        ("flavors: {onnx: {data: /etc/passwd}}", "data of onnx is '/etc/passwd', expected a path"),
        ("flavors: {onnx: {data: ../net.onnx}}", "data of onnx is '../net.onnx', expected a path"),
        ("flavors: {onnx: {data: outside}}", "which lies outside"),
        ("flavors: [1]", "names no flavors"),
        ("flavors: {", "is no YAML"),
        ("a: &a {k: 1}\nb: {<<: [*a, *a]}\nflavors: {}", "holds a merge key <<"),
        (f"a: &a [1]\nb: [{'*a, ' * 21}]\nflavors: {{}}", "holds more than 20 aliases"),
        ("!!python/object/apply:os.system ['touch ran']", "is no YAML"),
        ("a: " + "[" * 5000, "is no YAML"),
    ],
)
def test_what_mlmodel_says_wrong_is_said(tmp_path, monkeypatch, content, said):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "outside").symlink_to(tmp_path)
    (folder / MLFLOW).write_text(content)
    with pytest.raises(ConverterError, match=said):
        model_of(folder)
    (entry,) = iter_models(folder)
    assert entry.problem and not Path("ran").exists()


def test_addresses_and_a_missing_mlflow(monkeypatch):
    assert is_mlflow_address("models:/a/1") and is_mlflow_address("models:/a@best")
    assert not is_mlflow_address("models") and not is_mlflow_address("models:/")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LoadError, match=r"install jaxtroj\[mlflow\]"):
        fetch_model("models:/net/1")


WRITE = """
import sys, warnings
warnings.simplefilter("ignore")
import mlflow, torch, numpy as np
mlflow.set_tracking_uri("sqlite:///" + sys.argv[1] + "/ml.db")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1),
                          torch.nn.Flatten(), torch.nn.Linear(4, 3)).eval()
example = np.zeros((1, 3, 16, 16), np.float32)
how = {"serialization_format": "pt2", "input_example": example, "pip_requirements": []}
mlflow.pytorch.save_model(net, sys.argv[1] + "/saved", **how)
with mlflow.start_run():
    mlflow.pytorch.log_model(net, name="model", registered_model_name="net", **how)
"""


def test_what_mlflow_writes_is_read_and_its_registry_asked(tmp_path, pixels, labels, monkeypatch):
    pytest.importorskip("mlflow", reason="an optional library")
    words = [sys.executable, "-c", WRITE, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/ml.db")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings = cheap("weights", channel_order="RGB", normalization="unit")
    plain = jaxtroj.detect(tmp_path / "saved" / "data" / "model.pt2", pixels, labels, settings)
    for name in (str(tmp_path / "saved"), "models:/net/1"):
        found = jaxtroj.detect(name, pixels, labels, settings)
        assert found.evidence == plain.evidence and found.record.model == name
    with pytest.raises(jaxtroj.ScanError, match="cannot fetch models:/net/9"):
        jaxtroj.detect("models:/net/9", pixels, labels, settings)


def test_a_registry_that_says_nothing_is_not_waited_for(monkeypatch):
    pytest.importorskip("mlflow", reason="an optional library")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        monkeypatch.setenv("JAXTROJ_FETCH_SECONDS", "60")
        problem = entry_of(Path("models:/net/1")).problem
        connection, _ = listening.accept()
        assert connection.recv(9).startswith(b"GET /")
        connection.close()
    assert problem is not None and "models:/net/1: it was not here after 60 s" in problem
