"""Networks in memory: put into a folder for the guarded worker, or opened where they are.

What a torch module does is captured in the caller's process, since the module is his code; its
graph and weights go to the worker as data. So does a converted model. A JAX function cannot: what
`jax.export` writes has no rule for `vmap`, which every search is made of, and a function's code is
no data. It is searched in the caller's process.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtroj.errors import UsageError
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan.attempt import Attempt, taken

if TYPE_CHECKING:
    from converters.graph.recorder import Captured
    from converters.input_form import InputForm
    from converters.model import Model

NAME = "network in memory"
"""Of such a network in its record, which has no digest."""

EXAMPLES = "examples"
"""Folder of the examples, beside that of the network."""
_FRONT = "front.json"
_MOST_FRONT_BYTES = 2**20
_FUNCTION = "a JAX function cannot be sent to another process"
_OTHER_CHANNELS = {1: 3, 3: 1}
Shape = tuple[int, int, int]
"""Height, width and channels of images."""


def entry_of_memory(home: Path) -> ModelEntry:
    """The entry of a network that is in no file, put into a folder beside its examples."""
    return ModelEntry(NAME, home / NAME, home / EXAMPLES, None)


def is_function(network: Any) -> bool:
    """Whether a network is a JAX function with its parameters, not a module or a model.

    Raises:
        UsageError: it is none of these.
    """
    if _is_torch_module(network):
        return False
    if isinstance(network, tuple) and len(network) == 2 and callable(network[0]):
        return True
    from converters.model import Model

    if isinstance(network, Model):
        return False
    raise UsageError(
        f"the network is a {type(network).__name__}, expected a path, a torch.nn.Module, a"
        " converted model, or a JAX function with its parameters: (function, params)"
    )


def put(network: Any, shape: Shape, folder: Path) -> str:
    """Write what a network in memory computes to a folder, which `open_put` reads.

    Args:
        network: see `is_function`.
        shape: of the examples.
        folder: is made.

    Returns:
        Why it stays in this process; "" for one that was written.

    Raises:
        UsageError: it is no network.
        ConverterError: a torch module cannot be captured.
        OSError: the folder cannot be written.
    """
    if is_function(network):
        return _FUNCTION
    if not _is_torch_module(network):
        return _put_model(network, folder)
    from converters.graph.captured_folder import save_captured

    save_captured(_captured(network, shape), folder)
    return ""


def _captured(module: Any, shape: Shape) -> "Captured":
    """What a torch module does with images; it may be for grey ones where these have colours.

    The examples are made grey or coloured then, as those of files are.
    """
    from converters.errors import ConverterError
    from converters.graph.torch_network import captured_module

    height, width, channels = shape
    try:
        return captured_module(module, shape)
    except ConverterError as first:
        if channels not in _OTHER_CHANNELS:
            raise
        try:
            return captured_module(module, (height, width, _OTHER_CHANNELS[channels]))
        except ConverterError:
            raise first from None


def _put_model(model: "Model", folder: Path) -> str:
    """See `put`; the steps in front of the network are written beside its checkpoint."""
    from converters.checkpoint import save_checkpoint
    from converters.errors import ConversionError
    from converters.files import write_atomic
    from converters.function import FunctionConfig
    from converters.preparation import PreparedConfig

    config, front = model.config, []
    while isinstance(config, PreparedConfig):
        front.insert(0, (config.bounds, config.mean, config.std))
        config = config.inner
    if isinstance(config, FunctionConfig):
        return _FUNCTION
    try:
        save_checkpoint(replace(model, config=config), folder)
    except ConversionError as error:
        return f"the model cannot be sent to another process: {error}"
    write_atomic(folder / _FRONT, json.dumps(front).encode())
    return ""


def open_put(attempt: Attempt) -> "Model":
    """In the worker: the network that `put` wrote; an attempt knows it afterwards."""
    folder = attempt.entry.model_path
    with attempt.step("read"):
        make = _read_model(folder) if (folder / _FRONT).exists() else _read_captured(folder)
    with attempt.step("convert"):
        return taken(attempt, make(attempt.settings.input_form()))


def _read_captured(folder: Path) -> "Callable[[InputForm], Model]":
    from converters.graph.captured_folder import load_captured
    from converters.graph.classifier import classifier

    captured = load_captured(folder)
    return lambda form: classifier(captured, form)


def _read_model(folder: Path) -> "Callable[[InputForm], Model]":
    from converters.checkpoint import load_checkpoint
    from converters.files import read_at_most
    from converters.preparation import prepared

    model = load_checkpoint(folder)
    for bounds, mean, std in json.loads(read_at_most(folder / _FRONT, _MOST_FRONT_BYTES)):
        model = prepared(model, bounds, mean, std)
    return lambda form: prepared(model, form.bounds, form.mean, form.std)


def opener_of(network: Any, shape: Shape) -> Callable[[Attempt], "Model"]:
    """What opens a function, or a converted model, where it is; an attempt knows it afterwards."""

    def opened(attempt: Attempt) -> "Model":
        from converters.function import function_model
        from converters.preparation import prepared

        with attempt.step("convert"):
            form = attempt.settings.input_form()
            is_pair = is_function(network)
            model = function_model(network[0], network[1], shape) if is_pair else network
            return taken(attempt, prepared(model, form.bounds, form.mean, form.std))

    return opened


def _is_torch_module(network: Any) -> bool:
    """By the names of its classes: torch is not loaded to learn that something is none."""
    names = [(kind.__module__, kind.__qualname__) for kind in type(network).__mro__]
    return ("torch.nn.modules.module", "Module") in names
