"""Mutations of a state dict before it is saved."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator


def mutate(state: dict[str, Any], random: Random) -> tuple[Any, str]:
    """The state dict with one to three changes, and their names."""
    names, value = [], state
    for _ in range(int(random.choice((1, 1, 2, 3)))):
        change = MUTATIONS[int(random.integers(len(MUTATIONS)))]
        if not isinstance(value, dict) or not value:
            continue
        try:
            value = change(value, random)
            names.append(change.__name__.strip("_"))
        except (RuntimeError, TypeError):  # after another change, no tensor that can be changed so
            names.append("nothing")
    return value, "+".join(names)


def _some(state: dict, random: Random) -> Any:
    return list(state)[int(random.integers(len(state)))]


def reorder(state: dict, random: Random) -> dict:
    """Names in another order."""
    items = list(state.items())
    return OrderedDict(items[k] for k in random.permutation(len(items)))


def rename(state: dict, random: Random) -> dict:
    """A tensor under another name."""
    key = _some(state, random)
    names = (f"{key}_", str(key).upper(), "w", str(_some(state, random)), 7, "é", "module.x")
    changed = dict(state)
    changed[names[int(random.integers(len(names)))]] = changed.pop(key)
    return changed


def alias(state: dict, random: Random) -> dict:
    """A tensor under two names, or in place of another."""
    return {**state, _some(state, random): state[_some(state, random)]}


def prefix(state: dict, random: Random) -> dict:
    """All names behind a prefix."""
    prefix = ("module.", "_orig_mod.", "net.")[int(random.integers(3))]
    return {f"{prefix}{key}": value for key, value in state.items()}


def nest(state: dict, random: Random) -> dict:
    """The state dict inside another dict."""
    keys = ("state_dict", "model", "net", "ema", "weights", "anything", "best")
    return {keys[int(random.integers(len(keys)))]: state, "epoch": 3}


def _two(state: dict, random: Random) -> dict:
    import torch

    other = {k: v + 1 if isinstance(v, torch.Tensor) else v for k, v in state.items()}
    names = (("model", "ema"), ("state_dict", "best"), ("a", "b"), ("model", "optimizer"))
    one, two = names[int(random.integers(len(names)))]
    return {one: state, two: other}


def _beside(state: dict, random: Random) -> dict:
    import torch

    extras: dict[Any, Any] = {
        "epoch": 1, "mean": torch.ones(3), "hyper": {"lr": 0.1}, "state_dict": {"w": torch.ones(2)},
        "list": [torch.ones(2)], 5: torch.ones(1), "array": np.ones(2), "text": "x", "none": None,
    }  # fmt: skip
    key = _some(extras, random)
    items = [*state.items(), (key, extras[key])]
    return dict(items if random.random() < 0.5 else items[::-1])


def _container(state: dict, random: Random) -> dict:
    made = (dict, OrderedDict, lambda items: defaultdict(list, items))
    return made[int(random.integers(len(made)))](state.items())


def _versions(state: dict, random: Random) -> dict:
    changed = OrderedDict(state)
    changed._metadata = {"": {"version": int(random.integers(3))}}  # type: ignore[attr-defined]
    if random.random() < 0.3:
        changed.note = 1  # type: ignore[attr-defined]
    return changed


def _tensor(state: dict, random: Random) -> dict:
    """A tensor of another type, layout or class."""
    import torch
    from torch import nn

    key = _some(state, random)
    value = state[key]
    if not isinstance(value, torch.Tensor):
        return state
    forms = (
        lambda t: t.half(), lambda t: t.double(), lambda t: t.bfloat16(), lambda t: t.int(),
        lambda t: t.transpose(0, -1) if t.ndim else t, lambda t: t.bool(), lambda t: t.char(),
        lambda t: t.reshape(-1)[:1].as_strided(t.shape, [0] * t.ndim),
        lambda t: torch.cat([t + 1, t])[len(t) :] if t.ndim else t,
        lambda t: t[..., 1:] if t.ndim else t, lambda t: t[:0] if t.ndim else t,
        lambda t: torch.complex(t.float(), t.float()), lambda t: nn.Parameter(t.float()),
        lambda t: torch.complex(t.float(), t.float()).conj(), lambda t: t.float().to_sparse(),
        lambda t: torch._neg_view(t.float()),  # pyright: ignore[reportPrivateImportUsage]
        lambda t: t.numpy(), lambda t: t.to("meta"),
        lambda t: t.float().to(torch.float8_e4m3fn), lambda t: t.to(torch.uint16),
        lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.qint8),
        lambda t: nn.Buffer(t.float()), lambda t: t.float().view(torch.uint8),
    )  # fmt: skip
    made = forms[int(random.integers(len(forms)))](value)
    if isinstance(made, torch.Tensor) and random.random() < 0.15:
        names = ("note", "data", "real", "_x")
        try:
            setattr(made, names[int(random.integers(4))], made.clone() + 1)
        except (RuntimeError, AttributeError, TypeError):
            return state
    return {**state, key: made}


MUTATIONS: tuple[Callable[[dict, Random], dict], ...] = (
    *(reorder, rename, alias, prefix, nest, _two, _beside, _container, _versions),
    *(_tensor, _tensor, _tensor, _tensor),
)
