"""Pickles that torch could read in another way than we do: refused, or read as torch reads them.

Each is given to the real torch too, in a process of its own, so that the test shows what it reads.
"""

import io
import pickle
import struct
from typing import Any

import numpy as np
import pytest
import torch
from torch import _utils, nn

from converters import open_artifact
from converters.errors import ConverterError, CorruptFileError
from converters.opening import open_model
from tests.hostile.second_readings import saved, values

NEGATED: Any = vars(torch)["_neg_view"]  # torch does not export it


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
        return _utils._rebuild_tensor, (self.storage, 0, (2,), (1,))


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


def test_a_state_gives_a_tensor_other_values(runtime, tmp_path):
    """BUILD with four parts is torch's oldest form of a tensor; the values become the storage's."""

    class Second:
        def __reduce__(self):
            one, two = _storage("0"), _storage("1")
            build = _utils._rebuild_tensor
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
            build = _utils._rebuild_parameter_with_state
            return build, (shown.data, False, {}, {"data": used})

    path = tmp_path / "model.pt"
    path.write_bytes(saved({"w": Noted()}))
    assert values(runtime, path) == [2.0, 2.0]
    with pytest.raises(ConverterError, match="attribute 'data'"):
        open_artifact(path)


def test_a_key_twice_keeps_its_place_and_takes_the_later_value(runtime, tmp_path):
    later = _View(_Identity("storage", torch.FloatStorage, "1", "cpu", 2, None))
    earlier = _View(_Identity("storage", torch.FloatStorage, "0", "cpu", 2, None))
    root = pickled({"w": earlier, "v": earlier, "W": later})
    path = tmp_path / "model.pt"
    storages = [np.array([k, k], np.float32) for k in (1, 2)]
    twice = root.replace(b"X\x01\x00\x00\x00W", b"X\x01\x00\x00\x00w")
    path.write_bytes(stream_of(twice, ["0", "1"], storages))
    assert values(runtime, path) == [2.0, 2.0]
    found = open_artifact(path).weights.tensors
    assert list(found) == ["w", "v"] and list(found["w"]) == [2.0, 2.0]


class _Own(torch.Tensor):
    """A class whose operators may do anything."""


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, dtype=torch.complex64),
        lambda: torch.ones(2).to_sparse(),
        lambda: torch.ones(2, dtype=torch.complex64).conj(),
        lambda: NEGATED(torch.ones(2)),
        lambda: torch.ones(2, device="meta"),
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        lambda: torch.ones(2).as_subclass(_Own),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_of_other_kinds_are_refused(make, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(saved({"fc.weight": make()}))
    with pytest.raises(ConverterError):
        open_model(path)
