"""NumPy arrays in plain pickles: protocols, orders in memory, what numpy would read otherwise."""

import pickle
import pickletools

import numpy as np
import pytest
import torch

from converters.artifact import open_artifact
from converters.errors import LoadError
from converters.limits import Limits

_ARRAY = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
ARRAYS = {
    "C": _ARRAY,
    "F": np.asfortranarray(_ARRAY),
    "other axes": _ARRAY.transpose(1, 2, 0),
    "one axis turned": _ARRAY[::-1],
    "big-endian": _ARRAY.astype(">f4"),
    "none": np.zeros((0, 3), np.float32),
    "whole numbers": np.arange(6).reshape(3, 2),
}


@pytest.fixture
def opened(tmp_path):
    """Opens the bytes of a pickle."""

    def tensors(content, limits=None):
        path = tmp_path / "model.pkl"
        path.write_bytes(content)
        return open_artifact(path, limits=limits).weights.tensors

    return tensors


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_of_every_protocol(opened, case, protocol, old):
    content = pickle.dumps({"w": ARRAYS[case]}, protocol)
    if old and protocol > 2:  # numpy before 2 writes other names of modules
        content = content.replace(b"\x13numpy._core.numeric", b"\x12numpy.core.numeric")
        content = content.replace(b"\x16numpy._core.multiarray", b"\x15numpy.core.multiarray")
        content = _reframed(content)
    np.testing.assert_array_equal(opened(content)["w"], ARRAYS[case])


def _reframed(content):
    """The pickle with the length of its one frame set right."""
    assert content[2:3] == b"\x95"
    return content[:3] + (len(content) - 11).to_bytes(8, "little") + content[11:]


def test_arrays_that_are_read_only_or_shared(opened):
    fixed = _ARRAY.copy()
    fixed.flags.writeable = False
    found = opened(pickle.dumps({"a": fixed, "b": _ARRAY, "c": _ARRAY}, 5))
    for name in "abc":
        np.testing.assert_array_equal(found[name], _ARRAY)


def _in_band(order: str, shape: tuple, axes: str = "") -> bytes:
    """A pickle of 4 zeros of float32 in another order and shape than numpy writes."""
    numbers = "".join(f"I{n}\n" for n in shape)
    return (
        b"\x80\x02}(X\x01\x00\x00\x00wcnumpy._core.numeric\n_frombuffer\n(B\x10\x00\x00\x00"
        + bytes(16)
        + b"cnumpy\ndtype\n(X\x02\x00\x00\x00f4I0\nI1\ntR"
        + f"({numbers}tV{order}\n{axes}tRu.".encode()
    )


def test_zeros_in_band(opened):
    assert opened(_in_band("C", (2, 2)))["w"].shape == (2, 2)
    assert opened(_in_band("K", (4, 1), "(I1\nI0\nt"))["w"].shape == (1, 4)


@pytest.mark.parametrize(
    ("order", "shape", "axes"),
    [
        ("A", (2, 2), ""),
        ("K", (2, 2), ""),
        ("X", (2, 2), ""),
        ("C", (2, 2), "(I1\nI0\nt"),
        ("K", (2, 2), "(I0\nI0\nt"),
        ("K", (2, 2), "(I0\nt"),
        ("K", (2, 2), "(I-1\nI0\nt"),
        ("K", (2, 2), "I1\n"),
        ("C", (2, 3), ""),
        ("C", (-1, 4), ""),
        ("C", (2,) * 40, ""),
    ],
)
def test_other_orders_and_shapes_are_refused(opened, order, shape, axes):
    with pytest.raises(LoadError):
        opened(_in_band(order, shape, axes))


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_type_that_changes_behind_its_array_is_refused(opened, protocol):
    """numpy keeps the type itself, so that the array changes with it."""
    content = pickle.dumps({"w": _ARRAY}, protocol)
    kept = _memo_of_type(content)
    more = b"h" + bytes([kept]) + b"(K\x03\x8c\x01>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb0."
    changed = _reframed(content[:-1] + more)
    assert not np.array_equal(pickle.loads(changed)["w"], _ARRAY), "it is not hostile"
    with pytest.raises(LoadError, match="is changed after an array"):
        opened(changed)


def _memo_of_type(content: bytes) -> int:
    """Number under which the pickle keeps the type of its array."""
    unmade = content[: content.index(b"(K\x03\x8c\x01<")]
    assert unmade.endswith(b"R\x94")
    return sum(op.name == "MEMOIZE" for op, _, _ in pickletools.genops(unmade + b".")) - 1


def test_arrays_that_take_too_much_say_what_to_do(opened, tmp_path):
    arrays = {"w": np.ones(10_000, np.float32)}
    for protocol, size in ((2, 65_000), (2, 30_000), (5, 30_000)):
        with pytest.raises(LoadError, match="pickle_bytes.*torch.from_numpy.*safetensors"):
            opened(pickle.dumps(arrays, protocol), Limits(pickle_bytes=size))
    torch.save(arrays, tmp_path / "model.pt")
    with pytest.raises(LoadError, match="pickle_bytes.*torch.from_numpy.*safetensors"):
        open_artifact(tmp_path / "model.pt", limits=Limits(pickle_bytes=10_000))
