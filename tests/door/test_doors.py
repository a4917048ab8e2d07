"""Every command and every line of Python in docs/doors.md, run on real files."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

transformers = pytest.importorskip("transformers", reason="its networks are served")

import torch  # noqa: E402
import torchvision  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

import jaxtroj  # noqa: E402
from jaxtroj.generate.small.onnx_file import write_onnx  # noqa: E402
from jaxtroj.rounds.arrays import pictures_of, write_pictures  # noqa: E402
from tests.documented import DOCS  # noqa: E402
from tests.door.conftest import SIDE, Colours, cheap  # noqa: E402
from tests.door.hub_folders import write_folder  # noqa: E402
from tests.door.hub_server import COMMIT, serving  # noqa: E402

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
    return root


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
    assert len(COMMANDS) == 13 and len(LINES) == 5


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(home, command):
    with serving({"org/vit": home / "vit"}) as (address, _):
        words = [sys.executable, "-m", *shlex.split(command), *QUICK]
        places = {"HF_ENDPOINT": address, "HF_HOME": str(home / "cache")}
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
