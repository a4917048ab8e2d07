"""RoBERTa: BERT's layers, with the position of the padding id before those of all others.

Reference:
  Liu et al., RoBERTa: A Robustly Optimized BERT Pretraining Approach,
  https://arxiv.org/abs/1907.11692, 2019.
"""

from collections.abc import Mapping
from dataclasses import replace

from converters.encoders import bert
from converters.encoders.family import EncoderFamily
from converters.errors import ConversionError, safe_repr

_USUAL = {"vocab_size": 50265, "pad_token_id": 1}


def configure(values: Mapping, where: str) -> bert.BertConfig:
    """See `EncoderFamily.configure`."""
    values = _USUAL | {name: value for name, value in values.items() if value is not None}
    config, padding = bert.configure(values, where), values["pad_token_id"]
    if type(padding) is not int or not 0 <= padding < config.positions - 1:
        raise ConversionError(
            f"{where}: pad_token_id is {safe_repr(padding)}, expected a whole number from 0 to"
            f" {config.positions - 2}"
        )
    return replace(config, padding=padding)


FAMILY = EncoderFamily(
    configure=configure,
    prefix="roberta",
    table=bert.TABLE,
    ignored=bert.FAMILY.ignored,
    heads=(r"lm_head\..*", r"classifier\..*", r"qa_outputs\..*"),
    classes={},  # None of its pickles is read.
    buffers=bert.FAMILY.buffers,
)
