"""`--network net.py:NAME`: weights in a file, and code that the user names."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import jaxtroj
from converters import load_checkpoint
from converters.user_code import UserCodeError, network_code
from jaxtroj.cli.main import main
from jaxtroj.rounds.arrays import pictures_of, write_pictures
from jaxtroj.scan import identify
from jaxtroj.scan.model import scan_model
from tests.door.conftest import Colours, cheap

pytestmark = pytest.mark.usefixtures("unguarded")

QUICK = ("--evidence-only", "--stages", "weights,sensitivity", "--json")
CODE = """
import torch
from parts import make

print("printed by the user's code")


class Net(torch.nn.Module):
    def __init__(self, classes, scale=1.0):
        super().__init__()
        if scale <= 0:
            raise ValueError(f"scale must be above 0, got {scale}")
        self.conv = torch.nn.Conv2d(3, 3, 1, bias=False)
        self.fc = make(classes)
        self.scale = scale
        self.register_buffer("seen", torch.tensor(True))

    def forward(self, x):
        return self.scale * self.fc(torch.relu(self.conv(x)).mean((2, 3)))


class Broken(Net):
    def forward(self, x):
        raise StopIteration("no more")


def number(**_):
    return 7
"""
FIXED = """

class Fixed(Net):
    def forward(self, x):
        if x.shape[-1] != 16:
            raise ValueError(f"takes pictures of 16, got {x.shape[-1]}")
        return super().forward(x)
