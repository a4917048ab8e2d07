"""Texts of a .pt2 file that torch would write into code, import or evaluate: nothing runs."""

import io
import json
import threading
import zipfile

import pytest
import torch

from converters.containers import exported_file
from converters.containers.generated_code import checked_code, refuse_more_than_calls
from converters.errors import ConverterError, CorruptFileError, UnsupportedOperatorError
from converters.opening import open_model

_MODEL = "archive/models/model.json"


class _Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, *, pixels):
        return self.conv(pixels).mean((2, 3))


@pytest.fixture(scope="module")
def members():
    """Of a program whose input is a keyword, so that its name stands in the containers too."""
    out = io.BytesIO()
    image = torch.zeros(1, 3, 16, 16)
    program = torch.export.export(_Net().eval(), (), {"pixels": image}, strict=False)
    torch.export.save(program, out)
    with zipfile.ZipFile(io.BytesIO(out.getvalue())) as source:
        return {info.filename: source.read(info) for info in source.infolist()}


def _written(members, path, change):
    program = json.loads(members[_MODEL])
    text = change(program)
    content = json.dumps(program) if text is None else text
    with zipfile.ZipFile(path, "w") as target:
        for name, data in members.items():
            target.writestr(name, content.encode() if name == _MODEL else data)


def _renamed(old, new):
    return lambda p, run: json.dumps(p).replace(json.dumps(old), json.dumps(new.format(run=run)))


def _graph(program):
    return program["graph_module"]["graph"]


def _call(program):
    return program["graph_module"]["module_call_graph"][0]


def _input_name(program):
    return _graph(program)["inputs"][-1]["as_tensor"]["name"]


def _placeholder(program, run):
    return _renamed(_input_name(program), "x={run}")(program, run)


def _node_name(program, run):
    name = _graph(program)["nodes"][0]["outputs"][0]["as_tensor"]["name"]
    return _renamed(name, "y={run}")(program, run)


def _own_name(program, run):
    _graph(program)["nodes"][0]["name"] = f"y={run}"


def _keyword(program, run):
    signature = _call(program)["signature"]
    signature["in_spec"] = signature["in_spec"].replace("pixels", f"pixels={run}".replace('"', "'"))


def _operand(program, target, values):
    node = {
        "target": target, "metadata": {}, "is_hop_single_tensor_return": None, "outputs": [],
        "inputs": [{"name": n, "arg": v, "kind": 1} for n, v in values.items()],
    }  # fmt: skip
    _graph(program)["nodes"].insert(0, node)


def _argument(value):
    def change(program, run):
        _graph(program)["nodes"][0]["inputs"][0]["arg"] = json.loads(value.replace("RUN", run))

    return change


def _saved(program, run):
    path = run.split('"')[1]
    text, kept = {"as_string": path.replace("/", "_")}, {"as_int": 1}
    _operand(program, "torch.ops.aten.save.default", {"item": kept, "filename": text})


def _from_file(program, run):
    _operand(program, "torch.ops.aten.from_file.default", {"filename": {"as_string": "abc"}})


def _target(target):
    return lambda program, run: _operand(program, target, {})


def _stack(program, run):
    _graph(program)["nodes"][0]["metadata"] = {"nn_module_stack": f"a,b,c\n{run}"}


def _size(expression):
    def change(program, run):
        sizes = _graph(program)["tensor_values"][_input_name(program)]["sizes"]
        sizes[2] = {"as_expr": {"expr_str": expression.replace("RUN", run), "hint": None}}

    return change


