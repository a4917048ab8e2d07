"""TorchScript archives: known networks recovered as data, everything else refused."""

import io
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from torchvision import models

from converters import convert, open_artifact
from converters.containers import torchscript
from converters.errors import ConverterError, LoadError, UnknownFormatError
from converters.rebuilt.network import rebuild

# torch says that TorchScript is old; users have its files all the same.
pytestmark = pytest.mark.filterwarnings("ignore")


def _resnet():
    return models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5)


def _mobilenet_v2():
    return models.MobileNetV2(5, 0.25, [[1, 8, 1, 1], [6, 9, 2, 2]])


def _shufflenet():
    return models.ShuffleNetV2([1, 2, 1], [8, 8, 16, 16, 32], 5)


def _saved(network, traced: bool) -> bytes:
    out = io.BytesIO()
    image = torch.zeros(1, 3, 32, 32)
    made = torch.jit.trace(network, image) if traced else torch.jit.script(network)
    torch.jit.save(made, out)
    return out.getvalue()


@pytest.fixture
def archive(tmp_path):
    def written(content: bytes):
        (tmp_path / "model.pt").write_bytes(content)
        return tmp_path / "model.pt"

    return written


@pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])
@pytest.mark.parametrize("build", [_mobilenet_v2, _shufflenet])
def test_networks_of_torchvision_are_rebuilt(build, traced, fill, archive):
    network = fill(build).requires_grad_(False)
    artifact = open_artifact(archive(_saved(network, traced)))
    (finding,) = artifact.findings
    assert "its code was not run" in finding
    rebuilt = rebuild(artifact.weights).module
    image = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(rebuilt(image), network(image))


@pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])
def test_families_are_recognised(traced, fill, archive, artifact_of):
    network = fill(_resnet).requires_grad_(False)
    model = convert(open_artifact(archive(_saved(network, traced))))
    expected = convert(artifact_of(network))
    assert model.config == expected.config
    for name, value in expected.params.items():
        np.testing.assert_array_equal(model.params[name], value)


@pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])
def test_strides_come_from_the_archive(traced, fill, archive):
    """Of two networks with the same weights, each is rebuilt as it is."""
    for stride in (1, 2):
        rows = [[1, 8, 1, 1], [6, 9, 1, stride]]
        network = fill(lambda rows=rows: models.MobileNetV2(5, 0.25, rows)).requires_grad_(False)
        rebuilt = rebuild(open_artifact(archive(_saved(network, traced))).weights).module
        image = torch.rand(2, 3, 32, 32)
        with torch.no_grad():
            assert torch.equal(rebuilt(image), network(image))
    network.features[0][0].stride = (1, 1)  # which torchvision's constructor does not offer
    with pytest.raises(ConverterError, match="features.0.0.stride is .1, 1., expected .2, 2"):
        rebuild(open_artifact(archive(_saved(network, traced))).weights)


WRITER = """
import sys
import torch
from torchvision import models
network = models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5)
torch.jit.save(torch.jit.script(network.eval().requires_grad_(False)), sys.argv[1])
"""


def test_scripts_of_another_process_are_recognised(tmp_path, monkeypatch):
    """Its hash seed orders the constants of a class."""
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    path = tmp_path / "model.pt"
    subprocess.run([sys.executable, "-W", "ignore", "-c", WRITER, path], check=True)
    assert convert(open_artifact(path)).architecture == "resnet"


TWO_CLASSES = """class Two(Module):
  conv1 : Tensor
  def forward1(self: __torch__.Two, x0: Tensor) -> Tensor:
    conv1 = self.conv1
    _{} = torch.add(conv1, x0, alpha1=2)
    return (self).forward2(_{}, "_5 \\" _5", self._5)
"""


