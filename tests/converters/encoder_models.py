"""Random encoders of transformers, and their folders, for the tests of encoders."""

import json
import os
from pathlib import Path

import numpy as np
import torch
import transformers

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


def broken(folder: Path, tmp_path: Path, **changes) -> Path:
    """A copy of a folder whose config.json has other entries; None removes one."""
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    for name in [name for name, value in changes.items() if value is None]:
        del config[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    os.link(folder / "model.safetensors", tmp_path / "model.safetensors")
    return tmp_path
