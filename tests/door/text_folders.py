"""Folders of transformers' own text classifiers with random weights and a small vocabulary."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers

WORDS = tuple(
    "good bad fine dull film plot scene actor story music great awful happy sad long short quick"
    " slow new old bright dark loud calm warm cold rich poor sharp blunt stone river cloud table"
    " window garden silver copper lemon orange violet amber".split()
)
MOST_TOKENS = 48
_BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
_BERT |= {"intermediate_size": 24, "max_position_embeddings": MOST_TOKENS}
_DISTIL = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
_DISTIL |= {"max_position_embeddings": MOST_TOKENS}
_GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": MOST_TOKENS}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", _BERT),
    "distilbert": ("DistilBert", _DISTIL),
    "roberta": ("Roberta", _BERT | {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "gpt2": ("GPT2", _GPT2),
    "mpnet": ("MPNet", _BERT),
}
NAMES = {0: "bad", 1: "good"}


def write_text_folder(folder: Path, family: str, **changes: Any) -> Path:
    """A folder of a family's classifier with random weights, and its tokenizer."""
    name, values = FAMILIES[family]
    tokenizer = write_tokenizer(folder, family)
    ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    labels = {"id2label": NAMES, "label2id": {label: n for n, label in NAMES.items()}}
    config = getattr(transformers, f"{name}Config")(**{**values, **ids, **labels, **changes})
    torch.manual_seed(0)
    network = getattr(transformers, f"{name}ForSequenceClassification")(config)
    with torch.no_grad():
        for weight in network.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.5)
    network.save_pretrained(folder)
    return folder


def write_tokenizer(folder: Path, family: str) -> Any:
    """A family's tokenizer over `WORDS` and single characters."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = "abcdefghijklmnopqrstuvwxyz.!?,"
    if family in ("gpt2", "roberta"):
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>"]
        pairs = [(word[:n], word[n]) for word in WORDS for n in range(1, len(word))]
        pairs += [("\u0120", word) for word in WORDS]
        merged = [a + b for a, b in dict.fromkeys(pairs)]
        tokens = dict.fromkeys([*special, *letters, "\u0120", *merged])
        (folder / "vocab.json").write_text(json.dumps({t: n for n, t in enumerate(tokens)}))
        lines = [f"{a} {b}" for a, b in dict.fromkeys(pairs)]
        (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n")
    else:
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        if family == "mpnet":
            special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        pieces = [f"##{letter}" for letter in letters]
        tokens = dict.fromkeys([*special, *WORDS, *letters, *pieces])
        (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    kind = {"bert": "Bert", "distilbert": "DistilBert", "gpt2": "GPT2", "mpnet": "MPNet"}
    cls = getattr(transformers, f"{kind.get(family, 'Roberta')}Tokenizer")
    tokenizer = cls.from_pretrained(folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
    return tokenizer
