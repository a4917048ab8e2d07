"""`loaded`: transformers' network of a config with the weights of a folder, within their memory.

Names and shapes are compared first, on a network without memory: what `config.json` says of sizes
costs nothing until the weights at hand agree with it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from converters.errors import MismatchError, safe_repr
from converters.hub.folder import CONFIG

_SHOWN = 8
# Of positions, by their place; of steps, which evaluation does not read.
_INDEX, _STEPS = ".relative_position_index", "num_batches_tracked"
# Tables of positions that no file holds; one of Swin's has 20,000 values a block.
_MOST_COMPUTED = 2**22


class _WithoutMemory(TorchFunctionMode):
    """What a tensor without memory is moved or copied to has none either."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if args and isinstance(args[0], torch.Tensor) and args[0].is_meta and "device" in kwargs:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


def loaded(cls: Any, fields: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Any:
    """The network in evaluation mode; transformers renames the weights of older files itself.

    Args:
      cls: transformers' class.
      fields: of its config.
      tensors: the folder's weights, floating ones as float32.

    Raises:
      MismatchError: names or shapes differ, one weight has two tensors, or the network computes far
        more than the files hold.
      Exception: whatever transformers raises for numbers that make no network.
    """
    with torch.device("meta"):
        planned = cls(cls.config_class(**fields))
    _check_computed(planned, tensors)
    with _WithoutMemory():
        _, report = _from_pretrained(cls, fields, tensors)
    _refuse(report, cls.__name__)
    _refuse_doubled(planned, tensors)
    network = _from_pretrained(cls, fields, tensors)[0]
    _refuse_positions(network, tensors)
    return network


def _from_pretrained(cls: Any, fields: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]):
    return cls.from_pretrained(
        None,
        config=cls.config_class(**fields),
        state_dict=dict(tensors),
        output_loading_info=True,
        attn_implementation="eager",
        ignore_mismatched_sizes=True,
        dtype=torch.float32,
    )


def _check_computed(planned: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """What a network holds besides its weights must stay small beside the files."""
    own = _values([*planned.parameters(), *planned.buffers()])
    computed, held = own - _values(planned.state_dict().values()), _values(tensors.values())
    if computed > held + _MOST_COMPUTED:
        raise MismatchError(
            f"{CONFIG} says a {type(planned).__name__} that computes {computed} values besides its"
            f" weights, the files hold {held}; expected at most {held + _MOST_COMPUTED}. Check the"
            " sizes in it, or fetch config and weights of one network"
        )


def _values(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _refuse(report: Mapping[str, Any], name: str) -> None:
    parts = {
        "missing": sorted(report["missing_keys"]),
        "unexpected": sorted(report["unexpected_keys"]),
        "misshapen": [_misshapen(key) for key in sorted(report["mismatched_keys"])],
    }
    faults = [
        f"{len(names)} {kind}: {', '.join(names[:_SHOWN])}{' ...' if len(names) > _SHOWN else ''}"
        for kind, names in parts.items()
        if names
    ]
    if faults:
        raise MismatchError(
            f"the weights do not fit {CONFIG}, which says {name}; {'; '.join(faults)}"
        )


def _refuse_doubled(planned: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """No weight may have two tensors; of every version's names `_refuse` has found a weight.

    A name that the network does not have is an older one, or lacks its prefix. transformers takes
    it for a weight that may be there under its own name too, and its report names neither.
    """
    own = planned.state_dict()
    left_out = [_STEPS, *(planned._keys_to_ignore_on_load_unexpected or ())]
    older = [n for n in tensors if n not in own and not any(re.search(p, n) for p in left_out)]
    lacking = [n for n, value in own.items() if n not in tensors and value.is_floating_point()]
    if len(older) > len(lacking):
        raise MismatchError(
            f"{len(older)} tensors have other names than the weights of {type(planned).__name__},"
            f" such as {safe_repr(older[0])}, and {len(lacking)} weights lack a tensor of their own"
            " name, so that some have two. Some versions of transformers load the one, others the"
            " other; expected one for each: save the network again with those that are meant"
        )


def _refuse_positions(network: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """A table of positions in the files, which transformers 4 uses, must be the network's own."""
    own = [value.flatten() for name, value in network.named_buffers() if name.endswith(_INDEX)]
    for name, tensor in tensors.items() if own else ():
        found = tensor.flatten().to(own[0].dtype)
        if name.endswith(_INDEX) and not any(torch.equal(found, value) for value in own):
            raise MismatchError(
                f"{safe_repr(name)} holds other positions than {type(network).__name__} has."
                " transformers 4 uses them, transformers 5 its own; expected the same: save the"
                " network again"
            )


def _misshapen(key: Any) -> str:
    if not isinstance(key, tuple):
        return str(key)
    name, got, expected = key
    return f"{name}: got {tuple(got)}, expected {tuple(expected)}"
