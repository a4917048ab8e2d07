"""What a model file holds once it is read: named arrays and the description of its modules."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

Scalar = int | float | bool | str | None
Plain = Scalar | tuple["Plain", ...]


@dataclass(frozen=True)
class ModuleInfo:
    """One submodule of a pickled network; nothing of its code.

    Attributes:
        class_name: full torch name, such as ``"torch.nn.modules.conv.Conv2d"``.
        attributes: its plain attributes (``stride``, ``eps``, ``training``, ...), scalars and
            tuples of them only.
    """

    class_name: str
    attributes: Mapping[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True)
class Weights:
    """The content of one model file.

    Attributes:
        tensors: arrays by torch ``state_dict`` name, in the order of the file; bfloat16 and
            float8 through ``ml_dtypes``. Arrays may be read-only; tied weights share memory.
        modules: description of each submodule by dotted name, ``""`` for the root; empty when
            the file is a state dict.
        metadata: plain values stored beside the weights (epoch, accuracy, ...), by dotted name.
    """

    tensors: Mapping[str, np.ndarray]
    modules: Mapping[str, ModuleInfo] = field(default_factory=dict)
    metadata: Mapping[str, Plain] = field(default_factory=dict)
