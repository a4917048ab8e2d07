"""Exported programs that read tensors by where they lie in memory, behind which a network hides."""

import copy
import json

import numpy as np
import pytest
import torch

from converters.errors import UnsupportedOperatorError
from converters.graph.export import from_exported
from converters.opening import open_model
from tests.exported import saved, written

aten = torch.ops.aten
_TABLE = "archive/data/weights/model_weights_config.json"
_GRAPH = "archive/models/model.json"


class _Net(torch.nn.Module):
    """The logits of a picture, through a matrix that `function` makes of the weight."""

    def __init__(self, function, weight, is_weight=True):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 6, 3)
        self.table = torch.nn.Parameter(weight) if is_weight else weight
        self._function = function

    def forward(self, image):
        features = torch.relu(self.conv(image))
        return self._function(self.table, features)


def _by_strides(table, features):
    return features.mean((2, 3)) @ torch.as_strided(table, (6, 5), (1, 6))


# torch says so of weights that do not lie in order when it writes them.
pytestmark = pytest.mark.filterwarnings("ignore:No complete tensor found")


def _weight():
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(1))


def _laid_out(members, strides):
    """The weight's strides in the file, as a network in another memory format has them."""
    table = json.loads(members[_TABLE])
    table["config"]["table"]["tensor_meta"]["strides"] = [{"as_int": n} for n in strides]
    return {**members, _TABLE: json.dumps(table).encode()}


def _renamed_views(members, strides):
    """Views that are told strides; torch's kernel takes them unchecked."""
    program = json.loads(members[_GRAPH])
    for node in program["graph_module"]["graph"]["nodes"]:
        if node["target"] == "torch.ops.aten.view.default":
            node["target"] = "torch.ops.aten._reshape_alias.default"
            stride = copy.deepcopy(node["inputs"][1])
            node["inputs"].append({**stride, "name": "stride", "arg": {"as_ints": strides}})
    return {**members, _GRAPH: json.dumps(program).encode()}


def _images():
    return torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(2))


def _expect_parity(path):
    images = _images()
    module = torch.export.load(path).module()
    expected = torch.cat([module(image[None]) for image in images]).detach().numpy()
    got = open_model(path).model(images.permute(0, 2, 3, 1).numpy())
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("is_weight", "dynamic"), [(True, True), (False, False)])
def test_elements_picked_by_strides_of_a_weight_in_order_are_torchs(tmp_path, is_weight, dynamic):
    members = saved(_Net(_by_strides, _weight(), is_weight), dynamic)
    _expect_parity(written(members, tmp_path / "net.pt2"))


def test_a_weight_that_lies_in_another_order_is_read_as_torch_reads_it(tmp_path):
    net = _Net(lambda table, features: features.mean((2, 3)) @ table.t(), _weight())
    members = _laid_out(saved(net), (1, 5))
    _expect_parity(written(members, tmp_path / "net.pt2"))


@pytest.mark.parametrize("dynamic", [False, True], ids=["one", "any"])
@pytest.mark.parametrize("is_weight", [False, True], ids=["constant", "weight"])
def test_strides_over_what_lies_in_another_order_are_refused(tmp_path, dynamic, is_weight):
    """torch picks other elements there than of the same numbers in order."""
    net = _Net(_by_strides, _weight().t().contiguous().t(), is_weight)
    path = written(saved(net, dynamic), tmp_path / "net.pt2")
    with pytest.raises(UnsupportedOperatorError, match="as_strided.* lies in memory"):
        open_model(path)


def test_strides_that_the_file_gives_a_weight_are_seen(tmp_path):
    members = _laid_out(saved(_Net(_by_strides, _weight()), dynamic=True), (1, 5))
    with pytest.raises(UnsupportedOperatorError, match="as_strided.* lies in memory"):
        open_model(written(members, tmp_path / "net.pt2"))


@pytest.mark.parametrize("strides", [(1, 6), (0, 1), (5, 1)])
def test_views_that_are_told_strides_are_refused(tmp_path, strides):
    net = _Net(lambda table, features: features.mean((2, 3)) @ table.view(6, 5), _weight())
    path = written(_renamed_views(saved(net), strides), tmp_path / "net.pt2")
    with pytest.raises(UnsupportedOperatorError, match="_reshape_alias.* lies in memory"):
        open_model(path)


def test_features_that_lie_as_their_layer_left_them_are_no_base_of_strides(tmp_path):
    def picked(table, features):
        return torch.as_strided(features, (features.shape[0], 6), (216, 1)) @ table.t()

    net = _Net(picked, _weight()).to(memory_format=torch.channels_last)
    path = written(saved(net, dynamic=True), tmp_path / "net.pt2")
    with pytest.raises(UnsupportedOperatorError, match="as_strided.* lies in memory"):
        open_model(path)


@pytest.mark.parametrize(
    "target", [aten.stride.default, aten.storage_offset.default, aten.is_contiguous.default],
    ids=str,
)  # fmt: skip
def test_numbers_that_say_how_a_tensor_lies_are_refused(target):
    net = _Net(lambda table, features: features.mean((2, 3)) @ table.t(), _weight())
    program = torch.export.export(net.eval(), (torch.zeros(1, 3, 8, 8),), strict=False)
    graph = program.graph_module.graph
    base = next(node for node in graph.nodes if node.op == "placeholder")
    with graph.inserting_before(next(n for n in graph.nodes if n.op == "call_function")):
        graph.call_function(target, (base,))
    with pytest.raises(UnsupportedOperatorError, match=f"{target} .* lies in memory"):
        from_exported(program)
