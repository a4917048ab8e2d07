"""ONNX files and exported programs changed in structure: nodes, names, attributes, weights."""

import io
import json
import re
import zipfile
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

Random = np.random.Generator
Change = Callable[[Any, Random], None]
SHAPE = (1, 3, 8, 8)
_NUMBERS = (-2, -1, 0, 1, 2, 3, 5, 8, 2**31, 2**62)
_OPERATORS = (
    *("Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Identity", "Round", "Floor", "Softmax", "Elu"),
    *("LeakyRelu", "HardSwish", "Softplus", "Sign", "Sqrt", "Exp", "Selu", "LogSoftmax", "Erf"),
)


def onnx_mutant(random: Random) -> tuple[bytes, str]:
    """A small ONNX file with one to three changes."""
    from onnx import ModelProto

    model, count = ModelProto(), int(random.choice((1, 1, 2, 3)))
    model.ParseFromString(onnx_file())
    names = [_applied(_one(_ONNX, random), model, random) for _ in range(count)]
    content = model.SerializeToString()
    if random.random() < 0.05:
        return content + _tail(content, random), "+".join([*names, "tail"])
    return content, "+".join(names)


def _applied(change: Change, value: Any, random: Random) -> str:
    """The name of a change, made where an earlier one left it something to change."""
    try:
        change(value, random)
    except (ValueError, IndexError, KeyError):
        return "nothing"
    return change.__name__.strip("_")


def _tail(content: bytes, random: Random) -> bytes:
    """Bytes behind a model that protobuf merges into it."""
    return (b"\x3a\x00", content, b"\x08\x07", b"\x42\x02\x10\x0b", b"\x00")[
        int(random.integers(5))
    ]


