"""False descriptions of values are refused: onnxruntime 1.32.0 folds `Shape` by them.

Each hostile network measures the width of a value that is 8 wide and that the file calls 16 wide.
onnxruntime answers such networks otherwise, by as much as the largest logit.
"""

import numpy as np
import pytest
from onnx import TensorProto, helper

from converters.errors import CorruptFileError
from converters.findings import SUSPICION
from converters.graph.onnx import load_onnx
from converters.input_form import InputForm

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
TRUE, FALSE = [1, 3, 8, 8], [1, 3, 8, 16]
WEIGHTS = {
    "count": np.int64(2),
    "three": np.int64(3),
    "zero": np.int64(0),
    "first": np.array([0]),
    "one": np.float32(1),
    "eight": np.float32(8),
    "two": np.float32(2),
    "moved": np.array([[0, 0, 5]], np.float32),
    "mask": np.ones(8, bool),
    "flat": np.array([-1, 192]),
    "fc": np.eye(192, 3, dtype=np.float32),
}


def _n(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(" "), outputs.split(), **attributes)


def _info(name, shape=None, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def _many(name, shape=None):
    return helper.make_tensor_sequence_value_info(name, FLOAT, shape)


def _loop(*nodes, names="x v", state=None, result=None, counter=(), on=(), infos=()):
    """A loop of two rounds with one state; `counter` and `on` are shapes in its body."""
    body = helper.make_graph(
        [_n("Identity", "c", "co"), *(nodes or [_n("Neg", "s", "so")])],
        "body",
        [_info("i", counter, INT), _info("c", on, BOOL), state or _info("s")],
        [_info("co", None, BOOL), result or _info("so")],
        value_info=list(infos),
    )
    start, end = names.split()
    return _n("Loop", f"count  {start}", end, body=body)


def _width(name, factor="factor"):
    """`factor` is 1 where a value is 8 wide."""
    return [
        _n("Shape", name, f"{name}_shape"),
        _n("Gather", f"{name}_shape three", f"{name}_width"),
        _n("Cast", f"{name}_width", f"{name}_float", to=FLOAT),
        _n("Div", f"{name}_float eight", factor),
    ]


def _logits(value="v", factor="factor"):
    """Logits of a value, the last one moved by what is too wide."""
    return [
        _n("Reshape", f"{value} flat", "r"),
        _n("MatMul", "r fc", "plain"),
        _n("Sub", f"{factor} one", "more"),
        _n("Mul", "more moved", "added"),
        _n("Add", "plain added", "logits"),
    ]


_MEASURED = [*_width("v"), *_logits()]


def _branch(op, inputs, output, **attributes):
    return helper.make_graph([_n(op, inputs, output, **attributes)], output, [], [_info(output)])


_PAIR = [_n("Neg", "x", "p"), _n("Concat", "x x", "q", axis=3)]
_IF = _n(
    "If",
    "cond",
    "v",
    then_branch=_branch("Mul", "x two", "y"),
    else_branch=_branch("Concat", "x x", "z", axis=3),
)
_GROWING = [
    helper.make_node("SequenceEmpty", [], ["none"], dtype=FLOAT),
    _loop(
        _n("Neg", "x", "n"),
        _n("SequenceInsert", "s n", "so"),
        names="none many",
        state=_many("s"),
        result=_many("so"),
    ),
    _n("SequenceAt", "many zero", "v"),
]
# Name -> nodes, and the names whose shapes the file says.
PLACES = {
    "a loop's result": ([_loop()], {"v": _info}),
    "a branch's result": ([_n("Size", "x", "n"), _n("Greater", "n three", "cond"), _IF], {}),
    "an element of a sequence": (
        [*_PAIR, _n("SequenceConstruct", "p q", "s"), _n("SequenceAt", "s zero", "v")],
        {"v": _info},
    ),
    "a joined sequence": (
        [_n("SequenceConstruct", "x", "s"), _n("ConcatFromSequence", "s", "v", axis=3)],
        {"v": _info},
    ),
    "a compressed value": ([_n("Compress", "x mask", "v", axis=3)], {"v": _info}),
    "a value picked by NonZero": (
        [
            _n("NonZero", "mask", "at"),
            _n("Squeeze", "at first", "index"),
            _n("Gather", "x index", "v", axis=3),
        ],
        {"v": _info},
    ),
    "elements of a loop's sequence": (_GROWING, {"many": _many}),
}
PLACES["a branch's result"][1]["v"] = _info


def _in_a_body(shape, described):
    """Loops whose body measures its state, a value of its own, or one from outside."""
    inner = "outer" if described == "outer" else "s"
    more = [*_width(inner, "f"), _n("Mul", "s f", "so")]
    loop = _loop(
        *more,
        state=_info("s", shape if described == "state" else None),
        result=_info("so", shape if described == "result" else None),
        infos=[_info("outer", shape)] if described == "outer" else (),
    )
    return [_loop(names="x outer"), loop]


@pytest.fixture
def loaded(make, save):
    """Loads a network with descriptions of values; the batch of its input is 1 by default."""

    def load(nodes, infos=(), batch=1, output=None, **more):
        model = make(nodes, {"x": [batch, 3, 8, 8]}, ["logits"], WEIGHTS, **more)
        model.graph.value_info.extend(infos)
        if output is not None:
            model.graph.output[0].CopyFrom(_info("logits", output))
        return load_onnx(save(model), InputForm(bounds=(0, 1)))

    return load


def _images(n=2):
    return np.random.default_rng(1).uniform(size=(n, 8, 8, 3)).astype(np.float32)


def _plain(images, factor=1):
    return factor * images.transpose(0, 3, 1, 2).reshape(len(images), -1)[:, :3]


@pytest.mark.parametrize("shape", [FALSE, [1, 3, 8, 0], [1, 3, 8], [3, 8, 8, 1, 1]], ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_a_false_shape_is_refused(loaded, place, shape):
    nodes, described = PLACES[place]
    with pytest.raises(CorruptFileError, match=r"value_info.* out"):
        loaded([*nodes, *_MEASURED], [make(name, shape) for name, make in described.items()])


@pytest.mark.parametrize("shape", [TRUE, ["n", 3, "h", "w"], [-1, 3, -1, -1], None], ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_a_true_or_open_shape_is_read(loaded, place, shape):
    nodes, described = PLACES[place]
    infos = [make(name, shape) for name, make in described.items()]
    answer = np.asarray(loaded([*nodes, *_MEASURED], infos)(_images()))
    assert np.isfinite(answer).all()


@pytest.mark.parametrize("described", ["state", "result", "outer"])
def test_descriptions_in_a_body(loaded, described):
    with pytest.raises(CorruptFileError, match="Loop node"):
        loaded([*_in_a_body(FALSE, described), *_MEASURED])
    answer = loaded([*_in_a_body(TRUE, described), *_MEASURED])(_images())
    np.testing.assert_allclose(np.asarray(answer), _plain(_images()), rtol=1e-5)


@pytest.mark.parametrize("shape", [FALSE, TRUE], ids=str)
def test_descriptions_in_a_function(loaded, shape):
    function = helper.make_function(
        "own", "F", ["x", "count"], ["v"], [_loop()], [helper.make_opsetid("", 17)]
    )
    function.value_info.append(_info("v", shape))
    call = _n("F", "x count", "v", domain="own")
    more = {"functions": [function], "imports": [helper.make_opsetid("own", 1)]}
    if shape == FALSE:
        with pytest.raises(CorruptFileError, match="'v' is of shape"):
            loaded([call, *_MEASURED], **more)
    else:
        loaded([call, *_MEASURED], **more)


@pytest.mark.parametrize(
    ("counter", "on", "factor"), [([], [], 1), ([1], [], 4), (["k"], [1], 4), ([], [1], 1)]
)
def test_a_body_gets_its_counter_with_the_axes_that_it_says(loaded, counter, on, factor):
    """As onnxruntime gives it: there the state is multiplied by 1 or 2 in each round, too."""
    nodes = [
        _n("Shape", "i", "sizes"),
        _n("Size", "sizes", "rank"),
        _n("Cast", "rank", "float", to=FLOAT),
        _n("Add", "float one", "k"),
        _n("Mul", "s k", "so"),
    ]
    network = loaded([_loop(*nodes, counter=counter, on=on), *_MEASURED])
    np.testing.assert_allclose(np.asarray(network(_images())), _plain(_images(), factor), rtol=1e-5)


def test_a_body_that_says_more_of_its_counter_is_refused(loaded):
    with pytest.raises(CorruptFileError, match=r"'i' is of shape \[2\]"):
        loaded([_loop(counter=[2]), *_MEASURED])


@pytest.mark.parametrize("output", [[1, 5], [1, 3, 1], [7, 3], []], ids=str)
def test_a_stale_shape_of_an_output_that_nothing_reads_is_no_matter(loaded, output):
    network = loaded([_loop(), *_MEASURED], output=output)
    np.testing.assert_allclose(np.asarray(network(_images())), _plain(_images()), rtol=1e-5)


def test_a_false_shape_of_an_output_that_is_read_is_refused(loaded):
    read = _n("Shape", "logits", "unused")
    with pytest.raises(CorruptFileError, match=r"'logits' is of shape \[1, 5\]"):
        loaded([_loop(), *_MEASURED, read], output=[1, 5])


def test_shapes_of_a_fixed_batch_are_those_of_the_whole_batch(loaded):
    nodes = [_loop(), *_MEASURED]
    answer = loaded(nodes, [_info("v", [4, 3, 8, 8])], batch=4)(_images())
    np.testing.assert_allclose(np.asarray(answer), _plain(_images()), rtol=1e-5)
    with pytest.raises(CorruptFileError, match="'v' is of shape"):
        loaded(nodes, [_info("v", TRUE)], batch=4)


def test_one_image_in_a_file_whose_batch_was_opened_by_hand(loaded):
    """The shapes inside are still those of one image; they decide nothing here."""
    found = loaded([_loop(), *_logits(factor="one")], [_info("v", TRUE)], batch="n").findings
    assert SUSPICION not in " ".join(found)
    with pytest.raises(CorruptFileError, match="'v' is of shape"):
        loaded([_loop(), *_MEASURED], [_info("v", [5, 3, 8, 8])], batch="n")


_COUNTING = [
    _n("Shape", "v", "v_shape"),
    _n("Gather", "v_shape zero", "seen"),
    _n("Shape", "x", "x_shape"),
    _n("Gather", "x_shape zero", "given"),
    _n("Sub", "given seen", "hidden"),
    _n("Unsqueeze", "hidden first", "times"),
    _n("ConstantOfShape", "times", "some"),
    _n("ReduceSum", "some first", "sum", keepdims=0),
    _n("Add", "sum one", "factor"),
]


def test_false_numbers_of_images_are_suspicious_where_they_are_computed_with(loaded):
    """Beside others an image gets another answer in onnxruntime, for which 1 is folded."""
    nodes = [_loop(), *_COUNTING, *_logits()]
    found = loaded(nodes, [_info("v", TRUE)], batch="n").findings
    assert any(f.startswith(SUSPICION) and "for 3 images" in f for f in found)
    assert SUSPICION not in " ".join(
        loaded(nodes, [_info("v", ["n", 3, 8, 8])], batch="n").findings
    )
