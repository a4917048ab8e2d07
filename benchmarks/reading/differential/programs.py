"""Exported programs changed in structure: calls, arguments, signature, weights, the archive."""

import copy
import io
import json
import re
import zipfile
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

from benchmarks.reading.differential.draw import NUMBERS, Change, Random, applied, one
from benchmarks.reading.differential.onnx_seed import SHAPE


@cache
def program_file() -> bytes:
    """A small exported program with two branches."""
    import torch
    from torch import nn

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
            self.left, self.right = nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)
            self.last = nn.Sequential(
                nn.Hardswish(), nn.MaxPool2d(2), nn.Dropout(), nn.Flatten(), nn.Linear(16, 5)
            )

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            made = self.first(image)
            return self.last(self.left(made) + torch.tanh(self.right(made)))

    torch.manual_seed(0)
    program = torch.export.export(Branches().eval(), (torch.zeros(SHAPE),), strict=False)
    out = io.BytesIO()
    torch.export.save(program, out)
    return out.getvalue()


def program_mutant(random: Random) -> tuple[bytes, str]:
    """A small exported program with one to three changes of its JSON, or of the archive."""
    with zipfile.ZipFile(io.BytesIO(program_file())) as source:
        members = [(info.filename, source.read(info)) for info in source.infolist()]
    count = int(random.choice((1, 1, 1, 2, 3)))
    names = [applied(one(_PROGRAM, random), members, random) for _ in range(count)]
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
    """All calls in another order, one at another place, or two neighbours exchanged."""

    def change(program: Any) -> None:
        calls = _calls(program)
        if random.random() < 0.1:
            random.shuffle(calls)
            return
        if random.random() < 0.7:
            place = one(_independent(calls), random)
            calls[place], calls[place + 1] = calls[place + 1], calls[place]
            return
        calls.insert(int(random.integers(len(calls))), calls.pop(int(random.integers(len(calls)))))

    _edit(members, _GRAPH, change)


def _independent(calls: list[Any]) -> list[int]:
    """Places of calls that the next one takes nothing from."""
    found = []
    for place, (call, following) in enumerate(pairwise(calls)):
        made = {output["as_tensor"]["name"] for output in call["outputs"] if "as_tensor" in output}
        text = json.dumps(following["inputs"])
        if not any(f'"{name}"' in text for name in made):
            found.append(place)
    return found


def _more_calls(members: list, random: Random) -> None:
    """A call comes twice; in most cases what the second makes is taken by one call behind it."""

    def change(program: Any) -> None:
        graph = program["graph_module"]["graph"]
        place = int(random.integers(len(graph["nodes"])))
        call = copy.deepcopy(graph["nodes"][place])
        old = call["outputs"][0]["as_tensor"]["name"]
        new = f"{old}_again" if random.random() < 0.8 else old
        call["outputs"][0]["as_tensor"]["name"] = new
        graph["tensor_values"][new] = copy.deepcopy(graph["tensor_values"][old])
        given = [i["arg"] for n in graph["nodes"][place + 1 :] for i in n["inputs"]]
        users = [g for g in given if g.get("as_tensor", {}).get("name") == old]
        if users and random.random() < 0.8:
            one(users, random)["as_tensor"]["name"] = new
        graph["nodes"].insert(place + 1, call)

    _edit(members, _GRAPH, change)


def _exchange_calls(members: list, random: Random) -> None:
    def change(program: Any) -> None:
        calls = _calls(program)
        first, second = one(calls, random), one(calls, random)
        first["target"], second["target"] = second["target"], first["target"]

    _edit(members, _GRAPH, change)


def _other_call(members: list, random: Random) -> None:
    def change(program: Any) -> None:
        names = ("relu", "neg", "abs", "sigmoid", "tanh", "exp", "relu_", "sign", "floor", "clone")
        alone = [c for c in _calls(program) if len(c["inputs"]) == 1]
        if alone:
            one(alone, random)["target"] = f"torch.ops.aten.{one(names, random)}.default"

    _edit(members, _GRAPH, change)


def _argument(members: list, random: Random) -> None:
    def change(program: Any) -> None:
        holder, key = one(_leaves([c["inputs"] for c in _calls(program)], []), random)
        if isinstance(holder[key], bool):
            holder[key] = not holder[key]
        else:
            holder[key] = type(holder[key])(one(NUMBERS[:7], random))

    _edit(members, _GRAPH, change)


def _argument_name(members: list, random: Random) -> None:
    def change(program: Any) -> None:
        given = one(one(_calls(program), random)["inputs"], random)
        names = ("self", "input", "other", "weight", "bias", "training", "alpha", "dim", "dtype")
        given["name"] = one(names, random)
        given["kind"] = int(random.integers(0, 4))

    _edit(members, _GRAPH, change)


def _rename_value(members: list, random: Random) -> None:
    def change(program: Any) -> None:
        tensors = list(program["graph_module"]["graph"]["tensor_values"])
        given = one(one(_calls(program), random)["inputs"], random)["arg"]
        if "as_tensor" in given:
            given["as_tensor"]["name"] = one(tensors, random)

    _edit(members, _GRAPH, change)


def _signature(members: list, random: Random) -> None:
    """Which weight an input of the graph stands for, and what it is."""

    def change(program: Any) -> None:
        specs = program["graph_module"]["signature"]["input_specs"]
        first, second = one(specs, random), one(specs, random)
        if random.random() < 0.6:  # weights of one shape, whose places may be exchanged
            alike = [s for s in specs if _weight_shape(program, s) == _weight_shape(program, first)]
            second = one(alike, random)
            kinds = [next(iter(spec.values())) for spec in (first, second)]
            for name in ("parameter_name", "buffer_name"):
                if all(name in kind for kind in kinds):
                    kinds[0][name], kinds[1][name] = kinds[1][name], kinds[0][name]
            return
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


def _weight_shape(program: Any, spec: Any) -> str:
    """What the file says of the tensor that an input of the graph stands for."""
    kind = next(iter(spec.values()))
    name = kind["arg"].get("as_tensor", kind["arg"]).get("name")
    return json.dumps(program["graph_module"]["graph"]["tensor_values"].get(name))


def _described_value(members: list, random: Random) -> None:
    """Sizes and types that the file says its values have."""

    def change(program: Any) -> None:
        values = program["graph_module"]["graph"]["tensor_values"]
        holder, key = one(_leaves(one(list(values.values()), random), []), random)
        if isinstance(holder[key], bool):
            holder[key] = not holder[key]
        else:
            holder[key] = int(one(NUMBERS[:8], random))

    _edit(members, _GRAPH, change)


def _weight_file(members: list, random: Random) -> None:
    """Which file holds a weight, and how its elements lie there."""

    def change(config: Any) -> None:
        entries = list(config["config"].values())
        first, second = one(entries, random), one(entries, random)
        kind = int(random.integers(3))
        if kind == 0:
            first["path_name"], second["path_name"] = second["path_name"], first["path_name"]
        elif kind == 1:
            holder, key = one(_leaves(first, []), random)
            if isinstance(holder[key], bool):
                holder[key] = not holder[key]
            else:
                holder[key] = int(one(NUMBERS[1:8], random))
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
        members.append((name, one(members, random)[1]))
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
    *(_weight_order, _twice, _more_calls),
)
