"""Encoders: parity with transformers, folders, shards, pickles, and what is refused."""

import json
import os
from pathlib import Path

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
        block.attn.register_buffer("bias", torch.ones(1, 1, 8, 8, dtype=torch.uint8).tril())
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
])  # fmt: skip
def test_configurations_that_are_refused(changes, error, message, folders, tmp_path):
    with pytest.raises(error, match=message):
        load_encoder(broken(folders("bert")[1], tmp_path, **changes))


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


@pytest.mark.parametrize("change, message", [
    (lambda m: setattr(m.encoder.layer[0].output.LayerNorm, "eps", 0.5), "eps is 0.5"),
    (lambda m: setattr(m.encoder.layer[1].attention.self, "num_attention_heads", 6),
     "num_attention_heads is 6, expected 3"),
    (lambda m: setattr(m.encoder.layer[1].intermediate, "intermediate_act_fn", torch.nn.ReLU()),
     "intermediate_act_fn is a torch.nn.modules.activation.ReLU"),
    (lambda m: setattr(m.encoder.layer[0].intermediate.intermediate_act_fn, "act",
                       torch.nn.functional.relu), "act_fn.act is 'torch.nn.functional.relu'"),
    (lambda m: setattr(m.embeddings, "dropout", torch.nn.Softmax(-1)), "Softmax"),
])  # fmt: skip
def test_changed_modules_are_refused(change, message, tmp_path):
    model = reference("bert")
    change(model)
    torch.save(model, tmp_path / "e.pt")
    with pytest.raises(MismatchError, match=message):
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
