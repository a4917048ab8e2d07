"""Exported programs with `torch.no_grad()` or `torch.autocast` in their code."""

import json

import numpy as np
import pytest
import torch

from converters.containers.exported_scopes import inline_scopes
from converters.errors import UnsupportedOperatorError
from converters.opening import open_model
from tests.exported import saved, written

_GRAPH = "archive/models/model.json"


class _Net(torch.nn.Module):
    def __init__(self, around):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fc = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 5)
        self._around = around

    def body(self, image):
        return self.fc(torch.relu(self.conv(image)).mean((2, 3)))

    def forward(self, image):
        return self._around(self, image)


def _prepared(net, image):
    with torch.no_grad():
        image = (image - 0.5) * 2
        mean = image.mean((1, 2, 3)).unsqueeze(1)
    return net.body(image) + mean


def _nested(net, image):
    with torch.no_grad():
        x = net.conv(image)
        with torch.enable_grad():
            x = x * 2
        x = x.mean((2, 3))
    return net.fc(x)


@torch.no_grad()
def _whole(net, image):
    return net.body(image)


def _without_casts(net, image):
    with torch.autocast("cpu", enabled=False):
        return net.body(image)


def _with_casts(net, image):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return net.body(image).float()


@pytest.mark.parametrize("dynamic", [False, True], ids=["one", "any"])
@pytest.mark.parametrize("around", [_prepared, _nested, _whole, _without_casts])
def test_what_changes_no_value_is_read_as_torch_reads_it(tmp_path, around, dynamic):
    members = saved(_Net(around), dynamic)
    assert b"higher_order" in members[_GRAPH]
    path = written(members, tmp_path / "net.pt2")
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    module = torch.export.load(path).module()
    expected = torch.cat([module(image[None]) for image in images]).detach().numpy()
    got = open_model(path).model(images.permute(0, 2, 3, 1).numpy())
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_casts_are_refused_with_what_to_do(tmp_path):
    path = written(saved(_Net(_with_casts)), tmp_path / "net.pt2")
    with pytest.raises(UnsupportedOperatorError, match=r"without torch\.autocast in its forward"):
        open_model(path)


def _scope(program):
    nodes = program["graph_module"]["graph"]["nodes"]
    node = next(node for node in nodes if "higher_order" in node["target"])
    return node, node["inputs"][1]["arg"]["as_graph"]["graph"]


def _name_of_the_image_again(program):
    """Within, the picture's name is made again; outside, torch still has the picture."""
    _, inner = _scope(program)
    name = inner["inputs"][0]["as_tensor"]["name"]
    inner["nodes"][-1]["outputs"][0]["as_tensor"]["name"] = name
    inner["outputs"][-1]["as_tensor"]["name"] = name


def _result_called_like_the_image(program):
    node, _ = _scope(program)
    node["outputs"][0]["as_tensor"]["name"] = node["inputs"][2]["arg"]["as_tensor"]["name"]


def _results_of_one_name(program):
    node, _ = _scope(program)
    node["outputs"][1] = node["outputs"][0]


def _row(program):
    """A tensor in place of a tuple, of which torch takes the first row."""
    _, inner = _scope(program)
    inner["is_single_tensor_return"] = True


def _fewer_arguments(program):
    node, _ = _scope(program)
    node["inputs"].pop()


def _keyword(program):
    node, _ = _scope(program)
    node["inputs"][2]["name"] = "args"


def _no_graph(program):
    node, _ = _scope(program)
    node["inputs"][1]["arg"] = {"as_int": 1}


def _deep(program):
    graph = program["graph_module"]["graph"]
    for _ in range(20):
        node, inner = _scope({"graph_module": {"graph": graph}})
        wrapped = json.loads(json.dumps(node))
        inner["nodes"] = [wrapped]
        inner["outputs"] = wrapped["outputs"]
        graph = inner


_CHANGES = [
    _name_of_the_image_again, _result_called_like_the_image, _results_of_one_name, _row,
    _fewer_arguments, _keyword, _no_graph, _deep,
]  # fmt: skip


@pytest.mark.parametrize("change", _CHANGES)
def test_scopes_that_torch_does_not_write_so_are_refused(tmp_path, change):
    members = saved(_Net(_prepared))
    program = json.loads(members[_GRAPH])
    change(program)
    path = written({**members, _GRAPH: json.dumps(program).encode()}, tmp_path / "net.pt2")
    with pytest.raises(UnsupportedOperatorError, match="wrap_with_set_grad_enabled"):
        open_model(path)


def test_names_within_meet_none_outside():
    program = json.loads(saved(_Net(_prepared))[_GRAPH])
    graph = program["graph_module"]["graph"]
    graph["nodes"][-1]["outputs"][0]["as_tensor"]["name"] = "scope1_sub"
    inline_scopes(program)
    made = [node["outputs"][0]["as_tensor"]["name"] for node in graph["nodes"]]
    assert len(set(made)) == len(made)
    assert sum(name.startswith("scope1_") for name in made) == 1


def test_a_long_text_makes_no_long_names():
    """Names longer than any text cost gigabytes for a file of megabytes."""
    program = json.loads(saved(_Net(_prepared))[_GRAPH])
    program["remark"] = "scope" + "s" * 10**6
    inline_scopes(program)
    assert max(map(len, program["graph_module"]["graph"]["tensor_values"])) < 100
