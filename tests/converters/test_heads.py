"""Sentiment heads: parity with torch's own layers, files of TrojAI's classes."""

import copy
import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from converters import convert, fold, load_checkpoint, open_model, save_checkpoint
from converters.errors import (
    LoadError,
)
from converters.families.dense_head import DenseHeadConfig
from converters.families.rnn_head import RnnHeadConfig, single_step
from converters.model import apply, module_of
from converters.parity import check_parity, logits_and_gradients, relative_error
from jaxtroj.cli.main import main
from tests.converters.head_models import HIDDEN, WIDTH, dense, recurrent

pytestmark = pytest.mark.usefixtures("unguarded")

nn = torch.nn
EXACT, SINGLE = 1e-10, 1e-4


def torch_values(head, embeddings, weights):
    x = torch.from_numpy(embeddings).requires_grad_(True)
    logits = copy.deepcopy(head).double()(x)
    (gradients,) = torch.autograd.grad((logits * torch.from_numpy(weights)).sum(), x)
    return logits.detach().numpy(), gradients.numpy()


_program = jax.jit(logits_and_gradients, static_argnums=0)


def check_values(config, params, expected, given, bound):
    """Logits and gradients under jit within `bound` of torch's."""
    got = _program(config, params, *given)
    for mine, theirs in zip(got, expected, strict=True):
        error = relative_error(np.asarray(mine, np.float64), theirs.reshape(mine.shape))
        assert error is not None and error <= bound, error


def check_parity_of(head, model, steps, batch):
    random = np.random.default_rng([steps, batch])
    shape = (batch, steps, WIDTH)
    if not getattr(model.config, "batch_first", True):
        shape = (steps, batch, WIDTH)
    embeddings, weights = random.standard_normal(shape), random.standard_normal((batch, 2))
    expected = torch_values(head, embeddings, weights)
    with jax.enable_x64(True):
        exact = model.astype(np.float64)
        given = jnp.asarray(embeddings), jnp.asarray(weights)
        check_values(exact.config, exact.params, expected, given, EXACT)
        if steps == 1 and isinstance(exact.config, RnnHeadConfig):
            flat = given[0].reshape(batch, WIDTH), given[1]
            check_values(*single_step(exact.config, exact.params), expected, flat, EXACT)
    if steps != 7:
        given = jnp.asarray(embeddings, np.float32), jnp.asarray(weights, np.float32)
        check_values(model.config, model.params, expected, given, SINGLE)


# Steps and batch.
SIZES = [(1, 32), (3, 1), (7, 5)]
VARIANTS = [
    ({}, SIZES),
    ({"num_layers": 1, "bidirectional": False}, [(1, 1), (3, 32)]),
    ({"num_layers": 3, "bidirectional": False}, [(1, 5)]),
    ({"num_layers": 1, "bias": False}, [(1, 2), (7, 3)]),
    ({"num_layers": 1, "batch_first": False}, [(1, 4), (3, 2)]),
]


@pytest.mark.parametrize(("variant", "sizes"), VARIANTS, ids=str)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_recurrent_heads(cell, variant, sizes, factories, written):
    head = recurrent(factories, cell, **variant)
    model = open_model(written(head)).model
    rnn = head.rnn
    assert model.architecture == {"gru": "GruLinear", "lstm": "LstmLinear"}[cell]
    assert model.config == RnnHeadConfig(
        cell, WIDTH, HIDDEN, rnn.num_layers, rnn.bidirectional, 2, rnn.bias, rnn.batch_first
    )
    assert (model.config.input_kind, model.num_classes) == ("embedding", 2)
    for steps, batch in sizes:
        check_parity_of(head, model, steps, batch)


@pytest.mark.parametrize("hidden", [(), (9,), (9, 7, 8)])
def test_dense_heads(hidden, factories, written):
    head = dense(factories, hidden)
    model = open_model(written(head)).model
    assert model.architecture == ("FCLinear" if hidden else "Linear")
    assert model.config == DenseHeadConfig(WIDTH, hidden, 2)
    assert model.config.input_kind == "embedding"
    for steps, batch in SIZES:
        check_parity_of(head, model, steps, batch)


