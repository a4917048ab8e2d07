"""Every command and every line of Python in docs/doors.md, run on real files."""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from safetensors.torch import save_file

import jaxtroj
from jaxtroj.cli.main import main
from jaxtroj.generate.small.onnx_file import write_onnx
from jaxtroj.rounds.arrays import pictures_of, write_pictures
from tests.documented import DOCS
from tests.door.conftest import SIDE, Colours, cheap
from tests.door.hub_folders import write_folder
from tests.door.hub_server import COMMIT, serving
from tests.door.text_folders import WORDS, write_text_folder

pytestmark = pytest.mark.usefixtures("unguarded")

CELL = re.compile(r"^\| [^|]+ \| `((?:list\()?jaxtroj[^`]+)` \|$", re.MULTILINE)
CELLS = CELL.findall((DOCS / "doors.md").read_text())
COMMANDS = [cell for cell in CELLS if cell.startswith("jaxtroj ")]
LINES = [cell for cell in CELLS if cell not in COMMANDS]
QUICK = ("--evidence-only", "--stages", "weights", "--channel-order", "RGB")
QUICK += ("--normalization", "unit")
CODE = """
import torch


def Net(classes):
    middle = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), middle, torch.nn.Linear(4, classes))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory, pixels, labels):
    """A folder with everything that the document names."""
    root = tmp_path_factory.mktemp("doors")
    pictures = pictures_of(pixels, labels)
    write_pictures(pictures, root / "examples")
    np.savez(root / "test.npz", x=pixels, y=labels)
    resnet = torchvision.models.resnet18(num_classes=3)
    torch.save(resnet, root / "network.pt")
    torch.save(resnet.state_dict(), root / "resnet18.pth")
    save_file(resnet.state_dict(), root / "resnet18.safetensors")
    (root / "net.py").write_text(CODE)
    names: dict = {}
    exec(CODE, names)
    torch.save(names["Net"](3).state_dict(), root / "weights.pth")
    image = torch.zeros(1, 3, SIDE, SIDE)
    program = torch.export.export(Colours().eval(), (image,), strict=False)
    torch.export.save(program, root / "network.pt2")
    _write_onnx(root / "network.onnx")
    for folder in (root / "id-00000000", root / "dataset" / "id-00000001"):
        folder.mkdir(parents=True)
        shutil.copy(root / "network.pt", folder / "model.pt")
        write_pictures(pictures, folder / "example_data")
    (root / "models.csv").write_text("path,examples\nnetwork.onnx,examples\n")
    write_folder(root / "vit", "vit")
    _write_cache(root / "vit", root / "models--org--vit")
    _write_texts(root)
    _write_mlflow(root)
    _write_timm(root / "timm-net")
    return root


def _write_texts(root: Path) -> None:
    """A text classifier, texts of both classes that it tells apart, and a table of them."""
    write_text_folder(root / "bert", "bert")
    draw = np.random.default_rng(0)
    (root / "texts").mkdir()
    lines = []
    for number in range(1, 25):
        for label in (0, 1):
            text = " ".join(draw.choice(WORDS, 12))
            (root / "texts" / f"class_{label}_example_{number}.txt").write_text(text)
            lines.append(f"{text},{label}\n")
    (root / "texts.csv").write_text("text,label\n" + "".join(lines))


def _write_mlflow(root: Path) -> None:
    """A folder as MLflow describes it, and with mlflow at hand a registry."""
    (root / "mlflow-net").mkdir()
    shutil.copy(root / "network.onnx", root / "mlflow-net" / "model.onnx")
    (root / "mlflow-net" / "MLmodel").write_text("flavors: {onnx: {data: model.onnx}}\n")
    if importlib.util.find_spec("mlflow") is not None:
        code = (
            "import mlflow, torch, numpy\nmlflow.start_run()\n"
            "net = torch.load('network.pt', weights_only=False).eval()\n"
            "mlflow.pytorch.log_model(net, name='model', registered_model_name='net',"
            " serialization_format='pt2', pip_requirements=[],"
            " input_example=numpy.zeros((1, 3, 16, 16), numpy.float32))"
        )
        words = [sys.executable, "-c", code]
        subprocess.run(words, cwd=root, env=os.environ | _registry(root), check=True, timeout=600)


def _registry(root: Path) -> dict[str, str]:
    return {"MLFLOW_TRACKING_URI": f"sqlite:///{root}/ml.db", "XDG_CACHE_HOME": str(root / "cache")}


def _write_timm(folder: Path) -> None:
    if importlib.util.find_spec("timm") is not None:
        timm = importlib.import_module("timm")
        network = timm.create_model("test_resnet", num_classes=3)
        timm.models.save_for_hf(network, str(folder), safe_serialization=True)


def _write_onnx(path: Path) -> None:
    from flax import nnx

    from jaxtroj.generate.small import networks

    write_onnx(path, networks.build("plain5", 3, nnx.Rngs(0)), (SIDE, SIDE))


def _write_cache(vit: Path, home: Path) -> None:
    snapshot = home / "snapshots" / COMMIT
    for folder in (snapshot, home / "blobs", home / "refs"):
        folder.mkdir(parents=True)
    (home / "refs" / "main").write_text(COMMIT)
    for file in vit.iterdir():
        blob = home / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(blob)


def test_the_document_has_them_all():
    assert len(COMMANDS) == 19 and len(LINES) == 5


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(home, command, monkeypatch, capsys):
    """What is fetched is so by a process: the libraries for it read their settings once."""
    for name, words in (("mlflow", "models:/"), ("timm", "timm-net")):
        if words in command:
            pytest.importorskip(name, reason="an optional library")
    if not {"hf://", "models:/"} & set(re.findall(r"\w+:/+", command)):
        monkeypatch.chdir(home)
        assert main([*shlex.split(command)[1:], *QUICK]) == 0
        assert "gathered" in capsys.readouterr().out
        return
    with serving({"org/vit": home / "vit"}) as (address, _):
        words = [sys.executable, "-m", *shlex.split(command), *QUICK]
        places = {"HF_ENDPOINT": address, "HF_HOME": str(home / "cache")}
        places |= _registry(home) if "models:/" in command else {}
        found = subprocess.run(
            words, cwd=home, capture_output=True, text=True, timeout=400, env=os.environ | places
        )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "gathered" in found.stdout


@pytest.mark.parametrize("line", LINES)
def test_python(home, line, monkeypatch, pixels, labels):
    monkeypatch.chdir(home)
    settings = cheap("weights", channel_order="RGB", normalization="unit")
    names = {
        "jaxtroj": jaxtroj,
        "images": pixels,
        "labels": labels,
        "module": Colours(),
        "function": lambda params, images: images.mean((1, 2)) @ params["fc"],
        "params": {"fc": np.eye(3, dtype=np.float32)},
        "settings": settings,
    }
    # As it stands, with settings that leave the searches out.
    given = "settings=settings)"
    called = f"{line[:-2]}, {given})" if line.startswith("list(") else f"{line[:-1]}, {given}"
    found = eval(called, names)
    records = found if isinstance(found, list) else [found.record]
    assert [record.status for record in records] == ["ok"]
