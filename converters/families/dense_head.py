"""Linear and fully connected sentiment heads on sentence embeddings (`model_factories` of TrojAI).

`Linear` is one layer; `FCLinear` has a relu after each layer before it. Both see the first step of
a sequence only. Dropout does nothing in evaluation.

Reference:
  NIST, trojai-example, round 5 and 6 model_factories.py: LinearModel and FCLinearModel.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx

from converters.families.family import Family
from converters.families.hyperparameters import ExpectedModule, differing_modules
from converters.families.names import NameRule
from converters.model import EmbeddingConfig

TABLE = (
    NameRule(r"(fc_layers\.\d+|linear)\.weight", r"\1.kernel", "linear"),
    NameRule(r"(fc_layers\.\d+|linear)\.bias", r"\1.bias", "vector"),
)
_LAYER = re.compile(r"fc_layers\.([0-9]{1,4})\.weight")
LINEAR = ExpectedModule(frozenset({"torch.nn.modules.linear.Linear"}))
DROPOUT = ExpectedModule(frozenset({"torch.nn.modules.dropout.Dropout"}), required=False)

# The released heads have widths up to 1,024, 4 layers and 25 million parameters.
MAX_WIDTH, MAX_LAYERS, MAX_PARAMETERS = 2**16, 64, 2**28


@dataclass(frozen=True)
class DenseHeadConfig(EmbeddingConfig):
    """Static description of a feed-forward head; hashable, so it is a jit argument."""

    input_size: int
    hidden_sizes: tuple[int, ...]
    num_classes: int

    @property
    def first_kernels(self) -> tuple[str, ...]:
        """Flax path of the kernel of the first layer."""
        return ("fc_layers.0.kernel" if self.hidden_sizes else "linear.kernel",)

    def build(self, rngs: nnx.Rngs) -> "DenseHead":
        """A module of this shape with torch's initial distribution."""
        return DenseHead(self, rngs)


class DenseHead(nnx.Module):
    """Logits of sentence embeddings, through any number of layers with relu."""

    def __init__(self, config: DenseHeadConfig, rngs: nnx.Rngs):
        widths = (config.input_size, *config.hidden_sizes, config.num_classes)
        pairs = list(zip(widths, widths[1:], strict=False))
        check_size(widths, len(pairs), sum(a * b for a, b in pairs))
        self.fc_layers = nnx.List([linear(cin, cout, rngs) for cin, cout in pairs[:-1]])
        self.linear = linear(*pairs[-1], rngs)

    def features(self, embeddings: jax.Array) -> jax.Array:
        """What the last layer sees, `[n, width]`, of embeddings `[n, d]` or `[n, t, d]`."""
        x = check_embeddings(embeddings, self.input_size)
        x = x[:, 0] if x.ndim == 3 else x
        for layer in self.fc_layers:
            x = jax.nn.relu(layer(x))
        return x

    def __call__(self, embeddings: jax.Array) -> jax.Array:
        return self.linear(self.features(embeddings))

    @property
    def input_size(self) -> int:
        """Width of the embeddings."""
        return [*self.fc_layers, self.linear][0].in_features


def linear(cin: int, cout: int, rngs) -> nnx.Linear:
    """A linear layer that starts as torch's: uniform within one over the root of its inputs."""
    start = uniform(cin)
    return nnx.Linear(cin, cout, kernel_init=start, bias_init=start, rngs=rngs)


def uniform(fan: int):
    """Initialiser uniform in plus and minus `fan ** -0.5`."""
    bound = 1.0 / math.sqrt(max(fan, 1))

    def start(key, shape, dtype=None, **_):
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return start


def check_embeddings(embeddings: jax.Array, width: int) -> jax.Array:
    """The embeddings themselves.

    Raises:
      ValueError: they are neither `[n, width]` nor a sequence of at least one step of it.
    """
    shape = embeddings.shape
    if embeddings.ndim not in (2, 3) or shape[-1] != width or 0 in shape[1:]:
        raise ValueError(
            f"got embeddings of shape {shape}, expected [n, {width}] or [n, t, {width}]"
        )
    return embeddings


def check_size(widths: Iterable[int], layers: int, parameters: int) -> None:
    """Refuse sizes that no head has, before anything is allocated.

    Raises:
      ValueError: a width is below 1 or any size absurdly large.
    """
    least, most = min(widths), max(widths)
    if least < 1 or most > MAX_WIDTH or layers > MAX_LAYERS or parameters > MAX_PARAMETERS:
        raise ValueError(
            f"a head with widths from {least} to {most}, {layers} layers and {parameters} "
            f"parameters; expected at least one, at most {MAX_WIDTH}, {MAX_LAYERS} and "
            f"{MAX_PARAMETERS}"
        )


def architecture(config: DenseHeadConfig) -> str:
    """TrojAI's name of the head."""
    return "FCLinear" if config.hidden_sizes else "Linear"


def recognise(shapes: Mapping[str, tuple[int, ...]]) -> DenseHeadConfig | None:
    """Configuration read off torch tensor shapes, or None when this is another network."""
    weights = {name: shape for name, shape in shapes.items() if name.endswith("weight")}
    layers = {int(m[1]): shapes[m[0]] for m in map(_LAYER.fullmatch, weights) if m}
    head = weights.get("linear.weight")
    known = all(name == "linear.weight" or _LAYER.fullmatch(name) for name in weights)
    if head is None or not known or any(len(shape) != 2 for shape in weights.values()):
        return None
    hidden = [layers[number] for number in sorted(layers)]
    first = hidden[0] if hidden else head
    return DenseHeadConfig(first[1], tuple(shape[0] for shape in hidden), head[0])


def expected_modules(config: DenseHeadConfig) -> dict[str, ExpectedModule]:
    """What a pickled head must be, by pattern of the module path."""
    root = {"model_factories.FCLinearModel"} | (
        set() if config.hidden_sizes else {"model_factories.LinearModel"}
    )
    # Named also where there are no hidden layers: a list called `fc_layers` would be run.
    layered = bool(config.hidden_sizes)
    kinds = {"relu": "activation.ReLU", "fc_layers": "container.ModuleList"}
    return {
        "": ExpectedModule(frozenset(root)),
        "linear": LINEAR,
        "dropout": DROPOUT,
        **{
            part: ExpectedModule(frozenset({f"torch.nn.modules.{kind}"}), required=layered)
            for part, kind in kinds.items()
        },
        **({r"fc_layers\.\d+": LINEAR} if layered else {}),
    }


def torch_module(config: DenseHeadConfig, names: Collection[str] = ()) -> Any:
    """A head of torch.nn's layers with the forward pass of `model_factories`.

    It takes what the converted head takes: `[n, d]`, or sequences.
    """
    from torch import nn

    widths = (config.input_size, *config.hidden_sizes)

    class DenseLayers(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc_layers = nn.ModuleList(map(nn.Linear, widths, widths[1:]))
            self.linear = nn.Linear(widths[-1], config.num_classes)

        def forward(self, data):
            x = data if data.dim() == 2 else data[:, 0, :]
            for layer in self.fc_layers:
                x = layer(x).relu()
            return self.linear(x)

    return DenseLayers()


FAMILY = Family(
    name="dense_head",
    config=DenseHeadConfig,
    table=TABLE,
    recognise=recognise,
    architectures=("FCLinear", "Linear"),
    architecture=architecture,
    module_faults=lambda config, infos: differing_modules(expected_modules(config), infos),
    torch_module=torch_module,
)
