"""Networks of timm, where timm is installed: rebuilt from `config.json`, nothing fetched."""

import importlib.util
from typing import Any

from converters.errors import MismatchError, UnsupportedArchitectureError, safe_repr
from converters.hub.folder import CONFIG, HubFolder
from converters.hub.processor import FolderForm
from converters.torch_weights import differences, fill

_FAILURES = (*(RuntimeError, ValueError, TypeError, KeyError, AttributeError), AssertionError)


def rebuild_timm(folder: HubFolder) -> tuple[Any, FolderForm]:
    """The network of a timm folder in evaluation mode, and how it wants its pictures.

    Raises:
      UnsupportedArchitectureError: timm is not installed, or has no such architecture.
      MismatchError: config and weights do not fit each other.
    """
    name = folder.config.get("architecture")
    if importlib.util.find_spec("timm") is None:
        raise UnsupportedArchitectureError(
            f"{CONFIG} says timm's {safe_repr(name)}, and timm is not installed here; install it,"
            " or export the network to ONNX"
        )
    import timm  # pyright: ignore[reportMissingImports]

    values = folder.config
    if not isinstance(name, str) or not timm.is_model(name):
        raise UnsupportedArchitectureError(f"timm has no architecture {safe_repr(name)}")
    try:
        classes = int(values["num_classes"])
        module = timm.create_model(name, pretrained=False, num_classes=classes).eval()
        prepared = values["pretrained_cfg"]
        size = tuple(int(n) for n in prepared["input_size"])[1:]
        mean, std = (tuple(map(float, prepared[key])) for key in ("mean", "std"))
    except _FAILURES as error:
        raise MismatchError(
            f"timm's {name} cannot be made of {CONFIG}: {safe_repr(str(error)[:300])}"
        ) from error
    tensors = folder.weights.tensors
    found = differences(module, {key: tuple(value.shape) for key, value in tensors.items()})
    faults = [*found.missing, *found.unused, *found.misshapen]
    if faults:
        raise MismatchError(
            f"{len(faults)} weights do not fit timm's {name}: {', '.join(faults[:8])}"
        )
    fill(module, tensors)
    return module, FolderForm(CONFIG, (size[0], size[1]), mean=mean, std=std)
