"""Mutations of a torch network before it is saved: what a file may say of its modules."""

from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator
_METHODS = (
    *("forward", "_call_impl", "_forward_impl", "_conv_forward", "_compiled_call_impl", "train"),
    *("__call__", "eval", "_slow_forward", "bn_function", "_check_input_dim", "fuse", "note"),
)
_NUMBERS = (0, 1, 2, 3, 0.0, 0.5, 1e-3, True, False, None, (1, 1), (2, 2), (0, 0), "same", "zeros")


def mutate(network: Any, random: Random) -> tuple[Any, str]:
    """The network with one to three changes, and their names."""
    names = []
    for _ in range(int(random.choice((1, 1, 1, 2, 3)))):
        change = MUTATIONS[int(random.integers(len(MUTATIONS)))]
        network = change(network, random) or network
        names.append(change.__name__.strip("_"))
    return network, "+".join(names)


def _module(network: Any, random: Random, wanted: Callable[[Any], Any]) -> Any:
    """A module for which `wanted` holds; the network where there is none."""
    found = [m for m in network.modules() if wanted(m)] or [network]
    return found[int(random.integers(len(found)))]


def _parent(network: Any, random: Random) -> Any:
    return _module(network, random, lambda m: len(m._modules))


def _key(table: dict, random: Random) -> Any:
    keys = list(table)
    return keys[int(random.integers(len(keys)))] if keys else None


def _value(random: Random) -> Any:
    import torch
    from torch import nn

    others = (
        torch.nn.functional.relu, torch.nn.functional.gelu, nn.ReLU(), nn.Tanh(), nn.ReLU,
        torch.ones(3), torch.tensor(0.5), nn.Parameter(torch.ones(2)), [1, 2], nn.Sequential(),
    )  # fmt: skip
    values = (*_NUMBERS, *others)
    return values[int(random.integers(len(values)))]


def _reorder(network: Any, random: Random) -> None:
    modules = _parent(network, random)._modules
    items = list(modules.items())
    order = random.permutation(len(items)) if random.random() < 0.5 else range(len(items))[::-1]
    modules.clear()
    modules.update(items[k] for k in order)


def _reorder_tensors(network: Any, random: Random) -> None:
    module = _module(network, random, lambda m: len(m._parameters) + len(m._buffers) > 1)
    for table in (module._parameters, module._buffers):
        items = list(table.items())
        table.clear()
        table.update(items[::-1])


def _alias(network: Any, random: Random) -> None:
    modules = _parent(network, random)._modules
    one, two = _key(modules, random), _key(modules, random)
    if one is not None:
        modules[one] = modules[two]


def _exchange(network: Any, random: Random) -> None:
    """Two children of one class change places."""
    modules = _parent(network, random)._modules
    one = _key(modules, random)
    alike = [k for k, m in modules.items() if one is not None and type(m) is type(modules[one])]
    if alike:
        two = alike[int(random.integers(len(alike)))]
        modules[one], modules[two] = modules[two], modules[one]


def _no_child(network: Any, random: Random) -> None:
    """A child is None or gone, or there is one more that is None."""
    modules = _parent(network, random)._modules
    key = _key(modules, random)
    if random.random() < 0.5:
        names = ("extra", "downsample", "aux", "act", "dropout", "fc2", f"{key}_", "7")
        modules.setdefault(names[int(random.integers(len(names)))], None)
    elif key is not None:
        modules[key] = None if random.random() < 0.5 else modules.pop(key) and None
        if random.random() < 0.5:
            del modules[key]


def _more(network: Any, random: Random) -> None:
    from torch import nn

    parent = _parent(network, random)
    numbers = [int(k) for k in parent._modules if k.isdigit()]
    key = str(max(numbers) + 1) if numbers else "extra"
    added = (nn.ReLU(), nn.Tanh(), nn.Identity(), nn.Dropout(), nn.Sequential(nn.Sigmoid()))
    parent._modules[key] = added[int(random.integers(len(added)))]


def _other_class(network: Any, random: Random) -> None:
    """A module without weights becomes one of another kind, or is said in another way."""
    from torch import nn

    parent = _module(network, random, lambda m: _plain(m))
    plain = _plain(parent)
    if plain:
        key = plain[int(random.integers(len(plain)))]
        others = (
            nn.ReLU(), nn.ReLU(True), nn.GELU(), nn.Tanh(), nn.Identity(), nn.LeakyReLU(0.1),
            nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2, 2), nn.AvgPool2d(3, 2, 1), nn.ReLU6(),
            nn.AdaptiveAvgPool2d(1), nn.AdaptiveMaxPool2d(1), nn.AdaptiveAvgPool2d((1, 1)),
            nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.Flatten(), nn.Dropout(), nn.Hardswish(),
        )  # fmt: skip
        chosen = _alike(parent._modules[key])
        chosen = others if not chosen or random.random() < 0.4 else chosen
        parent._modules[key] = chosen[int(random.integers(len(chosen)))]


