"""Text encoders as Flax modules: BERT, DistilBERT, GPT-2 and MPNet, from folders and pickles.

`load_encoder(path)` reads a Hugging Face folder or a whole pickled encoder; `encode` is the pure
function beneath. Nothing in a file is executed.
"""

import importlib

_HOMES = {
    "Encoder": "assembly",
    "encode": "assembly",
    "load_encoder": "loading",
}
__all__ = [*_HOMES]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'converters.encoders' has no attribute {name!r}")
    return getattr(importlib.import_module(f"converters.encoders.{_HOMES[name]}"), name)