@pytest.mark.parametrize("name", ["_5", "forward1", "forward2", "conv1", "alpha1"])
def test_only_numbers_of_variables_may_differ(name):
    renumbered = torchscript._renumbered
    text = TWO_CLASSES.format(5, 5)
    assert renumbered(text) == renumbered(TWO_CLASSES.format(7, 7))
    assert renumbered(text) != renumbered(TWO_CLASSES.format(5, 7))
    for place in re.finditer(rf"\b{name}\b", text):
        changed = f"{text[: place.start()]}{name}9{text[place.end() :]}"
        assert renumbered(text) != renumbered(changed)


def test_traces_of_a_process_without_scripts_are_recognised(fill, archive):
    """Their classes stand in one file, where torch numbers variables on; ours may not."""
    network = fill(_resnet).requires_grad_(False)
    content = _saved(network, True)
    renumbered = _changed(
        content, lambda name, inner: re.sub(rb"\b_([0-9])\b", rb"_1\1", inner)
        if "models/resnet" in name else inner
    )  # fmt: skip
    assert renumbered != _changed(content, lambda name, inner: inner)
    assert convert(open_artifact(archive(renumbered))).architecture


class Own(torch.nn.Module):
    def forward(self, x):
        return x * 2


def test_own_networks_are_refused_with_a_way_out(archive):
    with pytest.raises(UnknownFormatError, match="Own.*torch.onnx.export"):
        open_artifact(archive(_saved(Own().eval(), False)))


def _changed(content: bytes, change) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            target.writestr(name, change(name, source.read(name)))
    return out.getvalue()