def _plain(module: Any) -> list[str]:
    """Names of children without weights."""
    return [k for k, m in module._modules.items() if m is not None and not m.state_dict()]


def _alike(module: Any) -> tuple[Any, ...]:
    """Modules of the same class, whose numbers say the same in another way, or another thing."""
    from torch import nn

    if isinstance(module, nn.ReLU):
        return nn.ReLU(), nn.ReLU(True)
    if isinstance(module, nn.MaxPool2d):
        return (
            nn.MaxPool2d(3, 2, 1), nn.MaxPool2d((3, 3), (2, 2), (1, 1)), nn.MaxPool2d(3, 2, (1, 1)),
            nn.MaxPool2d(3, 2, 1, 1, False, False), nn.MaxPool2d(3, (2, 2), 1, dilation=(1, 1)),
            nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.MaxPool2d(3, 1, 1),
        )  # fmt: skip
    if isinstance(module, nn.AvgPool2d):
        return (
            nn.AvgPool2d(2, 2), nn.AvgPool2d((2, 2)), nn.AvgPool2d(2, (2, 2), 0, True),
            nn.AvgPool2d(2, 2, count_include_pad=False), nn.AvgPool2d(2, 2, divisor_override=4),
            nn.AvgPool2d(2, 2, divisor_override=3),
        )  # fmt: skip
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d((1, 1)), nn.AdaptiveAvgPool2d((1, 2))
    return ()


def _recast(network: Any, random: Random) -> None:
    """The class of a module is another, its state the same."""
    from torch import nn
    from torchvision.models import resnet

    classes = (
        nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.Identity, nn.InstanceNorm2d, nn.Conv2d,
        nn.BatchNorm1d, nn.SyncBatchNorm, nn.ReLU, nn.Linear, resnet.BasicBlock, resnet.Bottleneck,
    )  # fmt: skip
    module = _module(network, random, lambda m: m is not network)
    module.__class__ = classes[int(random.integers(len(classes)))]


def _attribute(network: Any, random: Random) -> None:
    """A plain attribute takes another value."""
    module = _module(network, random, lambda m: not m._modules)
    plain = [k for k, v in vars(module).items() if isinstance(v, (int, float, str, tuple))]
    key = _key(dict.fromkeys(plain), random)
    if key is None:
        return
    value = vars(module)[key]
    if random.random() < 0.4 and isinstance(value, (int, float)) and not isinstance(value, bool):
        value = value + int(random.choice((-1, 1)))
    else:
        value = _value(random)
    vars(module)[key] = value


def _shadow(network: Any, random: Random) -> None:
    """An attribute of the name of a tensor or child, which may be gone, or which others have."""
    module = _module(network, random, lambda m: m._modules or m._parameters)
    if random.random() < 0.5:  # hides nothing, and changes nothing
        other = _module(network, random, lambda m: m._modules or m._parameters)
        names = {**other._modules, **other._parameters, **other._buffers}.keys()
        free = [name for name in names if not hasattr(module, name)]
        if free:
            vars(module)[free[int(random.integers(len(free)))]] = _NUMBERS[int(random.integers(8))]
        return
    tables = [t for t in (module._modules, module._parameters, module._buffers) if t]
    if tables:
        table = tables[int(random.integers(len(tables)))]
        key = _key(table, random)
        value = table[key] if random.random() < 0.4 else _value(random)
        if random.random() < 0.5:
            del table[key]
        vars(module)[key] = value


def _method(network: Any, random: Random) -> None:
    module = _module(network, random, lambda m: True)
    name = _METHODS[int(random.integers(len(_METHODS)))]
    vars(module)[name] = _value(random)


def _move(network: Any, random: Random) -> None:
    """A tensor stands in another table, or in two."""
    module = _module(network, random, lambda m: m._parameters or m._buffers)
    tables = [module._parameters, module._buffers]
    if random.random() < 0.5:
        tables.reverse()
    key = _key(tables[0], random)
    if key is not None and tables[0][key] is not None:
        tables[1][key] = tables[0][key].detach() + int(random.integers(2))
        if random.random() < 0.5:
            del tables[0][key]


