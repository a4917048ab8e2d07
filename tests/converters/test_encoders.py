"""Encoders: parity with transformers, folders, shards, pickles, and what is refused."""

import os

import jax
import numpy as np
import pytest
import torch
import transformers
from transformers.activations import ACT2FN

from converters.encoders import encode, load_encoder
from converters.encoders.assembly import FAMILIES
from converters.encoders.blocks import ACTIVATIONS, ALIASES
from converters.encoders.mpnet import relative_buckets
from converters.errors import MismatchError
from tests.converters.encoder_models import (
    KINDS,
    LONGEST,
    VOCABULARY,
    batch,
    expected,
    reference,
    save,
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 1), (32, 9), (2, None)], ids=["one", "many", "longest"])
def test_last_hidden_state_in_float64(kind, shape, folders):
    model, folder = folders(kind)
    ids, mask = batch(kind, shape[0], shape[1] or LONGEST[kind])
    with jax.enable_x64(True):
        found = np.asarray(load_encoder(folder).astype(np.float64)(ids, mask))
    want = expected(model.double(), ids, mask)
    model.float()
    valid = mask > 0
    assert found.dtype == np.float64
    assert np.abs(found - want)[valid].max() < 1e-8
    assert np.abs(want[valid]).max() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_last_hidden_state_in_float32(kind, folders):
    model, folder = folders(kind)
    ids, mask = batch(kind, 5, 30)
    found = np.asarray(load_encoder(folder)(ids, mask))
    valid = mask > 0
    assert np.abs(found - expected(model, ids, mask))[valid].max() < 1e-4


@pytest.mark.parametrize("kind", ["gpt2", "mpnet"])
def test_padding_changes_nothing(kind, folders):
    encoder = load_encoder(folders(kind)[1])
    ids, mask = batch(kind, 1, 6)
    padded = [np.pad(part, ((0, 3), (0, 5))) for part in (ids, mask)]
    padded[0][0, 6:] = 1 if kind == "mpnet" else 0
    found = np.asarray(encoder(*padded))
    assert np.allclose(found[0, :6], np.asarray(encoder(ids, mask))[0], atol=1e-5)
    assert np.isfinite(found).all(), "rows without any token must not be NaN"


def test_gradients_flow_through_the_embeddings(folders):
    encoder = load_encoder(folders("gpt2")[1])
    ids, mask = batch("gpt2", 1, 4)

    def score(params):
        return encode(encoder.config, params, ids, mask)[:, -1].sum()

    slope = jax.jit(jax.grad(score))(encoder.params)["wte.embedding"]
    assert {int(i) for i in np.flatnonzero(np.abs(slope).sum(1))} == set(ids[0].tolist())


@pytest.mark.parametrize("name", [*ACTIVATIONS, *ALIASES])
def test_activations(name: str):
    values = np.linspace(-9, 9, 1001)
    want = ACT2FN[name](torch.from_numpy(values)).numpy()
    with jax.enable_x64(True):
        found = ACTIVATIONS[ALIASES.get(name, name)](jax.numpy.asarray(values))
    # "gelu_fast" rounds its constant to ten digits.
    assert np.abs(np.asarray(found) - want).max() < 1e-9


def test_mpnet_buckets():
    layer = transformers.models.mpnet.modeling_mpnet.MPNetEncoder
    place = torch.arange(512)
    want = layer.relative_position_bucket(place[None, :] - place[:, None]).numpy()
    assert (relative_buckets(512) == want).all()


# -- where weights come from -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["bin", "sharded", "sharded bin", "pickle", "legacy pickle"])
def test_every_form_of_file_gives_the_same(kind, form, folders, tmp_path):
    model, folder = folders(kind)
    path = save(model, form, tmp_path)
    found, whole = load_encoder(path), load_encoder(folder)
    assert found.config == whole.config
    assert found.params.keys() == whole.params.keys()
    assert all(np.array_equal(found.params[name], whole.params[name]) for name in whole.params)
    assert found.architecture == kind
    assert found.sha256 != whole.sha256


@pytest.mark.parametrize("kind, head", [("bert", "ForMaskedLM"), ("distilbert", "ForMaskedLM"),
                                        ("gpt2", "LMHeadModel"), ("mpnet", "ForMaskedLM"),
                                        ("bert", "ForSequenceClassification")])  # fmt: skip
def test_models_with_heads(kind, head, tmp_path):
    model = reference(kind, head)
    model.save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path)
    ids, mask = batch(kind, 2, 6)
    want = expected(getattr(model, FAMILIES[kind].prefix), ids, mask)
    assert np.abs(np.asarray(encoder(ids, mask)) - want)[mask > 0].max() < 1e-4
    torch.save(model, tmp_path / "whole.pt")
    assert load_encoder(tmp_path / "whole.pt").config == encoder.config


def test_what_is_left_out_is_named(folders):
    (finding,) = load_encoder(folders("bert")[1]).findings
    assert "left out 2 tensors" in finding and "pooler.dense.weight" in finding


