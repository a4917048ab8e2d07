"""ONNX operators as torch calls, one family per file; importing this registers them all."""

from converters.graph.onnx.extensions import (
    activations,
    arithmetic,
    attention,
    casting,
    comparison,
    control,
    convolution,
    fused,
    indexing,
    linear,
    losses,
    normalisation,
    pooling,
    quantisation,
    quantised_layers,
    quantised_recurrent,
    recurrent,
    reductions,
    resizing,
    sequences,
    shaping,
    signal,
    text,
    trigonometry,
)

# Resolved while a graph is built, because their outputs or their structure are known by then.
SPECIAL = {
    (domain, name, version): function
    for family in (control, sequences, shaping)
    for (domain, name), function in family.SPECIAL.items()
    for version in family.VERSIONS[name]
}
__all__ = [
    "SPECIAL",
    "activations",
    "arithmetic",
    "attention",
    "casting",
    "comparison",
    "control",
    "convolution",
    "fused",
    "indexing",
    "linear",
    "losses",
    "normalisation",
    "pooling",
    "quantisation",
    "quantised_layers",
    "quantised_recurrent",
    "recurrent",
    "reductions",
    "resizing",
    "sequences",
    "shaping",
    "signal",
    "text",
    "trigonometry",
]
