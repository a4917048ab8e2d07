"""Files that torch could read in another way than we do: refused, or read as torch reads them.

Each is given to the real torch too, in a process of its own, so that the test shows what it reads.
"""

import hashlib
import io
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from converters import open_artifact
from converters.conversion import convert
from converters.errors import ConverterError, CorruptFileError
from converters.opening import open_model

torch = pytest.importorskip("torch", reason="the runtime that is compared")
torchvision = pytest.importorskip("torchvision", reason="its networks are the seeds")
from torch import nn  # noqa: E402

from benchmarks.reading.differential.runtime import Runtime  # noqa: E402
from benchmarks.reading.differential.serve import example  # noqa: E402

SHAPE = (2, 3, 32, 32)
LOAD = "torch.load"


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    with Runtime(tmp_path_factory.mktemp("runtime")) as process:
        yield process


def saved(value, zipped=True) -> bytes:
    out = io.BytesIO()
    torch.save(value, out, _use_new_zipfile_serialization=zipped)
    return out.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def weights(value: float) -> dict:
    return {"w": torch.full((2,), value)}


def tar_of(value: float) -> bytes:
    """A torch tar whose state dict has one tensor of two such values."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return obj if type(obj) is int else None

    root = io.BytesIO()
    Pickler(root, 2).dump({"w": 100})
    content = struct.pack("<q", 2) + np.array([value, value], np.float32).tobytes()
    members = {
        "storages": pickle.dumps(1, 2)
        + pickle.dumps((7, "cpu", torch.FloatStorage), 2)
        + content
        + pickle.dumps([], 2),
        "tensors": pickle.dumps(1, 2)
        + pickle.dumps((100, 7, torch.FloatTensor), 2)
        + struct.pack("<i4x3q", 1, 2, 1, 0),
        "pickle": root.getvalue(),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def checked(block: bytes) -> bytes:
    """A tar header with its right checksum."""
    blank = block[:148] + b" " * 8 + block[156:]
    return block[:148] + b"%06o\0 " % sum(blank) + block[156:]


def tar_behind(head: bytes, value: float) -> bytes:
    """A tar whose first member's header begins with `head`: a file that is two files."""
    assert len(head) < 100
    size = 512 * 4
    header = bytearray(512)
    header[: len(head)] = head
    header[124:136] = b"%011o\0" % size
    header[156:157] = b"0"
    return checked(bytes(header)) + bytes(size) + tar_of(value)


def reads(runtime, path, opening=LOAD, shape=SHAPE):
    return runtime.open(path, [opening], shape)[opening]


def values(runtime, path, opening=LOAD) -> list[float]:
    """What torch reads under "w"."""
    reading = reads(runtime, path, opening)
    assert reading.read, reading.answer
    return [float(n) for n in reading.arrays["tensor:w"].ravel()]


# -- two containers in one file -------------------------------------------------------------------


def test_tar_is_tried_before_the_legacy_stream(runtime, tmp_path):
    """The file begins as a legacy stream; torch reads the tar."""
    first = pickle.dumps(0x1950A86A20F9469CFC6C, 2)
    path = tmp_path / "model.pt"
    path.write_bytes(tar_behind(first, 2.0))
    assert values(runtime, path) == [2.0, 2.0]
    with pytest.raises(CorruptFileError, match="a torch legacy stream and a tar in one"):
        open_artifact(path)


@pytest.mark.parametrize("front", ["legacy", "safetensors", "pickle", "tar"])
def test_a_zip_at_the_end_of_another_container(front, runtime, tmp_path):
    """torch.jit.load and Python's zipfile look for a zip from the end."""
    from safetensors.torch import save

    fronts = {
        "legacy": saved(weights(1.0), zipped=False),
        "safetensors": save(weights(1.0)),
        "pickle": pickle.dumps({"w": np.ones(2, np.float32)}),
        "tar": tar_of(1.0),
    }
    out = io.BytesIO(fronts[front])
    out.seek(0, 2)
    with zipfile.ZipFile(io.BytesIO(saved(weights(2.0)))) as source:
        with zipfile.ZipFile(out, "a") as target:
            for name in source.namelist():
                target.writestr(name, source.read(name))
    path = tmp_path / "model.pt"
    path.write_bytes(out.getvalue())
    assert zipfile.is_zipfile(path)
    with pytest.raises(CorruptFileError, match="and a zip in one|follow"):
        open_artifact(path)


