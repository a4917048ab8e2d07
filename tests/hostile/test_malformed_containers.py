"""Containers that are cut, inconsistent, lying or too large: always one clear `LoadError`."""

import io
import json
import os
import pickle
import socket
import struct
import subprocess
import sys
import tarfile
import time
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from converters.artifact import open_artifact
from converters.errors import CorruptFileError, LoadError, TooLargeError, UnknownFormatError
from converters.limits import Limits

# -- a tensor by hand: class, key, location, numel; then offset, shape, stride ---------------------


def opcodes(value) -> bytes:
    """A plain value without the pickle's frame."""
    return pickle.dumps(value, 2)[2:-1]


def tensor(
    numel=6, offset=0, shape=(2, 3), stride=(3, 1), kind="FloatStorage", key="0", view=None
) -> bytes:
    storage = b"(" + opcodes("storage") + f"ctorch\n{kind}\n".encode() + opcodes(key)
    storage += opcodes("cuda:0") + opcodes(numel) + (b"" if view is None else opcodes(view)) + b"tQ"
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + opcodes(offset)
        + opcodes(shape)
        + opcodes(stride)
        + opcodes(False)
        + b"NtR"
    )


def state_dict(**entries: bytes) -> bytes:
    body = b"".join(opcodes(key) + value for key, value in entries.items())
    return b"\x80\x02}(" + body + b"u."


CONTENT = np.arange(6, dtype=np.float32)
STORED = {"0": CONTENT.tobytes()}


def read(tmp_path: Path, content: bytes, **limits):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    return open_artifact(path, Limits(**limits))


def reject(tmp_path: Path, content: bytes, message: str, kind=CorruptFileError, **limits):
    with pytest.raises(kind, match=message):
        read(tmp_path, content, **limits)


