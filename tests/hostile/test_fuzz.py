"""Random damage to real files: a `LoadError` or a successful reading, nothing else."""

import io
import pickle
import time
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from converters.artifact import open_artifact
from converters.errors import LoadError
from converters.limits import Limits
from converters.pickles.unpickle import unpickle

QUICK = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
EDITS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8
)
# Values that matter to parsers: opcodes, lengths, signs.
SPLICES = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=12), st.integers(0, 12)),
    min_size=1,
    max_size=3,
)


def network():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))


@pytest.fixture(scope="module")
def files():
    """Small real files by format."""
    found = {}
    for name, zipped in (("zip", True), ("legacy", False)):
        out = io.BytesIO()
        torch.save(network(), out, _use_new_zipfile_serialization=zipped)
        found[name] = out.getvalue()
    from safetensors.torch import save

    found["safetensors"] = save(network().state_dict())
    return found


def survives(path, content: bytes) -> None:
    path.write_bytes(content)
    started = time.process_time()
    try:
        artifact = open_artifact(path)
    except LoadError as error:
        assert str(error).isprintable()
    else:
        assert all(isinstance(a, np.ndarray) for a in artifact.weights.tensors.values())
    assert time.process_time() - started < 5


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["zip", "legacy", "safetensors"])
@QUICK
@given(edits=EDITS)
def test_changed_bytes(name, files, tmp_path, edits):
    content = bytearray(files[name])
    for place, value in edits:
        content[int(place * len(content))] = value
    survives(tmp_path / "model.pt", bytes(content))


@pytest.mark.parametrize("name", ["zip", "legacy", "safetensors"])
@QUICK
@given(splices=SPLICES)
def test_spliced_bytes(name, files, tmp_path, splices):
    content = files[name]
    for place, inserted, removed in splices:
        at = int(place * len(content))
        content = content[:at] + inserted + content[at + removed :]
    survives(tmp_path / "model.pt", content)


@QUICK
@given(edits=EDITS)
def test_changed_pickle_inside_a_sound_zip(files, tmp_path, edits):
    """Damage that no checksum notices, as an attacker would do it."""
    source = zipfile.ZipFile(io.BytesIO(files["zip"]))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in source.namelist():
            content = bytearray(source.read(name))
            if name.endswith("data.pkl"):
                for place, value in edits:
                    content[int(place * len(content))] = value
            archive.writestr(name, bytes(content))
    survives(tmp_path / "model.pt", out.getvalue())


@QUICK
@given(st.binary(max_size=200))
def test_random_pickle(raw):
    try:
        _, end = unpickle(b"\x80\x02" + raw, limits=Limits(pickle_steps=1000))
    except LoadError:
        return
    assert 2 < end <= len(raw) + 2


PLAIN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False)
    | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner)
    | st.sets(st.integers(-(2**40), 2**40)) | st.frozensets(st.text()),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.parametrize("protocol", range(6))
@QUICK
@given(value=PLAIN_VALUES)
def test_plain_values_are_read_as_python_reads_them(protocol, value):
    raw = pickle.dumps(value, protocol)
    result, end = unpickle(raw)
    assert result == value
    assert end == len(raw)