HOSTILE = {
    "another call": (b"torch._convolution(", b"torch.conv_own("),
    "two calls": (b"    return input\n", b"    torch._convolution(a, b, c, [1, 1], [0, 0], [1, 1], "
                  b"False, [0, 0], 1, False)\n    return input\n"),
    "no number": (b"False, 0.10000000000000001, 1.0000000000000001e-05",
                  b"False, 0.10000000000000001, 1.0.0e-05"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_code_that_is_not_understood_is_refused(case, fill, archive):
    old, new = HOSTILE[case]
    content = _saved(fill(_shufflenet).requires_grad_(False), True)

    def change(name, inner):
        return inner.replace(old, new) if name.endswith(".py") else inner

    changed = _changed(content, change)
    assert changed != _changed(content, lambda name, inner: inner)
    with pytest.raises(LoadError, match="numbers of a"):
        open_artifact(archive(changed))


def test_without_its_code_an_archive_is_refused(fill, archive):
    content = _saved(fill(_shufflenet).requires_grad_(False), False)
    changed = _changed(content, lambda name, inner: b"" if name.endswith(".py") else inner)
    with pytest.raises(LoadError, match="not of the class that its code names"):
        open_artifact(archive(changed))


EDITS = {
    "another activation": (b"torch.relu_(", b"torch.tanh_("),
    "a function's body": (
        b"torch.batch_norm(input, weight, bias",
        b"torch.batch_norm(input, bias, bias",
    ),
    "text that is no class": (b"class Linear(Module):", b"x = 1\nclass Linear(Module):"),
    "one more operation": (b"    return (fc).forward(x9, )", b"    return -((fc).forward(x9, ))"),
    "another class of a part": (b"  layer2 : __torch__", b"  layer2 : __torch__.torch"),
}


@pytest.mark.parametrize("case", EDITS)
def test_edited_code_is_refused(case, fill, archive):
    """The tensors are those of torchvision's network, the code computes something else."""
    old, new = EDITS[case]
    content = _saved(fill(_resnet).requires_grad_(False), False)
    found = []

    def change(name, inner):
        found.append(old in inner and name.endswith(".py"))
        return inner.replace(old, new) if name.endswith(".py") else inner

    changed = _changed(content, change)
    assert any(found)
    with pytest.raises(ConverterError, match="code"):
        convert(open_artifact(archive(changed)))


def _with_linear(content: bytes, code: bytes, **others: str) -> bytes:
    """The archive with other code for linear layers, and with further files of code."""

    def change(name, inner):  # torch mangles the file's name after the first script of a process
        return code if "modules/linear" in name and name.endswith(".py") else inner

    out = io.BytesIO(_changed(content, change))
    with zipfile.ZipFile(out, "a") as target:
        root = target.namelist()[0].split("/")[0]
        for name, text in others.items():
            target.writestr(f"{root}/code/__torch__/{name}.py", text)
    return out.getvalue()


def test_code_is_taken_apart_once_however_many_names_it_has(fill, archive, monkeypatch):
    """Every name was looked for in the whole file: of 20,000 names, for hours."""
    content = _saved(fill(_resnet).requires_grad_(False), False)
    names = [f"F{number}" for number in range(2000)]
    code = "".join(f"def {name}(x):\n  return __torch__.many.{name}(x)\n" for name in names)
    called = "\n".join(f"    __torch__.many.{name}(x)" for name in names)
    linear = f"class Linear(Module):\n  def forward(self, x):\n{called}\n    return x\n"
    changed = _with_linear(content, linear.encode(), many=code)
    files = []
    blocks = torchscript._blocks
    monkeypatch.setattr(torchscript, "_blocks", lambda *a: files.append(a[1]) or blocks(*a))
    with pytest.raises(ConverterError, match="code"):
        convert(open_artifact(archive(changed)))
    assert len([name for name in files if name.endswith("many.py")]) == 1


TOO_MUCH = {
    "code": (b"class Linear(Module):\n" + b"  \n" * 2**21, "bytes of code"),
    "constants": (
        b"class Linear(Module):\n"
        + b"".join(b"  c%d : Final[int] = 1\n" % number for number in range(101)),
        "more than 100 constants",
    ),
    "a class twice": (b"class Linear(Module):\n  x : int\n" * 2, "Linear' twice"),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_too_much_code_is_refused(case, fill, archive):
    code, message = TOO_MUCH[case]
    content = _saved(fill(_resnet).requires_grad_(False), False)
    with pytest.raises(LoadError, match=message):
        open_artifact(archive(_with_linear(content, code)))


@pytest.mark.parametrize("member", ["bytecode.pkl", "mobile_debug_handles.pkl", "code/a.pkl"])
def test_members_that_another_reader_would_take_are_refused(member, fill, archive):
    """torch's lite interpreter runs bytecode.pkl, whatever the code beside it says."""
    content = io.BytesIO(_saved(fill(_resnet).requires_grad_(False), False))
    with zipfile.ZipFile(content, "a") as target:
        root = target.namelist()[0].partition("/")[0]
        target.writestr(f"{root}/{member}", b"")
    said = f"{member}', which torch.jit.save does not write.*; save|expected the network's code"
    with pytest.raises(UnknownFormatError, match=said):
        open_artifact(archive(content.getvalue()))


def test_networks_for_the_lite_interpreter_are_refused(fill, archive):
    made = torch.jit.script(fill(_resnet).requires_grad_(False))
    content = made._save_to_buffer_for_lite_interpreter()
    with pytest.raises(UnknownFormatError, match="the lite interpreter runs that member"):
        open_artifact(archive(content))


def test_a_frozen_network_says_how_to_save_it(fill, archive):
    frozen = torch.jit.freeze(torch.jit.script(fill(_resnet).requires_grad_(False).eval()))
    out = io.BytesIO()
    torch.jit.save(frozen, out)
    with pytest.raises(UnknownFormatError, match="frozen TorchScript.*before it is frozen"):
        open_artifact(archive(out.getvalue()))


def test_extra_files_are_read_by_nobody(fill, archive):
    out = io.BytesIO()
    made = torch.jit.script(fill(_resnet).requires_grad_(False))
    torch.jit.save(made, out, _extra_files={"a/note.txt": "x"})
    assert open_artifact(archive(out.getvalue())).weights
