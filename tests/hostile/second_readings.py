"""Files that torch could read in another way than we do, and what it reads of them."""

import io
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import torch

SHAPE = (2, 3, 32, 32)
LOAD = "torch.load"


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


def logits(runtime, path) -> np.ndarray:
    reading = reads(runtime, path)
    assert reading.read, reading.answer
    return reading.arrays["logits"]
