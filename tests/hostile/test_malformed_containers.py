"""Containers that are cut, inconsistent, lying or too large: always one clear `LoadError`."""

import io
import json
import os
import pickle
import socket
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from converters.artifact import open_artifact
from converters.errors import CorruptFileError, LoadError, TooLargeError, UnknownFormatError
from converters.limits import Limits


def opcodes(value) -> bytes:
    """A plain value without the pickle's frame."""
    return pickle.dumps(value, 2)[2:-1]


def tensor() -> bytes:
    """The opcodes of a float32 tensor of shape (2, 3) over storage "0"."""
    storage = b"(" + opcodes("storage") + b"ctorch\nFloatStorage\n"
    storage += opcodes("0") + opcodes("cuda:0") + opcodes(6) + b"tQ"
    rest = opcodes(0) + opcodes((2, 3)) + opcodes((3, 1)) + opcodes(False) + b"NtR"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest


def state_dict(**entries: bytes) -> bytes:
    body = b"".join(opcodes(key) + value for key, value in entries.items())
    return b"\x80\x02}(" + body + b"u."


CONTENT = np.arange(6, dtype=np.float32)
STORED = {"0": CONTENT.tobytes()}


def read(tmp_path: Path, content: bytes, **limits):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    return open_artifact(path, Limits(**limits))


def reject(
    tmp_path: Path, content: bytes, message: str, kind: type[LoadError] = CorruptFileError, **limits
):
    with pytest.raises(kind, match=message):
        read(tmp_path, content, **limits)


@pytest.fixture
def small(tmp_path, make_zip, make_legacy):
    """The same tensor in every format."""
    header = json.dumps(entry(shape=[2, 3])).encode()
    pickled = state_dict(w=tensor())
    return {
        "zip": make_zip(pickled, storages=STORED),
        "legacy": make_legacy(pickled, {"0": (6, CONTENT.tobytes())}),
        "safetensors": struct.pack("<Q", len(header)) + header + CONTENT.tobytes(),
    }


def test_the_small_files_are_sound(small, tmp_path):
    for content in small.values():
        weights = read(tmp_path, content).weights.tensors["w"]
        np.testing.assert_array_equal(weights, CONTENT.reshape(2, 3))


@pytest.mark.parametrize("name", ["zip", "legacy", "safetensors"])
def test_every_truncation_is_a_load_error(name, small, tmp_path):
    content = small[name]
    for length in range(len(content)):
        with pytest.raises(LoadError):
            read(tmp_path, content[:length])


@pytest.mark.parametrize("name", ["zip", "safetensors"])
def test_appended_bytes_are_refused(name, small, tmp_path):
    reject(tmp_path, small[name] + b"x", ".", LoadError)


def test_bytes_after_a_legacy_stream_are_a_finding(small, tmp_path):
    findings = read(tmp_path, small["legacy"] + b"xyz").findings
    assert findings == ("3 unused bytes follow the last storage",)


@pytest.mark.parametrize("limit", ["pickle_steps", "pickle_bytes", "file_bytes", "members"])
def test_caps_can_be_lowered(limit, small, tmp_path):
    reject(tmp_path, small["zip"], limit, TooLargeError, **{limit: 3})


# -- zip -------------------------------------------------------------------------------------------


