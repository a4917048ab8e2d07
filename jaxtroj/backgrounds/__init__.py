"""ImageNet-9 and the Backgrounds Challenge on converted models.

Xiao et al., Noise or Signal: The Role of Image Backgrounds in Object Recognition,
https://arxiv.org/abs/2006.09994, 2020. Written from the published behaviour; see
docs/backgrounds.md. Importing this package loads neither jax nor OpenCV.
"""

import importlib

_HOMES = {
    "Classifier": "classifier",
    "Head": "head",
    "Normalization": "normalization",
    "load_challenge": "layout",
    "load_variant": "layout",
    "evaluate": "evaluation",
    "search": "challenge",
    "generate": "generation",
}
__all__ = [*_HOMES]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'jaxtroj.backgrounds' has no attribute {name!r}")
    return getattr(importlib.import_module(f"jaxtroj.backgrounds.{_HOMES[name]}"), name)
