"""Exported programs that lie about sizes, or are two networks to two readers: refused by us."""

import io
import json
import re
import time
import zipfile

import numpy as np
import pytest
import torch

from converters.errors import (
    ConverterError,
    CorruptFileError,
    TooLargeError,
    UnknownFormatError,
)
from converters.opening import open_model


def exported(dynamic):
    """A small program, for one image or for batches of square ones."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(4, 3),
    ).eval()  # fmt: skip
    side = torch.export.Dim("side", min=8, max=64)
    shapes = ({0: torch.export.Dim("n"), 2: side, 3: side},) if dynamic else None
    image = torch.zeros(2 if dynamic else 1, 3, 16, 16)
    out = io.BytesIO()
    program = torch.export.export(net, (image,), dynamic_shapes=shapes, strict=False)
    torch.export.save(program, out)
    return out.getvalue()


@pytest.fixture(scope="module")
def programs():
    return {dynamic: exported(dynamic) for dynamic in (False, True)}


def edited(content, change):
    """The archive with its graph's JSON text changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(out, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            if re.search(r"models/[^/]+\.json$", info.filename):
                data = change(data.decode()).encode()
            target.writestr(zipfile.ZipInfo(info.filename), data)
    return out.getvalue()


def _sized(value):
    """Height and width of the image are `value`."""

    def change(text):
        graph = json.loads(text)
        inner = graph["graph_module"]["graph"]
        name = inner["inputs"][-1]["as_tensor"]["name"]
        inner["tensor_values"][name]["sizes"][2:] = [{"as_int": value}] * 2
        return json.dumps(graph)

    return change


def _expressed(expression):
    return lambda text: re.sub(
        r'"expr_str": "(?:[^"\\]|\\.)*"', lambda _: f'"expr_str": {json.dumps(expression)}', text
    )