CASES = {
    "an input's name": (_placeholder, "as TensorArgument.name, expected a plain name"),
    "a result's name": (_node_name, "expected a plain name"),
    "a call's own name": (_own_name, "as Node.name, expected a plain name"),
    "a keyword of Python": (lambda p, run: _renamed(_input_name(p), "class")(p, run), "'class'"),
    "a parameter's name": (_renamed("conv.weight", 'w"), {run}#'), "words between dots"),
    "a name of the inputs' containers": (_keyword, "no plain containers.*expected a plain name"),
    "an operator as argument": (
        _argument('{"as_operator": "torch.load"}'), "Argument.as_operator, expected none"
    ),
    "an object as argument": (
        _argument('{"as_custom_obj": {"name": "a", "class_fqn": "b"}}'), "CustomObjArgument"
    ),
    "a text in quotes": (_argument('{"as_string": "\'"}'), "Argument.as_string, expected a plain"),
    "a text for a number": (_argument('{"as_int": "1"}'), "Argument.as_int, expected none"),
    "a dict of arguments": (_argument('{"as_string_to_argument": {"a": {"as_int": 1}}}'), "'a'"),
    "a file that is written": (_saved, "aten.save.default'; only ATen operators"),
    "a file that is read": (_from_file, "aten.from_file.default'; only ATen operators"),
    "a text that is printed": (_target("torch.ops.aten._print.default"), "only ATen operators"),
    "a text as long as asked": (_target("torch.ops.aten.zfill.default"), "only ATen operators"),
    "a method": (_target("torch.ops.aten.__class__.__subclasses__"), "only ATen operators"),
    "a method of an operator": (_target("torch.ops.aten.add.decompose"), "only ATen operators"),
    "a line behind a remark": (_size("s1 # \n RUN"), "no arithmetic"),
    "a size that calls": (_size("RUN"), "no arithmetic"),
    "a verifier": (lambda p, run: p.update(verifiers=["os.system"]), "expected ATEN or TRAINING"),
    "a version": (lambda p, run: p.update(torch_version=f"2 {run}"), "expected a version"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_texts_that_torch_would_run_are_refused(members, tmp_path, monkeypatch, case):
    change, said = CASES[case]
    monkeypatch.chdir(tmp_path)
    ran, path = tmp_path / "ran", tmp_path / "net.pt2"
    run = f'open("{ran}","w")'
    _written(members, path, lambda program: change(program, run))
    with pytest.raises(ConverterError, match=said):
        open_model(path)
    assert [file.name for file in tmp_path.iterdir()] == ["net.pt2"]


def _unused(program, run):
    """What torch reads and no answer needs."""
    _call(program)["signature"]["forward_arg_names"] = [f"x={run}"]
    program["guards_code"] = [run]
    program["graph_module"]["metadata"] = {"custom": json.dumps(run)}
    program["graph_module"]["module_call_graph"].append({"fqn": f'a"){run}', "signature": None})
    program["graph_module"]["treespec_namedtuple_fields"] = {run: {"field_names": [run]}}
    program["range_constraints"] = {f"u1;{run}": {"min_val": 1, "max_val": 2}}
    _graph(program)["nodes"][0]["metadata"] = {"stack_trace": f"\n{run}", "torch_fn": run}


def test_what_no_answer_needs_is_left_out(members, tmp_path):
    path = tmp_path / "net.pt2"
    run = f'open("{tmp_path / "ran"}","w")'
    _written(members, path, lambda program: _unused(program, run))
    assert open_model(path).model.architecture.startswith("graph:")
    assert [file.name for file in tmp_path.iterdir()] == ["net.pt2"]


def test_a_remark_of_two_lines_is_refused(members, tmp_path):
    path = tmp_path / "net.pt2"
    _written(members, path, lambda program: _stack(program, "x"))
    with pytest.raises(CorruptFileError, match="expected text of one line"):
        open_model(path)


def test_code_behind_the_first_wall_is_not_run(members, tmp_path, monkeypatch):
    monkeypatch.setattr(exported_file, "check_texts", lambda program: None)
    path = tmp_path / "net.pt2"
    run = f"open('{tmp_path / 'ran'}','w')"
    _written(members, path, lambda program: _placeholder(program, run))
    with pytest.raises(CorruptFileError, match="more than calls of operators"):
        open_model(path)
    assert [file.name for file in tmp_path.iterdir()] == ["net.pt2"]


@pytest.mark.parametrize(
    "source",
    [
        "def forward(self, x=open('a', 'w')):\n    pass",
        "def forward(self, x: open('a', 'w')):\n    pass",
        "def forward(self, x):\n    y = torch.load('a')",
        "def forward(self, x):\n    y = torch.ops.aten.from_file.default('a')",
        "def forward(self, x):\n    y = [z for z in x]",
        "def forward(self, x):\n    import os",
        "def forward(self, x):\n    y = x.__class__",
        "def forward(self, x):\n    y = (lambda: 1)()",
        "def forward(self, x):\n    def g(): pass",
        "@open\ndef forward(self, x):\n    pass",
        "def other(self, x):\n    pass",
        "def forward(self, x):\n    pass\nopen('a', 'w')",
        "def forward(self, x",
    ],
)
def test_source_of_more_than_calls_is_refused(source):
    with pytest.raises(CorruptFileError, match="more than calls of operators"):
        refuse_more_than_calls(source)


def test_other_threads_are_left_alone():
    """The check holds where a file is read; networks of one's own may do more."""
    made = []

    def traced():
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        graph.output(graph.call_function(torch.relu, (x,)))
        made.append(torch.fx.GraphModule(torch.nn.Module(), graph)(torch.ones(1)))

    with checked_code():
        with pytest.raises(CorruptFileError, match="a call of 'torch.relu'"):
            traced()
        thread = threading.Thread(target=traced)
        thread.start()
        thread.join()
    traced()
    assert len(made) == 2


def test_an_operator_that_is_refused_is_named(members, tmp_path):
    path = tmp_path / "net.pt2"
    _written(members, path, lambda program: _saved(program, 'open("a","w")'))
    with pytest.raises(UnsupportedOperatorError) as caught:
        open_model(path)
    assert caught.value.operator == "torch.ops.aten.save.default"