def _hook(network: Any, random: Random) -> None:
    import torch
    from torch import nn

    module = _module(network, random, lambda m: True)
    names = (
        *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_state_dict_hooks"),
        *("_forward_hooks_with_kwargs", "_backward_pre_hooks", "_non_persistent_buffers_set"),
    )
    table = vars(module)[names[int(random.integers(len(names)))]]
    if isinstance(table, set):
        table.add("running_mean")
    else:
        table[0] = (torch.nn.functional.elu, nn.Bilinear(3, 3, 3), None)[int(random.integers(3))]


def _training(network: Any, random: Random) -> None:
    module = _module(network, random, lambda m: True)
    module.train(bool(random.integers(2)))
    for norm in module.modules():
        if hasattr(norm, "momentum") and random.random() < 0.3:
            norm.momentum = None


def _tensor(network: Any, random: Random) -> None:
    """A tensor of another type or layout, or over the storage of another."""
    import torch
    from torch import nn

    module = _module(network, random, lambda m: m._parameters or m._buffers)
    table = module._parameters if module._parameters else module._buffers
    key = _key(table, random)
    if key is None or table[key] is None:
        return
    value = table[key].detach()
    forms = (
        lambda t: t.half(), lambda t: t.double(), lambda t: t.bfloat16(),
        lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
        lambda t: t.flatten()[:1].expand(t.numel()).reshape(t.shape) if t.numel() else t,
        lambda t: t.reshape(-1)[:1].as_strided(t.shape, [0] * t.ndim) if t.numel() else t,
        lambda t: torch.cat([t, t])[: len(t)] if t.ndim else t,
        lambda t: torch.cat([t + 1, t])[len(t) :] if t.ndim else t,
        lambda t: t.flip(0) if t.ndim else t, lambda t: t.to(torch.complex64), lambda t: t[:0],
        lambda t: torch.complex(t, t).conj().real, lambda t: t * 0, lambda t: t.to_sparse(),
        lambda t: t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t.int(),
    )  # fmt: skip
    value = forms[int(random.integers(len(forms)))](value)
    kept = table is module._parameters and value.is_floating_point()
    table[key] = nn.Parameter(value, False) if kept else value
    if random.random() < 0.1:
        table[key].note = 1


def _swap_tensors(network: Any, random: Random) -> None:
    """Two tensors of one shape change places, or become one."""
    found = [(m._parameters, k) for m in network.modules() for k in m._parameters]
    table, key = found[int(random.integers(len(found)))]
    if table[key] is None:
        return
    alike = [(t, k) for t, k in found if t[k] is not None and t[k].shape == table[key].shape]
    other, name = alike[int(random.integers(len(alike)))]
    if random.random() < 0.5:
        other[name], table[key] = table[key], other[name]
    else:
        other[name] = table[key]


def _rename(network: Any, random: Random) -> None:
    """A child, parameter or buffer takes another name, or two of a table exchange theirs."""
    module = _module(network, random, lambda m: m._modules or m._parameters)
    tables = [t for t in (module._modules, module._parameters, module._buffers) if t]
    if tables:
        table = tables[int(random.integers(len(tables)))]
        key = _key(table, random)
        if random.random() < 0.5:
            other = _key(table, random)
            table[key], table[other] = table[other], table[key]
            return
        names = (f"{key}_", key.upper(), f"0{key}", key[::-1], "weight", "relu", "0")
        table[names[int(random.integers(len(names)))]] = table.pop(key)


def _wrap(network: Any, random: Random) -> Any:
    from torch import nn

    chosen = nn.DataParallel if random.random() < 0.7 else nn.Sequential
    wrapped: Any = chosen(network)
    if random.random() < 0.3:
        wrapped._modules["other"] = nn.Tanh()
    if random.random() < 0.2:
        wrapped.dim = 1
    return wrapped


def _drop(network: Any, random: Random) -> None:
    """An attribute that newer versions of torch write is missing."""
    module = _module(network, random, lambda m: True)
    key = _key(vars(module), random)
    if key not in ("_modules", "_parameters", "_buffers"):
        del vars(module)[key]


MUTATIONS: tuple[Callable[[Any, Random], Any], ...] = (
    *(_reorder, _reorder_tensors, _alias, _exchange, _no_child, _more, _other_class, _recast),
    *(_attribute, _attribute, _shadow, _method, _move, _hook, _training, _tensor, _tensor),
    *(_swap_tensors, _rename, _wrap, _drop),
)
