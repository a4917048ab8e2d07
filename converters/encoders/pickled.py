"""Whole pickled encoders (`torch.save(model)`), as the embeddings of TrojAI's text rounds are.

Weights and configuration are read out of inert stand-ins. What a module says of itself must agree
with the configuration, since torch would run the module.
"""

import re
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any

from converters.artifact import unpickle_file
from converters.encoders.assembly import FAMILIES, Encoder, assemble
from converters.encoders.blocks import ALIASES
from converters.encoders.family import EncoderConfig, EncoderFamily
from converters.errors import (
    ConversionError,
    MismatchError,
    UnsupportedArchitectureError,
    safe_repr,
)
from converters.limits import Limits
from converters.pickles.contents import read_contents
from converters.pickles.module_state import ACTIVATION_NAMES
from converters.pickles.pickled import Pickled
from converters.pickles.standins import Standin
from converters.weights import ModuleInfo, Plain

# Class of the pickled configuration, without its module -> model_type.
_CONFIGS = {
    "BertConfig": "bert",
    "DistilBertConfig": "distilbert",
    "GPT2Config": "gpt2",
    "MPNetConfig": "mpnet",
}
_TORCH = re.compile(
    r"torch\.nn\.modules\.(sparse\.Embedding|normalization\.LayerNorm|linear\.Linear"
    r"|dropout\.Dropout|container\.ModuleList|activation\.Tanh)"
)
# Classes of activations and names of their functions -> a key of `blocks.ACTIVATIONS`.
_ACTIVATIONS = {
    "transformers.activations.GELUActivation": "gelu",
    "transformers.activations.NewGELUActivation": "gelu_new",
    "transformers.activations.FastGELUActivation": "gelu_new",
    "transformers.activations.GELUTanh": "gelu_new",
    "transformers.activations.SiLUActivation": "silu",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.functional.gelu": "gelu",
    "torch._C._nn.gelu": "gelu",
    "torch.nn.functional.relu": "relu",
    "torch.nn.functional.silu": "silu",
    "transformers.activations._gelu_python": "gelu",
    **{
        f"transformers.activations.{n}": n for n in ("gelu", "gelu_new", "gelu_fast", "gelu_python")
    },
    "transformers.activations.swish": "silu",
}
_HEAD_NAMES = ("num_attention_heads", "n_heads", "n_head", "num_heads")


def load_pickled(path: str | PathLike[str]) -> Encoder:
    """The encoder in a pickled file; nothing in it is executed.

    Raises:
      LoadError: it cannot be read safely.
      ConversionError: it holds no supported encoder.
    """
    limits = Limits()
    pickled, content = unpickle_file(path, limits)
    try:
        weights, findings = read_contents(pickled, limits)
        values = _configuration(pickled)
        encoder = assemble(values, weights.tensors, "its config", content.sha256, findings)
        family = FAMILIES[encoder.architecture]
        faults = list(_faults(family, encoder.config, weights.modules))
        if faults:
            raise MismatchError(
                f"the modules differ from the configuration: {'; '.join(faults[:20])}"
                f"{' ...' if len(faults) > 20 else ''}. Only unmodified encoders are converted"
            )
    except ConversionError as error:
        error.args = (f"{content.path}: {error}",)
        raise
    return encoder


def _configuration(pickled: Pickled) -> Mapping[str, Any]:
    """The configuration that the pickled model carries, with its `model_type`."""
    root = pickled.root
    modules = root.state.get("_modules") if isinstance(root, Standin) else None
    inner = modules.get("module") if isinstance(modules, dict) else None
    for model in (root, inner):
        config = model.state.get("config") if isinstance(model, Standin) else None
        if isinstance(config, Standin):
            kind = _CONFIGS.get(config.class_name.rpartition(".")[2])
            if kind is None or not config.class_name.startswith("transformers."):
                raise UnsupportedArchitectureError(
                    f"its config is a {config.class_name}, expected one of {', '.join(_CONFIGS)}"
                )
            return {**config.state, "model_type": kind}
    raise UnsupportedArchitectureError(
        "the file holds no model of transformers with its config; expected a whole pickled "
        f"encoder ({', '.join(FAMILIES)}) or a Hugging Face folder"
    )


def _faults(
    family: EncoderFamily, config: EncoderConfig, infos: Mapping[str, ModuleInfo]
) -> Iterator[str]:
    """What modules of the encoder say that the configuration does not."""
    eps = config.eps
    # Around the encoder there may be a model with a head; its other parts do not matter.
    prefix = f"{family.prefix}." if family.prefix in infos else ""
    for path, info in infos.items():
        bare = path.removeprefix(prefix)
        if not f"{path}.".startswith(prefix) or any(
            re.fullmatch(pattern, f"{bare}.") for pattern in family.ignored
        ):
            continue
        where, said = path or "the root", info.attributes
        kind = _ACTIVATIONS.get(info.class_name)
        if kind is not None:
            if ALIASES.get(kind, kind) != config.activation:
                yield f"{where} is a {info.class_name}"
            # GELUActivation runs the function that it holds.
            yield from _activation_faults(where, said, config.activation)
            continue
        if not _TORCH.fullmatch(info.class_name) and not re.fullmatch(
            rf"transformers\.([a-z]\w*\.)*({family.classes})", info.class_name
        ):
            yield f"{where} is a {info.class_name}"
        if info.class_name.endswith(".LayerNorm") and said.get("eps", eps) != eps:
            yield f"{where}.eps is {safe_repr(said['eps'])}, expected {eps}"
        for name in _HEAD_NAMES:
            if said.get(name, config.heads) != config.heads:
                yield f"{where}.{name} is {safe_repr(said[name])}, expected {config.heads}"
        yield from _activation_faults(where, said, config.activation)


def _activation_faults(where: str, said: Mapping[str, Plain], wanted: str) -> Iterator[str]:
    """Functions among a module's attributes that are another activation."""
    for name in ACTIVATION_NAMES:
        function = said.get(name)
        kind = _ACTIVATIONS.get(function) if isinstance(function, str) else None
        if function is not None and ALIASES.get(str(kind), kind) != wanted:
            yield f"{where}.{name} is {safe_repr(function)}, expected {wanted}"
