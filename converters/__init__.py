"""Files to Flax models, without executing anything in the file.

`open_model(path, form)` takes every supported file; of the hand-written families alone
`open_artifact(path)` reads, `convert(artifact)` makes the model, `load(path)` does both. Importing
this package loads neither jax nor torch; the functions import what they use.
"""

import importlib

_HOMES = {
    "Artifact": "artifact",
    "open_artifact": "artifact",
    "InputForm": "opening",
    "OpenedModel": "opening",
    "open_model": "opening",
    "Model": "model",
    "convert": "conversion",
    "load": "conversion",
    "Encoder": "encoders",
    "load_encoder": "encoders",
    "Tokenizer": "encoders.tokenizer",
    "load_tokenizer": "encoders.tokenizer",
    "fold": "families.folding",
    "check_parity": "parity",
    "load_checkpoint": "checkpoint",
    "save_checkpoint": "checkpoint",
}
__all__ = [*_HOMES]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'converters' has no attribute {name!r}")
    return getattr(importlib.import_module(f"converters.{_HOMES[name]}"), name)
