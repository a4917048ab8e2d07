"""Small text classifiers of transformers' families, from random weights, and their tokenizers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.encoders.tokenizer import TOKENIZER_CLASSES

FAMILIES = ("bert", "distilbert", "gpt2", "roberta")
_HEADS = 4
_ROOM = 130  # positions; RoBERTa counts its own from 2
_OF_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_OF_PIECES = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>")


@dataclass(frozen=True)
class Sizes:
    """Of a network: layers, and units of its states; twice as many between."""

    layers: int
    hidden: int


def write_tokenizer(family: str, texts: Sequence[str], size: int, folder: Path) -> None:
    """Learn a vocabulary of `size` entries from texts, and write transformers' files of it."""
    import tokenizers
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    in_words = family in ("bert", "distilbert")
    learner: Any = tokenizers.BertWordPieceTokenizer() if in_words else (
        tokenizers.ByteLevelBPETokenizer()
    )  # fmt: skip
    special = list(_OF_WORDS if in_words else _OF_PIECES)
    learner.train_from_iterator(
        texts, vocab_size=size, min_frequency=2, special_tokens=special, show_progress=False
    )
    learner.save_model(str(folder))
    made = getattr(transformers, TOKENIZER_CLASSES[family]).from_pretrained(folder)
    if family == "gpt2":
        made.pad_token = _OF_PIECES[-1]
    made.save_pretrained(folder)


def random_network(family: str, sizes: Sizes, tokens: Any, classes: int) -> Any:
    """A classifier of random weights for a tokenizer of transformers."""
    import transformers

    known = {"vocab_size": len(tokens), "pad_token_id": tokens.pad_token_id, "num_labels": classes}
    if family == "gpt2":
        config = transformers.GPT2Config(
            n_embd=sizes.hidden, n_layer=sizes.layers, n_head=_HEADS, n_positions=_ROOM, **known
        )
        return transformers.GPT2ForSequenceClassification(config)
    if family == "distilbert":
        config = transformers.DistilBertConfig(
            dim=sizes.hidden, n_layers=sizes.layers, n_heads=_HEADS, hidden_dim=2 * sizes.hidden,
            max_position_embeddings=_ROOM, **known
        )  # fmt: skip
        return transformers.DistilBertForSequenceClassification(config)
    name = {"bert": "Bert", "roberta": "Roberta"}[family]
    config = getattr(transformers, f"{name}Config")(
        hidden_size=sizes.hidden, num_hidden_layers=sizes.layers, num_attention_heads=_HEADS,
        intermediate_size=2 * sizes.hidden, max_position_embeddings=_ROOM, **known
    )  # fmt: skip
    return getattr(transformers, f"{name}ForSequenceClassification")(config)
