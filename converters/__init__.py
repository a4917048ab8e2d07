"""Files to Flax models, without executing anything in the file.

`open_model(path, form)` takes every supported file. Of those that hold torch's weights,
`open_artifact(path)` only reads, and `convert(artifact)` makes the model. Importing this package
loads neither jax nor torch; the functions import what they use.
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
