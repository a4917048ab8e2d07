"""Walk a tree of inert module stand-ins the way torch's ``state_dict`` walks real modules."""

from dataclasses import dataclass, field
from typing import Any

from converters.errors import CorruptFileError, TooLargeError, safe_repr
from converters.limits import Limits
from converters.pickles.module_state import HOOKS_OF_TRAINING, check_state
from converters.pickles.plain import NotPlainError, plain
from converters.pickles.standins import Standin
from converters.tensors import TensorRef
from converters.weights import ModuleInfo, Plain

_LONGEST_NAME = 500


@dataclass
class ModuleTree:
    """What `read_modules` found.

    Attributes:
        every_buffer: whether `tensors` has buffers too that torch's state dict leaves out.
        tensors, modules: by dotted name, in torch's order.
        oddities: what a finding should say, with the names of the modules it is true of.
        held: identities of containers whose contents were looked at.
        values: values looked at so far; modules shared under many names count each time.
    """

    every_buffer: bool = False
    tensors: dict[str, TensorRef] = field(default_factory=dict)
    modules: dict[str, ModuleInfo] = field(default_factory=dict)
    oddities: dict[str, list[str]] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    values: int = 0

    @property
    def findings(self) -> list[str]:
        """One sentence for each oddity."""
        return [
            f"{what}, which is not run: {len(names)} modules, such as {safe_repr(names[0])}"
            for what, names in self.oddities.items()
        ]

    def charge(self, values: int, limits: Limits) -> None:
        """Count values; a small pickle can repeat large modules under thousands of names."""
        self.values += values
        if self.values > limits.pickle_steps:
            raise TooLargeError(
                "the modules have more values than Limits.pickle_steps = "
                f"{limits.pickle_steps}, because they repeat"
            )


def read_modules(root: Standin, limits: Limits, every_buffer: bool = False) -> ModuleTree:
    """Parameters, buffers and plain attributes of ``root`` and its submodules.

    Buffers that torch's state dict does not show count as attributes; with ``every_buffer`` as
    tensors.

    Raises:
        CorruptFileError: a module does not have the parts every torch module has.
        TooLargeError: more modules, tensors or levels than ``limits`` (also when a module
            contains itself).
    """
    tree = ModuleTree(every_buffer)
    pending: list[tuple[str, Standin, int]] = [("", root, 0)]
    while pending:
        name, module, depth = pending.pop()
        if depth > limits.module_depth:
            raise TooLargeError(
                f"modules nest deeper than Limits.module_depth = {limits.module_depth}; perhaps "
                f"one contains itself, at {safe_repr(name[:60])}"
            )
        if len(tree.modules) >= limits.modules:
            raise TooLargeError(f"more modules than Limits.modules = {limits.modules}")
        tree.charge(len(module.state), limits)
        _read_one(name, module, tree, limits)
        children = _part(module, "_modules", name, tree, limits)
        check_state(name, module, tree.held)
        for key, child in reversed(children.items()):
            if child is None:
                continue
            if not isinstance(child, Standin):
                raise CorruptFileError(
                    f"submodule {safe_repr(_join(name, key))} is {safe_repr(child)}"
                )
            pending.append((_join(name, key), child, depth + 1))
    return tree


def _read_one(name: str, module: Standin, tree: ModuleTree, limits: Limits) -> None:
    attributes = _attributes(module, tree, limits)
    tree.modules[name] = ModuleInfo(module.class_name, attributes)
    skipped = module.state.get("_non_persistent_buffers_set") or ()
    if not isinstance(skipped, (set, frozenset)) and skipped != ():
        raise CorruptFileError(f"module {safe_repr(name)}: its non-persistent buffers are no set")
    for part in ("_parameters", "_buffers"):
        for key, value in _part(module, part, name, tree, limits).items():
            if value is None:
                continue
            # Also those that are not persistent: code finds a function there as well as a tensor.
            if not isinstance(value, TensorRef):
                raise CorruptFileError(
                    f"{safe_repr(_join(name, key))} is {safe_repr(value)}, no tensor"
                )
            if part == "_parameters" or key not in skipped or tree.every_buffer:
                tree.tensors[_join(name, key)] = value
            else:  # the network's code finds it where it finds attributes
                attributes[key] = f"a {type(value).__name__}"
    if len(tree.tensors) > limits.tensors:
        raise TooLargeError(f"more tensors than Limits.tensors = {limits.tensors}")
    for what in _oddities(module):
        tree.oddities.setdefault(what, []).append(name)


def _part(
    module: Standin, part: str, name: str, tree: ModuleTree, limits: Limits
) -> dict[str, Any]:
    """One of the dicts that every module has; keys are names without dots, as in torch."""
    if part not in module.state:
        raise CorruptFileError(
            f"module {safe_repr(name)} of class {module.class_name} has no {part}; expected a "
            "network"
        )
    entries = module.state[part]
    if not isinstance(entries, dict):
        raise CorruptFileError(f"module {safe_repr(name)}: {part} is {safe_repr(entries)}, no dict")
    tree.charge(len(entries), limits)
    for key in entries:
        if not isinstance(key, str) or not key or "." in key or len(key) > 200:
            raise CorruptFileError(
                f"module {safe_repr(name)}: {part} has the name {safe_repr(key)}"
            )
    return entries


def _join(prefix: str, key: str) -> str:
    name = f"{prefix}.{key}" if prefix else key
    if len(name) > _LONGEST_NAME:
        raise TooLargeError(f"a name of {len(name)} characters starts with {safe_repr(name[:60])}")
    return name


def _attributes(module: Standin, tree: ModuleTree, limits: Limits) -> dict[str, Plain]:
    """Public attributes, such as ``stride``; of those that are not plain only the type."""
    found: dict[str, Plain] = {}
    for key, value in module.state.items():
        if key.startswith("_") or len(key) > _LONGEST_NAME:
            continue
        try:
            found[key] = plain(value)
        except NotPlainError:
            found[key] = f"a {type(value).__name__}"
        tree.charge(_size(found[key]), limits)
    return found


def _size(value: Plain) -> int:
    """Number of values in a plain value."""
    return sum(map(_size, value)) + 1 if isinstance(value, tuple) else 1


def _oddities(module: Standin) -> list[str]:
    """Entries in tables of hooks."""
    return [
        f"entries in {key}"
        for key in HOOKS_OF_TRAINING
        if isinstance(module.state.get(key), dict) and module.state[key]
    ]
