"""`Family`: all that anyone asks of a hand-written kind of network.

A family is a value: a file of this folder makes one, `converters.families` lists it, and reading,
checking, folding, parity, checkpoints and the recognition of graphs ask nothing but its fields.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from converters.families.names import NameRule
from converters.model import NetworkConfig
from converters.weights import ModuleInfo, Weights

Shapes = Mapping[str, tuple[int, ...]]
Modules = Mapping[str, ModuleInfo]
Paths = tuple[tuple[str, str], ...]


ConfigT = TypeVar("ConfigT", bound=NetworkConfig)


def _nothing(*_: Any) -> tuple[()]:
    return ()


@dataclass(frozen=True)
class GraphOutline(Generic[ConfigT]):
    """How networks of a family are told among captured graphs, such as ONNX files.

    Attributes:
      architectures: one network of each order of layers; widths and groups are read off a graph.
      counts: convolutions and batch norms of a configuration's network.
      variants: configurations whose graphs differ though all their weights have the same shapes.
    """

    architectures: tuple[str, ...]
    counts: Callable[[ConfigT], tuple[int, int]]
    variants: Callable[[ConfigT], Iterable[ConfigT]] = lambda config: (config,)


@dataclass(frozen=True)
class Family(Generic[ConfigT]):
    """A hand-written kind of network.

    Attributes:
      name: a word, also for networks that no architecture names; written into checkpoints.
      config: class of its configurations.
      table: torch name -> Flax path and layout of every tensor that counts.
      recognise: configuration read off torch tensor shapes, or None for another network. Sees
        shapes from a stranger's file: it loops over tensors that exist, never up to a number.
      architecture: name of a configuration's network, for records.
      module_faults: what differs between the modules of a pickled network and the family's, one
        sentence each; none for a state dict, which has no modules.
      torch_module: torch's module of a configuration, on torch's current device, widths aside;
        with the parts for training that the named tensors belong to.
      ignored: patterns of tensors that carry nothing for inference.
      architectures: all names that `architecture` may give, the family's own aside.
      standard: configuration by architecture and number of classes, where these say everything.
      with_hyperparameters: a configuration with what only the modules of a pickled network say.
      remarks: findings on what a file does not say.
      norm_pairs: (convolution, batch norm) paths of norms that directly follow their convolution.
      single_step: configuration and parameters without what is inert on sequences of one step.
      old_names: pattern -> replacement of tensor names that earlier versions or others write.
      graph: how its networks are told among graphs; None if they are not.
    """

    name: str
    config: type[ConfigT]
    table: tuple[NameRule, ...]
    recognise: Callable[[Shapes], ConfigT | None]
    architecture: Callable[[ConfigT], str]
    module_faults: Callable[[ConfigT, Modules], Iterable[str]]
    torch_module: Callable[[ConfigT, Collection[str]], Any]
    ignored: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    standard: Callable[[str, int], ConfigT] | None = None
    with_hyperparameters: Callable[[ConfigT, Modules], ConfigT] = lambda config, modules: config
    remarks: Callable[[ConfigT, Weights], Iterable[str]] = _nothing
    norm_pairs: Callable[[ConfigT], Paths] = _nothing
    single_step: Callable[[ConfigT, Mapping[str, Any]], tuple[ConfigT, dict[str, Any]]] | None = (
        None
    )
    old_names: Mapping[str, str] = field(default_factory=dict)
    graph: GraphOutline[ConfigT] | None = None
