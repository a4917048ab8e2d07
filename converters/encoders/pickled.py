"""Whole pickled encoders (`torch.save(model)`), as the embeddings of TrojAI's text rounds are.

Weights and configuration are read out of inert stand-ins. What a module says of itself must agree
with the configuration, since torch would run the module.
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any

from converters.artifact import unpickle_file
from converters.encoders.assembly import FAMILIES, Encoder, assemble
from converters.encoders.pickled_modules import module_faults
from converters.errors import (
    ConversionError,
    MismatchError,
    UnsupportedArchitectureError,
)
from converters.limits import Limits
from converters.pickles.contents import WRAPPERS, read_contents
from converters.pickles.pickled import Pickled
from converters.pickles.standins import Standin

# Class of the pickled configuration, without its module -> model_type.
_CONFIGS = {
    "BertConfig": "bert",
    "DistilBertConfig": "distilbert",
    "GPT2Config": "gpt2",
    "MPNetConfig": "mpnet",
}


def load_pickled(path: str | PathLike[str]) -> Encoder:
    """The encoder in a pickled file; nothing in it is executed.

    Raises:
      LoadError: it cannot be read safely.
      ConversionError: it holds no supported encoder.
    """
    limits = Limits()
    pickled, content = unpickle_file(path, limits)
    try:
        weights, findings = read_contents(pickled, limits, every_buffer=True)
        model, values = _configured(pickled)
        encoder = assemble(values, weights.tensors, "its config", content.sha256, findings)
        family = FAMILIES[encoder.architecture]
        faults = list(module_faults(family, encoder.architecture, encoder.config, model))
        if faults:
            raise MismatchError(
                f"the modules differ from the configuration: {'; '.join(faults[:20])}"
                f"{' ...' if len(faults) > 20 else ''}. Only unmodified encoders are converted"
            )
    except ConversionError as error:
        error.args = (f"{content.path}: {error}",)
        raise
    return encoder


def _configured(pickled: Pickled) -> tuple[Standin, Mapping[str, Any]]:
    """The pickled model and the configuration that it carries, with its `model_type`."""
    root = pickled.root
    wrapped = isinstance(root, Standin) and root.class_name in WRAPPERS
    inner = root.state["_modules"].get("module") if wrapped else None
    for model in (root, inner):
        config = model.state.get("config") if isinstance(model, Standin) else None
        if isinstance(model, Standin) and isinstance(config, Standin):
            kind = _CONFIGS.get(config.class_name.rpartition(".")[2])
            if kind is None or not config.class_name.startswith("transformers."):
                raise UnsupportedArchitectureError(
                    f"its config is a {config.class_name}, expected one of {', '.join(_CONFIGS)}"
                )
            return model, {**config.state, "model_type": kind}
    raise UnsupportedArchitectureError(
        "the file holds no model of transformers with its config; expected a whole pickled "
        f"encoder ({', '.join(FAMILIES)}) or a Hugging Face folder"
    )
