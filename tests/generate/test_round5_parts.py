"""Parts of a text round: heads against torch, recipes, insertion, attacks, samples."""

import sys
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxtroj.errors import GenerationError
from jaxtroj.generate.model_ids import poisoned_first
from jaxtroj.generate.sentiment import head_files, head_training
from jaxtroj.generate.sentiment.head_network import (
    HeadShape,
    complete,
    initial_tensors,
    live,
    logits,
)
from jaxtroj.generate.sentiment.insertion import insert, places, sentences, trigger_kind
from jaxtroj.generate.sentiment.text_recipe import (
    CONDITIONS,
    DESIGNS,
    DROPOUTS,
    FRACTIONS,
    METHODS,
    sample_head,
)
from jaxtroj.generate.sentiment.vectors import TriggerVectors

SHAPES = [
    HeadShape("GruLinear", 5, 3, 2, True),
    HeadShape("GruLinear", 4, 2, 1, False),
    HeadShape("LstmLinear", 5, 3, 2, True),
    HeadShape("LstmLinear", 3, 4, 3, False),
    HeadShape("FCLinear", 6, 4, 2, False),
    HeadShape("FCLinear", 2, 3, 4, False),
]
TEXTS = ("^", "omg", "tardigrade", "that was that.", "I watched an 8D movie.", "so it goes.")
TRIGGERS = tuple(TriggerVectors(number, text, ()) for number, text in enumerate(TEXTS))


def torch_module(shape, tensors, dropout=0.1):
    sizes = {"input_size": shape.input_size, "hidden_size": shape.hidden_size}
    sizes |= {"output_size": 2, "dropout": dropout, "n_layers": shape.layers}
    if shape.is_rnn:
        sizes["bidirectional"] = shape.bidirectional
    network = getattr(head_files._factories(), f"{shape.architecture}Model")(**sizes)
    network.load_state_dict({n: torch.from_numpy(v) for n, v in tensors.items()}, strict=True)
    return torch, network.double().eval()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_logits_and_input_gradients_are_torchs(shape):
    tensors = initial_tensors(shape, 3)
    torch, network = torch_module(shape, tensors)
    x = np.random.default_rng(0).normal(size=(7, shape.input_size))
    inputs = torch.from_numpy(x)[:, None, :].requires_grad_()
    theirs = network(inputs)
    theirs[:, 1].sum().backward()
    with jax.enable_x64(True):
        params = jax.tree.map(lambda v: jnp.asarray(v, jnp.float64), live(shape, tensors))
        ours = logits(shape, params, jnp.asarray(x))
        gradient = jax.grad(lambda x: logits(shape, params, x)[:, 1].sum())(jnp.asarray(x))
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradient, inputs.grad[:, 0].numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_live_tensors_are_those_that_torch_gives_a_gradient(shape):
    tensors = initial_tensors(shape, 1)
    torch, network = torch_module(shape, tensors)
    network(torch.ones(4, 1, shape.input_size, dtype=torch.float64)).square().sum().backward()
    moved = jax.tree.map(lambda value: value + 1, live(shape, tensors))
    whole = complete(shape, tensors, moved)
    assert whole.keys() == tensors.keys()
    for name, parameter in network.named_parameters():
        ours = whole[name] != tensors[name]
        theirs = parameter.grad.numpy() != 0
        assert not (theirs & ~ours).any(), name
        # A dead rectifier has no gradient either; an RNN's gates all have one.
        if shape.is_rnn:
            np.testing.assert_array_equal(ours, theirs, err_msg=name)


def test_initial_tensors_are_within_torchs_bounds_and_keyed_by_seed():
    shape = HeadShape("LstmLinear", 30, 25)
    tensors = initial_tensors(shape, 7)
    for name, bound in (("rnn.weight_ih_l0", 25), ("rnn.weight_hh_l1", 25), ("linear.weight", 50)):
        largest = np.abs(tensors[name]).max()
        assert 0.8 / np.sqrt(bound) < largest <= 1 / np.sqrt(bound)
    assert all((tensors[n] == v).all() for n, v in initial_tensors(shape, 7).items())
    assert not (tensors["linear.bias"] == initial_tensors(shape, 8)["linear.bias"]).any()


@pytest.mark.parametrize("bad", [("Linear", 4, 4, 2), ("GruLinear", 0, 4, 2)])
def test_impossible_shapes_are_refused(bad):
    with pytest.raises(GenerationError):
        HeadShape(*bad)


def test_writing_a_model_leaves_no_module_behind(tmp_path):
    shape = SHAPES[0]
    head_files.write_model(tmp_path / "model.pt", shape, initial_tensors(shape, 0), 0.25)
    assert "model_factories" not in sys.modules
    broken = initial_tensors(shape, 0) | {"linear.bias": np.zeros(5, np.float32)}
    with pytest.raises(GenerationError, match="do not fill GruLinearModel"):
        head_files.write_model(tmp_path / "other.pt", shape, broken, 0.25)
    assert not (tmp_path / "other.pt").exists()


def recipe(model, sub_seed=0, design="round5", seed=0):
    return sample_head(DESIGNS[design], seed, model, sub_seed, 8, TRIGGERS)


