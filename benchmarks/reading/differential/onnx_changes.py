"""ONNX files changed in structure: nodes, names, attributes, weights, functions."""

from typing import Any

import numpy as np

from benchmarks.reading.differential.draw import NUMBERS, Change, Random, applied, one
from benchmarks.reading.differential.onnx_seed import onnx_file

_OPERATORS = (
    *("Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Identity", "Round", "Floor", "Softmax", "Elu"),
    *("LeakyRelu", "HardSwish", "Softplus", "Sign", "Sqrt", "Exp", "Selu", "LogSoftmax", "Erf"),
)


def onnx_mutant(random: Random) -> tuple[bytes, str]:
    """A small ONNX file with one to three changes."""
    from onnx import ModelProto

    model, count = ModelProto(), int(random.choice((1, 1, 1, 2, 3)))
    model.ParseFromString(onnx_file())
    names = [applied(one(_ONNX, random), model, random) for _ in range(count)]
    content = model.SerializeToString()
    if random.random() < 0.05:
        return content + _tail(content, random), "+".join([*names, "tail"])
    return content, "+".join(names)


def _tail(content: bytes, random: Random) -> bytes:
    """Bytes behind a model that protobuf merges into it."""
    return (b"\x3a\x00", content, b"\x08\x07", b"\x42\x02\x10\x0b", b"\x00")[
        int(random.integers(5))
    ]


def _graphs(model: Any) -> list[Any]:
    """The graph, those in its nodes, and functions."""
    inner = [a.g for n in model.graph.node for a in n.attribute if a.HasField("g")]
    return [model.graph, model.graph, model.graph, *inner, *model.functions]


def _node(model: Any, random: Random) -> Any:
    nodes = one(_graphs(model), random).node
    return one(nodes if len(nodes) else model.graph.node, random)


def _names(model: Any) -> list[str]:
    found = [name for n in model.graph.node for name in (*n.input, *n.output)]
    return found + [tensor.name for tensor in model.graph.initializer]


