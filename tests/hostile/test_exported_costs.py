"""Small .pt2 files that would take hours or all memory to read: refused at once."""

import io
import json
import time
import zipfile

import pytest
import torch

from converters.errors import ConverterError
from converters.opening import open_model

_MODEL, _WEIGHTS = "archive/models/model.json", "archive/data/weights/model_weights_config.json"


@pytest.fixture(scope="module")
def members():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1))
    net.append(torch.nn.Flatten())
    out = io.BytesIO()
    torch.export.save(torch.export.export(net.eval(), (torch.zeros(1, 3, 16, 16),)), out)
    with zipfile.ZipFile(io.BytesIO(out.getvalue())) as source:
        return {info.filename: source.read(info) for info in source.infolist()}


def _call(target, names, values, outputs):
    inputs = [{"name": n, "arg": v, "kind": 1} for n, v in zip(names, values, strict=True)]
    return {
        "target": target, "inputs": inputs, "outputs": outputs, "metadata": {},
        "is_hop_single_tensor_return": None,
    }  # fmt: skip


def _number(target, values, name):
    named = {"as_sym_int": {"as_name": name}}
    return _call(target, [f"a{k}" for k in range(len(values))], values, [named])


def _in_front(calls):
    def change(program):
        graph = program["graph_module"]["graph"]
        for call in calls:
            for output in call["outputs"]:
                for value in output.values():
                    if isinstance(value, dict):
                        graph["sym_int_values"][value["as_name"]] = {"as_int": 9}
        graph["nodes"][:0] = calls

    return change


def _squares(first, target="_operator.mul", times=40):
    at = [{"as_sym_int": {"as_name": f"q{k}"}} for k in range(times)]
    calls = [_number(target, [at[k], at[k]], f"q{k + 1}") for k in range(times - 1)]
    return _in_front([_number(target, [first, first], "q0"), *calls])


def _cut(target, names, values, long=3_000_000):
    """A tensor of nothing, cut into as many as it is long."""

    def change(program):
        graph = program["graph_module"]["graph"]
        meta = graph["tensor_values"][graph["inputs"][-1]["as_tensor"]["name"]]
        whole = {"sizes": [{"as_int": long}], "strides": [{"as_int": 1}]}
        graph["tensor_values"]["whole"] = {**meta, **whole}
        for name in ("one", "two"):
            graph["tensor_values"][name] = {**meta, "sizes": [], "strides": []}
        made = _call(
            "torch.ops.aten.full.default", ["size", "fill_value"],
            [{"as_ints": [long]}, {"as_float": 1.0}], [{"as_tensor": {"name": "whole"}}],
        )  # fmt: skip
        parts = [{"as_tensors": [{"name": "one"}, {"name": "two"}]}]
        given = [{"as_tensor": {"name": "whole"}}, *values]
        graph["nodes"][:0] = [made, _call(target, ["self", *names], given, parts)]

    return change


def _ranges(program):
    program["range_constraints"] = {"u999999999": {"min_val": 2, "max_val": 64}}
    sizes = program["graph_module"]["graph"]["sym_int_values"]
    sizes["n"] = {"as_expr": {"expr_str": "u999999999", "hint": None}}


_TEXT = {"as_string": "a" * 900}
PROGRAMS = {
    "squares of squares": (_squares({"as_int": 3}), "more than 256 bits"),
    "sums of texts": (_squares(_TEXT, "_operator.add"), "expected numbers"),
    "a text that formats": (
        _in_front([_number("_operator.mod", [{"as_string": "a"}, {"as_int": 1}], "q0")]),
        "expected numbers",
    ),
    "a number of many digits": (_squares({"as_int": 2**62}, times=2), "a number above 2\\*\\*62"),
    "a symbol of nine digits": (_ranges, "no arithmetic|expected a symbol"),
    "a tensor in parts": (
        _cut("torch.ops.aten.unbind.int", ["dim"], [{"as_int": 0}]),
        "would make 3000000 tensors of one, more than the 16384 allowed$",
    ),
    "a tensor split": (
        _cut("torch.ops.aten.split.Tensor", ["split_size"], [{"as_int": 1}]),
        "would make 3000000 tensors of one, more than the 16384 allowed$",
    ),
}


def _opened(members, path, **changed):
    with zipfile.ZipFile(path, "w") as target:
        for name, data in members.items():
            target.writestr(name, changed.get(name.rpartition("/")[2], data))
    started = time.process_time()
    try:
        return open_model(path)
    finally:
        assert time.process_time() - started < 30


@pytest.mark.parametrize("case", PROGRAMS)
def test_programs_that_cost_much_are_refused(members, tmp_path, case):
    change, said = PROGRAMS[case]
    program = json.loads(members[_MODEL])
    change(program)
    with pytest.raises(ConverterError, match=said):
        _opened(members, tmp_path / "net.pt2", **{"model.json": json.dumps(program)})


def test_an_unused_range_costs_nothing(members, tmp_path):
    program = json.loads(members[_MODEL])
    program["range_constraints"] = {"u999999999": {"min_val": 2, "max_val": 64}}
    _opened(members, tmp_path / "net.pt2", **{"model.json": json.dumps(program)})


_MANY = [{"as_int": 2**39}] * 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sizes": [{"as_int": 0}, *_MANY], "strides": [{"as_int": 1}] * 3}, "more bytes than"),
        ({"sizes": _MANY, "strides": [{"as_int": 0}] * 2}, "more bytes than"),
        ({"sizes": [{"as_int": 1}] * 70, "strides": [{"as_int": 1}] * 70}, "contradicts its bytes"),
        ({"sizes": "abc"}, "described wrongly"),
        ({"path_name": ["x"]}, "described wrongly"),
    ],
)
def test_tables_of_absurd_tensors_are_refused(members, tmp_path, changed, said):
    table = json.loads(members[_WEIGHTS])
    entry = next(iter(table["config"].values()))
    (entry if "path_name" in changed else entry["tensor_meta"]).update(changed)
    with pytest.raises(ConverterError, match=said):
        _opened(members, tmp_path / "net.pt2", **{"model_weights_config.json": json.dumps(table)})
