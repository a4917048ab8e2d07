"""The last layer of captured graphs, found on the way to the logits."""

import jax.numpy as jnp
import numpy as np
import pytest

from converters.graph.graph import Graph, Node, Ref, TensorSpec
from converters.graph.module import GraphConfig
from converters.model import Model
from jaxtroj.evidence.images.weights import weight_fields

RNG = np.random.default_rng(0)
CLASSES, FEATURES = 4, 6
HEAD = RNG.normal(size=(CLASSES, FEATURES)).astype(np.float32)
OTHER = RNG.normal(size=(FEATURES, CLASSES)).astype(np.float32)


def _model(calls, **params) -> Model:
    """A graph of calls `(operator, names of arguments)`, the last one's result the logits."""
    specs = tuple((n, TensorSpec(v.shape, "float32")) for n, v in params.items())
    nodes = tuple(
        Node(op, tuple(Ref(name) for name in names), (), (f"%{i}",), (None,))
        for i, (op, names) in enumerate(calls)
    )
    graph = Graph((TensorSpec((1, FEATURES), "float32"),), specs, (), nodes,
                  (Ref(f"%{len(nodes) - 1}"),))  # fmt: skip
    config = GraphConfig(graph, CLASSES, 1, (1, FEATURES), "NHW")
    return Model(config, {k: jnp.asarray(v) for k, v in params.items()}, "graph")


EARLIER = ("aten.mm.default", ("in:0", "p:first"))


@pytest.mark.parametrize(
    ("calls", "params", "expected"),
    [
        ([EARLIER, ("aten.linear.default", ("%0", "p:fc"))], {"fc": HEAD}, HEAD),
        ([EARLIER, ("aten.t.default", ("p:fc",)), ("aten.mm.default", ("%0", "%1"))],
         {"fc": HEAD}, HEAD),
        ([EARLIER, ("aten.mm.default", ("%0", "p:fc"))], {"fc": HEAD.T}, HEAD),
        ([EARLIER, ("aten.conv2d.default", ("%0", "p:fc")), ("aten.mean.dim", ("%1",))],
         {"fc": HEAD[:, :, None, None]}, HEAD),
        ([EARLIER, ("aten.linear.default", ("%0", "p:fc")), ("aten.mul.Tensor", ("%1", "p:scale"))],
         {"fc": HEAD, "scale": np.ones(CLASSES, np.float32)}, HEAD),
        ([EARLIER, ("aten.mm.default", ("%0", "p:fc")), ("aten.add.Tensor", ("%1", "p:bias"))],
         {"fc": HEAD.T, "bias": np.ones((1, CLASSES), np.float32)}, HEAD),
        ([EARLIER, ("aten.conv2d.default", ("%0", "p:fc"))],
         {"fc": np.ones((CLASSES, 2, 3, 3), np.float32)}, None),
    ],
)  # fmt: skip
def test_the_weight_nearest_to_the_logits(calls, params, expected):
    first = np.ones((FEATURES, FEATURES + 1), np.float32)
    found = _model(calls, first=first, **params).last_layer()
    if expected is None:
        assert found is None
    else:
        np.testing.assert_array_equal(found, expected)


def test_an_earlier_layer_of_the_same_shape_is_not_taken():
    calls = [("aten.mm.default", ("in:0", "p:first")), ("aten.linear.default", ("%0", "p:fc"))]
    np.testing.assert_array_equal(_model(calls, first=OTHER, fc=HEAD).last_layer(), HEAD)


def test_fields_are_those_of_the_same_head_in_a_family():
    kernel = RNG.normal(size=(30, 30)).astype(np.float32)
    graph = weight_fields({"body.weight": kernel, "fc.weight": HEAD}, HEAD)
    family = weight_fields({"body.kernel": kernel, "fc.kernel": HEAD.T}, HEAD)
    assert graph == pytest.approx(family)


def test_without_a_last_layer_no_class_stands_out():
    fields = weight_fields({"body": RNG.normal(size=(30, 30))}, None)
    assert fields["head_mean_outlier"] == fields["head_cosine_spread"] == fields["head_lead"] == 0
    assert fields["head_lead_class"] == -1
    assert fields["layer_kurtosis"] == pytest.approx(3, abs=0.5)
