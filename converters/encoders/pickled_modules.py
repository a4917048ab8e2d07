"""What the modules of a pickled encoder say beside their weights, against what their code sets.

torch runs the modules as they are in the file: each by the code of its class, with the attributes
that it has there. So each must be what the family's code makes of the configuration.
"""

import re
from collections.abc import Iterator
from typing import Any

from converters.encoders.blocks import ALIASES
from converters.encoders.family import EncoderConfig, EncoderFamily
from converters.encoders.mpnet import PADDING
from converters.errors import safe_repr
from converters.pickles.module_state import ACTIVATION_NAMES
from converters.pickles.standins import Global, Standin, named

# Pattern of a part's name -> of its class.
_PARTS = {
    r"drop|dropout|(attn|resid)_dropout": r"torch\.nn\.modules\.dropout\.Dropout",
    r"\w+_embeddings|wte|wpe|relative_attention_bias": r"torch\.nn\.modules\.sparse\.Embedding",
    r"LayerNorm|\w+_layer_norm|ln_\w": r"torch\.nn\.modules\.normalization\.LayerNorm",
    r"dense|query|key|value|[qkvo]|\w+_lin|lin[12]": r"torch\.nn\.modules\.linear\.Linear",
    r"layer|h": r"torch\.nn\.modules\.container\.ModuleList",
    r"c_attn|c_proj|c_fc": r"transformers\.(modeling_utils|pytorch_utils)\.Conv1D",
}
# Classes of parts called so, and functions kept as such attributes -> a key of
# `blocks.ACTIVATIONS`.
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


def module_faults(
    family: EncoderFamily, kind: str, config: EncoderConfig, model: Standin
) -> Iterator[str]:
    """What modules of the encoder say that neither its code nor its configuration does.

    Args:
      family: of the encoder.
      kind: its key in `FAMILIES`.
      config: its description.
      model: the pickled module with the configuration; its tree has been read before.
    """
    for path, part in _parts(family, model):
        checks = (
            _class_faults(family, kind, config, _name(path), part),
            _value_faults(_expected(family, config, path), part),
            _object_faults(config, part, model.state.get("config")),
        )
        yield from (f"{path or 'the root'}{fault}" for faults in checks for fault in faults)


def _parts(family: EncoderFamily, model: Standin) -> Iterator[tuple[str, Standin]]:
    """The modules that the last hidden state needs, by their path in the encoder.

    Around the encoder there may be a model with a head; its other parts do not matter.
    """
    inner = model.state["_modules"].get(family.prefix)
    for path, part in _walk(inner if isinstance(inner, Standin) else model, ""):
        if not any(re.fullmatch(pattern, f"{path}.") for pattern in family.ignored):
            yield path, part


def _walk(module: Standin, path: str) -> Iterator[tuple[str, Standin]]:
    yield path, module
    for name, part in module.state["_modules"].items():
        if isinstance(part, Standin):
            yield from _walk(part, f"{path}.{name}" if path else name)


def _name(path: str) -> str:
    """A part's own name; `layer.#` of one in a list called `layer`."""
    outer, _, name = path.rpartition(".")
    return f"{outer.rpartition('.')[2]}.#" if re.fullmatch(r"[0-9]+", name) else name


def _class_faults(
    family: EncoderFamily, kind: str, config: EncoderConfig, name: str, part: Standin
) -> Iterator[str]:
    """A part is of the one class that the family has under its name."""
    if name in ACTIVATION_NAMES:
        if not _is_activation(part.class_name, config):
            yield f" is a {part.class_name}, expected {config.activation}"
        return
    own = rf"transformers\.(models\.{kind}\.)?modeling_{kind}\.({family.classes.get(name)})"
    shared = next((cls for names, cls in _PARTS.items() if re.fullmatch(names, name)), None)
    wanted = own if name in family.classes else shared
    if wanted is None:
        yield f" is a {part.class_name}, expected no part of that name"
    elif not re.fullmatch(wanted, part.class_name):
        yield f" is a {part.class_name}, expected the class of its family there"


def _is_activation(name: str, config: EncoderConfig) -> bool:
    known = _ACTIVATIONS.get(name)
    return known is not None and ALIASES.get(known, known) == config.activation


def _expected(family: EncoderFamily, config: EncoderConfig, path: str) -> dict[str, Any]:
    """Attributes that the forward passes of transformers' versions read -> what their code sets."""
    size = config.width // config.heads
    number = re.search(r"\d+", path)
    return {
        **dict.fromkeys(("num_attention_heads", "n_heads", "n_head", "num_heads"), config.heads),
        **dict.fromkeys(("attention_head_size", "head_dim"), size),
        **dict.fromkeys(("all_head_size", "embed_dim", "split_size", "dim"), config.width),
        "scaling": size**-0.5,
        "is_causal": family.causal,
        "eps": config.eps,
        "max_norm": None,
        "position_embedding_type": "absolute",
        **dict.fromkeys(("scale", "scale_attn_weights"), True),
        **dict.fromkeys(("is_decoder", "is_cross_attention", "add_cross_attention"), False),
        "scale_attn_by_inverse_layer_idx": False,
        # The layer's place in a cache, whose keys another layer would see too.
        **({"layer_idx": int(number[0])} if number else {}),
        # MPNet's embeddings count positions from it; those of torch only train otherwise.
        **({"padding_idx": PADDING} if path == "embeddings" else {}),
    }


def _value_faults(expected: dict[str, Any], part: Standin) -> Iterator[str]:
    """An attribute is what the code sets; older versions of transformers lack some."""
    for name, wanted in expected.items():
        value = part.state.get(name, wanted)
        if value != wanted and not (name == "layer_idx" and value is None):
            yield f".{name} is {safe_repr(value)}, expected {wanted}"


def _object_faults(config: EncoderConfig, part: Standin, settings: object) -> Iterator[str]:
    """Activations are the configuration's, and objects none but it; see `module_state`, too."""
    for name, value in part.state.items():
        if name in ACTIVATION_NAMES and value is not None:
            if not isinstance(value, Global) or not _is_activation(value.name, config):
                yield f".{name} is {named(value)}, expected {config.activation}"
        elif name == "config" and value is not settings:
            yield ".config is another than the model's, expected one for all modules"
        elif isinstance(value, Standin) and name not in ("config", "generation_config"):
            yield f" has {safe_repr(name)}, a {value.class_name}, expected no such object"
