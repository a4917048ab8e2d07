"""Element types, views and storages, against torch."""

import io
import pickle
import struct
import tarfile
import zipfile
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from converters.artifact import open_artifact
from converters.errors import LoadError, TooLargeError, UnsafePickleError
from converters.limits import Limits

CONTAINERS = {"torch zip": True, "torch legacy stream": False}
both_containers = pytest.mark.parametrize("container", sorted(CONTAINERS))
DTYPES = ["float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8",
          "bool", "complex64", "complex128"]  # fmt: skip
NEW_DTYPES = ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"]


def read_back(value, tmp_path, container="torch zip"):
    torch.save(value, tmp_path / "model.pt", _use_new_zipfile_serialization=CONTAINERS[container])
    return open_artifact(tmp_path / "model.pt").weights.tensors


@both_containers
@pytest.mark.parametrize("dtype", DTYPES)
def test_element_types(dtype, container, tmp_path):
    tensor = torch.tensor([0, 1, 2.5, 100]).to(getattr(torch, dtype))
    array = read_back({"w": tensor}, tmp_path, container)["w"]
    assert array.dtype.name == dtype
    expected = tensor.float().numpy() if dtype == "bfloat16" else tensor.numpy()
    np.testing.assert_array_equal(array.astype(expected.dtype), expected)


@pytest.mark.parametrize("dtype", NEW_DTYPES)
def test_element_types_without_a_storage_class(dtype, tmp_path):
    tensor = torch.tensor([0.0, 1, 2, 100]).to(getattr(torch, dtype))
    array = read_back({"w": tensor}, tmp_path)["w"]
    assert array.dtype.name == dtype
    np.testing.assert_array_equal(array.astype(np.float64), tensor.double().numpy())


@both_containers
def test_views(container, tmp_path):
    base = torch.arange(24.0).reshape(4, 6)
    views = {
        "rows": base[1:3],
        "transposed": base.t(),
        "stepped": base[::2, 1::3],
        "channels last": torch.arange(48.0)
        .reshape(2, 2, 3, 4)
        .to(memory_format=torch.channels_last),
        "expanded": torch.tensor([[3.0]]).expand(5, 7),
        "scalar": torch.tensor(4.0),
        "one of many": base[2, 3],
        "empty": torch.zeros(0, 3),
        "no columns": base[:, 6:],
    }
    arrays = read_back(views, tmp_path, container)
    for name, view in views.items():
        np.testing.assert_array_equal(arrays[name], view.numpy(), err_msg=name)
        assert arrays[name].shape == tuple(view.shape)


@both_containers
def test_tied_tensors_share_memory(container, tmp_path):
    weight = torch.nn.Parameter(torch.arange(64.0))
    arrays = read_back({"a": weight, "b": weight, "c": weight.detach()[3:]}, tmp_path, container)
    assert list(arrays["c"][:2]) == [3.0, 4.0]
    if container == "torch zip":  # Legacy storages are not aligned and therefore copied.
        assert np.shares_memory(arrays["a"], arrays["b"])
        assert not arrays["a"].flags.writeable


def test_big_endian_files(tmp_path):
    """Torch on big-endian machines writes the same layout with swapped elements."""
    out = io.BytesIO()
    torch.save({"w": torch.tensor([1.0, 2.0]), "b": torch.tensor([True, False])}, out)
    source = zipfile.ZipFile(io.BytesIO(out.getvalue()))
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("byteorder"):
                content = b"big"
            if name.endswith("data/0"):
                content = np.frombuffer(content, "<f4").astype(">f4").tobytes()
            archive.writestr(name, content)
    arrays = open_artifact(tmp_path / "model.pt").weights.tensors
    np.testing.assert_array_equal(arrays["w"], np.array([1, 2], np.float32))
    np.testing.assert_array_equal(arrays["b"], [True, False])


@both_containers
def test_storages_of_other_devices_are_read(container, tmp_path):
    """A file written on a GPU differs in the location text only."""
    out = io.BytesIO()
    torch.save({"w": torch.ones(3)}, out, _use_new_zipfile_serialization=CONTAINERS[container])
    content = out.getvalue().replace(b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00xpu")
    assert content != out.getvalue()
    if container == "torch zip":
        content = without_checksums(content)
    (tmp_path / "model.pt").write_bytes(content)
    np.testing.assert_array_equal(
        open_artifact(tmp_path / "model.pt").weights.tensors["w"], np.ones(3)
    )


def without_checksums(content: bytes) -> bytes:
    """Set every checksum of the directory to 0, which torch writes when told not to compute any."""
    result = bytearray(content)
    position = 0
    while (position := result.find(b"PK\x01\x02", position)) >= 0:
        result[position + 16 : position + 20] = bytes(4)
        position += 4
    return bytes(result)


def test_tensor_with_attributes(tmp_path):
    tensor: Any = torch.ones(2)
    tensor.note = "kept by torch's _rebuild_from_type_v2"
    parameter: Any = torch.nn.Parameter(torch.ones(3))
    parameter.tag = 1
    arrays = read_back({"a": tensor, "b": parameter}, tmp_path)
    assert arrays["a"].shape == (2,) and arrays["b"].shape == (3,)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.eye(3).to_sparse(), "sparse"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "QInt8|quantized"),
        (lambda: torch.ones(2, device="meta"), "meta"),
    ],
)
def test_unsupported_tensors_are_named(make, message, tmp_path):
    with pytest.raises(UnsafePickleError, match=message):
        read_back({"w": make()}, tmp_path)


def test_lazily_conjugated_tensor_is_refused(tmp_path):
    with pytest.raises(LoadError, match="resolve_conj"):
        read_back({"w": torch.ones(2, dtype=torch.complex64).conj()}, tmp_path)