def test_a_zip_header_before_a_tar(runtime, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(tar_behind(b"PK\x03\x04", 2.0))
    assert not reads(runtime, path).read
    with pytest.raises(CorruptFileError, match="a torch zip and a tar in one"):
        open_artifact(path)


@pytest.mark.parametrize(
    "content",
    [tar_behind(b"PK\x03\x04", 2.0), b"\x89HDF\r\n", b"PK\x03\x04", pickle.dumps(1, 0), b"?"],
)
def test_a_refused_file_has_its_digest(content, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(ConverterError) as caught:
        open_model(path)
    assert caught.value.digest == hashlib.sha256(content).hexdigest()


# -- zip ------------------------------------------------------------------------------------------


def rezipped(content: bytes, change, method=zipfile.ZIP_STORED) -> bytes:
    """The zip with `change(members)` as its members, a list of name and bytes."""
    with zipfile.ZipFile(io.BytesIO(content)) as source:
        members = [(name, source.read(name)) for name in source.namelist()]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as target:
        for name, data in change(members):
            target.writestr(name, data)
    return out.getvalue()


def renamed(old: str, new: str):
    return lambda members: [(n.replace(old, new), d) for n, d in members]


@pytest.mark.parametrize("position", [0, 1, None])
def test_names_that_differ_only_in_case(position, runtime, tmp_path):
    """torch compares names without case, so either storage may be the one it reads."""
    other = np.array([2, 2], np.float32).tobytes()

    def change(members):
        at = len(members) if position is None else position
        keyed = [(n.replace("data/0", "data/a"), d) for n, d in members]
        return [*keyed[:at], ("archive/data/A", other), *keyed[at:]]

    content = rezipped(saved(weights(1.0)), change)
    content = content.replace(b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x00a")
    path = tmp_path / "model.pt"
    path.write_bytes(without_checksums(content))
    assert reads(runtime, path).read
    with pytest.raises(CorruptFileError, match="differ only in case"):
        open_artifact(path)


def without_checksums(content: bytes) -> bytes:
    """Checksums 0, which means not computed."""
    changed = bytearray(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for info in archive.infolist():
            changed[info.header_offset + 14 : info.header_offset + 18] = bytes(4)
    position = changed.find(b"PK\x01\x02")
    while position >= 0:
        changed[position + 16 : position + 20] = bytes(4)
        position = changed.find(b"PK\x01\x02", position + 4)
    return bytes(changed)


def test_byte_order_under_a_name_in_capitals(runtime, tmp_path):
    content = rezipped(
        saved(weights(1.0)),
        lambda members: [
            (n.replace("byteorder", "BYTEORDER"), b"big" if "byteorder" in n else d)
            for n, d in members
        ],
    )
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    assert values(runtime, path) != [1.0, 1.0]
    with pytest.raises(CorruptFileError, match="written in other case"):
        open_artifact(path)


def test_the_folder_of_the_first_entry_is_the_model(runtime, tmp_path):
    """torch reads the folder that the directory names first, and no file outside it."""
    with zipfile.ZipFile(io.BytesIO(saved(weights(2.0)))) as source:
        other = [(n.replace("archive", "z"), source.read(n)) for n in source.namelist()]
    path = tmp_path / "model.pt"
    path.write_bytes(rezipped(saved(weights(1.0)), lambda members: [*members, *other]))
    assert not reads(runtime, path).read
    with pytest.raises(ConverterError, match="outside the folder"):
        open_artifact(path)


def test_compressed_storages_are_read_otherwise_when_mapped(runtime, tmp_path):
    path = tmp_path / "model.pt"
    content = rezipped(saved({"w": torch.zeros(1000)}), lambda members: members, 8)
    path.write_bytes(content)
    assert set(values(runtime, path)) == {0.0}
    mapped = reads(runtime, path, "torch.load mmap")
    assert not mapped.read or set(mapped.arrays["tensor:w"].ravel()) != {0.0}
    with pytest.raises(CorruptFileError, match="compressed"):
        open_artifact(path)


@pytest.mark.parametrize("place", ["before", "between", "after"])
def test_bytes_of_no_member(place, tmp_path):
    content = rezipped(saved(weights(1.0)), lambda members: members)
    if place == "between":
        at = content.index(b"PK\x01\x02")
    else:
        at = 0 if place == "before" else len(content)
    path = tmp_path / "model.pt"
    path.write_bytes(content[:at] + b"PK\x03\x04" + bytes(60) + content[at:])
    with pytest.raises(ConverterError):
        open_artifact(path)


# -- legacy stream and tar ------------------------------------------------------------------------


def stream_of(root: bytes, keys: list[str], storages: list[np.ndarray], little=True) -> bytes:
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": little}]
    parts = [pickle.dumps(value, 2) for value in head]
    parts += [root, pickle.dumps(keys, 2)]
    parts += [struct.pack("<q", len(s)) + s.tobytes() for s in storages]
    return b"".join(parts)


class _Identity:
    def __init__(self, *parts):
        self.parts = parts


def pickled(value) -> bytes:
    """A pickle in which an `_Identity` is a persistent id."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return obj.parts if isinstance(obj, _Identity) else None

    out = io.BytesIO()
    Pickler(out, 2).dump(value)
    return out.getvalue()


class _View:
    """A tensor of two elements over a storage."""

    def __init__(self, storage):
        self.storage = storage

    def __reduce__(self):
        return torch._utils._rebuild_tensor, (self.storage, 0, (2,), (1,))


def view(key: str, offset: int) -> _View:
    kind = torch.FloatStorage
    return _View(_Identity("storage", kind, "0", "cpu", 4, (key, offset, 2)))


def test_byte_order_of_the_system_description_means_nothing(runtime, tmp_path):
    root = pickled({"w": _View(_Identity("storage", torch.FloatStorage, "0", "cpu", 2, None))})
    path = tmp_path / "model.pt"
    path.write_bytes(stream_of(root, ["0"], [np.array([1, 2], np.float32)], little=False))
    assert values(runtime, path) == [1.0, 2.0]
    assert list(open_artifact(path).weights.tensors["w"]) == [1.0, 2.0]


def test_the_first_view_of_a_key_serves_all(runtime, tmp_path):
    root = pickled({"first": view("v", 0), "w": view("v", 2)})
    path = tmp_path / "model.pt"
    path.write_bytes(stream_of(root, ["0"], [np.array([1, 2, 3, 4], np.float32)]))
    assert values(runtime, path) == [1.0, 2.0]
    with pytest.raises(CorruptFileError, match="described in two ways"):
        open_artifact(path)


def test_text_of_python_2_names_nothing(runtime, tmp_path):
    """torch.load takes it for UTF-8, or for what its caller says: the bytes have two names."""
    root = pickled({"w": _View(_Identity("storage", torch.FloatStorage, "kk", "cpu", 2, None))})
    root = root.replace(b"X\x02\x00\x00\x00kk", b"U\x02\xc3\xa9")
    path = tmp_path / "model.pt"
    path.write_bytes(stream_of(root, ["é"], [np.array([1, 2], np.float32)]))
    assert values(runtime, path) == [1.0, 2.0]
    with pytest.raises(CorruptFileError):
        open_artifact(path)


def test_tar_members_in_a_folder_are_others(runtime, tmp_path):
    """torch looks for "pickle", so one in a folder, by the header's prefix, is not it."""
    content = bytearray(tar_of(1.0))
    at = next(k for k in range(0, len(content), 512) if content[k : k + 7] == b"pickle\0")
    content[at + 345 : at + 348] = b"sub"
    content[at : at + 512] = checked(bytes(content[at : at + 512]))
    path = tmp_path / "model.pt"
    path.write_bytes(bytes(content))
    assert not reads(runtime, path).read
    with pytest.raises(CorruptFileError, match="prefix"):
        open_artifact(path)


# -- pickles --------------------------------------------------------------------------------------


def test_a_state_gives_a_tensor_other_values(runtime, tmp_path):
    """BUILD with four parts is torch's oldest form of a tensor; the values become the storage's."""

    class Second:
        def __reduce__(self):
            one, two = _storage("0"), _storage("1")
            build = torch._utils._rebuild_tensor
            return build, (one, 0, (2,), (1,)), (two, 0, (2,), (1,))

    def _storage(key):
        return _Identity("storage", torch.FloatStorage, key, "cpu", 2, None)

    path = tmp_path / "model.pt"
    content = stream_of(
        pickled({"w": Second()}),
        ["0", "1"],
        [np.array([1, 1], np.float32), np.array([2, 2], np.float32)],
    )
    path.write_bytes(content)
    assert values(runtime, path) == [2.0, 2.0]
    with pytest.raises(ConverterError, match="sets the state of"):
        open_artifact(path)


def test_an_attribute_of_a_tensor_is_its_data(runtime, tmp_path):
    class Noted:
        def __reduce__(self):
            shown, used = nn.Parameter(torch.ones(2)), torch.full((2,), 2.0)
            build = torch._utils._rebuild_parameter_with_state
            return build, (shown.data, False, {}, {"data": used})

    path = tmp_path / "model.pt"
    path.write_bytes(saved({"w": Noted()}))
    assert values(runtime, path) == [2.0, 2.0]
    with pytest.raises(ConverterError, match="attribute 'data'"):
        open_artifact(path)


# -- modules --------------------------------------------------------------------------------------


def resnet(seed=0):
    torch.manual_seed(seed)
    network = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [2, 1, 1, 1], 3)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    return network.eval()


def densenet():
    torch.manual_seed(0)
    return torchvision.models.DenseNet(4, (2, 1, 1, 1), 8, num_classes=3).eval()


def swapped(modules: dict) -> None:
    """The first two entries change places, as a file may have them."""
    items = list(modules.items())
    items[:2] = items[1::-1]
    modules.clear()
    modules.update(items)


def _reorder(network):
    swapped(network.layer1._modules)


def _shadow_parameter(network):
    """The code takes the parameter, the state dict shows the buffer."""
    weight = network.fc._parameters["weight"]
    network.fc._buffers["weight"] = weight.detach()
    network.fc._parameters["weight"] = nn.Parameter(weight.detach() + torch.eye(3, 512))


def _forward(network):
    network.__dict__["forward"] = resnet(1)


def _compiled(network):
    network.__dict__["_call_impl"] = resnet(1)


def _hook(network):
    network.relu._forward_hooks[0] = torch.nn.functional.elu


def _pool_as_relu(network):
    network.maxpool = nn.ReLU()


def _pool_attribute(network):
    del network._modules["maxpool"]
    network.__dict__["maxpool"] = nn.functional.relu


def _gelu_attribute(network):
    del network.layer1[0]._modules["relu"]
    network.layer1[0].__dict__["relu"] = nn.functional.gelu


def _bias_attribute(network):
    del network.conv1._parameters["bias"]
    network.conv1.__dict__["bias"] = torch.ones(64)


def _epsilon_tensor(network):
    network.bn1.eps = torch.tensor(0.5)


def _extra_layer(network):
    network.layer1.add_module("2", nn.Tanh())


def _dilated(network):
    network.layer1[0].conv1.dilation = (2, 2)
    network.layer1[0].conv1.padding = (2, 2)


MODULES = {
    "order of a Sequential": _reorder,
    "a parameter and a buffer of one name": _shadow_parameter,
    "forward as an attribute": _forward,
    "_call_impl as an attribute": _compiled,
    "a hook": _hook,
    "another kind of module": _pool_as_relu,
    "a function in place of a module": _pool_attribute,
    "a function in place of an activation": _gelu_attribute,
    "a bias as an attribute": _bias_attribute,
    "a tensor as epsilon": _epsilon_tensor,
    "one layer more": _extra_layer,
    "another dilation": _dilated,
}


def logits(runtime, path) -> np.ndarray:
    reading = reads(runtime, path)
    assert reading.read, reading.answer
    return reading.arrays["logits"]


@pytest.mark.parametrize("case", MODULES)
def test_networks_that_compute_otherwise_are_refused(case, runtime, tmp_path):
    network, path = resnet(), tmp_path / "model.pt"
    plain = network(torch.from_numpy(example(SHAPE))).detach().numpy()
    MODULES[case](network)
    path.write_bytes(saved(network))
    reading = reads(runtime, path)
    # torch either computes something else, or cannot run the network at all.
    assert not reading.read or np.abs(reading.arrays["logits"] - plain).max() > 1e-3
    with pytest.raises(ConverterError):
        convert(open_artifact(path))


DENSE = {
    "order of the features": lambda network: swapped(network.features._modules),
    "order inside a transition": lambda network: swapped(network.features.transition1._modules),
    "no first activation": lambda network: network.features._modules.pop("relu0"),
    "order of dense layers": lambda network: swapped(network.features.denseblock1._modules),
}


@pytest.mark.parametrize("case", DENSE)
def test_dense_networks_run_in_the_order_of_the_file(case, runtime, tmp_path):
    network, path = densenet(), tmp_path / "model.pt"
    DENSE[case](network)
    path.write_bytes(saved(network))
    reads(runtime, path)
    with pytest.raises(ConverterError, match="runs|order"):
        convert(open_artifact(path))


@pytest.mark.parametrize("make", [resnet, densenet])
def test_unchanged_networks_agree(make, runtime, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(saved(make()))
    theirs = logits(runtime, path)
    model = convert(open_artifact(path))
    ours = model(example(SHAPE).transpose(0, 2, 3, 1))
    assert np.abs(np.asarray(ours) - theirs).max() < 1e-4 * max(1, np.abs(theirs).max())


def test_one_module_under_two_names_is_run_twice(runtime, tmp_path):
    network, path = resnet(), tmp_path / "model.pt"
    network.layer1._modules["1"] = network.layer1._modules["0"]
    path.write_bytes(saved(network))
    model = convert(open_artifact(path))
    ours = model(example(SHAPE).transpose(0, 2, 3, 1))
    assert np.abs(np.asarray(ours) - logits(runtime, path)).max() < 1e-3


# -- messages -------------------------------------------------------------------------------------


class _Elsewhere:
    """A class that no allow-list knows."""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"some.weight": torch.ones(2, 2)}, "no family has tensors named like these"),
        (_Elsewhere(), "nothing was executed"),
    ],
)
def test_what_works_comes_before_the_detail(value, said, tmp_path):
    """Records keep 400 characters of a reason: the remedy must be among them."""
    path = tmp_path / "model.pt"
    path.write_bytes(saved(value))
    with pytest.raises(ConverterError) as caught:
        open_model(path)
    kept = str(caught.value).removeprefix(f"{path} ")[:360]
    assert said in kept
    assert "torch.onnx.export(network.eval(), example, 'model.onnx')" in kept


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89HDF\r\n\x1a\n", "tf2onnx.convert --keras model.h5 --output model.onnx"),
        (pickle.dumps({"w": 1}, 0), r"\(pickle\): the file holds a dict without weights"),
        (zip_of({"model.weights.h5": b"", "config.json": b"{}"}), "format='onnx'"),
        (zip_of({"m/data.pkl": b"P1\n."}), "a pickle of protocol 0"),
    ],
)
def test_other_formats_are_called_by_their_names(content, said, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(ConverterError, match=said):
        open_model(path)