"""
PARTS = "import torch\n\n\ndef make(n):\n    return torch.nn.Linear(3, n, bias=False)\n"


@pytest.fixture
def folder(tmp_path, pixels, labels, monkeypatch):
    """`net.py`, `parts.py`, weights in several forms, and `examples`."""
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(CODE)
    Path("parts.py").write_text(PARTS)
    state = {**Colours().state_dict(), "seen": torch.tensor(True)}
    torch.save(state, "weights.pth")
    lightning = {f"model.{name}": value for name, value in state.items()}
    torch.save({"state_dict": lightning, "epoch": 3}, "lightning.ckpt")
    write_pictures(pictures_of(pixels, labels), tmp_path / "examples")
    return tmp_path


def detect(*arguments):
    """Exit status and record, from a process of its own."""
    words = [sys.executable, "-m", "jaxtroj", "detect", *arguments, *QUICK]
    found = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert found.stdout, found.stderr
    return found.returncode, json.loads(found.stdout)


def test_weights_and_code_answer_as_the_network_in_memory(folder, colours, pixels, labels):
    network = ("--network", "net.py:Net", "--network-args", '{"classes": 3}')
    status, record = detect("weights.pth", *network)
    assert (status, record["status"]) == (0, "ok"), record["reason"]
    expected = jaxtroj.detect(colours, pixels, labels, cheap("weights", "sensitivity"))
    for name, value in expected.evidence.items():
        assert record["evidence"][name] == pytest.approx(value, abs=1e-5), name
    (said,) = [line for line in record["findings"] if "trusts" in line]
    assert 'net.py:Net with {"classes": 3}, sha256 ' in said
    assert not list(folder.rglob("__pycache__"))


def scanned(weights: str, network: str, arguments: str = '{"classes": 3}'):
    code = network_code(network, arguments)
    entry = jaxtroj.ModelEntry("m", Path(weights), Path("examples"), None, code=code)
    return scan_model(entry, cheap("weights"))


def test_a_first_name_that_all_weights_have_is_left_out(folder):
    record = scanned("lightning.ckpt", "net.py:Net")
    assert record.status == "ok", record.reason
    assert "the weights' names begin with model., which was left out" in record.findings


def test_weights_of_no_network_beside_a_first_name_are_left_out(folder):
    state = torch.load("lightning.ckpt")["state_dict"]
    torch.save({**state, "criterion.weight": torch.ones(3)}, "metric.ckpt")
    record = scanned("metric.ckpt", "net.py:Net")
    assert record.status == "ok", record.reason
    said = "begin with model., which was left out; other weights were left out: criterion.weight"
    assert any(said in finding for finding in record.findings)


@pytest.mark.parametrize("first", ["", "average.", "model.average."])
def test_weights_behind_two_first_names_are_refused(folder, first):
    state = torch.load("lightning.ckpt")["state_dict"]
    other = {f"{first}{name.removeprefix('model.')}": v + 1 for name, v in state.items()}
    torch.save({**state, **{n: v.bool() if "seen" in n else v for n, v in other.items()}}, "2.ckpt")
    record = scanned("2.ckpt", "net.py:Net")
    assert record.status == "failed" and "2 times, under names that begin" in record.reason


@pytest.mark.parametrize(
    ("network", "arguments", "said"),
    [
        ("net.py:Net", "{}", "TypeError.*missing 1 required positional argument: 'classes'"),
        ("net.py:Net", '{"classes": 3, "scale": -1}', r"ValueError: scale.*net.py:\d+ in __init"),
        (
            "net.py:Net",
            '{"classes": 4}',
            r"1 misshapen: fc.weight: got \(3, 3\), expected \(4, 3\)",
        ),
        ("net.py:Broken", '{"classes": 3}', r"StopIteration: no more; .*net.py:\d+ in forward"),
        ("net.py:number", "{}", "makes a int, expected a torch.nn.Module"),
        ("net.py:Nett", "{}", "has no Nett; it has Net, number, Broken"),
        ("net.py:broke", "{}", "has no broke; it has Broken, "),
        ("raises.py:Net", "{}", r"ZeroDivisionError.*raises.py:1 in <module>: 1 / 0"),
        ("exits.py:Net", "{}", r"raised SystemExit: 3; .*exits.py:2 in <module>: sys.exit\(3\)"),
        ("torn.py:Net", "{}", r"SyntaxError.*torn.py:1: def"),
        ("other.py:Net", "{}", "4 missing: weight, bias, running_mean, running_var; 3 unexpected:"),
        ("absent.py:Net", "{}", "cannot read absent.py: No such file"),
    ],
)
def test_code_that_is_no_use_says_why_in_the_record(folder, network, arguments, said):
    Path("raises.py").write_text("1 / 0\n")
    Path("exits.py").write_text("import sys\nsys.exit(3)\n")
    Path("torn.py").write_text("def\n")
    Path("other.py").write_text("import torch\nNet = lambda: torch.nn.BatchNorm2d(3)\n")
    record = scanned("weights.pth", network, arguments)
    assert record.status == "failed" and "internal error" not in record.reason
    assert re.search(said, record.reason), record.reason


def test_weights_are_still_read_as_data(folder):
    Path("evil.pth").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    record = scanned("evil.pth", "net.py:Net")
    assert "os.system" in record.reason and not Path("ran").exists()
    torch.save(torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1)), "whole.pt")
    assert "leave --network out" in scanned("whole.pt", "net.py:Net").reason


def test_a_file_in_a_package_may_import_its_parts(folder):
    for name in ("zoo/__init__.py", "zoo/nets/__init__.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    Path("zoo/nets/net.py").write_text(CODE.replace("from parts", "from ..parts"))
    Path("zoo/parts.py").write_text(PARTS)
    record = scanned("weights.pth", "zoo/nets/net.py:Net")
    assert record.status == "ok", record.reason


def test_an_answer_depends_on_code_and_arguments(folder):
    def identity(arguments: str) -> str:
        code = network_code("net.py:Net", arguments)
        entry = jaxtroj.ModelEntry("m", Path("weights.pth"), None, None, code=code)
        return identify(entry, jaxtroj.Settings())

    first = identity('{"classes": 3}')
    assert identity('{ "classes":3 }') == first != identity('{"classes": 4}')
    Path("net.py").write_text(CODE + "\n")
    assert identity('{"classes": 3}') != first


def test_convert_takes_the_code_too(folder, capfd):
    words = ["convert", "weights.pth", "--out", "made", "--image-size", "16x16"]
    words += ["--network", "net.py:Net", "--network-args", '{"classes": 3}']
    assert main(words) == 0
    printed = capfd.readouterr()
    assert "trusts" in printed.err and "printed by the user's code" in printed.err
    assert printed.out.count("\n") == 1
    images = np.random.default_rng(0).random((2, 16, 16, 3), np.float32)
    with torch.no_grad():
        expected = Colours().eval()(torch.tensor(images).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(load_checkpoint("made")(images), expected, atol=1e-5)


def test_a_check_that_cannot_be_made_writes_nothing(folder, capsys):
    words = ["convert", "weights.pth", "--out", "made", "--image-size", "16x16", "--check"]
    words += ["--network", "net.py:Net", "--network-args", '{"classes": 3}']
    assert main(words) == 4
    assert "leave --network out" in capsys.readouterr().err and not Path("made").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--network", "net.py"], "names no code, expected FILE.py:NAME"),
        (["--network", "net:Net"], "names no code"),
        (["--network", "net.py:a b"], "names no code"),
        (["--network", "none.py:Net"], "cannot read none.py"),
        (["--network-args", "{}"], "give both"),
        (["--network", "net.py:Net", "--network-args", "[1]"], "expected a JSON object"),
        (["--network", "net.py:Net", "--network-args", "{"], "are no JSON"),
    ],
)
def test_options_that_name_no_code(folder, capsys, words, said):
    assert main(["detect", "weights.pth", *words]) == 4
    assert said in capsys.readouterr().err


def test_unknown_weights_say_how_to_name_their_code(folder):
    entry = jaxtroj.ModelEntry("m", Path("weights.pth"), Path("examples"), None)
    assert "--network FILE.py:CLASS" in scan_model(entry, cheap("weights")).reason


def test_names_are_attributes():
    assert network_code("a/b.py:Outer.inner").name == "Outer.inner"
    with pytest.raises(UserCodeError):
        network_code("b.py:")


def test_a_network_of_one_size_says_why_the_examples_told_none(folder, pixels, labels):
    """Built for 224 x 224 it fails, and only because the archive holds two sets of pictures."""
    Path("fixed.py").write_text(CODE + FIXED)
    np.savez("two.npz", x=np.uint8(pixels), y=labels, x_test=np.uint8(pixels), y_test=labels)
    code = network_code("fixed.py:Fixed", '{"classes": 3}')
    entry = jaxtroj.ModelEntry("m", Path("weights.pth"), Path("two.npz"), None, code=code)
    reason = scan_model(entry, cheap("weights")).reason
    assert "takes pictures of 16" in reason
    assert "got 224; the examples told no size: two.npz holds" in reason
