"""Tensor descriptions that lie about their storage: refused before anything is allocated."""

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from converters.artifact import open_artifact
from converters.errors import CorruptFileError, LoadError, TooLargeError

# A tensor by hand: class, key, location, numel; then offset, shape, stride.


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


def read(tmp_path: Path, content: bytes):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    return open_artifact(path)


def reject(tmp_path: Path, content: bytes, message: str, kind: type[LoadError] = CorruptFileError):
    with pytest.raises(kind, match=message):
        read(tmp_path, content)


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
    "view not a triple": (dict(view=(1, 2)), "has a view that is not"),
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
