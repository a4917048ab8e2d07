"""The network of a file whose tensors have the first names of what is around it.

Training code keeps its network under a name of its own (`model.`, `encoder.`, `net.backbone.`), and
some of it has a counter or the weights of a loss beside the network. Such names are left out only
where exactly one network is known without them, and all that stands beside it belongs to none.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeVar

import numpy as np

from converters import families
from converters.errors import UnsupportedArchitectureError, first_names
from converters.rebuilt.nested import is_network
from converters.rebuilt.sequential import CLASS_NAME
from converters.rebuilt.table import known_network
from converters.weights import ModuleInfo, Weights, children_of

# The largest supported network has about 1,600 tensors; a file of far more is built to stall us.
MAX_TENSORS = 10_000
# Code within code: Lightning's module, what torch puts around its network, and that network's own.
_MOST_FIRST_NAMES = 4
# What a last layer is called that stands beside the rest of its network.
_HEADS = ({"fc."}, {"classifier."}, {"head."}, {"heads."}, {"linear."})
_MOST_OF_A_HEAD = 4
_MOST_BESIDE = 8
# What training code calls whatever it trains, and what torch puts around it.
_OF_ANYTHING = re.compile(r"((model|net|network|backbone|module|_orig_mod)\.)+")
_MOST_GROUPS = 32
# `CrossEntropyLoss(weight=...)` and `BCEWithLogitsLoss(pos_weight=...)` keep numbers of classes.
_OF_A_LOSS = re.compile(r"(\w+_)?(criterion|loss)(_fn|_func|_function)?\.(\w+\.)*(pos_)?weight")
# What layers that prepare pictures keep of them.
_OF_PICTURES = re.compile(r"(.*[._])?(mean|std|mu|sigma)")

T = TypeVar("T")


@dataclass(frozen=True)
class InnerNetwork:
    """What of a file is its network.

    Attributes:
        names: name of a tensor in the file -> its name in the network, in the file's order; those
            that belong to no network are lacking.
        findings: what was left out of names and beside the network; empty where nothing was.
        modules: the network's, by its own paths; empty for a state dict.
    """

    names: Mapping[str, str]
    findings: tuple[str, ...] = ()
    modules: Mapping[str, ModuleInfo] = field(default_factory=dict)

    def weights(self, given: Weights) -> Weights:
        """The network alone, out of what the file holds."""
        return replace(given, tensors=self.of(given.tensors), modules=self.modules)

    def of(self, tensors: Mapping[str, T]) -> dict[str, T]:
        """The network's values by its own names, out of those by the file's."""
        return {own: tensors[name] for name, own in self.names.items()}


def inner_network(
    tensors: Mapping[str, np.ndarray], modules: Mapping[str, ModuleInfo]
) -> InnerNetwork:
    """The one known network of a file, without first names that what is around it gave.

    All names as they are, if the tensors are a known network already, and if no known network is
    seen without at most four first names. Of whole networks, whose modules say what they are, only
    a `Sequential` is left out that has one part.

    Raises:
        UnsupportedArchitectureError: a variant of a family that is not converted.
    """
    as_they_are = InnerNetwork({name: name for name in tensors}, (), modules)
    if modules:
        return _only_part(as_they_are)
    if len(tensors) > MAX_TENSORS or is_known(tensors):
        return as_they_are
    first, inside = "", list(tensors)
    for _ in range(_MOST_FIRST_NAMES):
        within = first
        first, inside, others = _largest_group(inside, within)
        head = [name for name in others if not _belongs_to_none(name, within, tensors)]
        if not inside or not _is_head(head, within) or len(others) > _MOST_BESIDE:
            break
        names = {name: name.removeprefix(first) for name in inside}
        names |= {name: name.removeprefix(within) for name in head}
        if len({*names.values()}) == len(names) and _is_inner(names, first, tensors):
            return InnerNetwork(names, (_finding(first, head, tensors, names),))
        if head:
            break
    return as_they_are


def _only_part(whole: InnerNetwork) -> InnerNetwork:
    """A network of torchvision without each `Sequential` around it that has no other part."""
    path = _path_within(whole.modules)
    if not path or not is_network(whole.modules[path].class_name):
        return whole
    first = f"{path}."
    inside = {p.removeprefix(first): m for p, m in whole.modules.items() if p.startswith(first)}
    names = {name: name.removeprefix(first) for name in whole.names}
    finding = f"a Sequential whose only part is the network, {first}, was left out"
    return InnerNetwork(names, (finding,), {"": whole.modules[path], **inside})


def _path_within(modules: Mapping[str, ModuleInfo]) -> str:
    """Path of what stands in containers of one part each; "" for the root."""
    parts, path = children_of(modules), ""
    for _ in range(_MOST_FIRST_NAMES):
        inner = parts.get(path, ())
        if modules[path].class_name != CLASS_NAME or len(inner) != 1:
            break
        path = f"{path}.{inner[0]}" if path else inner[0]
    return path


def is_known(tensors: Mapping[str, np.ndarray]) -> bool:
    """Whether these are a family's tensors, or those of a network that is rebuilt, by name."""
    found = families.recognise(layer_shapes(families.current_names(tensors)))
    return found is not None or known_network(Weights(dict(tensors), {}, {})) is not None


