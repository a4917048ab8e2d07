"""Networks of timm, where timm is installed: rebuilt from `config.json`, nothing fetched."""

import importlib.util
from typing import Any

from converters.errors import MismatchError, UnsupportedArchitectureError, safe_repr
from converters.hub.folder import CONFIG, HubFolder
from converters.hub.processor import FolderForm
from converters.torch_weights import differences, fill

_LARGEST = 2**16
# What timm would load from elsewhere, or what is said by the config itself.
_FETCHING = frozenset(
    ("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir")
) | {"model_name", "scriptable", "exportable"}
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
            f"{CONFIG} says timm's {safe_repr(name)}, and timm is not installed here; install"
            " jaxtroj[timm], or export the network to ONNX"
        )
    import timm  # pyright: ignore[reportMissingImports]

    values = folder.config
    if not isinstance(name, str) or not timm.is_model(name):
        raise UnsupportedArchitectureError(f"timm has no architecture {safe_repr(name)}")
    try:
        classes = int(values["num_classes"])
        given = {"num_classes": classes} | _arguments(values.get("model_args"))
        # Later versions of timm repeat the number of classes among the arguments.
        if given["num_classes"] != classes:
            raise MismatchError(
                f"{CONFIG}: num_classes is {classes}, and {safe_repr(given['num_classes'])} in"
                " model_args"
            )
        module = timm.create_model(name, pretrained=False, **given).eval()
        prepared = values["pretrained_cfg"]
        size = _size(given.get("img_size"), prepared["input_size"])
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
    return module, FolderForm(CONFIG, size, mean=mean, std=std)


def _arguments(said: Any) -> dict[str, Any]:
    """The constructor's arguments of a folder: plain numbers, texts and lists of them, not large.

    Raises:
      MismatchError: they are something else, or name files or weights to be fetched.
    """
    given = said or {}
    if not isinstance(given, dict) or _FETCHING & set(given):
        raise MismatchError(f"{CONFIG}: model_args are {safe_repr(said)}, expected plain arguments")
    for name, value in given.items():
        for one in value if isinstance(value, list) else [value]:
            number = isinstance(one, int | float) and abs(one) <= _LARGEST
            if not number and not isinstance(one, str | None):
                raise MismatchError(
                    f"{CONFIG}: {safe_repr(name)} of model_args is {safe_repr(value)}, expected"
                    f" numbers up to {_LARGEST} or texts"
                )
    return given


def _size(said: Any, usual: list[int]) -> tuple[int, int]:
    """Height and width: of the network as it was made, else as it was trained."""
    if said is None:
        return int(usual[1]), int(usual[2])
    height, width = said if isinstance(said, list) else (said, said)
    return int(height), int(width)
