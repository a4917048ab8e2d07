"""The torch module of a converted network: what parity is measured against.

torch and torchvision are imported here and only when a function is called. Nothing in a model file
is executed: the module is torchvision's own code, or a head of torch.nn's, filled with tensors that
were already read.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from converters import families
from converters.conversion import current_names
from converters.errors import ParityError
from converters.families.dense_head import DenseHeadConfig
from converters.families.densenet import DenseNetConfig
from converters.families.inception import InceptionConfig
from converters.families.names import target_of, torch_shape
from converters.families.resnet import ResNetConfig
from converters.families.rnn_head import RnnHeadConfig
from converters.families.torch_layers import resize
from converters.model import param_shapes
from converters.weights import Weights


def empty_module(config, aux_logits: bool = False) -> Any:
    """The torch module of a configuration, in evaluation mode on torch's "meta" device.

    It has the shapes of the configuration but no memory for weights; load them with
    `load_state_dict(..., assign=True)`.

    Args:
      config: of any family, neither folded nor reduced to a single step; widths and depths need
        not be standard ones.
      aux_logits: give Inception v3 its auxiliary head.
    """
    import torch

    if isinstance(config, RnnHeadConfig | DenseHeadConfig):
        with torch.device("meta"):
            return _head(config).eval()
    if config.folded:
        raise ValueError(
            "torchvision has no folded networks; pass the configuration before folding"
        )
    with torch.device("meta"):
        module = _skeleton(config, aux_logits)
        _set_shapes(module, config)
    return module.eval()


def module_of(config, weights: Weights) -> Any:
    """torch's module of a converted file, float64, in evaluation mode on the CPU.

    Args:
      config: what the file converted to, not folded.
      weights: of that same file.

    Raises:
      ParityError: torch has no such module.
      ConversionError: the file makes no network that is rebuilt.
    """
    if not hasattr(config, "graph"):
        return filled_module(config, weights.tensors)
    from converters.rebuilt.network import rebuild

    return with_exact_gradients(rebuild(weights).module.double())


def with_exact_gradients(module: Any) -> Any:
    """The module with torch's hard sigmoid replaced, whose gradient is 1/6 in single precision."""
    import torch

    class HardSigmoid(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.relu6(x + 3) / 6

    for name, child in module.named_children():
        if isinstance(child, torch.nn.Hardsigmoid):
            setattr(module, name, HardSigmoid())
        with_exact_gradients(child)
    return module


def filled_module(config, tensors: Mapping[str, np.ndarray]) -> Any:
    """The torch module that holds a file's tensors, float64, in evaluation mode on the CPU.

    Values go through float32, the precision that a converted model has.

    Args:
      config: what the file converted to, not folded.
      tensors: torch name -> array of that same file.

    Raises:
      ParityError: the tensors do not fill torch's module.
    """
    import torch

    given = current_names(tensors)
    module = empty_module(config, any(name.startswith("AuxLogits.") for name in given))
    # Files from before torch 0.4.1 lack the counters, which evaluation does not use.
    state = {
        name: torch.from_numpy(_single(given[name]))
        if name in given
        else torch.zeros(value.shape, dtype=value.dtype)
        for name, value in module.state_dict().items()
        if name in given or name.endswith("num_batches_tracked")
    }
    try:
        module.load_state_dict(state, strict=True, assign=True)
    except RuntimeError as error:
        raise ParityError(f"the tensors do not fill torch's module: {error}") from error
    return module.double().requires_grad_(False)


def _single(tensor: np.ndarray) -> np.ndarray:
    # Counters stay integers; torch takes neither read-only nor byte-swapped arrays.
    floating = tensor.dtype.kind not in "iu"
    return np.array(tensor, np.float32 if floating else np.int64, order="C")


def _head(config: RnnHeadConfig | DenseHeadConfig) -> Any:
    """A sentiment head of torch.nn's layers, with the forward pass of TrojAI's `model_factories`.

    It takes what the converted head takes: `[n, d]` for one step, or sequences.
    """
    from torch import nn

    rnn = _recurrent(config) if isinstance(config, RnnHeadConfig) else None
    hidden = config.hidden_sizes if isinstance(config, DenseHeadConfig) else ()
    widths = (config.input_size, *hidden)

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            if rnn is not None:
                self.rnn = rnn
            elif hidden:
                self.fc_layers = nn.ModuleList(map(nn.Linear, widths, widths[1:]))
            inner = widths[-1] if rnn is None else rnn.hidden_size * (1 + rnn.bidirectional)
            self.linear = nn.Linear(inner, config.num_classes)

        def forward(self, data):
            if rnn is None:
                x = data if data.dim() == 2 else data[:, 0, :]
                for layer in getattr(self, "fc_layers", ()):
                    x = layer(x).relu()
                return self.linear(x)
            data = data.unsqueeze(1 if rnn.batch_first else 0) if data.dim() == 2 else data
            _, state = rnn(data)
            last = state[0] if isinstance(state, tuple) else state
            ways = last[-2:] if rnn.bidirectional else last[-1:]
            return self.linear(ways.transpose(0, 1).flatten(1))

    return Head()


def _recurrent(config: RnnHeadConfig) -> Any:
    from torch import nn

    if config.single_step:
        raise ValueError("torch has no reduced heads; pass the configuration before single_step")
    return {"gru": nn.GRU, "lstm": nn.LSTM}[config.cell](
        config.input_size,
        config.hidden_size,
        config.num_layers,
        bias=config.has_bias,
        batch_first=config.batch_first,
        bidirectional=config.bidirectional,
    )


def _skeleton(config, aux_logits: bool):
    from torchvision import models

    if isinstance(config, ResNetConfig):
        return _resnet(config)
    if isinstance(config, DenseNetConfig):
        depths = tuple(len(block) for block in config.blocks)
        growth = config.blocks[0][0][1]
        module = models.DenseNet(growth, depths, config.stem, num_classes=config.num_classes)  # pyright: ignore[reportArgumentType]
        return module
    if isinstance(config, InceptionConfig):
        return models.Inception3(
            config.num_classes, aux_logits, config.transform_input, init_weights=False
        )
    raise TypeError(f"expected the configuration of a family, got {type(config).__name__}")


def _resnet(config: ResNetConfig):
    from torch import nn
    from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

    first = config.stages[0][0].widths
    bottleneck = len(first) == 3
    base = max(1, first[0] * 64 * 4 // (first[-1] * config.groups)) if bottleneck else 64
    depths = [len(stage) for stage in config.stages]
    block = Bottleneck if bottleneck else BasicBlock
    module = ResNet(block, depths, config.num_classes, groups=config.groups, width_per_group=base)
    for i, stage in enumerate(config.stages, 1):
        for j, described in enumerate(stage):
            made = getattr(module, f"layer{i}")[j]
            if described.downsample and made.downsample is None:
                made.downsample = nn.Sequential(
                    nn.Conv2d(1, 1, 1, stride=made.stride, bias=False), nn.BatchNorm2d(1)
                )
            elif not described.downsample:
                made.downsample = None
    return module


def _set_shapes(module, config) -> None:
    """Every layer's weights and attributes to the configuration's shapes; the head excepted aux."""
    from torch import nn

    table, shapes = families.family_of(config).TABLE, param_shapes(config)
    for path, layer in module.named_modules():
        found = target_of(table, f"{path}.weight")
        if found is None or found[0] not in shapes:
            continue
        if isinstance(layer, nn.BatchNorm2d):
            layer.eps = config.eps
        resize(layer, torch_shape(shapes[found[0]], found[1]))
