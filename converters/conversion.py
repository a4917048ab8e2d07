"""From the tensors of a file to a Flax model: recognise, check, assign."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import jax.numpy as jnp
import numpy as np

from converters import families
from converters.artifact import Artifact, open_artifact
from converters.errors import EXPORT, MismatchError, UnsupportedArchitectureError
from converters.families.hyperparameters import check_modules, uniform_eps
from converters.families.names import assign
from converters.input_form import NOTHING_SAID, InputForm
from converters.model import Model, param_shapes
from converters.preparation import prepared
from converters.rebuilt.table import FAMILIES as REBUILT
from converters.rebuilt.table import family_of
from converters.weight_values import single_precision
from converters.weights import Weights

# The largest supported network has about 1,600 tensors; a file of far more is built to stall us.
MAX_TENSORS = 10_000


def load(path: str | Path) -> Model:
    """Read a model file and convert it; nothing in the file is executed.

    Raises:
      LoadError: the file cannot be read safely.
      ConversionError: it holds no supported network.
    """
    return convert(open_artifact(path))


def convert(
    artifact: Artifact, form: InputForm = NOTHING_SAID, usual_size: tuple[int, int] | None = None
) -> Model:
    """The model of an opened file, float32, batch norms as they are (see `folding`).

    Weights under the names of a family fill its Flax module; other networks of torchvision are
    rebuilt by its own constructors and captured as graphs, which takes torch.

    Args:
      artifact: what was read.
      form: what the file does not say of its input.
      usual_size: height and width of images for a graph where `form` does not say them.

    Raises:
      UnsupportedArchitectureError: no network is recognised by the tensor names.
      MismatchError: weights or hyperparameters differ from the network's, all differences listed.
      ConversionError: a weight is NaN, infinite or no floating number, or a variance negative; or
        `form` does not fit.
    """
    weights = artifact.weights
    tensors = current_names(weights.tensors)
    found = _recognise(tensors)
    if found is None and family_of(weights) is not None:
        from converters.rebuilt.model import rebuilt_model

        return rebuilt_model(weights, artifact.findings, form, usual_size)
    family, config = found or _refuse_unknown(tensors)
    config = _with_hyperparameters(family, config, weights)
    params = _params(family, config, tensors)
    check_modules(family, config, weights.modules)
    _check_script(config, weights)
    architecture = families.architecture_of(config)
    findings = (*artifact.findings, *_findings(config, weights))
    model = Model(config, params, architecture, findings)
    return prepared(model, form.bounds, form.mean, form.std)


def current_names(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors under the names that torchvision writes today.

    Raises:
      MismatchError: a tensor is there under its old and its new name.
    """
    old = families.densenet.OLD_NAME
    renamed = {old.sub(r"\1\2.", name): tensor for name, tensor in tensors.items()}
    if len(renamed) != len(tensors):
        twice = sorted(set(tensors) - set(renamed))[0]
        raise MismatchError(f"{twice} is there under this and under its newer name; expected one")
    return renamed


def _recognise(tensors: Mapping[str, np.ndarray]):
    if len(tensors) > MAX_TENSORS:
        raise UnsupportedArchitectureError(
            f"the file holds {len(tensors)} tensors, expected at most {MAX_TENSORS}"
        )
    # A convolution has four dimensions, a matrix two; other weights cannot name a family's layer.
    shapes = {
        name: tuple(tensor.shape)
        for name, tensor in tensors.items()
        if tensor.size and (tensor.ndim in (2, 4) or name.rpartition(".")[2].startswith("bias"))
    }
    for family in families.FAMILIES.values():
        config = family.recognise(shapes)
        if config is not None:
            return family, config
    return None


def _refuse_unknown(tensors: Mapping[str, np.ndarray]) -> NoReturn:
    sample = ", ".join(f"{n[:60]} {tuple(t.shape)}" for n, t in list(tensors.items())[:2])
    raise UnsupportedArchitectureError(
        f"no family has tensors named like these: {sample or 'none at all'}"
        f"{' ...' if len(tensors) > 2 else ''}; {EXPORT}. Weights alone are read for "
        f"{', '.join([*families.FAMILIES, *(f.name for f in REBUILT)])}"
    )


def _with_hyperparameters(family, config, weights: Weights):
    changes: dict[str, object] = {}
    if hasattr(config, "eps"):
        changes["eps"] = uniform_eps(weights.modules, family.IGNORED, family.EPS)
    if hasattr(config, "batch_first"):
        changes["batch_first"] = family.batch_first(weights.modules)
    root = weights.modules.get("")
    if root is not None and hasattr(config, "transform_input"):
        changes["transform_input"] = bool(root.attributes.get("transform_input", False))
    return dataclasses.replace(config, **changes)


def _check_script(config, weights: Weights) -> None:
    """The code of a TorchScript archive must be that of the family's torch network."""
    root = weights.modules.get("")
    if root is None or "script" not in root.attributes or config.input_kind != "image":
        return
    from converters.reference import empty_module
    from converters.scripts import check_script

    auxiliary = any(name.startswith("AuxLogits.") for name in weights.tensors)
    network = empty_module(config, auxiliary).to_empty(device="cpu").eval()
    check_script(weights, network, (299, 299) if auxiliary else (224, 224))


def _params(family, config, tensors: Mapping[str, np.ndarray]):
    try:
        shapes = param_shapes(config)
    except (ValueError, ZeroDivisionError, TypeError, OverflowError) as error:
        raise MismatchError(f"the tensor shapes make no network: {error}") from error
    filled = assign(family.TABLE, family.IGNORED, tensors, shapes)
    single = single_precision(filled, getattr(config, "eps", 0.0))
    return {path: jnp.asarray(value) for path, value in single.items()}


def _findings(config, weights: Weights) -> list[str]:
    found = []
    root = weights.modules.get("")
    if root is not None and root.attributes.get("training") is True:
        found.append("saved in training mode; scanned in evaluation mode")
    if any(re.fullmatch(r"AuxLogits\..*", name) for name in weights.tensors):
        found.append("the auxiliary head only trains the network and was left out")
    if root is None and hasattr(config, "transform_input"):
        found.append("a state dict does not say whether transform_input is on; taken as off")
    if not weights.modules and hasattr(config, "batch_first"):
        found.append("a state dict does not say whether batch_first is on; taken as on")
    if not getattr(config, "batch_first", True):
        found.append("sequences have time before batch: [t, n, d]")
    return found
