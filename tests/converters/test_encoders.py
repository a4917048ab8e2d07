"""Encoders: parity with transformers, folders, shards, pickles, and what is refused."""

import copy
import json
import os
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
import transformers
from transformers.activations import ACT2FN

from converters.encoders import distilbert, encode, gpt2, load_encoder
from converters.encoders.assembly import FAMILIES
from converters.encoders.blocks import ACTIVATIONS, ALIASES
from converters.encoders.mpnet import relative_buckets
from converters.errors import (
    ConversionError,
    ConverterError,
    CorruptFileError,
    LoadError,
    MismatchError,
    TooLargeError,
    UnknownFormatError,
    UnsafePickleError,
    UnsupportedArchitectureError,
)

VOCABULARY = 41
WIDE = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
CONFIGS = {
    "bert": ("Bert", {**WIDE, "intermediate_size": 40, "max_position_embeddings": 512}),
    "distilbert": ("DistilBert", {"dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40}),
    "gpt2": ("GPT2", {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 1024}),
    "mpnet": ("MPNet", {**WIDE, "intermediate_size": 40, "max_position_embeddings": 514}),
}
KINDS = list(CONFIGS)
LONGEST = {"bert": 512, "distilbert": 512, "gpt2": 1022, "mpnet": 512}


def reference(kind: str, head: str = "Model", **changes):
    """A random model of transformers in float32, evaluation mode."""
    stem, values = CONFIGS[kind]
    # Token ids of the special tokens only have to lie inside the tiny vocabulary.
    values = {**values, "vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 2, **changes}
    config = getattr(transformers, f"{stem}Config")(**values)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = getattr(transformers, f"{stem}{head}")(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.2 * torch.randn(parameter.shape)
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """`folders(kind)`: model and its folder, made once."""
    made = {}

    def of(kind: str):
        if kind not in made:
            model = reference(kind)
            made[kind] = model, tmp_path_factory.mktemp(kind)
            model.save_pretrained(made[kind][1])
        return made[kind]

    return of


def batch(kind: str, rows: int, tokens: int):
    """Ids and mask; the first row is full, the others shorter, padded with the padding id."""
    random = np.random.default_rng(rows * tokens)
    ids = random.integers(3, VOCABULARY, (rows, tokens)).astype(np.int32)
    lengths = random.integers(1, tokens + 1, rows)
    lengths[0] = tokens
    mask = (np.arange(tokens) < lengths[:, None]).astype(np.int32)
    return np.where(mask, ids, 1 if kind == "mpnet" else 0).astype(np.int32), mask


def expected(model, ids, mask) -> np.ndarray:
    with torch.no_grad():
        inputs = torch.from_numpy(ids).long(), torch.from_numpy(mask).long()
        return model(inputs[0], attention_mask=inputs[1]).last_hidden_state.numpy()


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


def save(model, form: str, folder: Path) -> Path:
    """Write a model the way that `form` names."""
    if form.endswith("pickle"):
        legacy = form.startswith("legacy")
        torch.save(model, folder / "e.pt", _use_new_zipfile_serialization=not legacy)
        return folder / "e.pt"
    if form == "sharded":
        model.save_pretrained(folder, max_shard_size="12KB")
        assert (folder / "model.safetensors.index.json").exists()
        return folder
    model.config.save_pretrained(folder)
    state = model.state_dict()
    if form == "bin":
        torch.save(state, folder / "pytorch_model.bin")
        return folder
    names = {name: f"pytorch_model-{i % 2}.bin" for i, name in enumerate(state)}
    for file in set(names.values()):
        torch.save({n: t for n, t in state.items() if names[n] == file}, folder / file)
    index = {"metadata": {}, "weight_map": names}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return folder


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


# -- what is refused -------------------------------------------------------------------------------


def broken(folder: Path, tmp_path: Path, **changes) -> Path:
    """A copy of a folder whose config.json has other entries; None removes one."""
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    for name in [name for name, value in changes.items() if value is None]:
        del config[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    os.link(folder / "model.safetensors", tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize("changes, error, message", [
    ({"model_type": "electra"}, UnsupportedArchitectureError, "model_type is 'electra'"),
    ({"model_type": ["bert"]}, UnsupportedArchitectureError, "model_type is a list"),
    ({"model_type": None}, UnsupportedArchitectureError, "model_type is None"),
    ({"num_attention_heads": 5}, ConversionError, "does not divide the width 24"),
    ({"num_attention_heads": True}, ConversionError, "num_attention_heads is True"),
    ({"num_hidden_layers": 10**9}, ConversionError, "from 1 to 256"),
    ({"num_hidden_layers": 3}, MismatchError, "missing: encoder.layer.2"),
    ({"num_hidden_layers": 1}, MismatchError, "unused: encoder.layer.1"),
    ({"vocab_size": 42}, MismatchError, r"got \(41, 24\), expected \(42, 24\)"),
    ({"hidden_size": "24"}, ConversionError, "hidden_size is '24'"),
    ({"hidden_size": -24}, ConversionError, "hidden_size is -24"),
    ({"layer_norm_eps": float("nan")}, ConversionError, "layer_norm_eps is nan"),
    ({"layer_norm_eps": 0}, ConversionError, "layer_norm_eps is 0"),
    ({"hidden_act": "__import__('os')"}, UnsupportedArchitectureError, "hidden_act"),
    ({"position_embedding_type": "relative_key"}, UnsupportedArchitectureError, "relative_key"),
    ({"is_decoder": True}, UnsupportedArchitectureError, "is_decoder is True"),
    ({"is_causal": True}, UnsupportedArchitectureError, "is_causal is True; only False"),
    ({"transformers_weights": "b.safetensors"}, LoadError, "loaded as weights"),
    ({"quantization_config": {"bits": 4}}, UnsupportedArchitectureError, "quantised"),
    ({"dtype": "bfloat16"}, MismatchError, "loaded as bfloat16"),
    ({"attribute_map": {"layer_norm_eps": "hidden_dropout_prob"}}, UnsupportedArchitectureError,
     "attribute_map is a dict; only None"),
])  # fmt: skip
def test_configurations_that_are_refused(changes, error, message, folders, tmp_path):
    with pytest.raises(error, match=message):
        load_encoder(broken(folders("bert")[1], tmp_path, **changes))


ALIASED = {"distilbert": distilbert.ALIASES, "gpt2": gpt2.ALIASES}


@pytest.mark.parametrize("kind", FAMILIES)
def test_aliases_are_those_of_transformers(kind):
    config = transformers.AutoConfig.for_model(kind)
    assert config.attribute_map == ALIASED.get(kind, {})


@pytest.mark.parametrize("kind, alias", [(k, alias) for k in ALIASED for alias in ALIASED[k]])
def test_an_alias_is_read_as_the_name(kind, alias, folders, tmp_path):
    folder, own = folders(kind)[1], ALIASED[kind][alias]
    value = json.loads((folder / "config.json").read_text())[own]
    alone = broken(folder, tmp_path, **{own: None, alias: value})
    assert load_encoder(alone).config == load_encoder(folder).config
    (tmp_path / "both").mkdir()
    assert load_encoder(broken(folder, tmp_path / "both", **{alias: value})).config.width == 24
    (tmp_path / "other").mkdir()
    other = broken(folder, tmp_path / "other", **{alias: 2 * value})
    with pytest.raises(ConversionError, match=f"{own} is {value} and {alias}, .* is {2 * value}"):
        load_encoder(other)


@pytest.mark.parametrize("said", [False, None])
def test_a_gpt2_that_sees_later_tokens_is_refused(said, folders, tmp_path):
    folder = broken(folders("gpt2")[1], tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "is_causal": said}))
    with pytest.raises(UnsupportedArchitectureError, match=f"is_causal is {said}; only True"):
        load_encoder(folder)


@pytest.mark.parametrize("padding", ["1", True, 1.0, [1], 19])
def test_a_padding_that_is_no_place_is_refused(padding, tmp_path):
    sizes = {**WIDE, "intermediate_size": 40, "max_position_embeddings": 20}
    config = transformers.AutoConfig.for_model("roberta", vocab_size=VOCABULARY, **sizes)
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path / "whole")
    assert load_encoder(tmp_path / "whole").max_tokens == 18
    (tmp_path / "broken").mkdir()
    with pytest.raises(ConversionError, match="pad_token_id is .* expected a whole number from 0"):
        load_encoder(broken(tmp_path / "whole", tmp_path / "broken", pad_token_id=padding))


BUFFERS = [
    ("bert", "embeddings.position_ids", lambda n: torch.arange(n).flip(0)[None]),
    ("bert", "embeddings.position_ids", lambda _: torch.zeros(1, 1, dtype=torch.long)),
    ("bert", "embeddings.token_type_ids", lambda n: torch.ones(1, n, dtype=torch.long)),
    ("distilbert", "embeddings.position_ids", lambda n: torch.arange(n - 1)[None]),
    ("mpnet", "embeddings.position_ids", lambda n: torch.arange(n).flip(0)[None]),
    ("gpt2", "h.1.attn.bias", lambda n: torch.ones(1, 1, n, n, dtype=torch.bool)),
    ("gpt2", "h.1.attn.bias", lambda _: torch.ones(1, 1, 1, 1, dtype=torch.bool)),
    ("gpt2", "h.1.attn.masked_bias", lambda _: torch.tensor(0.0)),
]


@pytest.mark.parametrize("form", ["bin", "pickle"])
@pytest.mark.parametrize("kind, name, values", BUFFERS)
def test_other_buffers_than_the_code_makes_are_refused(kind, name, values, form, tmp_path):
    model = reference(kind)
    module, _, leaf = name.rpartition(".")
    # In a pickle it is one that the state dict leaves out, as newer versions register it.
    model.get_submodule(module).register_buffer(
        leaf, values(model.config.max_position_embeddings), persistent=form == "bin"
    )
    with pytest.raises(MismatchError, match=f"{name} is .* of other values, expected "):
        load_encoder(save(model, form, tmp_path))


@pytest.mark.parametrize("kind, dtype", [
    ("bert", torch.long), ("gpt2", torch.float32), ("gpt2", torch.bfloat16),
])  # fmt: skip
def test_buffers_that_the_code_makes_are_read(kind, dtype, folders, tmp_path):
    """Also longer ones than the positions, and in the type of weights saved in half precision."""
    model = reference(kind)
    longer = model.config.max_position_embeddings + 1
    if kind == "bert":
        model.embeddings.register_buffer("position_ids", torch.arange(longer, dtype=dtype)[None])
    else:
        model.h[0].attn.register_buffer("bias", torch.ones(1, 1, longer, longer).tril().to(dtype))
        model.h[0].attn.register_buffer("masked_bias", torch.tensor(-1e4).to(dtype))
    assert (
        load_encoder(save(model, "bin", tmp_path)).config == load_encoder(folders(kind)[1]).config
    )


@pytest.mark.parametrize("text, error", [
    ("{", CorruptFileError),
    ("[]", CorruptFileError),
    ("[" * 100_000, CorruptFileError),
    ("\udcff", CorruptFileError),
    (" " * (2**20 + 1), TooLargeError),
])  # fmt: skip
def test_config_files_that_are_refused(text, error, tmp_path):
    (tmp_path / "config.json").write_text(text, errors="surrogateescape")
    with pytest.raises(error, match="config.json"):
        load_encoder(tmp_path)


@pytest.mark.parametrize("place", ["../secret.safetensors", "/etc/passwd", "a/b", "..", "", "a\\b",
                                   7, None, ["x"], "x\n"])  # fmt: skip
def test_shards_stay_inside_the_folder(place, folders, tmp_path):
    folder = broken(folders("bert")[1], tmp_path)
    os.rename(folder / "model.safetensors", tmp_path / "shard.safetensors")
    index = {"weight_map": {"embeddings.word_embeddings.weight": place}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptFileError, match="expected the name of a file beside it"):
        load_encoder(folder)


def test_shards_hold_what_the_index_says(folders, tmp_path):
    path = save(folders("bert")[0], "sharded bin", tmp_path)
    file = path / "pytorch_model.bin.index.json"
    index = json.loads(file.read_text())
    index["weight_map"]["one.more"] = "pytorch_model-1.bin"
    file.write_text(json.dumps(index))
    with pytest.raises(CorruptFileError, match="differ in 1 tensors, such as 'one.more'"):
        load_encoder(path)


def test_missing_files(tmp_path):
    with pytest.raises(LoadError, match="cannot read"):
        load_encoder(tmp_path / "nothing")
    with pytest.raises(LoadError, match="config.json"):
        load_encoder(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UnknownFormatError, match="has no weights"):
        load_encoder(tmp_path)


@pytest.mark.parametrize("value, message", [
    (np.nan, "NaN or infinite"), (np.inf, "NaN or infinite"), (1e300, "NaN or infinite"),
])  # fmt: skip
def test_weights_that_compute_nothing(value, message, folders, tmp_path):
    model = folders("bert")[0]
    state = {name: tensor.double() for name, tensor in model.state_dict().items()}
    state["embeddings.LayerNorm.bias"] = torch.full((24,), value, dtype=torch.float64)
    model.config.save_pretrained(tmp_path)
    torch.save(state, tmp_path / "pytorch_model.bin")
    with pytest.raises(ConversionError, match=message):
        load_encoder(tmp_path)


def _attribute(path: str, name: str, value):
    """A change of a model: one attribute of one module."""
    return lambda model: setattr(model.get_submodule(path), name, value)


def _without_modules(model):
    """A dropout that is a function, which the state dict does not show."""
    del model.drop
    model.drop = torch.nn.functional.relu


def _another_config(model):
    """One layer that attends otherwise, so that no mask is made for it."""
    model.h[1].attn.config = copy.deepcopy(model.config)
    model.h[1].attn.config._attn_implementation = "eager"


ATTENTION = "encoder.layer.1.attention.self"
NO_WEIGHTS = torch.nn.LayerNorm(24, eps=1e-12, elementwise_affine=False)


@pytest.mark.parametrize("kind, change, message", [
    ("bert", _attribute("encoder.layer.0.output.LayerNorm", "eps", 0.5), "eps is 0.5"),
    ("bert", _attribute(ATTENTION, "num_attention_heads", 6),
     "num_attention_heads is 6, expected 3"),
    ("bert", _attribute(ATTENTION, "attention_head_size", 4),
     "attention_head_size is 4, expected 8"),
    ("bert", _attribute(ATTENTION, "scaling", 1.0), "scaling is 1.0, expected 0.35"),
    ("bert", _attribute(ATTENTION, "is_causal", True), "is_causal is True, expected False"),
    ("bert", _attribute("embeddings.word_embeddings", "max_norm", 0.1), "max_norm is 0.1"),
    ("bert", _attribute("encoder.layer.1.intermediate", "intermediate_act_fn", torch.nn.ReLU()),
     "intermediate_act_fn is a torch.nn.modules.activation.ReLU, expected gelu"),
    ("bert", _attribute("encoder.layer.1.intermediate.intermediate_act_fn", "act",
                        torch.nn.functional.relu), "act is torch.nn.functional.relu"),
    ("bert", _attribute("embeddings", "dropout", torch.nn.Softmax(-1)), "Softmax"),
    ("bert", _attribute("embeddings", "dropout", torch.nn.Tanh()), "dropout is a .*Tanh"),
    ("bert", _attribute("embeddings", "dropout", ACT2FN["gelu"]), "dropout is a .*GELUActivation"),
    ("bert", _attribute("embeddings", "dropout", NO_WEIGHTS), "dropout is a .*LayerNorm"),
    ("bert", _attribute("embeddings", "more", torch.nn.Dropout()), "expected no part of that name"),
    ("gpt2", _attribute("h.1.attn", "scaling", 1.0), "h.1.attn.scaling is 1.0"),
    ("gpt2", _attribute("h.1.attn", "is_causal", False), "is_causal is False, expected True"),
    ("gpt2", _attribute("h.1.attn", "head_dim", 4), "head_dim is 4, expected 8"),
    ("gpt2", _attribute("h.1.attn", "layer_idx", 0), "layer_idx is 0, expected 1"),
    ("gpt2", _attribute("h.1.attn", "scale_attn_weights", False), "scale_attn_weights is False"),
    ("gpt2", _attribute("h.1.attn", "scale_attn_by_inverse_layer_idx", True),
     "scale_attn_by_inverse_layer_idx is True"),
    ("gpt2", _attribute("h.1.attn", "is_cross_attention", True), "is_cross_attention is True"),
    ("gpt2", _attribute("h.1.attn", "_attn", torch.nn.functional.relu),
     "'h.1.attn' keeps torch.nn.functional.relu as its attribute '_attn'"),
    ("gpt2", _without_modules, "keeps torch.nn.functional.relu as its attribute 'drop'"),
    ("gpt2", _another_config, "h.1.attn.config is another than the model's"),
    ("distilbert", _attribute("transformer.layer.0.attention", "scaling", 1.0), "scaling is 1.0"),
    ("distilbert", _attribute("transformer.layer.0.attention", "dim", 12), "dim is 12"),
    ("mpnet", _attribute("embeddings", "padding_idx", 3), "padding_idx is 3, expected 1"),
])  # fmt: skip
def test_changed_modules_are_refused(kind, change, message, tmp_path):
    model = reference(kind)
    change(model)
    torch.save(model, tmp_path / "e.pt")
    with pytest.raises((MismatchError, CorruptFileError), match=message):
        load_encoder(tmp_path / "e.pt")


def test_classes_of_another_family_are_refused(tmp_path, old_class):
    """OpenAI's first GPT has blocks of the same parts and names, with norms elsewhere."""
    model = reference("gpt2")
    model.h[1].__class__ = old_class("transformers.models.openai.modeling_openai.Block",
                                     torch.nn.Module)  # fmt: skip
    torch.save(model, tmp_path / "e.pt")
    with pytest.raises(MismatchError, match="h.1 is a transformers.models.openai"):
        load_encoder(tmp_path / "e.pt")


@pytest.mark.parametrize("wrap, message", [
    (torch.nn.DataParallel, None), (lambda m: torch.nn.ModuleDict({"module": m}), "no model of"),
])  # fmt: skip
def test_what_only_calls_the_encoder_is_taken_off(wrap, message, folders, tmp_path):
    torch.save(wrap(reference("bert")), tmp_path / "e.pt")
    if message is None:
        assert load_encoder(tmp_path / "e.pt").config == load_encoder(folders("bert")[1]).config
        return
    with pytest.raises(UnsupportedArchitectureError, match=message):
        load_encoder(tmp_path / "e.pt")


class _Call:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_nothing_in_a_pickle_is_executed(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = reference("bert")
    model.config.torch_dtype = _Call()
    torch.save(model, tmp_path / "e.pt")
    with pytest.raises(UnsafePickleError, match="system"):
        load_encoder(tmp_path / "e.pt")
    assert not (tmp_path / "executed").exists()


def test_pickles_without_an_encoder(tmp_path):
    for value in (torch.nn.Linear(2, 2), reference("bert").state_dict(), {"a": 1}):
        torch.save(value, tmp_path / "e.pt")
        with pytest.raises(ConverterError, match="expected"):
            load_encoder(tmp_path / "e.pt")


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
