"""From the tensors of a file to a Flax model: recognise, check, assign."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NoReturn, TypeVar

import jax
import numpy as np

from converters import families
from converters.artifact import Artifact
from converters.errors import (
    EXPORT,
    MismatchError,
    UnsupportedArchitectureError,
    first_names,
    safe_repr,
)
from converters.families.family import Family
from converters.families.hyperparameters import check_modules
from converters.families.names import assign
from converters.families.offsets import large_offsets
from converters.input_form import NOTHING_SAID, InputForm
from converters.model import Model, NetworkConfig, param_shapes
from converters.preparation import prepared
from converters.rebuilt.table import KNOWN, known_network, refuse_replaced
from converters.weights import ModuleInfo, Weights, single_precision

# The largest supported network has about 1,600 tensors; a file of far more is built to stall us.
MAX_TENSORS = 10_000
# What training code calls its network, such as Lightning's modules.
_FIRST_NAMES = ("model.", "net.", "network.", "backbone.")
# What torch puts around it within that code.
_WRAPPERS = ("_orig_mod.", "module.")
_MOST_FIRST_NAMES = 4
_UNSAID = "a state dict does not say strides and pools; taken as in torchvision's"
# Of BERT and its kin; of GPT-2.
_TABLES_OF_WORDS = (".word_embeddings.weight", ".wte.weight")

T = TypeVar("T")


def convert(
    artifact: Artifact, form: InputForm = NOTHING_SAID, usual_size: tuple[int, int] | None = None
) -> Model:
    """The model of an opened file, float32, batch norms as they are (see `folding`).

    Weights under the names of a family fill its Flax module; other networks of torchvision, and
    some of public code, are rebuilt as torch modules and captured as graphs, which takes torch.

    Args:
      artifact: what was read.
      form: what the file does not say of its input.
      usual_size: height and width of images for a graph where `form` does not say them.

    Raises:
      UnsupportedArchitectureError: no network is recognised by the tensor names.
      SharedNamesError: public codes with these names differ, and `form` names none of them.
      MismatchError: weights or hyperparameters differ from the network's, all differences listed.
      ConversionError: a weight is NaN, infinite or no floating number, or a variance negative; or
        `form` does not fit.
    """
    weights = artifact.weights
    tensors = families.current_names(weights.tensors)
    weights = replace(weights, tensors=tensors)
    shapes = _shapes(tensors)
    found = families.recognise(shapes)
    if found is None and known_network(weights) is not None:
        from converters.rebuilt.model import rebuilt_model

        return rebuilt_model(artifact.weights, artifact.findings, form, usual_size)
    if found is None and (first := first_name(weights.tensors, weights.modules)):
        finding = f"the weights' names begin with {first}, which was left out"
        bare = replace(artifact.weights, tensors=without(first, artifact.weights.tensors))
        known = replace(artifact, weights=bare, findings=(*artifact.findings, finding))
        return convert(known, form, usual_size)
    family, config = found or _refuse_unknown(artifact.weights.tensors, shapes)
    config = family.with_hyperparameters(config, weights.modules)
    params = _params(family, config, tensors)
    check_modules(family, config, weights.modules)
    _check_script(config, weights)
    architecture = family.architecture(config)
    findings = (*artifact.findings, *weights.findings, *family.remarks(config, weights))
    if config.input_kind == "image" and "" not in weights.modules:
        findings += (f"{_UNSAID} {architecture}",)
    findings += tuple(large_offsets(config, params))
    model = Model(config, params, architecture, findings)
    return prepared(model, form.bounds, form.mean, form.std)


def first_name(tensors: Mapping[str, np.ndarray], modules: Mapping[str, ModuleInfo]) -> str:
    """First names with their dots that all weights have, if only without they are a known network.

    Such as `model.` of Lightning, or `model._orig_mod.` where it holds a compiled network; the
    fewest that do. Empty for others, and for whole networks, whose modules say what they are.
    """
    if modules or _is_known(tensors):
        return ""
    first = ""
    for _ in range(_MOST_FIRST_NAMES):
        name = next(iter(tensors), "").removeprefix(first).partition(".")[0] + "."
        first += name
        common = all(n.startswith(first) and n != first for n in tensors)
        if name not in (*_FIRST_NAMES, *_WRAPPERS) or not common:
            return ""
        if _is_known(without(first, tensors)):
            return first
    return ""


def without(first: str, tensors: Mapping[str, T]) -> dict[str, T]:
    """Tensors by their names without the first one."""
    return {name.removeprefix(first): value for name, value in tensors.items()}


def _is_known(tensors: Mapping[str, np.ndarray]) -> bool:
    found = families.recognise(_shapes(families.current_names(tensors)))
    return found is not None or known_network(Weights(dict(tensors), {}, {})) is not None


def _shapes(tensors: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    if len(tensors) > MAX_TENSORS:
        raise UnsupportedArchitectureError(
            f"the file holds {len(tensors)} tensors, expected at most {MAX_TENSORS}"
        )
    # A convolution has four dimensions, a matrix two; other weights cannot name a family's layer.
    return {
        name: tuple(tensor.shape)
        for name, tensor in tensors.items()
        if tensor.size and (tensor.ndim in (2, 4) or name.rpartition(".")[2].startswith("bias"))
    }


def _refuse_unknown(
    tensors: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]
) -> NoReturn:
    _refuse_texts(tensors)
    _refuse_beside(tensors)
    families.refuse_like(shapes)
    refuse_replaced(tensors)
    sample = ", ".join(f"{n[:60]} {tuple(t.shape)}" for n, t in list(tensors.items())[:2])
    raise UnsupportedArchitectureError(
        f"no family has tensors named like these: {sample or 'none at all'}"
        f"{' ...' if len(tensors) > 2 else ''}; {EXPORT}; or name its code, if you trust it: "
        "--network FILE.py:CLASS. Weights alone are read for "
        f"{', '.join(dict.fromkeys([*families.FAMILIES, *(f.name for f in KNOWN if f.tensors)]))}"
    )


def _refuse_beside(tensors: Mapping[str, np.ndarray]) -> None:
    """Raise where a known network's tensors have others beside them, such as a metric's."""
    for first in _FIRST_NAMES:
        inside = {name: value for name, value in tensors.items() if name.startswith(first)}
        beside = [name for name in tensors if name not in inside]
        if beside and inside and _is_known(without(first, inside)):
            raise UnsupportedArchitectureError(
                f"the tensors under {first} are a known network's, and {len(beside)} others stand"
                f" beside them: {first_names(beside)}. Expected the network alone: save"
                f" {first[:-1]}.state_dict()"
            )


def _refuse_texts(names: Collection[str]) -> None:
    """Raise for transformers' networks of texts: they are of no use without a tokenizer."""
    table = next((name for name in names if f".{name}".endswith(_TABLES_OF_WORDS)), None)
    if table is not None:
        raise UnsupportedArchitectureError(
            f"a network of texts ({safe_repr(table)} is a table of words): a file of weights does"
            " not say how texts become its input. Expected the Hugging Face folder, with"
            " config.json and the tokenizer's files, as save_pretrained of network and tokenizer"
            " writes it"
        )


def _check_script(config: NetworkConfig, weights: Weights) -> None:
    """The code of a TorchScript archive must be that of the family's torch network."""
    root = weights.modules.get("")
    if root is None or "script" not in root.attributes or config.input_kind != "image":
        return
    from converters.families.reference import empty_module
    from converters.scripts import check_script

    auxiliary = any(name.startswith("AuxLogits.") for name in weights.tensors)
    network = empty_module(config, weights.tensors).to_empty(device="cpu").eval()
    check_script(weights, network, (299, 299) if auxiliary else (224, 224))


def _params(family: Family, config: NetworkConfig, tensors: Mapping[str, np.ndarray]):
    try:
        shapes = param_shapes(config)
    except (ValueError, ZeroDivisionError, TypeError, OverflowError) as error:
        raise MismatchError(f"the tensor shapes make no network: {error}") from error
    filled = assign(family.table, family.ignored, tensors, shapes)
    single = single_precision(filled, config.eps)
    # As it is: `jnp.asarray` compiles a program for every shape.
    return {path: jax.device_put(value) for path, value in single.items()}