_MANY = ", ".join(f"s{k}" for k in range(700))
CASES = {
    **{f"size {v}": (False, _sized(v)) for v in (0, True, -1, 2**31, 2**62, 2**70, 1.5, None)},
    "an extreme of 700 symbols": (True, _expressed(f"Max({_MANY})")),
    "an extreme of 60 symbols": (True, _expressed(f"Max({_MANY[:290]})")),
    "a truth": (True, _expressed("True")),
    "a negative size": (True, _expressed("Integer(-4)")),
    "a division by zero": (True, _expressed("FloorDiv(Integer(1), Integer(0))")),
    "powers of powers": (True, _expressed("Pow(" * 90 + "s1" + ", 4)" * 90)),
    "remainders of remainders": (True, _expressed("Mod(" * 250 + "s1" + ", s2)" * 250)),
    "a key twice": (False, lambda text: text.replace("{", '{"schema_version": {}, ', 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_absurd_sizes_end_with_an_error_of_ours(programs, tmp_path, case):
    dynamic, change = CASES[case]
    path = tmp_path / "model.pt2"
    path.write_bytes(edited(programs[dynamic], change))
    started = time.process_time()
    with pytest.raises(ConverterError):
        open_model(path)
    assert time.process_time() - started < 30


def test_a_branch_is_named_as_a_suspicion(programs, tmp_path):
    def change(text):
        return text.replace("torch.ops.aten.linear.default", "torch.ops.higher_order.cond", 1)

    path = tmp_path / "model.pt2"
    path.write_bytes(edited(programs[False], change))
    with pytest.raises(ConverterError, match="possible architectural backdoor"):
        open_model(path)


def test_the_key_of_a_second_reading_is_named(programs, tmp_path):
    path = tmp_path / "model.pt2"
    path.write_bytes(edited(programs[False], CASES["a key twice"][1]))
    with pytest.raises(CorruptFileError, match="key twice"):
        open_model(path)


def _members(content):
    with zipfile.ZipFile(io.BytesIO(content)) as source:
        return {info.filename: source.read(info) for info in source.infolist()}


def _archive(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        for name, data in members.items():
            target.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def _renamed(members, old, new):
    return {re.sub(old, new, name): data for name, data in members.items()}


def _without(members, name):
    return {known: data for known, data in members.items() if known != name}


@pytest.fixture(scope="module")
def saved():
    """Members of an honest file, and of a pickle of other weights."""

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3)
            self.last = torch.nn.Linear(4, 3)
            self.last.bias = torch.nn.Parameter(self.last.weight[:, 0].detach())  # one storage
            self.scale = torch.ones(3)

        def forward(self, x):
            return self.last(self.conv(x).mean((2, 3))) * self.scale

    torch.manual_seed(0)
    net, out, other = Scaled().eval(), io.BytesIO(), io.BytesIO()
    program = torch.export.export(net, (torch.zeros(1, 3, 16, 16),), strict=False)
    torch.export.save(program, out, extra_files={"a/note.txt": "read by nobody"})
    torch.save(Scaled().state_dict(), other)
    return _members(out.getvalue()), _members(other.getvalue())


A = "archive/"
_WEIGHTS, _CONSTANTS = A + "data/weights/", A + "data/constants/"
_PROGRAM, _FORMAT = A + "models/model.json", A + "archive_format"
_SECOND_READINGS = {
    "weights of torch 2.8": (lambda m, p: {**m, _WEIGHTS + "model.pt": b"PK"}, "weights/model.pt'"),
    "constants of it": (lambda m, p: {**m, _CONSTANTS + "model.pt": b"PK"}, "constants/model.pt'"),
    "a pickle beside": (lambda m, p: {**p, **m}, "'archive/data.pkl'"),
    "a pickle, and a program under another name": (
        lambda m, p: {**p, **_renamed(m, r"model\.json", "modelabcde")},
        "'archive/(data.pkl|models/modelabcde)'",
    ),
    "torch 2.7's layout": (
        lambda m, p: {"serialized_exported_program.json": b"{}", **m},
        "'serialized_exported_program.json'",
    ),
    "members outside the folder": (lambda m, p: {**m, "archive2/x": b""}, "'archive2/x'"),
    "a first folder of another name": (lambda m, p: {"b/extra/x": b"", **m}, "'archive/data"),
    "no folder": (lambda m, p: _renamed(m, f"^{A}", ""), "'data/weights/weight_0'"),
    "two programs": (lambda m, p: {**m, A + "models/net.json": b"{}"}, "models/net.json'"),
    "a program in a folder": (lambda m, p: {**m, A + "models/a/b.json": b"{}"}, "a/b.json'"),
    "a program of another name": (
        lambda m, p: _renamed(m, r"models/model\.", "models/net."),
        "models/net.json'",
    ),
    "compiled code": (lambda m, p: {**m, A + "data/aotinductor/model/a.so": b""}, "aotinductor"),
    "a pickled object": (lambda m, p: {**m, _CONSTANTS + "custom_obj_0": b""}, "custom_obj_0'"),
    "other case": (lambda m, p: _renamed(m, "archive_format", "Archive_Format"), "Archive_Format'"),
    "another format": (lambda m, p: {**m, _FORMAT: b"pt3"}, "is b'pt3', expected b'pt2'"),
    "another version": (lambda m, p: {**m, A + "archive_version": b"1"}, "is b'1', expected b'0'"),
    "another order of bytes": (lambda m, p: {**m, A + "byteorder": b"big"}, "expected b'little'"),
    "no format": (lambda m, p: _without(m, _FORMAT), "is missing, expected b'pt2'"),
    "no program": (lambda m, p: _without(m, _PROGRAM), "lacks 'archive/models/model.json'"),
}


def test_what_torch_writes_is_read_as_torch_reads_it(saved, tmp_path):
    path = tmp_path / "net.pt2"
    path.write_bytes(_archive(saved[0]))
    opened = open_model(path)
    images = torch.rand(1, 3, 16, 16)
    expected = torch.export.load(path).module()(images).detach().numpy()
    np.testing.assert_allclose(opened.model(images.permute(0, 2, 3, 1).numpy()), expected, 1e-4)
    path.write_bytes(_archive(_renamed(saved[0], f"^{A}", "my.net-1/")))
    assert open_model(path).model.architecture == opened.model.architecture


def test_a_program_of_another_device_is_read_for_this_one(saved, tmp_path):
    """As exported on a GPU."""

    def moved(data):
        return data.replace(b'"type": "cpu"', b'"type": "cuda"').replace(
            b'"index": null', b'"index": 0'
        )

    path = tmp_path / "net.pt2"
    path.write_bytes(_archive(saved[0]))
    expected = open_model(path).model
    members = {n: moved(d) if n.endswith(".json") else d for n, d in saved[0].items()}
    assert b'"cuda"' in members[_PROGRAM]
    path.write_bytes(_archive(members))
    got = open_model(path).model
    images = np.random.default_rng(0).random((2, 16, 16, 3), np.float32)
    assert got.architecture == expected.architecture
    np.testing.assert_array_equal(got(images), expected(images))
    members[_PROGRAM] = members[_PROGRAM].replace(b'"type": "cuda"', b'"type": "meta"')
    path.write_bytes(_archive(members))
    with pytest.raises(CorruptFileError, match="'meta' as Device.type"):
        open_model(path)


@pytest.mark.parametrize("case", _SECOND_READINGS)
def test_members_that_another_reader_would_take_are_refused(saved, tmp_path, case):
    change, said = _SECOND_READINGS[case]
    path = tmp_path / "model.pt2"
    path.write_bytes(_archive(change(*saved)))
    with pytest.raises(UnknownFormatError, match=f"{said}.*; export") as caught:
        open_model(path)
    assert len(caught.value.digest) == 64


def _with_entry(table, name, source, **changed):
    """The members with one more tensor of a table, described as another of it is, in front."""

    def change(members):
        config = f"{table}model_{table.split('/')[-2]}_config.json"
        entries = json.loads(members[config])["config"]
        meta = {**entries[source]["tensor_meta"], **changed}
        entry = {**entries[source], "is_param": False, "tensor_meta": meta}
        return {**members, config: json.dumps({"config": {name: entry, **entries}}).encode()}

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        # torch decodes all that lies in a member by the first entry's type.
        (_with_entry(_CONSTANTS, "x", "scale", dtype=13), "'scale' .* is float32 .* is bfloat16"),
        (_with_entry(_WEIGHTS, "x", "conv.bias", dtype=4), "'conv.bias' .* is float32 .* is int32"),
        # It takes the constant, where the graph says that the tensor is one.
        (_with_entry(_WEIGHTS, "scale", "last.bias"), "'scale' .* both a weight and a constant"),
        (_with_entry(_CONSTANTS, "last.bias", "scale"), "'last.bias' .* both a weight and"),
    ],
)
def test_a_tensor_that_torch_reads_otherwise_is_refused(saved, tmp_path, change, said):
    path = tmp_path / "model.pt2"
    path.write_bytes(_archive(change(saved[0])))
    with pytest.raises(CorruptFileError, match=f"{said}.*; export the network again"):
        open_model(path)


def test_the_work_of_a_program_that_is_read_without_running_it_is_counted(tmp_path):
    """A window of 2500 x 2500 in a file of 16 KB would take hours."""
    net = torch.nn.Sequential(
        torch.nn.ZeroPad2d(2500), torch.nn.MaxPool2d(2500, 1, 1250), torch.nn.Conv2d(3, 5, 1),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
    ).eval()  # fmt: skip
    torch.export.save(torch.export.export(net, (torch.zeros(1, 3, 8, 8),)), tmp_path / "net.pt2")
    with pytest.raises(TooLargeError, match="multiplications"):
        open_model(tmp_path / "net.pt2")
