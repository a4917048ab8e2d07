"""Check that a pickled module computes what its family computes.

A pickled network carries strides, paddings, epsilons and class names beside its weights. Whoever
changed them has another network than the one the family builds: it is refused, never scanned as
something else.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from flax import nnx

from converters.errors import MismatchError
from converters.families.family import Family, Modules
from converters.families.layers import Conv
from converters.families.names import Part
from converters.model import NetworkConfig, abstract_module
from converters.weights import ModuleInfo, children_of


@dataclass(frozen=True)
class ExpectedModule:
    """What a submodule must be, in families whose few modules are known one by one.

    Attributes:
      classes: class names it may have.
      attributes: name -> value it must have; an absent attribute has it.
      required: a pickled network without it is refused.
    """

    classes: frozenset[str]
    attributes: Mapping[str, object] = field(default_factory=dict)
    required: bool = True


def check_modules(family: Family, config: NetworkConfig, infos: Modules) -> None:
    """Compare every submodule of a file with the family's.

    Args:
      family: of the network.
      config: of the network in the file.
      infos: torch path -> class name and plain attributes; empty for a state dict.

    Raises:
      MismatchError: listing every difference.
    """
    faults = list(islice(family.module_faults(config, infos), 21)) if infos else []
    if faults:
        raise MismatchError(
            "the file's modules differ from the architecture they name: "
            f"{'; '.join(faults[:20])}{' ...' if len(faults) > 20 else ''}. "
            "Only unmodified networks of a family are converted by it."
        )


def differing_modules(expected: Mapping[str, ExpectedModule], infos: Modules) -> Iterator[str]:
    """Faults of modules that `expected` describes by pattern of their path, and what is missing."""

    def expected_at(path: str) -> ExpectedModule | None:
        return next((e for pattern, e in expected.items() if re.fullmatch(pattern, path)), None)

    for path, info in infos.items():
        where = path or "the root"
        yield from _in_place_of_modules(path, info, lambda inner: expected_at(inner) is not None)
        wanted = expected_at(path)
        if wanted is None:
            yield f"{where} is a {info.class_name}, expected no such module"
        elif info.class_name not in wanted.classes:
            yield f"{where} is a {info.class_name}, expected {' or '.join(sorted(wanted.classes))}"
        else:
            yield from _differences(where, info, wanted.attributes)
    for pattern, wanted in expected.items():
        if wanted.required and not any(re.fullmatch(pattern, path) for path in infos):
            yield f"{pattern or 'the root'} is missing"


@dataclass(frozen=True)
class NetworkModules:
    """What the submodules of a convolutional network may be, beside the family's Flax module.

    Attributes:
      kinds: path pattern of each module -> pattern of its class name.
      pools: path pattern of each pooling -> attributes it must have.
      ignored: patterns of paths that count for nothing.
      parts: submodules by path of which a configuration says more than their path does.
    """

    kinds: Mapping[str, str]
    pools: Mapping[str, Mapping[str, object]]
    ignored: tuple[str, ...] = ()
    parts: Callable[[Any], Mapping[str, Part]] = lambda config: {}

    def faults(self, config: NetworkConfig, infos: Modules) -> Iterator[str]:
        """What differs, one sentence each; see `Family.module_faults`."""
        kept = {
            path: info
            for path, info in infos.items()
            if not any(re.fullmatch(pattern, f"{path}.") for pattern in self.ignored)
        }
        module, parts, children = abstract_module(config), self.parts(config), children_of(kept)
        for path, info in kept.items():
            part = parts.get(path, Part())
            kind = self._kind(path)
            if kind is None:
                yield f"{path} is a {info.class_name}, expected no such module"
            elif not re.fullmatch(part.kind or kind, info.class_name):
                yield f"{path or 'the root'} is a {info.class_name}"
            elif part.children is not None and children.get(path, ()) != part.children:
                got = _listed(children.get(path, ()))
                yield f"{path} runs {got}, expected {_listed(part.children)}"
            else:
                yield from self._faults_of(module, path, info)

    def _kind(self, path: str) -> str | None:
        """Pattern of the class of the module at a path; None where the family has none."""
        return next((k for pattern, k in self.kinds.items() if re.fullmatch(pattern, path)), None)

    def _faults_of(self, module: nnx.Module, path: str, info: ModuleInfo) -> Iterator[str]:
        where = path or "the root"
        yield from _in_place_of_modules(path, info, lambda inner: self._kind(inner) is not None)
        kind = info.class_name.rpartition(".")[2]
        if kind == "Conv2d":
            conv = _at(module, path)
            if isinstance(conv, Conv):
                yield from _differences(where, info, _convolution(conv))
            else:
                yield f"{where} is no convolution in this family"
        elif kind == "BatchNorm2d":
            yield from _differences(where, info, {"track_running_stats": True, "affine": True})
        elif kind == "AdaptiveAvgPool2d":
            size = info.attributes.get("output_size", 1)
            if size not in (1, (1, 1)):
                yield f"{where}.output_size is {size}, expected 1"
        elif kind.endswith("Pool2d"):
            pools = (pool for pattern, pool in self.pools.items() if re.fullmatch(pattern, path))
            yield from _differences(where, info, next(pools))


def _in_place_of_modules(
    path: str, info: ModuleInfo, is_module: Callable[[str], bool]
) -> Iterator[str]:
    """Attributes where the family has a module: torch would call them in its place."""
    for name, value in info.attributes.items():
        # None stands for no module.
        if value is not None and is_module(f"{path}.{name}".lstrip(".")):
            yield f"{path or 'the root'}.{name} is an attribute, expected a module"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:20]) or "nothing"


def _at(module: nnx.Module, path: str):
    """The submodule at a torch path (names are the same in both), or None."""
    for name in path.split("."):
        try:
            module = module[int(name)] if name.isdecimal() else getattr(module, name)  # pyright: ignore
        except (AttributeError, IndexError, TypeError, ValueError):
            return None
    return module


def _convolution(conv: Conv) -> dict[str, object]:
    return {
        "stride": conv.stride,
        "padding": conv.padding,
        "groups": conv.groups,
        "dilation": (1, 1),
        "padding_mode": "zeros",
    }


def _differences(where: str, info: ModuleInfo, expected: Mapping[str, object]) -> Iterator[str]:
    for name, want in expected.items():
        got = info.attributes.get(name, want)
        if as_pair(got) != as_pair(want):
            yield f"{where}.{name} is {got}, expected {want}"


def as_pair(value: object) -> object:
    """A size as a pair, since torch takes 3 for (3, 3); anything else as it is."""
    return (value, value) if isinstance(value, int) and not isinstance(value, bool) else value


def uniform_eps(infos: Modules, ignored: tuple[str, ...], default: float) -> float:
    """The epsilon that all batch norms of a file share.

    Raises:
      MismatchError: they differ, or one is not a positive number.
    """
    found = {
        info.attributes.get("eps", default)
        for path, info in infos.items()
        if info.class_name.endswith(".BatchNorm2d")
        and not any(re.fullmatch(pattern, f"{path}.") for pattern in ignored)
    } or {default}
    eps = next(iter(found))
    if len(found) > 1 or isinstance(eps, bool) or not isinstance(eps, float) or not 0 < eps < 1:
        raise MismatchError(
            f"batch norms have eps {sorted(map(str, found))}; expected one in (0, 1)"
        )
    return eps


def with_eps(ignored: tuple[str, ...], default: float) -> Callable[[Any, Modules], Any]:
    """`Family.with_hyperparameters` of networks of which only the epsilon is left to say."""
    return lambda config, infos: replace(config, eps=uniform_eps(infos, ignored, default))
