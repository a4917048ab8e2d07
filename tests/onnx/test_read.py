"""Reading ONNX files that lie: refused with one clear error, before anything large exists."""

import hashlib
import os
import resource
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from converters import open_artifact
from converters.errors import (
    ConverterError,
    CorruptFileError,
    LoadError,
    TooLargeError,
    UnknownFormatError,
)
from converters.graph.onnx import OnnxLimits, read_onnx, to_torch
from converters.graph.onnx.check import check_model
from converters.graph.onnx.wire import check_cost
from converters.opening import read_model


def _external(tensor, **entries):
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))


@pytest.fixture
def saved(tmp_path, make):
    """Writes a changed classifier and gives its path."""

    def save(change=lambda model: None, name="model.onnx"):
        model = make.classifier()
        change(model)
        path = tmp_path / name
        path.write_bytes(model.SerializeToString())
        return path

    return save


def test_a_file_reads_back_with_its_weights(saved, make):
    file = read_onnx(saved())
    expected = {t.name: numpy_helper.to_array(t) for t in make.classifier().graph.initializer}
    assert set(file.weights) == set(expected)
    assert not any(tensor.raw_data for tensor in file.model.graph.initializer)
    module = to_torch(file.model, {"image": (1, 3, 8, 8)}, weights=file.weights)
    for name, parameter in module.named_parameters():
        np.testing.assert_array_equal(parameter.numpy(), expected[name])


def test_what_reads_weights_alone_names_what_reads_networks(saved):
    with pytest.raises(UnknownFormatError, match=r"is an ONNX file.*converters\.open_model"):
        open_artifact(saved())


def test_external_data_beside_and_below_the_file(saved, tmp_path):
    def change(model):
        tensor = next(t for t in model.graph.initializer if t.name == "fc.weight")
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "w.bin").write_bytes(b"\0" * 8 + tensor.raw_data)
        size = len(tensor.raw_data)
        _external(tensor, location="data/w.bin", offset=8, length=size)

    file = read_onnx(saved(change))
    assert file.weights["fc.weight"].std() > 0.2


def test_large_files_of_tensors_are_refused_before_their_digest(saved, tmp_path, monkeypatch):
    def change(model):
        _external(model.graph.initializer[0], location="w.bin", offset=0, length=8)

    path = saved(change)
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(2**40)
    with pytest.raises(TooLargeError, match=r"w\.bin has 1099511627776 bytes.*external_bytes"):
        read_model(path)


OUTSIDE = ["../w.bin", "/etc/hostname", "data/../../w.bin", "link.bin", "folder/w.bin", "", "a\\b"]


