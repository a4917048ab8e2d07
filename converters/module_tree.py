"""Walk a tree of inert module stand-ins the way torch's ``state_dict`` walks real modules."""

from dataclasses import dataclass, field
from typing import Any

from converters.errors import CorruptFileError, TooLargeError, shown
from converters.limits import Limits
from converters.plain import NotPlainError, plain
from converters.standins import Standin
from converters.tensors import TensorRef
from converters.weights import ModuleInfo, Plain

# Instance attributes with these names would replace code of the class.
_CODE_NAMES = ("forward", "__call__", "_call_impl", "_forward_impl", "_forward")


@dataclass
class ModuleTree:
    """Tensors and module descriptions by dotted name, in torch's order, and findings."""

    tensors: dict[str, TensorRef] = field(default_factory=dict)
    modules: dict[str, ModuleInfo] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def read_modules(root: Standin, limits: Limits) -> ModuleTree:
    """Parameters, persistent buffers and plain attributes of ``root`` and its submodules.

    Raises:
        CorruptFileError: a module does not have the parts every torch module has.
        TooLargeError: more modules, tensors or levels than ``limits`` (also when a module
            contains itself).
    """
    tree = ModuleTree()
    pending: list[tuple[str, Standin, int]] = [("", root, 0)]
    while pending:
        name, module, depth = pending.pop()
        if depth > limits.module_depth:
            raise TooLargeError(
                f"modules nest deeper than Limits.module_depth = {limits.module_depth}; perhaps "
                f"one contains itself, at {shown(name[:60])}"
            )
        if len(tree.modules) >= limits.modules:
            raise TooLargeError(f"more modules than Limits.modules = {limits.modules}")
        _read_one(name, module, tree, limits)
        children = _part(module, "_modules", name)
        for key, child in reversed(children.items()):
            if child is None:
                continue
            if not isinstance(child, Standin):
                raise CorruptFileError(f"submodule {shown(_join(name, key))} is {shown(child)}")
            pending.append((_join(name, key), child, depth + 1))
    return tree


def _read_one(name: str, module: Standin, tree: ModuleTree, limits: Limits) -> None:
    tree.modules[name] = ModuleInfo(module.class_name, _attributes(module))
    skipped = module.state.get("_non_persistent_buffers_set") or ()
    if not isinstance(skipped, (set, frozenset, tuple)):
        raise CorruptFileError(f"module {shown(name)}: its non-persistent buffers are no set")
    for part in ("_parameters", "_buffers"):
        for key, value in _part(module, part, name).items():
            if value is None or (part == "_buffers" and key in skipped):
                continue
            if not isinstance(value, TensorRef):
                raise CorruptFileError(f"{shown(_join(name, key))} is {shown(value)}, no tensor")
            tree.tensors[_join(name, key)] = value
    if len(tree.tensors) > limits.tensors:
        raise TooLargeError(f"more tensors than Limits.tensors = {limits.tensors}")
    tree.findings.extend(_oddities(name, module))


def _part(module: Standin, part: str, name: str) -> dict[str, Any]:
    """One of the dicts that every module has; keys are names without dots, as in torch."""
    if part not in module.state:
        raise CorruptFileError(
            f"module {shown(name)} of class {module.class_name} has no {part}; expected a network"
        )
    entries = module.state[part]
    if not isinstance(entries, dict):
        raise CorruptFileError(f"module {shown(name)}: {part} is {shown(entries)}, no dict")
    for key in entries:
        if not isinstance(key, str) or not key or "." in key or len(key) > 200:
            raise CorruptFileError(f"module {shown(name)}: {part} has the name {shown(key)}")
    return entries


def _join(prefix: str, key: str) -> str:
    return f"{prefix}.{key}" if prefix else key


def _attributes(module: Standin) -> dict[str, Plain]:
    """Plain public attributes, such as ``stride``; the others are left out."""
    found: dict[str, Plain] = {}
    for key, value in module.state.items():
        if key.startswith("_"):
            continue
        try:
            found[key] = plain(value)
        except NotPlainError:
            continue
    return found


def _oddities(name: str, module: Standin) -> list[str]:
    """Findings on code-like state: hooks, and attributes that would replace methods."""
    where = shown(name) if name else "the network"
    found = [
        f"{where} has {len(value)} entries in {key}, which are not run"
        for key, value in module.state.items()
        if key.startswith("_")
        and key.endswith(("_hooks", "_with_kwargs"))
        and isinstance(value, dict)
        and value
    ]
    found += [
        f"{where} has an attribute {key} that replaces its code, which is not run"
        for key in _CODE_NAMES
        if key in module.state
    ]
    return found
