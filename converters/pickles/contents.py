"""From an unpickled object to `Weights`: which part of it is the network, and what it holds."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from converters.errors import CorruptFileError, TooLargeError, UnknownFormatError, safe_repr
from converters.limits import Limits
from converters.pickles.candidates import (
    Decoder,
    are_equal,
    bare_name,
    how_to_save,
    is_tensor,
    twins_of,
)
from converters.pickles.module_state import check_wrapper
from converters.pickles.module_tree import read_modules
from converters.pickles.numpy_values import ArrayRef
from converters.pickles.pickled import Pickled
from converters.pickles.plain import plain_items
from converters.pickles.standins import Standin
from converters.tensors import TensorRef, check_total, materialise
from converters.weights import ModuleInfo, Plain, Weights

# Keys under which training scripts keep the network. Two of them in one file, unless equal, are an
# ambiguity that only the author can resolve: which of the two is deployed decides the verdict.
_CANDIDATES = (
    "state_dict",
    "model_state_dict",
    "net_state_dict",
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
# Keys of a classifier, which may have other tensors beside it (WaNet's `netC` has grids there), but
# no other network: that may be the rest of it.
_CLASSIFIERS = frozenset({"netC", "classifier"})
# Classes around a network that only call it.
WRAPPERS = frozenset(
    {
        "torch.nn.parallel.data_parallel.DataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
        "torch.nn.DataParallel",
    }
)
_PREFIXES = {"module.": "DataParallel", "_orig_mod.": "torch.compile"}
_AVERAGED = "n_averaged"
_MAX_WRAPPING = 4
_MAX_PARTS = 1000
_LONGEST_KEY = 200


@dataclass
class _Source:
    """What was found so far on the way from the root of the file to its tensors."""

    refs: dict[str, Any] = field(default_factory=dict)
    modules: dict[str, ModuleInfo] = field(default_factory=dict)
    metadata: dict[str, Plain] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    every_buffer: bool = False


def read_contents(
    pickled: Pickled, limits: Limits, every_buffer: bool = False
) -> tuple[Weights, tuple[str, ...]]:
    """Weights and findings of an unpickled file.

    Args:
        pickled: what the pickle holds.
        limits: caps.
        every_buffer: whether buffers count that a pickled network keeps out of its state dict.

    Raises:
        UnknownFormatError: it holds no network, or several.
        CorruptFileError: the network is malformed.
        TooLargeError: a cap is exceeded.
    """
    source = _Source(findings=list(pickled.findings), every_buffer=every_buffer)
    _enter(pickled, source, limits)
    if not source.refs:
        raise UnknownFormatError("the file holds a network without tensors; expected its weights")
    tensors = _arrays(source.refs, pickled, limits)
    tensors = without_prefixes(tensors, source.findings)
    return Weights(tensors, source.modules, source.metadata), tuple(source.findings)


def _enter(pickled: Pickled, source: _Source, limits: Limits) -> None:
    """Follow wrappers and checkpoint dicts to the network and read it."""
    value, path = pickled.root, []
    for _ in range(_MAX_WRAPPING):
        if isinstance(value, Standin):
            _read_standin(value, source, limits)
            return
        if not isinstance(value, dict):
            break
        keys = _choices(value)
        if not keys:
            _read_state_dict(value, source)
            return
        twins = twins_of(value, keys)
        if twins or len(keys) > 1:
            found = [*keys, *twins]
            _check_equal(value, found, path, lambda refs: _arrays(refs, pickled, limits), twins)
            keys = found
            source.findings.append(f"equal tensor for tensor, so one network: {_listed(keys)}")
        key = keys[0]
        rest = {k: v for k, v in value.items() if k != key}
        _refuse_twice(key, value[key], rest)
        source.metadata.update(plain_items(rest, "".join(f"{part}." for part in path)))
        source.findings.append(_checkpoint_finding(key, rest))
        value, path = value[key], [*path, key]
    what = safe_repr(value) if not isinstance(value, dict) else "a deeply wrapped dict"
    raise UnknownFormatError(
        f"the file holds {what}; expected a network, a state dict or a "
        "checkpoint dict with one of them"
    )


def _checkpoint_finding(key: str, rest: dict) -> str:
    beside = f"; ignored beside it: {_listed(rest)}" if rest else ""
    return f"weights taken from {safe_repr(key)} of a checkpoint{beside}"


def _refuse_twice(key: str, chosen: Any, rest: dict) -> None:
    """Refuse loose weights beside a state dict that has some of the same names.

    Loaders take `checkpoint.get("state_dict", checkpoint)` or the checkpoint itself, with
    `strict=False`; where both are weights of the network, they run two networks.
    """
    if not isinstance(chosen, dict):
        return
    names = {bare_name(name) for name, item in chosen.items() if is_tensor(item)}
    both = [n for n, item in rest.items() if is_tensor(item) and bare_name(n) in names]
    if both:
        raise UnknownFormatError(
            f"the checkpoint holds weights of one name twice, in {safe_repr(key)} and beside it: "
            f"{_listed(both)}; save the ones to scan in a file of their own"
        )


def _looks_like_weights(value: dict | Standin) -> bool:
    """A network, or a dict with tensors or a network under text keys."""
    if _holds_tensors(value):
        return True
    inner = [] if isinstance(value, Standin) else [value.get(key) for key in _CANDIDATES]
    return any(isinstance(item, (dict, Standin)) and _holds_tensors(item) for item in inner)


def _holds_tensors(value: dict | Standin) -> bool:
    """Whether the first entries have a tensor; a pickle may repeat one dict without end."""
    if isinstance(value, Standin):
        return "_modules" in value.state
    first = islice(value.items(), _MAX_PARTS)
    return any(isinstance(key, str) and is_tensor(item) for key, item in first)


def _check_equal(
    value: dict, keys: list[str], path: list[str], decode: Decoder, twins: list[str]
) -> None:
    """Refuse several networks, unless they are one under names that training scripts use.

    Under other names they may be parts of one network, which are alike before any training; not so
    `twins`, which have the weights of one under such a name.
    """
    networks = [value[key] for key in keys]
    if {*_CANDIDATES, *twins}.issuperset(keys) and are_equal(networks, decode):
        return
    classes = sorted({item.class_name for item in value.values() if isinstance(item, Standin)})
    line = how_to_save(path, keys[0], classes)
    remedy = f", such as {line}" if all(isinstance(one, dict) for one in networks) else ""
    raise UnknownFormatError(
        f"the checkpoint holds {len(keys)} networks under {_listed(keys)}; save the one to "
        f"scan in a file of its own{remedy}"
    )


def _choices(value: dict) -> list[str]:
    """The keys that lead to a network each; none when ``value`` is itself a state dict."""
    parts = {k: v for k, v in value.items() if isinstance(v, (dict, Standin)) and _is_name(k)}
    if len(parts) > _MAX_PARTS:
        raise UnknownFormatError(f"the file holds a dict of {len(parts)} dicts, expected a network")
    likely = [key for key, part in parts.items() if _looks_like_weights(part)]
    known = [key for key in likely if key in _CANDIDATES or key in _CLASSIFIERS]
    if known and _CLASSIFIERS.issuperset(known):
        known = likely
    choice = known or ([] if _holds_tensors(value) else likely)
    if not choice and not _holds_tensors(value):
        raise UnknownFormatError(
            f"the file holds a dict without weights, with the keys {_listed(value) or 'none'}; "
            f"expected tensors or one of {', '.join(_CANDIDATES[:4])}"
        )
    return choice


def _is_name(key: Any) -> bool:
    return isinstance(key, str) and len(key) <= _LONGEST_KEY


def _listed(keys: Iterable[Any]) -> str:
    """At most twelve keys for a message."""
    return ", ".join(safe_repr(key) for key in islice(keys, 12))


def _read_state_dict(value: dict, source: _Source) -> None:
    others = {}
    for name, item in value.items():
        if is_tensor(item) and isinstance(name, str):
            source.refs[name] = item
        else:
            others[name] = item
    if others:
        source.findings.append(
            f"{len(others)} entries of the state dict are no tensors: {_listed(others)}"
        )
        source.metadata.update(plain_items(others, ""))


def _read_standin(value: Standin, source: _Source, limits: Limits) -> None:
    for _ in range(_MAX_WRAPPING):
        children = value.state.get("_modules")
        inner = children.get("module") if isinstance(children, dict) else None
        if value.class_name not in WRAPPERS or not isinstance(inner, Standin):
            break
        check_wrapper(value)
        source.findings.append(f"{value.class_name} around the network removed")
        value = inner
    tree = read_modules(value, limits, source.every_buffer)
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
            raise CorruptFileError(f"{safe_repr(name)} is a NumPy array without numbers")
        return ref.array
    return materialise(ref, storages[ref.storage.key], big_endian)


def without_prefixes(tensors: dict[str, Any], findings: list[str]) -> dict[str, Any]:
    """Names without the prefix that a wrapper gave to every one of them; notes it as a finding.

    Weights that a reparametrisation computes are noted too: they are not in the file.
    """
    tensors = _without_average_count(tensors, findings)
    for _ in range(_MAX_WRAPPING):
        for prefix, wrapper in _PREFIXES.items():
            if tensors and all(n.startswith(prefix) and n != prefix for n in tensors):
                tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
                findings.append(f"prefix {prefix!r} of {wrapper} removed from every tensor name")
    computed = [
        n
        for n in tensors
        if n.rpartition(".")[2] in ("weight_g", "weight_v", "weight_orig")
        or "parametrizations." in n
    ]
    if computed:
        findings.append(
            f"{len(computed)} tensors, such as {safe_repr(computed[0])}, parametrise weights that "
            "are "
            "computed when the network runs; call remove_parametrizations before saving"
        )
    return tensors


def _without_average_count(tensors: dict[str, Any], findings: list[str]) -> dict[str, Any]:
    """`torch.optim.swa_utils.AveragedModel` counts its steps beside the network, `module`."""
    count = tensors.get(_AVERAGED)
    rest = {name: value for name, value in tensors.items() if name != _AVERAGED}
    inside = rest and all(name.startswith("module.") for name in rest)
    if not inside or count is None or count.size != 1 or count.dtype.kind != "i":
        return tensors
    findings.append(f"{_AVERAGED} of AveragedModel left out: it counts steps of training")
    return rest