@pytest.mark.parametrize("location", OUTSIDE)
def test_external_data_outside_the_folder_is_refused(tmp_path, make, location):
    secret, home = tmp_path / "secret", tmp_path / "home"
    secret.mkdir()
    home.mkdir()
    (secret / "w.bin").write_bytes(b"\0" * 4096)
    (tmp_path / "w.bin").write_bytes(b"\0" * 4096)
    (home / "link.bin").symlink_to(secret / "w.bin")
    (home / "folder").symlink_to(secret)
    model = make.classifier()
    _external(model.graph.initializer[-2], location=location)
    (home / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(CorruptFileError, match="folder|symbolic"):
        read_onnx(home / "model.onnx")


def test_links_inside_the_folder_and_pipes_are_refused(tmp_path, make):
    (tmp_path / "w.bin").write_bytes(b"\0" * 4096)
    (tmp_path / "link.bin").symlink_to(tmp_path / "w.bin")
    os.mkfifo(tmp_path / "pipe.bin")
    for location in ("link.bin", "pipe.bin", "."):
        model = make.classifier()
        _external(model.graph.initializer[-2], location=location)
        (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(LoadError):
            read_onnx(tmp_path / "model.onnx")


EXTERNAL_LIES = {
    "missing": ({"location": "none.bin"}, "cannot read"),
    "past the end": ({"location": "w.bin", "offset": 100}, "ends at byte"),
    "other length": ({"location": "w.bin", "length": 5}, "says otherwise"),
    "negative": ({"location": "w.bin", "offset": -4}, "offset or length"),
    "no number": ({"location": "w.bin", "length": "1e3"}, "offset or length"),
}


@pytest.mark.parametrize("case", EXTERNAL_LIES)
def test_external_data_that_contradicts_the_tensor(saved, tmp_path, case):
    (tmp_path / "w.bin").write_bytes(b"\0" * 64)
    entries, words = EXTERNAL_LIES[case]
    path = saved(lambda model: _external(model.graph.initializer[-2], **entries))
    with pytest.raises(LoadError, match=words):
        read_onnx(path)


def _dims(*dims):
    def change(model):
        del model.graph.initializer[0].dims[:]
        model.graph.initializer[0].dims.extend(dims)

    return change


def _twice(model):
    model.graph.node.append(model.graph.node[0])


def _backwards(model):
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _cycle(model):
    model.graph.node[0].input[0] = "e"


def _no_weight(model):
    del model.graph.initializer[0]


def _no_graph(model):
    model.ClearField("graph")


def _old(model):
    model.ir_version = 2


def _future(model):
    model.opset_import[0].version = 999


def _no_opset(model):
    del model.opset_import[:]


def _no_output(model):
    del model.graph.output[:]


def _lost_output(model):
    model.graph.output[0].name = "elsewhere"


def _strange_type(model):
    model.graph.initializer[0].data_type = 77


def _twins(model):
    model.graph.initializer.append(model.graph.initializer[0])


BROKEN = {
    "dimensions beyond the data": (_dims(4, 3, 3, 300), "does not fit"),
    "dimensions short of the data": (_dims(1), "does not fit"),
    "negative dimensions": (_dims(-4, 3), "impossible"),
    "absurd size": (_dims(2**40, 2**40), "tensor_elements"),
    "absurd rank": (_dims(*[1] * 40), "impossible"),
    "a value made twice": (_twice, "twice"),
    "a cycle": (_cycle, "cycle"),
    "a missing weight": (_no_weight, "missing"),
    "no graph": (_no_graph, "no graph"),
    "an old format": (_old, "older"),
    "an opset of the future": (_future, "opset 999"),
    "no opset": (_no_opset, "no operator set"),
    "no output": (_no_output, "no output"),
    "an output nobody makes": (_lost_output, "never made"),
    "an unknown type": (_strange_type, "not supported"),
    "two weights of one name": (_twins, "name"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_graphs(saved, case):
    change, words = BROKEN[case]
    path = saved(change)
    with pytest.raises(ConverterError, match=words):
        file = read_onnx(path)
        check_model(file.model, OnnxLimits(), outside=set(file.weights))


def test_nodes_out_of_order_are_sorted_and_no_others_move(saved):
    ordered, backwards = read_onnx(saved(lambda model: None)), read_onnx(saved(_backwards))
    assert (ordered.was_sorted, backwards.was_sorted) == (False, True)
    check_model(backwards.model, OnnxLimits(), outside=set(backwards.weights))
    names = [[node.output[0] for node in file.model.graph.node] for file in (ordered, backwards)]
    assert names[1] != names[0][::-1] and sorted(names[0]) == sorted(names[1])

    def last_first(model):
        last = model.graph.node.pop()
        model.graph.node.insert(0, last)

    assert [n.output[0] for n in read_onnx(saved(last_first)).model.graph.node] == names[0]


def _branch_on(name):
    """A branch, of which only the inside uses a value."""
    inner = helper.make_graph(
        [helper.make_node("Neg", [name], ["inside"])],
        "branch",
        [],
        [helper.make_tensor_value_info("inside", TensorProto.FLOAT, None)],
    )
    node = helper.make_node("If", ["yes"], ["branched"], then_branch=inner, else_branch=inner)

    def change(model):
        model.graph.initializer.append(helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
        model.graph.node.insert(0, node)

    return change


def test_a_branch_comes_after_what_it_uses_inside(saved):
    last = read_onnx(saved(lambda model: None)).model.graph.node[-1].output[0]
    for name in (last, "c"):
        nodes = read_onnx(saved(_branch_on(name))).model.graph.node
        made = [output for node in nodes for output in node.output]
        assert made.index("branched") == made.index(name) + 1


def test_files_that_are_no_model(tmp_path):
    for data in (b"", b"\0" * 100, b"PK\x03\x04" + b"x" * 60, os.urandom(500), b"\x0a\xff\xff"):
        path = tmp_path / "model.onnx"
        path.write_bytes(data)
        with pytest.raises(ConverterError):
            file = read_onnx(path)
            check_model(file.model, OnnxLimits())
    with pytest.raises(LoadError):
        read_onnx(tmp_path)
    with pytest.raises(LoadError):
        read_onnx(tmp_path / "absent.onnx")


def _message(field: int, body: bytes) -> bytes:
    """A protobuf message as a field of another."""
    length, size = bytearray(), len(body)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return bytes([field << 3 | 2]) + bytes(length) + body


BOMBS = {
    "empty nodes": _message(7, b"\x0a\x00" * 2_000_000),
    "empty tensors": _message(7, b"\x2a\x00" * 2_000_000),
    "long text": _message(2, b"x" * (100 * 2**20)),
}


@pytest.mark.parametrize("case", BOMBS)
def test_bombs_are_counted_before_they_are_parsed(tmp_path, case):
    path = tmp_path / "bomb.onnx"
    path.write_bytes(BOMBS[case])
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises((TooLargeError, CorruptFileError)):
        read_onnx(path)
    assert time.process_time() - start < 5  # seconds of this process; others share the machine
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kilobytes


def test_nested_graphs_are_bounded():
    data = b""
    for level in range(80):  # a graph in an attribute in a node in a graph ...
        for field in (6, 5, 1) if level else (1,):
            data = _message(field, data)
    with pytest.raises(CorruptFileError, match="nested"):
        check_cost(_message(7, data), OnnxLimits())


SLOW_CHECKS = [
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.too_slow,
    HealthCheck.function_scoped_fixture,
]


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW_CHECKS)
@given(data=st.data())
def test_mutated_files_end_with_an_error_of_ours_or_not_at_all(tmp_path, make, data):
    raw = bytearray(make.classifier().SerializeToString())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(raw) - 1))
        action = data.draw(st.sampled_from(["flip", "cut", "copy"]))
        if action == "flip":
            raw[at] = data.draw(st.integers(0, 255))
        elif action == "cut":
            del raw[at : at + data.draw(st.integers(1, 40))]
        else:
            raw[at:at] = raw[at : at + data.draw(st.integers(1, 40))]
        if not raw:
            break
    path = tmp_path / "mutated.onnx"
    path.write_bytes(bytes(raw))
    try:
        file = read_onnx(path)
        module = to_torch(file.model, {"image": (1, 3, 8, 8)}, weights=file.weights)
    except ConverterError:
        return
    assert module.input_shapes == ((1, 3, 8, 8),)


def test_the_digest_covers_the_tensors_that_lie_outside(saved, tmp_path):
    def change(model):
        tensor = next(t for t in model.graph.initializer if t.name == "fc.weight")
        (tmp_path / "w.bin").write_bytes(tensor.raw_data)
        _external(tensor, location="w.bin", length=len(tensor.raw_data))

    path = saved(change)
    before = read_model(path).sha256
    (tmp_path / "w.bin").write_bytes((tmp_path / "w.bin").read_bytes()[::-1])
    assert read_model(path).sha256 != before
    alone = saved(name="alone.onnx")
    assert read_model(alone).sha256 == hashlib.sha256(alone.read_bytes()).hexdigest()