def _is_inner(names: Mapping[str, str], first: str, tensors: Mapping[str, np.ndarray]) -> bool:
    """Whether these are a known network behind this first name.

    A sentiment head is one or two matrices, as many a part of another network is: only behind names
    that say nothing else.
    """
    own = InnerNetwork(names).of(tensors)
    found = families.recognise(layer_shapes(families.current_names(own)))
    if found is None or found[1].input_kind == "image":
        return found is not None or is_known(own)
    return _OF_ANYTHING.fullmatch(first) is not None


def layer_shapes(tensors: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors that can name a family's layer."""
    return families.of_layers({name: tensor.shape for name, tensor in tensors.items()})


def _is_head(names: Sequence[str], within: str) -> bool:
    """Whether these are none or those of one last layer."""
    firsts = {_first_of(name, within).removeprefix(within) for name in names}
    return len(names) <= _MOST_OF_A_HEAD and (not names or firsts in _HEADS)


def _largest_group(names: Sequence[str], within: str) -> tuple[str, list[str], list[str]]:
    """The first name that most have, those that have it, and the others."""
    groups = _groups(names, within)
    if not groups:
        return within, [], list(names)
    first = max(groups, key=lambda one: len(groups[one]))
    return first, groups[first], [name for name in names if not name.startswith(first)]


def _groups(names: Sequence[str], within: str) -> dict[str, list[str]]:
    """Names by their first one with its dot; a name without another one behind it is in none."""
    groups: dict[str, list[str]] = {}
    for name in names:
        first = _first_of(name, within)
        if first != name and not name.endswith("."):
            groups.setdefault(first, []).append(name)
    return groups


def _first_of(name: str, within: str) -> str:
    first, dot, _ = name.removeprefix(within).partition(".")
    return f"{within}{first}{dot}"


def _belongs_to_none(name: str, within: str, tensors: Mapping[str, np.ndarray]) -> bool:
    """Whether no network computes with it: counts of steps, weights of classes in a loss."""
    tensor = tensors[name]
    is_of_a_loss = tensor.ndim == 1 and _OF_A_LOSS.fullmatch(name.removeprefix(within))
    return _is_count(tensor) or bool(is_of_a_loss)


def _is_count(tensor: np.ndarray) -> bool:
    return tensor.size == 1 and tensor.dtype.kind in "iub"


def _finding(
    first: str, head: Sequence[str], tensors: Mapping[str, object], names: Mapping[str, str]
) -> str:
    said = f"the weights' names begin with {first}, which was left out"
    if head:
        said += (
            f"; a state dict does not say what lies between these and {first_names(head)} beside"
            " them, taken as the network's last layer"
        )
    rest = [name for name in tensors if name not in names]
    return f"{said}; of no network, and left out: {first_names(rest)}" if rest else said


def common_first_names(tensors: Mapping[str, object]) -> str:
    """At most four first names, with their dots, that all tensors have."""
    first = ""
    for _ in range(_MOST_FIRST_NAMES):
        longer, _, others = _largest_group(list(tensors), first)
        if others or longer == first:
            break
        first = longer
    return first


def refuse_beside(tensors: Mapping[str, np.ndarray]) -> None:
    """Refuse a file that has a known network behind a first name, and something else beside it.

    Raises:
        UnsupportedArchitectureError: names every such network, and what to save.
    """
    within = common_first_names(tensors)
    groups = _groups(list(tensors), within)
    if len(groups) > _MOST_GROUPS:
        return
    known = [first for first in groups if _holds_network(first, groups[first], tensors)]
    if len(known) > 1:
        raise UnsupportedArchitectureError(
            f"the tensors under {' and '.join(known[:4])} are a known network's each; which of them"
            f" is used is nowhere said. Expected one: save {known[0][:-1]}.state_dict() or that of"
            " another one"
        )
    beside = [name for name in tensors if not known or not name.startswith(known[0])]
    if known and beside:
        _refuse_others(known[0], beside)


def _holds_network(first: str, names: Sequence[str], tensors: Mapping[str, np.ndarray]) -> bool:
    inside = {name: name.removeprefix(first) for name in names}
    own = InnerNetwork(inside).of(tensors)
    return _is_inner(inside, first, tensors) or bool(inner_network(own, {}).findings)


def _refuse_others(first: str, beside: list[str]) -> NoReturn:
    """Raise for a known network with `beside`, such as what prepares its pictures."""
    more = ""
    if all(_OF_PICTURES.fullmatch(name) for name in beside):
        more = (
            "; if these are what the network subtracts from pictures and divides them by, say so:"
            " --mean A,B,C --std A,B,C"
        )
    raise UnsupportedArchitectureError(
        f"the tensors under {first} are a known network's, and {len(beside)} others stand beside"
        f" them: {first_names(beside)}. Expected the network alone: save"
        f" {first[:-1]}.state_dict(){more}"
    )
