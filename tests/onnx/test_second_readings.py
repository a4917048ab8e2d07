"""What onnxruntime could read in another way is refused, or read as onnxruntime reads it.

The classifier behind every case is run by onnxruntime as well where it is installed; it was 1.31
when the cases were written.
"""

import hashlib
import importlib.util

import numpy as np
import pytest
from onnx import TensorProto

from converters.errors import ConverterError, CorruptFileError, TooLargeError
from converters.graph.onnx import load_onnx, read_onnx
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.wire import check_cost
from converters.input_form import InputForm
from tests.onnx.second_readings import CASES

_ORT = importlib.util.find_spec("onnxruntime") is not None
# Everything else in CASES is refused.
READ = {
    "nothing",
    "a function of a domain of its own",
    "two overloads of one function",
    "a function calling another",
    "a function with an attribute that it does not declare",
    "a function's declared attribute, given",
    "a function's declared attribute, not given",
    "a function's undeclared attribute, given",
    "a function's attribute with a default",
    "a function whose body hides a value of the graph",
    "nodes out of order",
    "a weight that is an input",
    "a weight that is an input, in an old file",
    "an old file with weights that are no inputs",
    "an older operator set",
    "a bias left out by an empty name",
    "a branch",
    "a loop",
    "a loop without end, stopped by its condition",
    "dropout that does not train",
    "dropout whose mask is used",
    "training information",
    "training information that initialises",
    "whole numbers divided",
    "a clip whose ends are exchanged",
    "a large number cast",
    "a negative gather index",
    "rounding of halves",
}


@pytest.fixture
def changed(tmp_path, make):
    """Writes the classifier as a case changes it, for one image."""

    def write(name):
        model = make.classifier()
        CASES[name](model)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return write


def _images():
    return np.random.default_rng(5).uniform(size=(1, 8, 8, 3)).astype(np.float32)


def _logits(path):
    return np.asarray(load_onnx(path, InputForm(bounds=(0, 1)))(_images()))


@pytest.mark.parametrize("name", sorted(set(CASES) - READ))
def test_what_has_a_second_reading_is_refused(changed, name):
    with pytest.raises(ConverterError):
        _logits(changed(name))


@pytest.mark.skipif(not _ORT, reason="onnxruntime is not installed")
@pytest.mark.parametrize("name", sorted(READ))
def test_what_is_read_gives_the_logits_of_onnxruntime(changed, name):
    import onnxruntime  # pyright: ignore[reportMissingImports]

    path = changed(name)
    ours = _logits(path)
    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001  it refuses what we read: no second reading
        return
    theirs = session.run(None, {"image": _images().transpose(0, 3, 1, 2)})[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", sorted(READ - {"nothing"}))
def test_what_is_read_is_read_at_all(changed, name):
    assert np.isfinite(_logits(changed(name))).all()


SECOND_BYTES = {
    "a second model behind the first": lambda data: data + data,
    "a second graph": lambda data: data + b"\x3a\x00" + data,
    "an unknown field": lambda data: data + b"\xfa\x0f\x01x",
    "a group": lambda data: data + b"\x0b\x0c",
    "a padded tag": lambda data: data + b"\x92\x80\x00\x01x",
    "a padded length": lambda data: data + b"\x12\x81\x00x",
    "trailing zeros": lambda data: data + b"\0\0\0",
}


@pytest.mark.parametrize("case", SECOND_BYTES)
def test_bytes_with_a_second_reading(tmp_path, make, case):
    path = tmp_path / "model.onnx"
    path.write_bytes(SECOND_BYTES[case](make.classifier().SerializeToString()))
    with pytest.raises(ConverterError):
        load_onnx(path)


def test_an_empty_graph_merged_into_the_graph_changes_nothing(make):
    data = make.classifier().SerializeToString()
    check_cost(data + b"\x3a\x00", OnnxLimits())


def _external(tmp_path, make, **entries):
    model = make.classifier()
    tensor = next(t for t in model.graph.initializer if t.name == "fc.weight")
    (tmp_path / "w.bin").write_bytes(tensor.raw_data)
    said = {"location": "w.bin", **entries}
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in said.items():
        tensor.external_data.add(key=key, value=value)
    return model, tensor


def test_external_data_replaced_after_the_export(tmp_path, make):
    model, tensor = _external(tmp_path, make)
    digest = hashlib.sha1((tmp_path / "w.bin").read_bytes()).hexdigest()
    tensor.external_data.add(key="checksum", value=digest)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    read_onnx(path)
    (tmp_path / "w.bin").write_bytes(b"\0" * (tmp_path / "w.bin").stat().st_size)
    with pytest.raises(CorruptFileError, match="changed after the model was saved"):
        read_onnx(path)


def _two_with_checksums(tmp_path, make, files):
    """A model whose last layer lies in these files, each with its checksum."""
    model = make.classifier()
    tensors = [t for t in model.graph.initializer if t.name.startswith("fc.")]
    for tensor, file in zip(tensors, files, strict=True):
        path = tmp_path / file
        path.write_bytes(max(path.read_bytes() if path.exists() else b"", tensor.raw_data, key=len))
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=file)
    for tensor, file in zip(tensors, files, strict=True):
        digest = hashlib.sha1((tmp_path / file).read_bytes()).hexdigest()
        tensor.external_data.add(key="checksum", value=digest)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "model.onnx"


def test_a_file_of_several_tensors_is_hashed_once(tmp_path, make, monkeypatch):
    """A small file whose tensors name a large one cost a pass over it for each tensor."""
    path, taken, digest = (
        _two_with_checksums(tmp_path, make, ["w.bin"] * 2),
        [],
        hashlib.file_digest,
    )
    monkeypatch.setattr(hashlib, "file_digest", lambda *a: taken.append(a) or digest(*a))
    read_onnx(path)
    assert len(taken) == 1


def test_files_that_are_hashed_count_together(tmp_path, make):
    path = _two_with_checksums(tmp_path, make, ["a.bin", "b.bin"])
    with open(tmp_path / "a.bin", "r+b") as file:
        file.truncate(3000)
    sizes = sorted((tmp_path / name).stat().st_size for name in ("a.bin", "b.bin"))
    limits = OnnxLimits(external_bytes=sizes[1] - 1)
    with pytest.raises(TooLargeError, match="'a.bin' has 3000 bytes to check.*external_bytes"):
        read_onnx(path, limits)


@pytest.mark.parametrize(
    "entries", [{"again": "w.bin"}, {"location": "*/_ORT_MEM_ADDR_/*"}, {"raw": ""}]
)
def test_external_data_said_twice(tmp_path, make, entries):
    model, tensor = _external(tmp_path, make, **entries)
    if "again" in entries:
        tensor.external_data[-1].key = "location"
    if "raw" in entries:
        del tensor.external_data[-1]
        tensor.raw_data = b"\0" * 1280
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(CorruptFileError):
        read_onnx(tmp_path / "model.onnx")
