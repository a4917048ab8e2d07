"""From the tensors of a file to a Flax model: recognise, check, assign."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NoReturn

import jax
import numpy as np

from converters import families
from converters.artifact import Artifact
from converters.errors import (
    EXPORT,
    MismatchError,
    UnsupportedArchitectureError,
    safe_repr,
)
from converters.families.family import Family
from converters.families.hyperparameters import check_modules
from converters.families.names import assign
from converters.families.offsets import large_offsets
from converters.inner_network import (
    MAX_TENSORS,
    common_first_names,
    inner_network,
    layer_shapes,
    refuse_beside,
)
from converters.input_form import NOTHING_SAID, InputForm
from converters.model import Model, NetworkConfig, param_shapes
from converters.preparation import prepared
from converters.rebuilt.table import KNOWN, known_network, refuse_replaced
from converters.weights import Weights, single_precision

_UNSAID = "a state dict does not say strides and pools; taken as in torchvision's"
# Of BERT and its kin; of GPT-2.
_TABLES_OF_WORDS = (".word_embeddings.weight", ".wte.weight")


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
    inner = inner_network(weights.tensors, weights.modules)
    if inner.findings:
        findings = (*artifact.findings, *inner.findings)
        bare = replace(artifact, weights=inner.weights(weights), findings=findings)
        return convert(bare, form, usual_size)
    tensors = families.current_names(weights.tensors)
    weights = replace(weights, tensors=tensors)
    shapes = _shapes(tensors)
    found = families.recognise(shapes)
    if found is None and known_network(weights) is not None:
        from converters.rebuilt.model import rebuilt_model

        return rebuilt_model(artifact.weights, artifact.findings, form, usual_size)
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


def _shapes(tensors: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    if len(tensors) > MAX_TENSORS:
        raise UnsupportedArchitectureError(
            f"the file holds {len(tensors)} tensors, expected at most {MAX_TENSORS}"
        )
    return layer_shapes(tensors)


def _without_first_names(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    first = common_first_names(tensors)
    return {name.removeprefix(first): value for name, value in tensors.items()}


def _refuse_unknown(
    tensors: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]
) -> NoReturn:
    _refuse_texts(tensors)
    refuse_beside(tensors)
    families.refuse_like(shapes)
    families.refuse_like(_shapes(_without_first_names(tensors)))
    refuse_replaced(tensors)
    sample = ", ".join(f"{n[:60]} {tuple(t.shape)}" for n, t in list(tensors.items())[:2])
    raise UnsupportedArchitectureError(
        f"no family has tensors named like these: {sample or 'none at all'}"
        f"{' ...' if len(tensors) > 2 else ''}; {EXPORT}; or name its code, if you trust it: "
        "--network FILE.py:CLASS. Weights alone are read for "
        f"{', '.join(dict.fromkeys([*families.FAMILIES, *(f.name for f in KNOWN if f.tensors)]))}"
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