@cache
def onnx_file() -> bytes:
    """A classifier with a function, a branch, a loop and arithmetic of shapes."""
    from onnx import TensorProto, helper, numpy_helper

    node, info, draw = helper.make_node, helper.make_tensor_value_info, np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray:
        return draw.normal(0, 0.3, shape).astype(np.float32)

    def described(*names: str) -> list[Any]:
        return [info(name, TensorProto.FLOAT, None) for name in names]

    then = helper.make_graph([node("Abs", ["c"], ["u"])], "then", [], described("u"))
    other = helper.make_graph([node("Neg", ["c"], ["o"])], "else", [], described("o"))
    state = [info("i", TensorProto.INT64, []), info("was", TensorProto.BOOL, [])]
    on = info("on", TensorProto.BOOL, [])
    body = helper.make_graph(
        [node("Tanh", ["s"], ["t"]), node("Identity", ["was"], ["on"])],
        "body", [*state, *described("s")], [on, *described("t")],
    )  # fmt: skip
    function = helper.make_function(
        "own", "Soft", ["a"], ["b"],
        [node("Sigmoid", ["a"], ["g"]), node("Mul", ["a", "g"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [
        node("Conv", ["image", "conv.weight", "conv.bias"], ["a"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["a", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["b"]),
        node("Soft", ["b"], ["c"], domain="own"),
        node("If", ["yes"], ["d"], then_branch=then, else_branch=other),
        node("Conv", ["d", "second.weight"], ["e"], group=2, strides=[2, 2]),
        node("LeakyRelu", ["e"], ["f"], alpha=0.2),
        node("Loop", ["three", "yes", "f"], ["g"], body=body),
        node("MaxPool", ["g"], ["h"], kernel_shape=[2, 2]),
        node("Shape", ["h"], ["shape"]),
        node("Gather", ["shape", "zero"], ["first"]),
        node("Concat", ["first", "rest"], ["flat"], axis=0),
        node("Reshape", ["h", "flat"], ["j"]),
        node("Gemm", ["j", "fc.weight", "fc.bias"], ["k"], transB=1),
        node("Clip", ["k", "low", "high"], ["l"]),
        node("Add", ["l", "more"], ["logits"]),
    ]
    weights = {
        "conv.weight": weight(4, 3, 3, 3), "conv.bias": weight(4), "bn.weight": weight(4) + 1,
        "bn.bias": weight(4), "bn.mean": weight(4), "bn.var": np.abs(weight(4)) + 0.5,
        "second.weight": weight(6, 2, 3, 3), "fc.weight": weight(5, 24), "fc.bias": weight(5),
        "more": weight(1, 5), "low": np.array(-3, np.float32), "high": np.array(3, np.float32),
        "zero": np.array([0]), "rest": np.array([-1]), "three": np.array(3), "yes": np.array(True),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes, "net", [info("image", TensorProto.FLOAT, list(SHAPE))], described("logits"),
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=sets, functions=[function], ir_version=9)
    return model.SerializeToString()


def _one(items: Any, random: Random) -> Any:
    return items[int(random.integers(len(items)))]


def _graphs(model: Any) -> list[Any]:
    """The graph, those in its nodes, and functions."""
    inner = [a.g for n in model.graph.node for a in n.attribute if a.HasField("g")]
    return [model.graph, model.graph, model.graph, *inner, *model.functions]


def _node(model: Any, random: Random) -> Any:
    nodes = _one(_graphs(model), random).node
    return _one(nodes if len(nodes) else model.graph.node, random)


def _names(model: Any) -> list[str]:
    found = [name for n in model.graph.node for name in (*n.input, *n.output)]
    return found + [tensor.name for tensor in model.graph.initializer]


def _move_node(model: Any, random: Random) -> None:
    graph = _one(_graphs(model), random)
    nodes = [type(node).FromString(node.SerializeToString()) for node in graph.node]
    nodes.insert(int(random.integers(len(nodes))), nodes.pop(int(random.integers(len(nodes)))))
    del graph.node[:]
    graph.node.extend(nodes)


def _drop_node(model: Any, random: Random) -> None:
    nodes = model.graph.node
    place = int(random.integers(len(nodes)))
    before, after = list(nodes[place].input[:1]), list(nodes[place].output[:1])
    del nodes[place]
    for node in nodes:  # what it made is what it took
        for number, name in enumerate(node.input):
            if after == [name] and before:
                node.input[number] = before[0]


def _double_node(model: Any, random: Random) -> None:
    graph = _one(_graphs(model), random)
    if len(graph.node):
        graph.node.append(_one(graph.node, random))


def _insert_node(model: Any, random: Random) -> None:
    from onnx import helper

    place = int(random.integers(1, len(model.graph.node)))
    nodes = [type(n).FromString(n.SerializeToString()) for n in model.graph.node]
    made, name = nodes[place - 1].output[0], f"new{int(random.integers(3))}"
    nodes[place - 1].output[0] = name
    domain = _one(("", "", "ai.onnx", "own"), random)
    nodes.insert(place, helper.make_node(_one(_OPERATORS, random), [name], [made], domain=domain))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _other_operator(model: Any, random: Random) -> None:
    node = _node(model, random)
    if len(node.input) == 1:
        node.op_type = _one(_OPERATORS, random)
        if random.random() < 0.7:
            del node.attribute[:]


def _rename(model: Any, random: Random) -> None:
    node = _node(model, random)
    side = node.input if random.random() < 0.5 else node.output
    if len(side):
        side[int(random.integers(len(side)))] = _one([*_names(model), "", "nowhere"], random)


def _inputs(model: Any, random: Random) -> None:
    """Inputs in another order, one more, or one less."""
    node, kind = _node(model, random), int(random.integers(3))
    names = list(node.input)
    if kind == 0:
        random.shuffle(names)
    elif kind == 1:
        names.append(_one([*_names(model), ""], random))
    else:
        names = names[:-1]
    del node.input[:]
    node.input.extend(names)


def _outputs(model: Any, random: Random) -> None:
    _node(model, random).output.append(_one([*_names(model), "", "more"], random))


def _attribute(model: Any, random: Random) -> None:
    nodes = [n for graph in _graphs(model) for n in graph.node if len(n.attribute)]
    attribute = _one(_one(nodes, random).attribute, random)
    if attribute.HasField("i"):
        attribute.i = int(_one(_NUMBERS, random))
    elif attribute.HasField("f"):
        attribute.f = float(random.normal())
    elif len(attribute.ints):
        attribute.ints[int(random.integers(len(attribute.ints)))] = int(_one(_NUMBERS, random))


def _attribute_twice(model: Any, random: Random) -> None:
    from onnx import helper

    nodes = [n for n in model.graph.node if len(n.attribute)]
    node = _one(nodes, random)
    kind, known = int(random.integers(4)), _one(node.attribute, random)
    if kind == 0:
        node.attribute.append(known)
    elif kind == 1:
        known.type = int(random.integers(1, 8))
    elif kind == 2:
        known.ClearField("type")
    else:
        node.attribute.append(helper.make_attribute(known.name, _one((1, 0.5, [1, 1]), random)))


def _new_attribute(model: Any, random: Random) -> None:
    from onnx import helper

    values = {"alpha": 0.7, "axis": 1, "group": 2, "dilations": [2, 2], "auto_pad": "SAME_UPPER",
              "ceil_mode": 1, "epsilon": 0.5, "training_mode": 1, "transA": 1, "transB": 0,
              "beta": 0.5, "allowzero": 1, "keepdims": 0, "momentum": 0.1}  # fmt: skip
    name = _one(list(values), random)
    _node(model, random).attribute.append(helper.make_attribute(name, values[name]))


def _exchange_weights(model: Any, random: Random) -> None:
    first, second = (_one(model.graph.initializer, random) for _ in range(2))
    first.name, second.name = second.name, first.name


def _weight_twice(model: Any, random: Random) -> None:
    from onnx import TensorProto

    kept = TensorProto.FromString(_one(model.graph.initializer, random).SerializeToString())
    if random.random() < 0.5:
        kept.name = _one(_names(model), random)
    _one([g for g in _graphs(model) if hasattr(g, "initializer")], random).initializer.append(kept)


def _weight_data(model: Any, random: Random) -> None:
    tensor, kind = _one(model.graph.initializer, random), int(random.integers(6))
    if kind == 0:
        tensor.float_data.extend([1.0] * int(np.prod(tensor.dims)))
    elif kind == 1 and tensor.data_type == 1:
        values = np.frombuffer(tensor.raw_data, np.float32)
        tensor.ClearField("raw_data")
        tensor.float_data.extend(values.tolist())
    elif kind == 2 and len(tensor.dims):
        tensor.dims[0] = int(_one(_NUMBERS, random))
    elif kind == 3:
        tensor.data_type = int(random.integers(1, 17))
    elif kind == 4:
        tensor.raw_data = tensor.raw_data[::-1] + b"\0" * int(random.integers(2))
    else:
        dims = list(tensor.dims)[::-1]
        del tensor.dims[:]
        tensor.dims.extend(dims)


def _weight_listed(model: Any, random: Random) -> None:
    from onnx import helper

    tensor = _one(model.graph.initializer, random)
    dims = [int(d) for d in tensor.dims] if random.random() < 0.7 else [1]
    kind = tensor.data_type if random.random() < 0.8 else 11
    model.graph.input.append(helper.make_tensor_value_info(tensor.name, kind, dims))


def _operator_set(model: Any, random: Random) -> None:
    from onnx import helper

    version, kind = int(random.integers(7, 24)), int(random.integers(4))
    if kind == 0:
        model.opset_import[0].version = version
    elif kind == 1:
        model.opset_import.append(
            helper.make_opsetid(_one(("", "ai.onnx", "own"), random), version)
        )
    elif kind == 2:
        model.functions[0].opset_import[0].version = version
    else:
        _one(model.opset_import, random).domain = _one(("", "ai.onnx", "own", "other"), random)


def _function(model: Any, random: Random) -> None:
    function, kind = model.functions[0], int(random.integers(5))
    if kind == 0:
        function.name = _one(("Relu", "Conv", "Soft", "Gemm"), random)
        function.domain = _one(("", "ai.onnx", "own"), random)
    elif kind == 1:
        function.overload = _one(("", "x"), random)
    elif kind == 2:
        model.functions.append(function)
    elif kind == 3:
        function.node[0].op_type = _one(_OPERATORS, random)
    else:
        _node(model, random).overload = "x"


def _format(model: Any, random: Random) -> None:
    model.ir_version = int(random.integers(1, 16))


def _described(model: Any, random: Random) -> None:
    """What is said of inputs, outputs and values in between."""
    from onnx import helper

    kind = int(random.integers(4))
    if kind == 0:
        sizes = model.graph.input[0].type.tensor_type.shape.dim
        if len(sizes):
            _one(sizes, random).dim_value = int(_one((0, 1, 2, 3, 8, 9), random))
    elif kind == 1:
        model.graph.output.append(
            helper.make_tensor_value_info(_one(_names(model), random), 1, None)
        )
    elif kind == 2:
        model.graph.output[0].name = _one(_names(model), random)
    else:
        named = helper.make_tensor_value_info(_one(_names(model), random), 1, [1, 5])
        model.graph.value_info.append(named)


_ONNX: tuple[Change, ...] = (
    *(_move_node, _drop_node, _double_node, _insert_node, _insert_node, _other_operator),
    *(_other_operator, _rename, _inputs, _outputs, _attribute, _attribute, _attribute_twice),
    *(_new_attribute, _new_attribute, _exchange_weights, _weight_twice, _weight_data),
    *(_weight_listed, _operator_set, _function, _format, _described),
)


@cache
def program_file() -> bytes:
    """A small exported program."""
    import torch

    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
        torch.nn.Conv2d(4, 4, 3), torch.nn.Hardswish(), torch.nn.MaxPool2d(2),
        torch.nn.Dropout(), torch.nn.Flatten(), torch.nn.Linear(16, 5),
    ).eval()  # fmt: skip
    program = torch.export.export(network, (torch.zeros(SHAPE),), strict=False)
    out = io.BytesIO()
    torch.export.save(program, out)
    return out.getvalue()


def program_mutant(random: Random) -> tuple[bytes, str]:
    """A small exported program with one to three changes of its JSON, or of the archive."""
    with zipfile.ZipFile(io.BytesIO(program_file())) as source:
        members = [(info.filename, source.read(info)) for info in source.infolist()]
    count = int(random.choice((1, 1, 2, 3)))
    names = [_applied(_one(_PROGRAM, random), members, random) for _ in range(count)]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
        for name, content in members:
            target.writestr(zipfile.ZipInfo(name), content)
    return out.getvalue(), "+".join(names)


def _edit(members: list, part: str, change: Callable[[Any], None]) -> None:
    """Change the JSON of the member whose name holds `part`."""
    for number, (name, content) in enumerate(members):
        if re.search(part, name):
            value = json.loads(content)
            change(value)
            members[number] = (name, json.dumps(value).encode())


_GRAPH, _WEIGHTS = r"models/[^/]+\.json$", r"weights_config\.json$"


def _calls(program: Any) -> list[Any]:
    return program["graph_module"]["graph"]["nodes"]


def _leaves(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every number of a JSON value with what holds it."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in items:
        if isinstance(part, dict | list):
            _leaves(part, found)
        elif isinstance(part, int | float):
            found.append((value, key))
    return found


def _order_of_calls(members: list, random: Random) -> None:
    _edit(members, _GRAPH, lambda program: random.shuffle(_calls(program)))


def _exchange_calls(members: list, random: Random) -> None:
    def change(program: Any) -> None:
        calls = _calls(program)
        first, second = _one(calls, random), _one(calls, random)
        first["target"], second["target"] = second["target"], first["target"]

    _edit(members, _GRAPH, change)


def _other_call(members: list, random: Random) -> None:
    def change(program: Any) -> None:
        names = ("relu", "neg", "abs", "sigmoid", "tanh", "exp", "relu_", "sign", "floor", "clone")
        alone = [c for c in _calls(program) if len(c["inputs"]) == 1]
        if alone:
            _one(alone, random)["target"] = f"torch.ops.aten.{_one(names, random)}.default"

    _edit(members, _GRAPH, change)


def _argument(members: list, random: Random) -> None:
    def change(program: Any) -> None:
        holder, key = _one(_leaves([c["inputs"] for c in _calls(program)], []), random)
        if isinstance(holder[key], bool):
            holder[key] = not holder[key]
        else:
            holder[key] = type(holder[key])(_one(_NUMBERS[:7], random))

    _edit(members, _GRAPH, change)


def _argument_name(members: list, random: Random) -> None:
    def change(program: Any) -> None:
        given = _one(_one(_calls(program), random)["inputs"], random)
        names = ("self", "input", "other", "weight", "bias", "training", "alpha", "dim", "dtype")
        given["name"] = _one(names, random)
        given["kind"] = int(random.integers(0, 4))

    _edit(members, _GRAPH, change)


def _rename_value(members: list, random: Random) -> None:
    def change(program: Any) -> None:
        tensors = list(program["graph_module"]["graph"]["tensor_values"])
        given = _one(_one(_calls(program), random)["inputs"], random)["arg"]
        if "as_tensor" in given:
            given["as_tensor"]["name"] = _one(tensors, random)

    _edit(members, _GRAPH, change)


def _signature(members: list, random: Random) -> None:
    """Which weight an input of the graph stands for, and what it is."""

    def change(program: Any) -> None:
        specs = program["graph_module"]["signature"]["input_specs"]
        first, second = _one(specs, random), _one(specs, random)
        kind = int(random.integers(3))
        if kind == 0:
            first_copy = dict(first)
            first.clear()
            first.update(second)
            second.clear()
            second.update(first_copy)
        elif kind == 1 and "parameter" in first and "parameter" in second:
            a, b = first["parameter"], second["parameter"]
            a["parameter_name"], b["parameter_name"] = b["parameter_name"], a["parameter_name"]
        elif "buffer" in first:
            first["buffer"]["persistent"] = not first["buffer"].get("persistent", True)
        else:
            random.shuffle(specs)

    _edit(members, _GRAPH, change)


def _described_value(members: list, random: Random) -> None:
    """Sizes and types that the file says its values have."""

    def change(program: Any) -> None:
        values = program["graph_module"]["graph"]["tensor_values"]
        holder, key = _one(_leaves(_one(list(values.values()), random), []), random)
        if isinstance(holder[key], bool):
            holder[key] = not holder[key]
        else:
            holder[key] = int(_one(_NUMBERS[:8], random))

    _edit(members, _GRAPH, change)


def _weight_file(members: list, random: Random) -> None:
    """Which file holds a weight, and how its elements lie there."""

    def change(config: Any) -> None:
        entries = list(config["config"].values())
        first, second = _one(entries, random), _one(entries, random)
        kind = int(random.integers(3))
        if kind == 0:
            first["path_name"], second["path_name"] = second["path_name"], first["path_name"]
        elif kind == 1:
            holder, key = _one(_leaves(first, []), random)
            if isinstance(holder[key], bool):
                holder[key] = not holder[key]
            else:
                holder[key] = int(_one(_NUMBERS[1:8], random))
        else:
            meta = first.get("tensor_meta") or {}
            meta.get("strides", []).reverse()

    _edit(members, _WEIGHTS, change)


def _weight_order(members: list, random: Random) -> None:
    def change(config: Any) -> None:
        items = list(config["config"].items())
        random.shuffle(items)
        config["config"] = dict(items)

    _edit(members, _WEIGHTS, change)


def _twice(members: list, random: Random) -> None:
    """A member a second time, or under a name in another case, or a key a second time."""
    number, kind = int(random.integers(len(members))), int(random.integers(3))
    name, content = members[number]
    if kind == 0:
        members.append((name, _one(members, random)[1]))
    elif kind == 1:
        members.insert(int(random.integers(len(members))), (name.upper(), content))
    else:
        for place, (known, text) in enumerate(members):
            if re.search(_GRAPH, known):
                twice = text.replace(b'"nodes": [', b'"nodes": [], "nodes": [', 1)
                members[place] = (known, twice)


_PROGRAM: tuple[Change, ...] = (
    *(_order_of_calls, _exchange_calls, _other_call, _other_call, _argument, _argument),
    *(_argument_name, _rename_value, _signature, _described_value, _weight_file, _weight_file),
    *(_weight_order, _twice),
)