def write_old_tar(path, tensors: dict[str, np.ndarray]) -> None:
    """The layout of torch before 0.1.10, of which `torch.load` still has the reader."""
    storages, table = [pickle.dumps(len(tensors), 2)], [pickle.dumps(len(tensors), 2)]
    ids = {}
    for number, (name, array) in enumerate(tensors.items()):
        key = 94_000_000_000_000 + 16 * number  # The address of the storage.
        storages += [
            pickle.dumps((key, "cpu", torch.FloatStorage), 2),
            struct.pack("<q", array.size),
            array.astype("<f4").tobytes(),
        ]
        table += [
            pickle.dumps((key + 8, key, torch.FloatTensor), 2),
            struct.pack("<i4x", array.ndim),
            struct.pack(f"<{array.ndim}q", *array.shape),
            struct.pack(f"<{array.ndim}q", *(s // array.itemsize for s in array.strides)),
            struct.pack("<q", 0),
        ]
        ids[name] = key + 8
    storages.append(pickle.dumps([], 2))

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return str(value) if isinstance(value, int) else None

    body = io.BytesIO()
    Pickler(body, 2).dump(ids)
    members = {
        "sys_info": pickle.dumps({"little_endian": True}, 2),
        "pickle": body.getvalue(),
        "tensors": b"".join(table),
        "storages": b"".join(storages),
    }
    with tarfile.open(path, "w:", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1_500_000_000.25  # Makes an extended header.
            tar.addfile(info, io.BytesIO(content))


@pytest.mark.filterwarnings("ignore")
def test_old_tar_is_read_as_torch_reads_it(tmp_path):
    tensors = {
        "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "bias": np.array([1, -1], np.float32),
    }
    path = tmp_path / "model.pth.tar"
    write_old_tar(path, tensors)
    artifact = open_artifact(path)
    assert artifact.format == "torch legacy tar"
    by_torch = torch.load(path, weights_only=False)
    for name, expected in tensors.items():
        np.testing.assert_array_equal(artifact.weights.tensors[name], expected)
        np.testing.assert_array_equal(by_torch[name].numpy(), expected)


def test_safetensors(tmp_path):
    from safetensors.torch import save_file

    tensors = {
        "module.a": torch.arange(6.0).reshape(2, 3),
        "module.half": torch.ones(3, dtype=torch.float16),
        "module.bf16": torch.tensor([1.5, -2], dtype=torch.bfloat16),
        "module.count": torch.tensor(7),
        "module.f8": torch.ones(2).to(torch.float8_e4m3fn),
        "module.none": torch.zeros(0, 2),
    }
    save_file(tensors, tmp_path / "m.pt", metadata={"format": "pt"})
    artifact = open_artifact(tmp_path / "m.pt")
    assert artifact.format == "safetensors"
    assert artifact.weights.metadata == {"format": "pt"}
    assert "prefix 'module.'" in artifact.findings[0]
    arrays = artifact.weights.tensors
    assert set(arrays) == {name.removeprefix("module.") for name in tensors}
    assert arrays["bf16"].dtype == ml_dtypes.bfloat16
    for name, tensor in tensors.items():
        array = arrays[name.removeprefix("module.")]
        np.testing.assert_array_equal(array.astype(np.float64), tensor.double().numpy())
        assert array.shape == tuple(tensor.shape)


def test_safetensors_of_tied_weights(tmp_path):
    """`save_model` writes one of them, and says in the metadata what the others are."""
    from safetensors.torch import load_model, save_model

    layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))
    layers[2].weight = layers[0].weight
    path = str(tmp_path / "model.safetensors")
    save_model(layers, path, {"format": "pt", "best": "0.weight", "best.layer": "0.weight"})
    opened = open_artifact(path)
    arrays = opened.weights.tensors
    assert sorted(arrays) == ["0.bias", "0.weight", "2.bias", "2.weight"]
    (said,) = (finding for finding in opened.findings if "tied" in finding)
    assert said.startswith("1 tensors are tied") and "0.weight" in said and "2.weight" in said
    load_model(layers, path)
    for name, value in layers.state_dict().items():
        np.testing.assert_array_equal(arrays[name], value)


@pytest.mark.parametrize(
    "metadata",
    [
        {"a.weight": "b.weight", "b.weight": "a.weight"},
        {"a.weight": "a.weight"},
        {"a.weight": "none.weight"},
        {"0.weight": "1.weight"},
        {"a.bias": "0.weight"},
        {"weight": "0.weight"},
        {"a": "0.weight"},
        {"a.b": "b.weight", "b.weight": "0.weigh"},
    ],
)
def test_metadata_that_ties_nothing_changes_nothing(metadata, tmp_path):
    from safetensors.numpy import save_file

    tensors = {"0.weight": np.ones(3, np.float32), "1.weight": np.zeros(3, np.float32)}
    save_file(tensors, tmp_path / "a.safetensors", metadata)
    arrays = open_artifact(tmp_path / "a.safetensors").weights.tensors
    assert set(arrays) == set(tensors)
    np.testing.assert_array_equal(arrays["0.weight"], tensors["0.weight"])


def test_tied_weights_are_few_and_small(tmp_path):
    from safetensors.numpy import save_file

    metadata = {f"{n}.weight": "0.weight" for n in range(1, 14)}
    save_file({"0.weight": np.ones(2**19, np.float32)}, tmp_path / "a.safetensors", metadata)
    with pytest.raises(TooLargeError, match="Limits.view_ratio"):
        open_artifact(tmp_path / "a.safetensors")
    with pytest.raises(TooLargeError, match="with tied ones"):
        open_artifact(tmp_path / "a.safetensors", Limits(tensors=8))