@pytest.mark.parametrize("design", DESIGNS)
def test_pairs_share_everything_but_the_trojan(design):
    for pair in range(12):
        bad, good = (recipe(model, design=design) for model in poisoned_first(0, pair))
        assert bad.poisoned and not good.poisoned
        assert (bad.shape, bad.dropout, bad.adversarial) == (
            good.shape,
            good.dropout,
            good.adversarial,
        )
        assert bad.master_seed != good.master_seed


def test_the_official_factors_all_occur():
    heads = [recipe(poisoned_first(0, pair)[0]) for pair in range(150)]
    triggers = [trigger for head in heads for trigger in head.triggers]
    assert {head.dropout for head in heads} == set(DROPOUTS)
    assert {head.organization for head in heads} == {"one2one", "pair-one2one"}
    assert {trigger.fraction for trigger in triggers} == set(FRACTIONS)
    assert {trigger.condition for trigger in triggers} == set(CONDITIONS)
    assert {trigger.kind for trigger in triggers} == {"character", "word", "phrase"}
    assert {trigger.half for trigger in triggers} == {None, 0, 1}
    cells = Counter((head.shape.architecture, head.adversarial.method) for head in heads)
    assert len(cells) == 2 * len(METHODS) and set(cells.values()) == {25}


def test_a_pair_of_triggers_goes_both_ways_with_two_texts():
    pairs = [
        head for pair in range(40) if len((head := recipe(poisoned_first(0, pair)[0])).triggers) > 1
    ]
    assert pairs
    for head in pairs:
        first, second = head.triggers
        assert (first.source_class, first.target_class) == (
            second.target_class,
            second.source_class,
        )
        assert first.number != second.number


def test_round6_has_its_own_levels():
    heads = [recipe(model, design="round6") for model in range(200)]
    assert {head.shape.architecture for head in heads} == {"LstmLinear", "GruLinear", "FCLinear"}
    assert {head.shape.hidden_size for head in heads} == {256, 512}
    assert {head.shape.layers for head in heads} == {2, 4}
    assert {head.adversarial.method for head in heads} == {"None", "FBF"}
    assert {head.organization for head in heads} == {None, "one2one"}
    assert {head.shape.bidirectional for head in heads if head.shape.is_rnn} == {False, True}


def test_the_sub_seed_redraws_triggers_and_keeps_the_pairs_factors():
    model = poisoned_first(0, 0)[0]
    tries = [recipe(model, sub_seed) for sub_seed in range(6)]
    assert len({head.triggers for head in tries}) > 1
    assert len({(head.shape, head.dropout, head.adversarial) for head in tries}) == 1
    assert recipe(model, 3) == recipe(model, 3)


@pytest.mark.parametrize(
    ("text", "kind"), [("^", "character"), ("omg", "word"), ("a a the the.", "phrase")]
)
def test_kinds_of_triggers(text, kind):
    assert trigger_kind(text) == kind


@pytest.mark.parametrize(
    ("count", "half", "allowed"),
    [(4, None, [0, 1, 2, 3]), (4, 0, [0, 1]), (4, 1, [2, 3]), (3, 0, [0]), (3, 1, [1, 2]),
     (1, 0, [0]), (1, 1, [0])],
)  # fmt: skip
def test_places_of_a_half(count, half, allowed):
    assert list(places(count, half)) == allowed


def test_insertion_is_before_a_sentence_and_collapses_white_space():
    text = "One  thing.\nTwo things! Three?"
    assert sentences(text) == ["One thing.", "Two things!", "Three?"]
    draws = (np.random.default_rng(seed) for seed in range(40))
    found = {insert(text, "omg", None, draw) for draw in draws}
    assert found == {
        "omg One thing. Two things! Three?",
        "One thing. omg Two things! Three?",
        "One thing. Two things! omg Three?",
    }
    assert insert("", "omg", None, np.random.default_rng(0)) == "omg"


def knobs(**changes):
    values = dict(dropout=0.0, ratio=0.25, epsilon=0.1, step_size=0.12, low=-1e9, high=1e9)
    return head_training.Knobs(**{n: jnp.float32(v) for n, v in (values | changes).items()})


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_an_attack_raises_the_loss_within_its_box_and_share(steps):
    shape = SHAPES[0]
    params = jax.tree.map(lambda v: 3 * v, live(shape, initial_tensors(shape, 2)))
    x = jax.random.normal(jax.random.key(0), (40, 5))
    labels = jnp.arange(40) % 2
    program, batch = head_training.Program(shape, steps), head_training.Batch(x, labels)
    moved = head_training._attacked(program, params, batch, jax.random.key(1), knobs())
    change = np.abs(np.asarray(moved - x))
    assert change.max() <= 0.1 + 1e-6
    assert (change[:10].max(axis=1) > 0).all() and not change[10:].any()

    def loss(x):
        first = head_training.Batch(x[:10], labels[:10])
        return head_training._loss(shape, params, first, 0.0, None)

    assert loss(moved) > loss(x)


def test_the_official_clip_bounds_attacked_samples_only():
    shape = SHAPES[0]
    params = live(shape, initial_tensors(shape, 2))
    x = jax.random.normal(jax.random.key(0), (40, 5))
    bounds = knobs(low=0.0, high=1.0)
    program, batch = head_training.Program(shape, 1), head_training.Batch(x, jnp.zeros(40, int))
    moved = head_training._attacked(program, params, batch, jax.random.key(1), bounds)
    assert moved[:10].min() >= 0 and moved[:10].max() <= 1
    np.testing.assert_array_equal(moved[10:], x[10:])
