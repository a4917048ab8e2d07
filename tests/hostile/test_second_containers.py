"""Files of two containers, and members that readers choose otherwise: refused, or as torch does.

Each is given to the real torch too, in a process of its own, so that the test shows what it reads.
"""

import hashlib
import io
import pickle
import struct
import zipfile

import numpy as np
import onnx
import pytest
import torch

from converters import open_artifact
from converters.containers.zip_file import ZipReader, _wide
from converters.errors import ConverterError, CorruptFileError
from converters.limits import Limits
from converters.opening import open_model
from tests.hostile.second_readings import checked, reads, saved, tar_behind, tar_of, values, weights


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


def test_a_zip_at_the_end_of_an_onnx_file(tmp_path):
    """onnxruntime reads the graph and passes over the text; torch.jit.load looks from the end."""
    path = tmp_path / "model.onnx"
    info = [onnx.helper.make_tensor_value_info(n, 1, [1, 3, 8, 8]) for n in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", "x", "y")], "g", info[:1], info[1:]
    )
    data = onnx.helper.make_model(graph).SerializeToString()
    # The field of the model's text, with the zip as its content.
    zipped = saved(weights(1.0))
    size, length = len(zipped), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    path.write_bytes(data + b"\x32" + length + bytes([size]) + zipped)
    with pytest.raises(CorruptFileError, match="an ONNX file and a zip in one") as caught:
        open_model(path)
    assert caught.value.digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_onnx_file_that_begins_as_onnxruntime_s_own_format(tmp_path):
    """onnxruntime takes bytes with "ORTM" at 4 for a flatbuffer, a path for ONNX."""
    path = tmp_path / "model.onnx"
    info = [onnx.helper.make_tensor_value_info(n, 1, [1, 3, 8, 8]) for n in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", "x", "y")], "g", info[:1], info[1:]
    )
    model = onnx.helper.make_model(graph, producer_name="ORTM")
    path.write_bytes(model.SerializeToString())
    assert path.read_bytes()[4:8] == b"ORTM"
    with pytest.raises(CorruptFileError, match="an ONNX file and an ORT model in one"):
        open_model(path)


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


def widened(extra: bytes) -> bytes:
    """A zip of one member whose size the directory leaves to its extra field."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", b"12345")
    content = bytearray(out.getvalue())
    content[22:26] = b"\xff" * 4
    start, name = content.index(b"PK\1\2"), 46 + len("a")
    entry = content[start : start + name]
    entry[24:28] = b"\xff" * 4
    entry[30:32] = struct.pack("<H", len(extra))
    end = content[start + name :]
    end[12:16] = struct.pack("<I", name + len(extra))
    return bytes(content[:start] + entry + extra + end)


def test_sizes_of_64_bits_come_from_their_record():
    other, own = struct.pack("<HHI", 9, 4, 1), struct.pack("<HHQ", 1, 8, 5)
    for extra in (own, other + own, own + other):
        assert bytes(ZipReader(widened(extra), Limits()).read("a")) == b"12345"


@pytest.mark.parametrize(
    "extra, message",
    [
        (struct.pack("<HHI", 1, 4, 5), "4 bytes of 64-bit sizes and says 4, expected 8"),
        (struct.pack("<HHI", 1, 8, 5), "4 bytes of 64-bit sizes and says 8"),
        # Another reader may take the first record, or the last.
        (struct.pack("<HHI", 1, 4, 5) + struct.pack("<HHQ", 1, 8, 5), "expected 8"),
        (struct.pack("<HH", 2, 0) * 16000, "misses its 64-bit sizes"),
    ],
)
def test_a_record_of_sizes_that_is_short_or_absent(extra, message):
    with pytest.raises(CorruptFileError, match=message):
        ZipReader(widened(extra), Limits())


def test_records_of_an_extra_field_are_not_copied():
    """Each of 16,000 empty records cost a copy of all that followed."""
    counted = CountedBytes(struct.pack("<HH", 1, 0) * 16000)
    with pytest.raises(CorruptFileError, match="expected 8"):
        _wide(counted, 2**32 - 1, 5, 0)
    assert counted.copied <= 8


class CountedBytes(bytes):
    """Bytes that count what is copied out of them."""

    copied = 0

    def __getitem__(self, key):
        found = super().__getitem__(key)
        self.copied += len(found) if isinstance(found, bytes) else 1
        return found
