"""Pickles that cost memory or time far beyond their size: refused early."""

import pickle
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from converters.artifact import open_artifact
from converters.errors import LoadError, TooLargeError


def opcodes(value) -> bytes:
    """A plain value without the pickle's frame."""
    return pickle.dumps(value, 2)[2:-1]


def read(tmp_path: Path, content: bytes):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    return open_artifact(path)


def reject(tmp_path: Path, content: bytes, message: str, kind=LoadError):
    with pytest.raises(kind, match=message):
        read(tmp_path, content)


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


WRAPPED_IN_ITSELF = (
    b"\x80\x02ctorch.nn.parallel.data_parallel\nDataParallel\n)\x81qc}(" + opcodes("_modules")
    + b"}" + opcodes("module") + b"hcsub."
)  # fmt: skip
SHARED = b"".join(
    b"0" + module_opcodes(b"}(" + opcodes("a") + b"hc" + opcodes("b") + b"hcu") + b"qc"
    for _ in range(13)
)
WIDE = b"}(" + b"".join(opcodes(f"k{i}") + b"N" for i in range(20_000)) + b"uqe0"
LONG = b"](" + b"](".join([b""] + [b"K\x01" * 60 + b"e"] * 60) + b"eqe0"

EXPANDING = {
    "wrapper around itself": WRAPPED_IN_ITSELF,
    "no dict of modules": WRAPPED_IN_ITSELF.replace(b"}" + opcodes("module") + b"hcs", b"]"),
    "wide parameters under many names": b"\x80\x02" + WIDE
    + module_opcodes(b"}").replace(opcodes("_parameters") + b"}", opcodes("_parameters") + b"he")
    + b"qc" + SHARED + b".",
    "long attributes under many names": b"\x80\x02" + LONG
    + module_opcodes(b"}" + b"".join(opcodes(f"a{i}") + b"he" for i in range(500)))
    + b"qc" + SHARED + b".",
    "prefix without end": b"\x80\x02}" + opcodes("module." * 500_000)
    + b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\nNNtR(K\x01)cnumpy\ndtype\n("
    + opcodes("f4") + b"tR\x89C\x04abcdtbs.",
    "dict of one dict": b"\x80\x02" + WIDE + b"}("
    + b"".join(opcodes(f"k{i}") + b"he" for i in range(20_000)) + b"u.",
    "non-persistent tuple": b"\x80\x02"
    + module_opcodes(b"}" + opcodes("_non_persistent_buffers_set") + b"(K\x01t") + b".",
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(EXPANDING))
def test_expansion_while_walking_is_refused_quickly(case, tmp_path):
    """Sound pickles whose content repeats itself until reading it would not end."""
    started = time.process_time()
    path = tmp_path / "model.pt"
    path.write_bytes(EXPANDING[case])
    if case == "prefix without end":
        assert len(open_artifact(path).weights.tensors) == 1
    else:
        with pytest.raises(LoadError):
            open_artifact(path)
    assert time.process_time() - started < 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_bombs_stay_within_200_mb(tmp_path):
    """All bombs one after the other in a fresh process, for an honest peak."""
    paths = []
    for number, content in enumerate((PICKLE_BOMBS | EXPANDING).values()):
        paths.append(tmp_path / str(number))
        paths[-1].write_bytes(content)
    paths.append(tmp_path / "safetensors")
    header = b'{"w": [' + b"[]," * 1_300_000 + b"[]]}"
    paths[-1].write_bytes(struct.pack("<Q", len(header)) + header)
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
