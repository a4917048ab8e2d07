"""From an unpickled object to `Weights`: which part of it is the network, and what it holds."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from converters.errors import CorruptFileError, TooLargeError, UnknownFormatError, shown
from converters.limits import Limits
from converters.module_tree import read_modules
from converters.numpy_values import ArrayRef
from converters.pickled import Pickled
from converters.plain import plain_items
from converters.standins import Standin
from converters.tensors import TensorRef, check_total, materialise
from converters.weights import ModuleInfo, Plain, Weights

# Keys under which training scripts keep the network. Two of them in one file is an ambiguity
# that only the author can resolve: which of the two is deployed decides the verdict.
_CANDIDATES = (
    "state_dict",
    "model_state_dict",
    "model",
    "net",
    "network",
    "model_state",
    "weights",
    "params",
    "module",
    "ema",
    "model_ema",
    "state_dict_ema",
    "ema_state_dict",
    "teacher",
    "student",
)
_WRAPPERS = ("torch.nn.parallel.", "torch.nn.DataParallel")
_PREFIXES = {"module.": "DataParallel", "_orig_mod.": "torch.compile"}
_MAX_WRAPPING = 4
_COMPUTED = ("parametrizations.", "_orig", "weight_g", "weight_v")


@dataclass
class _Source:
    """What was found so far on the way from the root of the file to its tensors."""

    refs: dict[str, Any] = field(default_factory=dict)
    modules: dict[str, ModuleInfo] = field(default_factory=dict)
    metadata: dict[str, Plain] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def read_contents(pickled: Pickled, limits: Limits) -> tuple[Weights, tuple[str, ...]]:
    """Weights and findings of an unpickled file.

    Raises:
        UnknownFormatError: it holds no network, or several.
        CorruptFileError: the network is malformed.
        TooLargeError: a cap is exceeded.
    """
    source = _Source(findings=list(pickled.findings))
    _enter(pickled.root, source, limits, "")
    if not source.refs:
        raise UnknownFormatError("the file holds a network without tensors; expected its weights")
    tensors = _arrays(source.refs, pickled, limits)
    tensors = without_prefixes(tensors, source.findings)
    return Weights(tensors, source.modules, source.metadata), tuple(source.findings)


def _enter(value: Any, source: _Source, limits: Limits, path: str) -> None:
    """Follow wrappers and checkpoint dicts to the network and read it."""
    for _ in range(_MAX_WRAPPING):
        if isinstance(value, Standin):
            _read_standin(value, source, limits)
            return
        if not isinstance(value, dict):
            break
        key = _choose(value)
        if key is None:
            _read_state_dict(value, source)
            return
        rest = {k: v for k, v in value.items() if k != key}
        source.metadata.update(plain_items(rest, path))
        source.findings.append(_checkpoint_finding(key, rest))
        value, path = value[key], f"{path}{key}."
    what = shown(value) if not isinstance(value, dict) else "a deeply wrapped dict"
    raise UnknownFormatError(
        f"the file holds {what}; expected a network, a state dict or a "
        "checkpoint dict with one of them"
    )


def _checkpoint_finding(key: str, rest: dict) -> str:
    names = ", ".join(sorted(shown(k) for k in rest)[:12])
    return f"weights taken from {shown(key)} of a checkpoint" + (
        f"; beside it: {names}" if names else ""
    )


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (TensorRef, ArrayRef))


def _looks_like_weights(value: Any) -> bool:
    """A network, or a dict with tensors or a network under text keys."""
    if isinstance(value, Standin):
        return "_modules" in value.state
    if not isinstance(value, dict):
        return False
    if any(_is_tensor(item) for key, item in value.items() if isinstance(key, str)):
        return True
    return any(
        isinstance(inner, (dict, Standin)) and _holds_tensors(inner)
        for inner in (value.get(key) for key in _CANDIDATES)
    )


def _holds_tensors(value: dict | Standin) -> bool:
    if isinstance(value, Standin):
        return "_modules" in value.state
    return any(_is_tensor(item) for key, item in value.items() if isinstance(key, str))


def _choose(value: dict) -> str | None:
    """The key that leads to the network; None when ``value`` is itself a state dict."""
    likely = [k for k, v in value.items() if isinstance(k, str) and _looks_like_weights(v)]
    known = [key for key in likely if key in _CANDIDATES]
    choice = known or ([] if _holds_tensors(value) else likely)
    if len(choice) > 1:
        raise UnknownFormatError(
            f"the checkpoint holds {len(choice)} networks under {', '.join(map(shown, choice))}; "
            "save the one to scan in a file of its own"
        )
    if not choice and not _holds_tensors(value):
        raise UnknownFormatError(
            "the file holds a dict without weights, with the keys "
            f"{', '.join(shown(key) for key in list(value)[:12]) or 'none'}; expected tensors or "
            "one of " + ", ".join(_CANDIDATES[:4])
        )
    return choice[0] if choice else None


def _read_state_dict(value: dict, source: _Source) -> None:
    others = {}
    for name, item in value.items():
        if _is_tensor(item) and isinstance(name, str):
            source.refs[name] = item
        else:
            others[name] = item
    if others:
        names = ", ".join(sorted(shown(key) for key in others)[:12])
        source.findings.append(f"{len(others)} entries of the state dict are no tensors: {names}")
        source.metadata.update(plain_items(others, ""))


def _read_standin(value: Standin, source: _Source, limits: Limits) -> None:
    while value.class_name.startswith(_WRAPPERS):
        inner = (value.state.get("_modules") or {}).get("module")
        if not isinstance(inner, Standin):
            break
        source.findings.append(f"{value.class_name} around the network removed")
        value = inner
    tree = read_modules(value, limits)
    source.refs.update(tree.tensors)
    source.modules.update(tree.modules)
    source.findings.extend(tree.findings)


def _arrays(refs: dict[str, Any], pickled: Pickled, limits: Limits) -> dict[str, np.ndarray]:
    """Arrays of checked descriptions; each storage is expanded once."""
    views = [ref for ref in refs.values() if isinstance(ref, TensorRef)]
    check_total(views, limits)
    if len(refs) > limits.tensors:
        raise TooLargeError(f"{len(refs)} tensors, more than Limits.tensors = {limits.tensors}")
    storages = {ref.storage.key: memoryview(b"") for ref in views}
    for key in storages:
        storages[key] = pickled.storage_bytes(key)
    return {name: _array(name, ref, storages, pickled.big_endian) for name, ref in refs.items()}


def _array(name: str, ref: Any, storages: dict[str, memoryview], big_endian: bool) -> np.ndarray:
    if isinstance(ref, ArrayRef):
        if ref.array is None or ref.array.dtype.kind in "SU":
            raise CorruptFileError(f"{shown(name)} is a NumPy array without numbers")
        return ref.array
    return materialise(ref, storages[ref.storage.key], big_endian)


def without_prefixes(tensors: dict[str, Any], findings: list[str]) -> dict[str, Any]:
    """Names without the prefix that a wrapper gave to every one of them; notes it as a finding.

    Weights that a reparametrisation computes are noted too: they are not in the file.
    """
    stripped = True
    while stripped and tensors:
        stripped = False
        for prefix, wrapper in _PREFIXES.items():
            if all(name.startswith(prefix) and name != prefix for name in tensors):
                tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
                findings.append(f"prefix {prefix!r} of {wrapper} removed from every tensor name")
                stripped = True
    computed = [
        n
        for n in tensors
        if n.rpartition(".")[2] in ("weight_g", "weight_v", "weight_orig")
        or "parametrizations." in n
    ]
    if computed:
        findings.append(
            f"{len(computed)} tensors, such as {shown(computed[0])}, parametrise weights that are "
            "computed when the network runs; call remove_parametrizations before saving"
        )
    return tensors
