"""Networks in memory, as what a scan opens: torch modules, JAX functions, converted models."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtroj.errors import UsageError
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan.attempt import Attempt, taken
from jaxtroj.scan.model import Opener

if TYPE_CHECKING:
    from converters.input_form import InputForm
    from converters.model import Model

NAME = "network in memory"
"""Of such a network in its record, which has no digest."""

Shape = tuple[int, int, int]
"""Height, width and channels of images."""
_Make = Callable[[Shape, "InputForm"], "Model"]


def entry_of_memory(examples: Path) -> ModelEntry:
    """The entry of a network that is in no file, with a folder of its examples."""
    # As if it lay beside them: what a scan looks for beside a model is not in the current folder.
    return ModelEntry(NAME, examples.parent / NAME, examples, None)


def opener_of(network: Any, image_shape: Shape) -> Opener:
    """What converts a network in memory; an attempt knows it afterwards.

    Args:
        network: a `torch.nn.Module`, a JAX function with its parameters, `(function, params)`, or a
            `converters.Model`.
        image_shape: of the examples.

    Raises:
        UsageError: it is none of these.
    """
    make = _maker(network)

    def opened(attempt: Attempt) -> "Model":
        with attempt.step("convert"):
            return taken(attempt, make(image_shape, attempt.settings.input_form()))

    return opened


def _maker(network: Any) -> _Make:
    if _is_torch_module(network):
        return lambda shape, form: _from_torch(network, shape, form)
    if isinstance(network, tuple) and len(network) == 2 and callable(network[0]):
        return lambda shape, form: _from_function(*network, shape, form)
    from converters.model import Model

    if isinstance(network, Model):
        return lambda shape, form: _as_it_is(network, form)
    raise UsageError(
        f"the network is a {type(network).__name__}, expected a path, a torch.nn.Module, a"
        " converted model, or a JAX function with its parameters: (function, params)"
    )


def _is_torch_module(network: Any) -> bool:
    """By the names of its classes: torch is not loaded to learn that something is none."""
    names = [(kind.__module__, kind.__qualname__) for kind in type(network).__mro__]
    return ("torch.nn.modules.module", "Module") in names


def _from_torch(network: Any, shape: Shape, form: "InputForm") -> "Model":
    from converters.graph.torch_network import torch_model

    return torch_model(network, shape, form)


def _from_function(function: Any, params: Any, shape: Shape, form: "InputForm") -> "Model":
    from converters.function import function_model

    return _as_it_is(function_model(function, params, shape), form)


def _as_it_is(model: "Model", form: "InputForm") -> "Model":
    from converters.preparation import prepared

    return prepared(model, form.bounds, form.mean, form.std)