def build(factories, name):
    makers = {"FCLinear": lambda f: dense(f), "Linear": lambda f: dense(f, ())}
    makers |= {"GruLinear": lambda f: recurrent(f), "LstmLinear": lambda f: recurrent(f, "lstm")}
    return makers[name](factories)


every_head = pytest.mark.parametrize("name", ["GruLinear", "LstmLinear", "FCLinear", "Linear"])


@every_head
def test_every_container_holds_the_same_head(name, factories, tmp_path, monkeypatch):
    from safetensors.torch import save_file

    head = build(factories, name)
    save_file(head.state_dict(), tmp_path / "head.safetensors")
    torch.save(head.state_dict(), tmp_path / "state.pt")
    torch.save(head, tmp_path / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(nn.DataParallel(head), tmp_path / "zip.pt")
    monkeypatch.setitem(sys.modules, "model_factories", None)
    model = open_model(tmp_path / "zip.pt").model
    assert model.architecture == name
    for file in ("legacy.pt", "state.pt", "head.safetensors"):
        other = open_model(tmp_path / file).model
        assert other.config == model.config
        for path, value in model.params.items():
            np.testing.assert_array_equal(other.params[path], value)


def test_without_bias_from_a_state_dict(factories, written):
    head = recurrent(factories, "lstm", bias=False)
    model = open_model(written(head)).model
    assert not model.config.has_bias
    assert open_model(written(head.state_dict())).model.config == model.config


@pytest.mark.parametrize("batch_first", [False, True])
def test_layout_of_sequences_is_a_finding_where_it_is_not_told(batch_first, factories, written):
    head = recurrent(factories, batch_first=batch_first)
    findings = open_model(written(head)).model.findings
    assert any("time before batch" in finding for finding in findings) != batch_first
    assert not any("does not say" in finding for finding in findings)
    assert any("does not say" in f for f in open_model(written(head.state_dict())).model.findings)


@every_head
def test_eager_is_jit_and_stacked_models_are_the_single_ones(name, factories, artifact_of):
    models = [convert(artifact_of(build(factories, name).state_dict())) for _ in range(3)]
    scaled = [{p: v * (1 + i) for p, v in m.params.items()} for i, m in enumerate(models)]
    config = models[0].config
    if isinstance(config, RnnHeadConfig):
        scaled = [single_step(config, params)[1] for params in scaled]
        config = dataclasses.replace(config, single_step=True)
    stacked = {path: jnp.stack([params[path] for params in scaled]) for path in scaled[0]}
    x = jnp.asarray(np.random.default_rng(0).standard_normal((4, WIDTH)), jnp.float32)
    together = jax.jit(jax.vmap(lambda params: apply(config, params, x)))(stacked)
    for alone, params in zip(together, scaled, strict=True):
        np.testing.assert_allclose(alone, apply(config, params, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_single_step_of_stacked_models(cell, bias, factories, artifact_of):
    model = convert(artifact_of(recurrent(factories, cell, bias=bias)))
    config, params = single_step(model.config, model.params)
    stacked = {path: jnp.stack([value, -value]) for path, value in model.params.items()}
    assert config.single_step and config.input_kind == "embedding"
    for path, value in single_step(model.config, stacked)[1].items():
        np.testing.assert_array_equal(value[0], params[path])
    assert single_step(config, params) == (config, params)
    before = sum(value.size for value in model.params.values())
    assert sum(value.size for value in params.values()) < 0.75 * before
    assert not any("weight_hh" in path for path in params)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_one_step_is_the_general_recurrence(cell, factories, artifact_of):
    """A second, empty-handed path to the same numbers: the scan over one step."""
    model = convert(artifact_of(recurrent(factories, cell)))
    with jax.enable_x64(True):
        model = model.astype(np.float64)
        rnn = module_of(model.config, model.params).rnn  # pyright: ignore
        x = jnp.asarray(np.random.default_rng(1).standard_normal((5, WIDTH)))
        for suffix in ("l0", "l0_reverse"):
            general, states = rnn._run(x[None], suffix)
            assert states.shape == (1, 5, HIDDEN)
            np.testing.assert_allclose(rnn._step(x, suffix), general, rtol=1e-13, atol=1e-14)
        flat = apply(model.config, model.params, x)
        np.testing.assert_array_equal(flat, apply(model.config, model.params, x[:, None]))


@pytest.mark.parametrize("shape", [(WIDTH,), (2, WIDTH + 1), (2, 0, WIDTH), (1, 1, 1, WIDTH)])
@every_head
def test_other_shapes_are_refused(name, shape, factories, artifact_of):
    model = convert(artifact_of(build(factories, name)))
    with pytest.raises(ValueError, match="expected \\[n, 12\\]"):
        model(np.zeros(shape, np.float32))


def test_reduced_head_takes_one_step_only(factories, artifact_of):
    model = convert(artifact_of(recurrent(factories)))
    config, params = single_step(model.config, model.params)
    assert apply(config, params, jnp.zeros((2, 1, WIDTH))).shape == (2, 2)
    with pytest.raises(ValueError, match="3 steps, expected one"):
        apply(config, params, jnp.zeros((2, 3, WIDTH)))


# ---- the whole way


@every_head
def test_checkpoint_and_folding(name, factories, artifact_of, tmp_path):
    model = convert(artifact_of(build(factories, name)))
    assert fold(model) is model
    save_checkpoint(model, tmp_path)
    again = load_checkpoint(tmp_path)
    assert (again.config, again.architecture) == (model.config, name)
    if isinstance(model.config, RnnHeadConfig):
        config, params = single_step(model.config, model.params)
        save_checkpoint(dataclasses.replace(model, config=config, params=params), tmp_path)
        assert load_checkpoint(tmp_path).config == config


CHANGED = [("cell", "rnn"), ("cell", 3), ("cell", None), ("cell", ["gru"]), ("num_layers", 2**24)]
CHANGED += [("num_layers", 3), ("hidden_size", 2**24), ("input_size", 2**24), ("single_step", 1)]
CHANGED += [("bidirectional", False), ("has_bias", False), ("single_step", True)]


@pytest.mark.parametrize(("field", "value"), CHANGED, ids=str)
def test_changed_checkpoint_is_refused(field, value, factories, artifact_of, tmp_path):
    save_checkpoint(convert(artifact_of(recurrent(factories))), tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    described["config"][field] = value
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(LoadError):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["LstmLinear", "FCLinear"])
def test_convert_command(name, factories, written, tmp_path, capsys):
    path, out = written(build(factories, name)), tmp_path / "out"
    assert main(["convert", str(path), "--out", str(out), "--check"]) == 0
    printed = capsys.readouterr().out
    assert f"{name}, 2 classes" in printed and "as it is, float64, 5x3" in printed
    assert ("single step, float64, 32x1" in printed) == (name == "LstmLinear")
    report = json.loads((out / "parity.json").read_text())
    assert report["passed"] and report["reference"].startswith("torch ")
    assert load_checkpoint(out).architecture == name


def test_convert_command_takes_no_size_of_images(factories, written, tmp_path, capsys):
    path, out = written(build(factories, "FCLinear")), tmp_path / "out"
    words = ["convert", str(path), "--out", str(out), "--check", "--image-size", "32x32"]
    assert main(words) == 4
    assert "--image-size is for networks over images" in (said := capsys.readouterr().err)
    assert "takes embeddings; leave it out" in said and not out.exists()


@pytest.mark.parametrize("path", ["rnn.weight_hh_l1_reverse", "rnn.bias_hh_l0", "linear.kernel"])
def test_other_weights_do_not_pass(path, factories, artifact_of):
    artifact = artifact_of(recurrent(factories))
    model = convert(artifact)
    params = model.params | {path: model.params[path] + 1e-3}
    report = check_parity(artifact, dataclasses.replace(model, params=params), ((2, 3),))
    assert not report.passed


def test_reduced_head_has_no_reference(factories, artifact_of):
    artifact = artifact_of(recurrent(factories))
    model = convert(artifact)
    config, params = single_step(model.config, model.params)
    with pytest.raises(ValueError, match="before single_step"):
        check_parity(artifact, dataclasses.replace(model, config=config, params=params))
