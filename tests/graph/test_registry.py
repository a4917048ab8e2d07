import dataclasses

import numpy as np
import pytest
import torch

from converters.errors import UnsupportedOperatorError
from converters.graph import registry
from converters.graph.graph import Graph, Node, Ref, TensorSpec
from converters.graph.replay import run

SPEC = TensorSpec((2,), "float32")
INPUT = (Ref("in:0"),)


def _graph(*ops: str, args=INPUT, spec=SPEC) -> Graph:
    nodes = tuple(Node(op, args, (), (f"%{i}",), (spec,), f"layer.{i}") for i, op in enumerate(ops))
    return Graph((SPEC,), (), (), nodes, (Ref(f"%{len(ops) - 1}"),))


def test_a_second_lowering_is_refused():
    before = registry.supported_operators()
    with pytest.raises(ValueError, match="other.* lowers aten.relu.default, which has a lowering"):

        @registry.lowers("aten.mine.default", "aten.relu.default")
        def other(x):
            return x

    assert registry.supported_operators() == before


def test_a_miss_names_operators_and_place():
    graph = _graph("aten.relu.default", "aten.none.such", "aten.nor.this")
    with pytest.raises(
        UnsupportedOperatorError, match="none.such at layer.1: .*nor.this"
    ) as caught:
        registry.require(graph)
    assert (caught.value.operator, caught.value.node) == ("aten.none.such", "layer.1")
    with pytest.raises(UnsupportedOperatorError, match="register a lowering"):
        registry.lowering_of("aten.none.such")


def test_another_shape_than_torch_s_is_refused():
    graph = _graph("aten.relu.default", spec=TensorSpec((3,), "float32"))
    with pytest.raises(
        UnsupportedOperatorError, match=r"layer.0: .*shape \(2,\), torch has \(3,\)"
    ):
        run(graph, {}, [np.zeros(2, np.float32)])


def test_a_restricted_form_is_refused_by_name():
    graph = _graph("aten.dropout.default", args=(Ref("in:0"), 0.5, True))
    with pytest.raises(UnsupportedOperatorError, match="aten.dropout.default at layer.0: .*random"):
        run(graph, {}, [np.zeros(2, np.float32)])


def test_volumes_that_torch_enlarges_by_their_order_in_memory_are_refused():
    spec = TensorSpec((1, 5, 2, 2, 4), "float32")
    args = (Ref("in:0"), None, (1.0, 1.0, 1.2))
    graph = _graph("aten.upsample_nearest3d.vec", args=args, spec=spec)
    graph = dataclasses.replace(graph, inputs=(spec,))
    x = torch.arange(4.0).expand(spec.shape)
    kept, other = (
        torch.nn.functional.interpolate(x.contiguous(memory_format=order), scale_factor=args[2])
        for order in (torch.contiguous_format, torch.channels_last_3d)
    )
    assert not torch.equal(kept, other)
    with pytest.raises(UnsupportedOperatorError, match=r"nearest3d.*4 values enlarged.*sizes"):
        run(graph, {}, [x.numpy()])


def test_support_table():
    table = registry.supported_operators()
    assert len(table) > 300 and list(table) == sorted(table)
    assert (
        table["aten.relu.default"] == ""
        and "dropout" in table["aten.scaled_dot_product_attention.default"]
    )


def test_lowered_operators_exist_in_torch():
    unknown = []
    for name in registry.supported_operators():
        _, packet, overload = name.split(".")
        if not hasattr(getattr(torch.ops.aten, packet, None), overload):
            unknown.append(name)
    assert unknown == []