@pytest.fixture
def small(tmp_path, make_zip, make_legacy):
    """The same two tensors in every format."""
    arrays = b"".join(
        struct.pack("<Q", len(header)) + header + CONTENT.tobytes()
        for header in [
            json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
        ]
    )
    pickled = state_dict(w=tensor())
    legacy = state_dict(w=tensor(view=(None,))).replace(opcodes((None,)), b"N")
    return {
        "zip": make_zip(pickled, storages=STORED),
        "legacy": make_legacy(legacy, {"0": (6, CONTENT.tobytes())}),
        "safetensors": arrays,
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


# -- tensors that lie ------------------------------------------------------------------------------

LIES = {
    "shape past the storage": (dict(shape=(7,), stride=(1,)), "past the 24 bytes"),
    "offset past the storage": (dict(offset=1), "past the 24 bytes"),
    "huge offset": (dict(offset=2**62), "past the 24 bytes"),
    "negative offset": (dict(offset=-1), "offset -1"),
    "negative stride": (dict(stride=(-3, 1)), "entry -3"),
    "negative shape": (dict(shape=(-2, 3)), "entry -2"),
    "stride overflow": (dict(stride=(2**63 - 1, 1)), "past the 24 bytes"),
    "stride over 63 bits": (dict(stride=(2**63, 1)), "expected integers"),
    "ranks differ": (dict(stride=(1,)), "2 dimensions but 1 strides"),
    "text in shape": (dict(shape=("2", 3)), "expected integers"),
    "bool in shape": (dict(shape=(True, 6)), "expected integers"),
    "float in shape": (dict(shape=(2.0, 3)), "expected integers"),
    "33 dimensions": (dict(shape=(1,) * 33, stride=(1,) * 33), "at most 32"),
    "numel": (dict(numel=7), "should have 7"),
    "numel overflow": (dict(numel=2**62), "should have"),
    "negative numel": (dict(numel=-6), "-6 elements"),
    "dtype": (dict(kind="DoubleStorage"), "should have 6 x float64"),
    "missing storage": (dict(key="9"), "the zip holds 0 bytes"),
    "key with a path": (dict(key="../data.pkl"), "the zip holds 0 bytes"),
    "view past the storage": (dict(view=("v", 3, 4)), "does not fit"),
    "view not a triple": (dict(view=(1, 2)), "not a triple"),
}


@pytest.mark.parametrize("case", sorted(LIES))
def test_lying_tensor_is_refused(case, tmp_path, make_zip):
    arguments, message = LIES[case]
    reject(tmp_path, make_zip(state_dict(w=tensor(**arguments)), storages=STORED), message)


@pytest.mark.parametrize(
    "shape", [(2**40,), (2**31, 2**31), (2**62, 2**62), (0, 2**62), (10**6, 10**6)]
)
def test_expansion_through_zero_strides_is_refused(shape, tmp_path, make_zip):
    pickled = state_dict(w=tensor(shape=shape, stride=(0,) * len(shape)))
    reject(tmp_path, make_zip(pickled, storages=STORED), "tensor_bytes", TooLargeError)


def test_many_views_of_one_storage_are_refused(tmp_path, make_zip):
    wide = tensor(shape=(2**20, 1), stride=(0, 1))
    pickled = state_dict(**{f"w{i}": wide for i in range(6)})
    reject(tmp_path, make_zip(pickled, storages=STORED), "view_ratio", TooLargeError)


def test_stride_of_a_single_element_is_ignored(tmp_path, make_zip):
    pickled = state_dict(w=tensor(shape=(1, 6), stride=(2**62, 1)))
    weights = read(tmp_path, make_zip(pickled, storages=STORED)).weights
    assert weights.tensors["w"].shape == (1, 6)


@pytest.mark.parametrize("other", [dict(kind="IntStorage"), dict(numel=5)])
def test_one_storage_described_twice_differently(other, tmp_path, make_zip):
    pickled = state_dict(a=tensor(), b=tensor(**other))
    reject(tmp_path, make_zip(pickled, storages=STORED), "described as")


@pytest.mark.parametrize("count", [-1, 0, 5, 7, 2**62])
def test_legacy_storage_must_have_its_announced_length(count, tmp_path, make_legacy):
    pickled = state_dict(w=tensor())
    reject(tmp_path, make_legacy(pickled, {"0": (count, CONTENT.tobytes())}), "its description 6")


@pytest.mark.parametrize("keys", [["0", "0"], ["1"], [], "0", [0]])
def test_legacy_storage_list_must_match(keys, tmp_path, make_legacy):
    content = make_legacy(state_dict(w=tensor())).replace(
        pickle.dumps([], 2), pickle.dumps(keys, 2)
    )
    reject(tmp_path, content + struct.pack("<q", 6) + CONTENT.tobytes(), "storage")


# -- pickles that cost -----------------------------------------------------------------------------

PICKLE_BOMBS = {
    "deep lists": b"\x80\x02" + b"(" * 200_000 + b"l" * 200_000 + b".",
    "deep tuples": b"\x80\x02)" + b"\x85" * 400_000 + b".",
    "deep dict value": b"\x80\x02" + b"}K\x01" * 100_000 + b"N" + b"s" * 100_000 + b".",
    "deep tuple as key": b"\x80\x02})" + b"\x85" * 400_000 + b"Ns.",
    "billion laughs": b"\x80\x02]q\x00"
    + b"".join(
        b"](" + b"h" + bytes([i]) * 1 + (b"h" + bytes([i])) * 50 + b"eq" + bytes([i + 1])
        for i in range(60)
    )
    + b".",
    "list of itself": b"\x80\x02]q\x00h\x00a.",
    "many steps": b"\x80\x02" + b"N0" * 2_000_000 + b"N.",
    "many sets": b"\x80\x02(" + b"\x8f" * 1_000_000 + b"l.",
    "copies": b"\x80\x02](" + b"N" * 60_000 + b"eq\x00" + b"ctorch\nSize\n(h\x00tR" * 60_000 + b".",
    "copies of text": b"\x80\x02X"
    + struct.pack("<I", 2**20)
    + b"a" * 2**20
    + b"q\x000"
    + b"c_codecs\nencode\n(h\x00tR" * 5_000
    + b".",
    "states": b"\x80\x02}("
    + b"".join(opcodes(f"k{i}") + b"N" for i in range(40_000))
    + b"uq\x00"
    + b"ctorch.nn\nLinear\n)\x81h\x00b" * 40_000
    + b".",
    "long integer": b"\x80\x02\x8b" + struct.pack("<i", 2**20) + b"\x01" * 2**20 + b".",
    "long integer, lying": b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b".",
    "negative length": b"\x80\x02\x8b" + struct.pack("<i", -1) + b".",
    "long decimal": b"\x80\x02I" + b"9" * 10**6 + b"\n.",
    "lying text": b"\x80\x02X" + struct.pack("<I", 2**32 - 1) + b".",
    "lying bytes": b"\x80\x02\x8e" + struct.pack("<Q", 2**63) + b".",
    "lying frame": b"\x80\x04\x95" + struct.pack("<Q", 2**63) + b"N.",
    "colliding keys": b"\x80\x02}("
    + b"".join(opcodes(i * (2**61 - 1)) + b"N" for i in range(1, 20_000))
    + b"u.",
    "lines without end": b"\x80\x02" + b"I1\n0" * 100_000 + b"c" + b"x" * 2**20,
    "no stop": b"\x80\x02N",
    "underflow": b"\x80\x020.",
    "mark missing": b"\x80\x02Nu.",
    "pop through a mark": b"\x80\x02N(\x85.",
    "unknown memo": b"\x80\x02h\x09.",
    "unknown opcode": b"\x80\x02\xff.",
    "bad text": b"\x80\x02X\x01\x00\x00\x00\xff.",
    "bad quoted text": b"\x80\x02S'\\x'\n.",
    "bad number": b"\x80\x02Fabc\n.",
    "bad unicode escape": b"\x80\x02V\\u12\n.",
    "odd items": b"\x80\x02}(Nu.",
}


@pytest.mark.parametrize("case", sorted(PICKLE_BOMBS))
def test_pickle_bomb_is_refused_quickly(case, tmp_path, make_zip):
    started = time.process_time()
    for content in (make_zip(PICKLE_BOMBS[case]), PICKLE_BOMBS[case]):
        reject(tmp_path, content, ".", LoadError)
    assert time.process_time() - started < 20


def module_opcodes(children: bytes) -> bytes:
    return (
        b"ctorch.nn\nLinear\n)\x81}("
        + opcodes("_parameters")
        + b"}"
        + opcodes("_buffers")
        + b"}"
        + opcodes("_modules")
        + children
        + b"ub"
    )


# Memo entries 98 and 99: `opcodes` uses the low ones itself.


def test_module_that_contains_itself(tmp_path, make_zip):
    pickled = b"\x80\x02" + b"}qb0" + module_opcodes(b"hb") + b"qc"
    pickled += b"0hb" + opcodes("a") + b"hcs0hc."
    reject(tmp_path, make_zip(pickled), "module_depth", TooLargeError)


def test_modules_shared_without_end(tmp_path, make_zip):
    """30 modules with 2 references each to the next would be a billion names."""
    pickled = b"\x80\x02" + module_opcodes(b"}") + b"qc"
    for _ in range(30):
        children = b"}(" + opcodes("a") + b"hc" + opcodes("b") + b"hcu"
        pickled += b"0" + module_opcodes(children) + b"qc"
    reject(tmp_path, make_zip(pickled + b"."), "Limits.modules", TooLargeError)


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


PLAIN = [("m/data.pkl", state_dict(w=tensor())), ("m/data/0", STORED["0"])]


def test_compressed_members_are_read(tmp_path):
    weights = read(tmp_path, zipped(PLAIN, zipfile.ZIP_DEFLATED)).weights
    np.testing.assert_array_equal(weights.tensors["w"].ravel(), CONTENT)


def test_zip_bomb_is_refused_before_expanding(tmp_path):
    bomb = zipped([*PLAIN, ("m/data/1", bytes(2**28))], zipfile.ZIP_DEFLATED)
    assert len(bomb) < 2**20
    tracemalloc.start()
    reject(tmp_path, bomb, "expansion_ratio", TooLargeError)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**25


def test_zip_bomb_that_lies_about_its_size(tmp_path):
    """Declared as the 24 bytes it should be, expands to 64 MiB."""
    bomb = bytearray(zipped([PLAIN[0], ("m/data/0", bytes(2**26))], zipfile.ZIP_DEFLATED))
    size = struct.pack("<I", 2**26)
    assert bomb.count(size) == 2
    reject(tmp_path, bytes(bomb).replace(size, struct.pack("<I", 24)), "is not 24 bytes long")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_members_are_refused(tmp_path):
    reject(tmp_path, zipped([*PLAIN, PLAIN[1]]), "appears twice")


def test_two_pickles_are_refused(tmp_path):
    reject(tmp_path, zipped([*PLAIN, ("n/data.pkl", b"\x80\x02N.")]), "2 data.pkl")


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
    packed = zlib.compress(STORED["0"])[2:-4]
    content = zipped(PLAIN, zipfile.ZIP_DEFLATED)
    assert packed in content
    reject(tmp_path, content.replace(packed, b"\xff" * len(packed)), "damaged|not 24")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.npy", b"x")], "without data.pkl"),
        ([*PLAIN, ("m/constants.pkl", b"\x80\x02N."), ("m/code/x.py", b"")], "TorchScript"),
    ],
)
def test_other_zips_are_told_apart(members, message, tmp_path):
    reject(tmp_path, zipped(members), message, UnknownFormatError)


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
    reject(tmp_path, out.getvalue(), "is a link")


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


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_bombs_stay_within_200_mb(tmp_path):
    """All bombs one after the other in a fresh process, for an honest peak."""
    paths = []
    for number, content in enumerate(PICKLE_BOMBS.values()):
        paths.append(tmp_path / str(number))
        paths[-1].write_bytes(content)
    script = (
        "import sys\n"
        "from converters.artifact import open_artifact\n"
        "from converters.errors import LoadError\n"
        "for path in sys.argv[1:]:\n"
        "    try: open_artifact(path)\n"
        "    except LoadError: pass\n"
        # Not ru_maxrss, which a child takes over from the process that started it.
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "print(int(status['VmHWM'].split()[0]) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, paths)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=True,
        timeout=300,
    )
    assert int(done.stdout) < 200
