"""ONNX operators as torch calls, one family per file; importing this registers them all."""

from converters.graph.onnx.extensions import (
    activations,
    arithmetic,
    casting,
    comparison,
    convolution,
    indexing,
    linear,
    normalisation,
    pooling,
    reductions,
    shaping,
    trigonometry,
)

SPECIAL = {**shaping.SPECIAL}
__all__ = [
    "SPECIAL",
    "activations",
    "arithmetic",
    "casting",
    "comparison",
    "convolution",
    "indexing",
    "linear",
    "normalisation",
    "pooling",
    "reductions",
    "shaping",
    "trigonometry",
]