def _copied(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


def _move_node(model: Any, random: Random) -> None:
    graph = one(_graphs(model), random)
    nodes = [_copied(node) for node in graph.node]
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
    """A node comes twice; in most cases the second makes values that nobody takes."""
    graph = one(_graphs(model), random)
    node = _copied(one(graph.node, random))
    if random.random() < 0.7:
        for number, name in enumerate(node.output):
            node.output[number] = f"{name}.again"
    graph.node.append(node)


def _insert_node(model: Any, random: Random) -> None:
    from onnx import helper

    place = int(random.integers(1, len(model.graph.node)))
    nodes = [_copied(node) for node in model.graph.node]
    made, name = nodes[place - 1].output[0], f"new{int(random.integers(3))}"
    nodes[place - 1].output[0] = name
    domain = one(("", "", "", "", "", "ai.onnx", "own"), random)
    nodes.insert(place, helper.make_node(one(_OPERATORS, random), [name], [made], domain=domain))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _other_operator(model: Any, random: Random) -> None:
    node = _node(model, random)
    if len(node.input) == 1:
        node.op_type = one(_OPERATORS, random)
        if random.random() < 0.7:
            del node.attribute[:]


def _rename(model: Any, random: Random) -> None:
    """An input or output takes another name; or a value does, wherever it stands."""
    node = _node(model, random)
    side = node.input if random.random() < 0.5 else node.output
    place = int(random.integers(len(side)))
    old, new = side[place], one([*_names(model), "", "nowhere"], random)
    new = one(("nowhere", "image.", " ", "é", "a/b", old.upper()), random) if old else new
    if random.random() < 0.5:
        side[place] = one([*_names(model), "", "nowhere"], random)
        return
    for graph in _graphs(model):
        for user in graph.node:
            for names in (user.input, user.output):
                for number, name in enumerate(names):
                    names[number] = new if name == old else name


def _inputs(model: Any, random: Random) -> None:
    """Inputs in another order, one more, or one less; "" is an input that is not there."""
    node, kind = _node(model, random), int(random.integers(3))
    names = list(node.input)
    if kind == 0:
        random.shuffle(names)
    elif kind == 1:
        names.append(one(("",) if random.random() < 0.3 else _names(model), random))
    else:
        names = names[:-1]
    del node.input[:]
    node.input.extend(names)


def _outputs(model: Any, random: Random) -> None:
    """One output more; those that may have a second are drawn more often."""
    nodes = [n for n in model.graph.node if n.op_type in ("MaxPool", "BatchNormalization", "Loop")]
    node = one(nodes, random) if random.random() < 0.5 else _node(model, random)
    new = ("", "more") if random.random() < 0.7 else _names(model)
    node.output.append(one(new, random))


def _attribute(model: Any, random: Random) -> None:
    nodes = [n for graph in _graphs(model) for n in graph.node if len(n.attribute)]
    attribute = one(one(nodes, random).attribute, random)
    if attribute.HasField("i"):
        attribute.i = int(one(NUMBERS, random))
    elif attribute.HasField("f"):
        attribute.f = float(random.normal())
    elif len(attribute.ints):
        attribute.ints[int(random.integers(len(attribute.ints)))] = int(one(NUMBERS, random))


def _attribute_twice(model: Any, random: Random) -> None:
    from onnx import helper

    nodes = [n for n in model.graph.node if len(n.attribute)]
    node = one(nodes, random)
    kind, known = int(random.integers(4)), one(node.attribute, random)
    if kind == 0:
        node.attribute.append(known)
    elif kind == 1:
        known.type = int(random.integers(1, 8))
    elif kind == 2:
        known.ClearField("type")
    else:
        node.attribute.append(helper.make_attribute(known.name, one((1, 0.5, [1, 1]), random)))


# What these operators do where the file does not say it.
_DEFAULTS = {
    "Conv": {"auto_pad": "NOTSET", "dilations": [1, 1], "group": 1, "kernel_shape": [3, 3]},
    "BatchNormalization": {"epsilon": 1e-5, "momentum": 0.9, "training_mode": 0},
    "MaxPool": {"ceil_mode": 0, "storage_order": 0, "auto_pad": "VALID", "dilations": [1, 1]},
    "Gemm": {"alpha": 1.0, "beta": 1.0, "transA": 0},
    "Reshape": {"allowzero": 0},
    "Gather": {"axis": 0},
    "Shape": {"start": 0},
    "LeakyRelu": {"alpha": 0.01},
}


def _new_attribute(model: Any, random: Random) -> None:
    """An attribute more; in half the cases one that the operator has, with its default or near."""
    from onnx import helper

    known = [node for node in model.graph.node if node.op_type in _DEFAULTS]
    if random.random() < 0.5:
        node = one(known, random)
        name, value = one(list(_DEFAULTS[node.op_type].items()), random)
        if random.random() < 0.3 and not isinstance(value, str | list):
            value += 1
        node.attribute.append(helper.make_attribute(name, value))
        return
    values = {"alpha": 0.7, "axis": 1, "group": 2, "dilations": [2, 2], "auto_pad": "SAME_UPPER",
              "ceil_mode": 1, "epsilon": 0.5, "training_mode": 1, "transA": 1, "transB": 0,
              "beta": 0.5, "allowzero": 1, "keepdims": 0, "momentum": 0.1}  # fmt: skip
    name = one(list(values), random)
    _node(model, random).attribute.append(helper.make_attribute(name, values[name]))


def _exchange_weights(model: Any, random: Random) -> None:
    """Two weights, in most cases of one shape and type, exchange their names."""
    weights = list(model.graph.initializer)
    first = one(weights, random)
    if random.random() < 0.8:
        form = first.data_type, list(first.dims)
        weights = [w for w in weights if (w.data_type, list(w.dims)) == form]
    second = one(weights, random)
    first.name, second.name = second.name, first.name


def _weight_twice(model: Any, random: Random) -> None:
    kept = _copied(one(model.graph.initializer, random))
    if random.random() < 0.5:
        kept.name = one(_names(model), random)
    one([g for g in _graphs(model) if hasattr(g, "initializer")], random).initializer.append(kept)


def _weight_data(model: Any, random: Random) -> None:
    tensor, kind = one(model.graph.initializer, random), int(random.integers(6))
    if kind == 0:
        tensor.float_data.extend([1.0] * int(np.prod(tensor.dims)))
    elif kind == 1 and tensor.data_type == 1:
        values = np.frombuffer(tensor.raw_data, np.float32)
        tensor.ClearField("raw_data")
        tensor.float_data.extend(values.tolist())
    elif kind == 2 and len(tensor.dims):
        tensor.dims[0] = int(one(NUMBERS, random))
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

    tensor = one(model.graph.initializer, random)
    dims = [int(d) for d in tensor.dims] if random.random() < 0.7 else [1]
    kind = tensor.data_type if random.random() < 0.8 else 11
    model.graph.input.append(helper.make_tensor_value_info(tensor.name, kind, dims))


def _operator_set(model: Any, random: Random) -> None:
    from onnx import helper

    version, kind = int(random.integers(7, 24)), int(random.integers(4))
    if kind == 0:
        model.opset_import[0].version = version
    elif kind == 1:
        model.opset_import.append(helper.make_opsetid(one(("", "ai.onnx", "own"), random), version))
    elif kind == 2:
        model.functions[0].opset_import[0].version = version
    else:
        one(model.opset_import, random).domain = one(("", "ai.onnx", "own", "other"), random)


def _function(model: Any, random: Random) -> None:
    function, kind = model.functions[0], int(random.integers(5))
    if kind == 0:
        function.name = one(("Relu", "Conv", "Soft", "Gemm"), random)
        function.domain = one(("", "ai.onnx", "own"), random)
    elif kind == 1:
        function.overload = one(("", "x"), random)
    elif kind == 2:
        model.functions.append(function)
    elif kind == 3:
        function.node[0].op_type = one(_OPERATORS, random)
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
            one(sizes, random).dim_value = int(one((0, 1, 2, 3, 8, 9), random))
    elif kind == 1:
        model.graph.output.append(
            helper.make_tensor_value_info(one(_names(model), random), 1, None)
        )
    elif kind == 2:
        model.graph.output[0].name = one(_names(model), random)
    else:
        named = helper.make_tensor_value_info(one(_names(model), random), 1, [1, 5])
        model.graph.value_info.append(named)


_ONNX: tuple[Change, ...] = (
    *(_move_node, _drop_node, _double_node, _insert_node, _insert_node, _other_operator),
    *(_other_operator, _rename, _inputs, _outputs, _attribute, _attribute, _attribute_twice),
    *(_new_attribute, _new_attribute, _exchange_weights, _weight_twice, _weight_data),
    *(_weight_listed, _operator_set, _function, _format, _described),
)