def zipped(members: list[tuple[str, bytes]], method=zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


PLAIN = [("m/data.pkl", state_dict(w=tensor())), ("m/data/0", STORED["0"]), ("m/version", b"3\n")]


def packed(members: list[tuple[str, bytes]], name: str) -> bytes:
    """A zip with one compressed member."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for other, content in members:
            method = zipfile.ZIP_DEFLATED if other == name else zipfile.ZIP_STORED
            archive.writestr(other, content, method)
    return out.getvalue()


def test_a_compressed_pickle_is_read(tmp_path):
    weights = read(tmp_path, packed(PLAIN, "m/data.pkl")).weights
    np.testing.assert_array_equal(weights.tensors["w"].ravel(), CONTENT)


def test_compressed_storages_are_refused(tmp_path):
    """Mapped into memory, torch reads them as they lie in the file."""
    reject(tmp_path, packed(PLAIN, "m/data/0"), "compressed")


def test_zip_bomb_is_refused_before_expanding(tmp_path):
    bomb = zipped([*PLAIN, ("m/data/1", bytes(2**28))], zipfile.ZIP_DEFLATED)
    assert len(bomb) < 2**20
    tracemalloc.start()
    reject(tmp_path, bomb, "expansion_ratio", TooLargeError)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**25


def test_zip_bomb_that_lies_about_its_size(tmp_path):
    """Declared as 24 bytes, expands to 64 MiB."""
    bomb = packed([("m/data.pkl", bytes(2**26)), PLAIN[1]], "m/data.pkl")
    size = struct.pack("<I", 2**26)
    assert bomb.count(size) == 2
    reject(tmp_path, bomb.replace(size, struct.pack("<I", 24)), "is not 24 bytes long")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_members_are_refused(tmp_path):
    reject(tmp_path, zipped([*PLAIN, PLAIN[1]]), "appears twice")


def test_two_pickles_are_refused(tmp_path):
    content = zipped([*PLAIN, ("n/data.pkl", b"\x80\x02N.")])
    reject(tmp_path, content, "outside the folder", UnknownFormatError)


@pytest.mark.parametrize("name", ["../x", "/x", "m//x", "m/./x", "a\\b"])
def test_odd_member_names_are_refused(name, tmp_path):
    reject(tmp_path, zipped([*PLAIN, (name, b"")]), "not a plain relative path")


def test_encrypted_member_is_refused(tmp_path):
    content = bytearray(zipped(PLAIN))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    reject(tmp_path, bytes(content), "is encrypted; decrypt")


def test_overlapping_members_are_refused(tmp_path):
    content = bytearray(zipped([PLAIN[0], ("m/data/0", STORED["0"]), ("m/data/1", STORED["0"])]))
    last = content.rindex(b"PK\x01\x02")
    second = content.rindex(b"PK\x01\x02", 0, last)
    content[last + 42 : last + 46] = content[second + 42 : second + 46]
    content[last + 46 : last + 54] = content[second + 46 : second + 54]
    content[last + 46 + 7 : last + 46 + 8] = b"1"
    reject(tmp_path, bytes(content), "disagrees|overlaps")


def test_flipped_byte_fails_the_checksum(tmp_path):
    content = bytearray(zipped(PLAIN))
    content[content.index(STORED["0"]) + 5] ^= 1
    reject(tmp_path, bytes(content), "checksum")


def test_damaged_compression_is_refused(tmp_path):
    raw = zlib.compress(PLAIN[0][1])[2:-4]
    content = packed(PLAIN, "m/data.pkl")
    assert raw in content
    reject(tmp_path, content.replace(raw, b"\xff" * len(raw)), "damaged|bytes long")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("m/a.npy", b"x")], "without data.pkl"),
        ([("a.npy", b"x")], "outside the folder"),
        ([*PLAIN, ("m/constants.pkl", b"\x80\x02N."), ("m/code/x.py", b"")], "TorchScript"),
    ],
)
def test_other_zips_are_told_apart(members, message, tmp_path):
    reject(tmp_path, zipped(members), message, UnknownFormatError)


@pytest.mark.parametrize(
    ("said", "is_read"),
    [(b"1", True), (b"3\n", True), (b"10", True), (b"0", False), (b"999\n", False), (b"", False),
     (b"three", False), (None, False)],
)  # fmt: skip
def test_an_archive_of_a_format_that_torch_lacks_is_refused(said, is_read, tmp_path):
    """torch refuses them, too: "Expected hasRecord("version") to be true"."""
    members = [(name, content) for name, content in PLAIN if name != "m/version"]
    members += [] if said is None else [("m/version", said)]
    path = tmp_path / "model.pt"
    path.write_bytes(zipped(members))
    if is_read:
        assert open_artifact(path)
    else:
        reject(tmp_path, zipped(members), "the archive is of format version")


def test_unknown_byte_order_is_refused(tmp_path):
    reject(tmp_path, zipped([*PLAIN, ("m/byteorder", b"middle")]), "byte order 'middle'")


# -- tar -------------------------------------------------------------------------------------------


def tarred(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


TAR = {
    "storages": pickle.dumps(0, 2) + pickle.dumps([], 2),
    "tensors": pickle.dumps(0, 2),
    "pickle": pickle.dumps({}, 2),
}


def test_every_truncation_of_a_tar_is_a_load_error(tmp_path):
    content = tarred(TAR)
    for length in range(0, len(content), 37):
        with pytest.raises(LoadError):
            read(tmp_path, content[:length])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"storages": pickle.dumps(10**9, 2)}, "Limits.tensors"),
        ({"storages": pickle.dumps(-1, 2)}, "expected its length"),
        ({"storages": pickle.dumps(1, 2)}, "too soon"),
        (
            {"tensors": pickle.dumps(1, 2) + pickle.dumps((1, 2, 3), 2) + bytes(16)},
            "used but not in the file",
        ),
        ({"pickle": b"\x80\x02K\x07Q."}, "used but not in the file"),
    ],
)
def test_lying_tar_tables_are_refused(changes, message, tmp_path):
    reject(tmp_path, tarred(TAR | changes), message, LoadError)


def test_tar_of_something_else(tmp_path):
    reject(tmp_path, tarred({"readme": b"x"}), "without pickle", UnknownFormatError)


def test_tar_with_a_link(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:") as tar:
        info = tarfile.TarInfo("pickle")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    reject(tmp_path, out.getvalue(), "is no file")


# -- safetensors -----------------------------------------------------------------------------------


def safe(header: object, content: bytes = STORED["0"]) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + content


def entry(**changes) -> dict:
    return {"w": {"dtype": "F32", "shape": [6], "data_offsets": [0, 24]} | changes}


SAFETENSORS = {
    "gap": (entry(data_offsets=[4, 24], shape=[5]), "leave gaps"),
    "short": (entry(data_offsets=[0, 20], shape=[5]), "the file holds 24"),
    "long": (entry(data_offsets=[0, 28], shape=[7]), "the file holds 24"),
    "overlap": (entry() | {"v": entry()["w"]}, "overlap"),
    "reversed": (entry(data_offsets=[24, 0]), "overlap or leave gaps"),
    "negative": (entry(data_offsets=[-1, 24]), "no data_offsets"),
    "float offset": (entry(data_offsets=[0.0, 24]), "no data_offsets"),
    "shape": (entry(shape=[7]), "does not give the 24 bytes"),
    "shape overflow": (entry(shape=[2**62, 2**62]), "does not give"),
    "negative shape": (entry(shape=[-6]), "does not give"),
    "dtype": (entry(dtype="F4"), "dtype 'F4', expected one of"),
    "list dtype": (entry(dtype=["F32"]), "dtype a list"),
    "no table": (b"{1}", "not JSON"),
    "not an object": (b"{}".replace(b"{}", b'{"w": 3}'), "no data_offsets"),
    "twice": (b'{"w": 1, "w": 2}', "twice"),
    "deep": (b'{"w": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    "metadata": (entry() | {"__metadata__": {"a": 1}}, "table of text"),
    "not text": (b'{"\xff": 1}', "not JSON"),
}


@pytest.mark.parametrize("case", sorted(SAFETENSORS))
def test_malformed_safetensors(case, tmp_path):
    header, message = SAFETENSORS[case]
    reject(tmp_path, safe(header), message)


def test_safetensors_header_caps(tmp_path):
    reject(tmp_path, safe(entry()), "header_bytes", TooLargeError, header_bytes=10)
    reject(tmp_path, safe(entry()), "Limits.tensors", TooLargeError, tensors=0)


def test_safetensors_with_huge_dimensions_and_no_elements(tmp_path):
    header = entry(shape=[0, 2**62], data_offsets=[0, 0])
    reject(tmp_path, safe(header, b""), "tensor_bytes", TooLargeError)


# -- not a readable file ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<!DOCTYPE html>", "web page"),
        (b"\x89HDF\r\n\x1a\n", "Keras"),
        (b"\x1f\x8b\x08", "unpack it first"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (os.urandom(0) + bytes(range(200, 256)) * 9, "encrypted or damaged"),
        (b"c", "no supported format"),
        (b"class_name,other\n1,2\n", "no supported format"),
        (b"\0" * 4096, "no supported format"),
    ],
)
def test_unknown_content(content, message, tmp_path):
    reject(tmp_path, content, message, UnknownFormatError)


def test_empty_file(tmp_path):
    reject(tmp_path, b"", "is empty")


def test_directory_pipe_socket_and_device(tmp_path):
    pipe, bound = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(bound))
        for path in (tmp_path, pipe, bound, Path("/dev/zero")):
            with pytest.raises(UnknownFormatError, match="is a "):
                open_artifact(path)


def test_missing_file_and_impossible_path(tmp_path):
    with pytest.raises(LoadError, match="No such file"):
        open_artifact(tmp_path / "none.pt")
    with pytest.raises(LoadError, match="check the path"):
        open_artifact("a\0b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_unreadable_file(tmp_path, small):
    path = tmp_path / "model.pt"
    path.write_bytes(small["zip"])
    path.chmod(0)
    with pytest.raises(LoadError, match="Permission denied"):
        open_artifact(path)


def test_symbolic_links_are_followed(tmp_path, small):
    (tmp_path / "real").write_bytes(small["zip"])
    (tmp_path / "link.pt").symlink_to("real")
    assert open_artifact(tmp_path / "link.pt").format == "torch zip"


def test_huge_sparse_file_is_refused_from_its_head(tmp_path):
    path = tmp_path / "model.pt"
    with path.open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(UnknownFormatError):
        open_artifact(path)
