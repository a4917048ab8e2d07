"""`rebuild`: the torch network of a file's weights, made by torchvision's own constructors.

Nothing in the file is executed: its class name chooses an entry of the table, its shapes and plain
attributes the arguments. The network is made without memory for weights; only if every tensor fits,
and every recorded module is the one that was made, the weights are put in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from converters import families
from converters.errors import MismatchError, SharedNamesError, UnsupportedArchitectureError
from converters.families.hyperparameters import as_pair
from converters.families.names import refuse_mismatch
from converters.pickles.plain import NotPlainError
from converters.pickles.plain import plain as plain_value
from converters.public_codes import PublicCode
from converters.rebuilt import nested, sequential
from converters.rebuilt.description import Description, Shape
from converters.rebuilt.making import built
from converters.rebuilt.table import (
    KnownNetwork,
    code_of,
    current_class,
    current_names,
    known_network,
)
from converters.scripts import check_script
from converters.torch_weights import differences, fill, is_counter
from converters.weights import ModuleInfo, Weights, children_of

# Without effect on logits: training only, or stale once a head was replaced.
_NEEDLESS = frozenset(
    "training inplace p dropout attention_dropout momentum num_classes alpha last_channel".split()
)


@dataclass(frozen=True)
class Rebuilt:
    """A network and what it came from.

    Attributes:
      module: torch's, in evaluation mode, float32, with the file's weights.
      family: its entry in the table.
      image_size: height and width of the only images it takes; None if it takes others.
      findings: what the file did not say.
    """

    module: Any
    family: KnownNetwork
    image_size: tuple[int, int] | None
    findings: tuple[str, ...]


def rebuild(weights: Weights, public_code: str | None = None) -> Rebuilt:
    """The torch network of these weights.

    Args:
      weights: what the file holds, under its own names.
      public_code: whose code they are of, see `InputForm`.

    Raises:
      SharedNamesError: public codes with these names differ, and none of them was named.
      UnsupportedArchitectureError: none of the table.
      MismatchError: shapes or modules differ from those of the rebuilt network, all listed.
    """
    names = weights.tensors.keys()
    weights = replace(weights, tensors=families.current_names(weights.tensors))
    family = known_network(weights)
    if family is None:
        raise UnsupportedArchitectureError("no known network has tensors of these names")
    tensors = {new: weights.tensors[old] for old, new in current_names(weights.tensors).items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    modules, findings = weights.modules, ()
    code = None if modules else code_of(family, names, public_code)
    if not modules:
        modules, findings = _standard_modules(family, shapes)
        findings += (*family.unsaid, *_taken_as(code))
    build = family.build if code is None else dict(family.codes)[code]
    if family.class_name == sequential.CLASS_NAME:
        build = partial(sequential.sequential, made_otherwise=nested.part)
    module = built(build, family, Description(shapes, modules))
    found = differences(module, shapes)
    refuse_mismatch(found.missing, found.unused, found.misshapen)
    _check_modules(module, weights.modules)
    if family.codes and code is None and not weights.modules:
        raise SharedNamesError([code for code, _ in family.codes])
    fill(module, tensors)
    size = _image_size(module)
    check_script(weights, module, size or (224, 224))
    return Rebuilt(module, family, size, findings)


def _taken_as(code: PublicCode | None) -> tuple[str, ...]:
    """The finding that says whose code of several was taken."""
    if code is None:
        return ()
    return (f"a state dict does not say activations and pools; taken as those of {code}",)


def describe(module: Any) -> dict[str, ModuleInfo]:
    """Class and plain attributes of a torch module and its submodules, as a file names them."""
    return {path: ModuleInfo(_class_name(m), _attributes(m)) for path, m in module.named_modules()}


def _class_name(module: Any) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _attributes(module: Any) -> dict[str, Any]:
    found = {}
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        try:
            found[name] = plain_value(tuple(value) if isinstance(value, list) else value)
        except NotPlainError:
            continue
    return found


def _standard_modules(family: KnownNetwork, shapes: Mapping[str, Shape]):
    """Modules of the standard network that a state dict is of, and the finding that says so."""
    import torch
    from torchvision import models

    if not family.standards:
        return {}, ()
    for name in family.standards:
        with torch.device("meta"):
            module = getattr(models, name)(weights=None)
        found = {n: tuple(t.shape) for n, t in module.state_dict().items()}
        if _same(found, shapes, family.exact):
            return describe(module), (
                f"a state dict does not say strides and the like; taken from torchvision's {name}",
            )
    raise MismatchError(
        f"a state dict does not say strides and the like, and this one is of none of torchvision's "
        f"{', '.join(family.standards)}; save the whole network, or export it to ONNX"
    )


def _same(standard: Mapping[str, Shape], shapes: Mapping[str, Shape], exact: bool) -> bool:
    names = {name for name in standard if not is_counter(name)}
    if names != {name for name in shapes if not is_counter(name)}:
        return False
    compared = [n for n in names if not n.startswith(("head", "encoder.pos_embedding"))]
    return not exact or all(standard[name] == shapes[name] for name in compared)


def _check_modules(module: Any, recorded: Mapping[str, ModuleInfo]) -> None:
    """A pickled network must be the one that was made, module by module."""
    if not recorded:
        return
    made = describe(module)
    faults = [f"{path} is missing" for path in made if path not in recorded]
    for path, info in recorded.items():
        if path not in made:
            faults.append(f"{path or 'the root'} is a {info.class_name}, expected no such module")
        else:
            faults += _differences(path or "the root", info, made[path])
    faults += _order_faults(module, recorded)
    if faults:
        more = " ..." if len(faults) > 20 else ""
        raise MismatchError(
            "the file's modules differ from the network that their classes make: "
            f"{'; '.join(faults[:20])}{more}. Only unmodified networks are rebuilt; export this "
            "one to ONNX."
        )


def _order_faults(module: Any, recorded: Mapping[str, ModuleInfo]) -> list[str]:
    """Containers run their parts in the file's order, which must be that of the made network."""
    from torch import nn

    parts, faults = children_of(recorded), []
    for path, part in module.named_modules():
        wanted, got = (*part._modules,), parts.get(path, ())
        is_container = isinstance(part, (nn.Sequential, nn.ModuleList, nn.ModuleDict))
        if is_container and got != wanted and sorted(got) == sorted(wanted):
            faults.append(f"the parts of {path or 'the root'} stand in another order")
    return faults


def _differences(where: str, got: ModuleInfo, made: ModuleInfo) -> list[str]:
    if current_class(got.class_name) != made.class_name:
        return [f"{where} is a {got.class_name}, expected {made.class_name}"]
    return [
        f"{where}.{name} is {got.attributes[name]}, expected {value}"
        for name, value in made.attributes.items()
        if name in got.attributes
        and name not in _NEEDLESS
        and as_pair(got.attributes[name]) != as_pair(value)
    ]


def _image_size(module: Any) -> tuple[int, int] | None:
    size = getattr(module, "image_size", None)  # ViT's
    if isinstance(size, int):
        return size, size
    if hasattr(module, "partition_size"):  # MaxViT's grids are those of its image size
        height, width = module.blocks[0].grid_size
        return 4 * height, 4 * width
    if type(module).__name__ == "Sequential":
        return next(filter(None, map(_image_size, module)), None)
    return None
