"""Whole pickled encoders: changed modules are refused, and nothing is executed."""

import copy
import os

import pytest
import torch
from transformers.activations import ACT2FN

from converters.encoders import load_encoder
from converters.errors import (
    ConverterError,
    CorruptFileError,
    MismatchError,
    UnsafePickleError,
    UnsupportedArchitectureError,
)
from tests.converters.encoder_models import reference


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