def test_names_of_2018(folders, tmp_path):
    model, folder = folders("bert")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    state = {}
    for name, value in model.state_dict().items():
        for new, was in old.items():
            name = name.replace(new, was)
        state[f"bert.{name}"] = value
    model.config.save_pretrained(tmp_path)
    torch.save(state, tmp_path / "pytorch_model.bin")
    found, whole = load_encoder(tmp_path), load_encoder(folder)
    assert all(np.array_equal(found.params[name], whole.params[name]) for name in whole.params)


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_both_names_of_a_norm_must_hold_the_same(prefix, folders, tmp_path):
    """transformers 4 takes the later name, transformers 5 the older one."""
    model, _ = folders("bert")
    state = {f"{prefix}{name}": value for name, value in model.state_dict().items()}
    name = f"{prefix}embeddings.LayerNorm.weight"
    older = name.replace("weight", "gamma")
    model.config.save_pretrained(tmp_path)
    torch.save(state | {older: state[name]}, tmp_path / "pytorch_model.bin")
    load_encoder(tmp_path)
    torch.save(state | {older: state[name] + 1}, tmp_path / "pytorch_model.bin")
    with pytest.raises(MismatchError, match="LayerNorm.weight and .*LayerNorm.gamma are two names"):
        load_encoder(tmp_path)


def test_gpt2_of_transformers_4(folders, tmp_path, old_class):
    """Classes and buffers as transformers 4.2.1, which made TrojAI's embeddings, pickles them."""
    model, folder = folders("gpt2")
    package = "transformers.models.gpt2.modeling_gpt2"
    names = {"GPT2Model": "GPT2Model", "GPT2Block": "Block", "GPT2Attention": "Attention",
             "GPT2MLP": "MLP"}  # fmt: skip
    old = {now: old_class(f"{package}.{was}", torch.nn.Module) for now, was in names.items()}
    old["Conv1D"] = old_class("transformers.modeling_utils.Conv1D", torch.nn.Module)
    converted = as_old(model, old)
    for block in converted.h:
        block.attn.register_buffer("bias", torch.ones(1, 1, 1024, 1024).tril().byte())
        block.attn.register_buffer("masked_bias", torch.tensor(-1e4))
    config = old_class("transformers.models.gpt2.configuration_gpt2.GPT2Config")()
    config.__dict__.update(model.config.__dict__, n_ctx=1024, gradient_checkpointing=False)
    converted.config = config
    torch.save(converted, tmp_path / "GPT-2-gpt2.pt")
    found, whole = load_encoder(tmp_path / "GPT-2-gpt2.pt"), load_encoder(folder)
    assert found.config == whole.config
    assert all(np.array_equal(found.params[name], whole.params[name]) for name in whole.params)


def as_old(module, classes: dict[str, type]):
    """A copy of a module tree with other classes and without newer attributes."""
    kind = classes.get(type(module).__name__)
    if kind is None and not type(module).__module__.startswith("torch.nn"):
        return None
    copy = torch.nn.Module.__new__(kind or type(module))
    torch.nn.Module.__init__(copy)
    keep = {"eps", "normalized_shape", "num_embeddings", "embedding_dim", "p", "nf"}
    copy.__dict__.update({k: v for k, v in module.__dict__.items() if k in keep})
    for name, parameter in module._parameters.items():
        copy.register_parameter(name, parameter)
    for name, child in module._modules.items():
        old = as_old(child, classes)
        if old is not None:
            copy.add_module(name, old)
    if type(module).__name__ == "GPT2Attention":
        copy.n_head = module.num_heads
    return copy.eval()


@pytest.mark.parametrize("ids, message", [
    (np.array([[VOCABULARY]]), "got token ids from 41 to 41, expected 0 to 40"),
    (np.array([[-1]]), "got token ids from -1"),
    (np.array([1]), r"expected two \[n, t\]"),
    (np.ones((1, 513), int), "expected at most 512"),
    (np.ones((0, 3), int), r"expected two \[n, t\]"),
])  # fmt: skip
def test_inputs_that_are_refused(ids, message, folders):
    with pytest.raises(ValueError, match=message):
        load_encoder(folders("bert")[1])(ids, np.ones_like(ids))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MINILM", "MPNET"])
def test_parity_on_real_weights(name):
    """Opt-in: JAXTROJ_MINILM and JAXTROJ_MPNET name unpacked Hugging Face folders."""
    folder = os.environ.get(f"JAXTROJ_{name}")
    if not folder:
        pytest.skip(f"set JAXTROJ_{name} to an unpacked Hugging Face folder")
    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval()
    encoder = load_encoder(folder)
    random = np.random.default_rng(0)
    ids = random.integers(1000, 20000, (4, 64)).astype(np.int32)
    mask = (np.arange(64) < np.array([[64], [40], [7], [1]])).astype(np.int32)
    ids = np.where(mask, ids, model.config.pad_token_id).astype(np.int32)
    valid = mask > 0
    single = np.abs(np.asarray(encoder(ids, mask)) - expected(model, ids, mask))[valid].max()
    with jax.enable_x64(True):
        found = np.asarray(encoder.astype(np.float64)(ids, mask))
    double = np.abs(found - expected(model.double(), ids, mask))[valid].max()
    print(f"{name}: float32 {single:.1e}, float64 {double:.1e}")
    assert single < 1e-4 and double < 1e-8
