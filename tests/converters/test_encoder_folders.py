"""Folders of encoders that are refused, and entries of config.json that have two names."""

import json
import os

import numpy as np
import pytest
import torch
import transformers

from converters.encoders import distilbert, gpt2, load_encoder
from converters.encoders.assembly import FAMILIES
from converters.errors import (
    ConversionError,
    CorruptFileError,
    LoadError,
    MismatchError,
    TooLargeError,
    UnknownFormatError,
    UnsupportedArchitectureError,
)
from tests.converters.encoder_models import (
    VOCABULARY,
    WIDE,
    broken,
    reference,
    save,
)


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
