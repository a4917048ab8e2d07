"""Small networks for small pictures: pre-activation residual ones and a plain one.

All take pictures `[n, h, w, 3]` of any size, and end in a mean over the map and one
linear layer, so a network trained at one size goes on at another.

References:
  Zagoruyko and Komodakis, Wide Residual Networks, https://arxiv.org/abs/1605.07146, 2016.
  Simonyan and Zisserman, Very Deep Convolutional Networks, https://arxiv.org/abs/1409.1556, 2014.
"""

import jax
from flax import nnx

from converters.families import layers, pooling
from jaxtroj.errors import GenerationError

EPS = 1e-5
# Blocks in each of the three groups of a residual network; the plain one has none.
BLOCKS = {"wrn16": 2, "wrn10": 1}
WIDTHS = (16, 32, 64)
# Channels and stride of each convolution of the plain network.
PLAIN = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1))
KNOWN = (*BLOCKS, "plain5")
# Half-size training and two strides of 2 leave 2 x 2 positions of these.
LEAST_PIXELS = 16


class ResidualBlock(nnx.Module):
    """Norm, relu, convolution, twice; the shortcut of a wider block starts after the first relu."""

    def __init__(self, cin: int, cout: int, stride: int, rngs: nnx.Rngs):
        self.bn1 = layers.batch_norm(cin, EPS, rngs)
        self.conv1 = layers.Conv(cin, cout, 3, stride=stride, padding=1, rngs=rngs)
        self.bn2 = layers.batch_norm(cout, EPS, rngs)
        self.conv2 = layers.Conv(cout, cout, 3, padding=1, rngs=rngs)
        wider = cin != cout
        self.shortcut = layers.Conv(cin, cout, 1, stride=stride, rngs=rngs) if wider else None

    def __call__(self, x: jax.Array) -> jax.Array:
        active = nnx.relu(self.bn1(x))
        y = self.conv2(nnx.relu(self.bn2(self.conv1(active))))
        return y + (x if self.shortcut is None else self.shortcut(active))


class Residual(nnx.Module):
    """A wide residual network of width 1: three groups of so many blocks each."""

    def __init__(self, blocks: int, classes: int, rngs: nnx.Rngs):
        self.stem = layers.Conv(3, WIDTHS[0], 3, padding=1, rngs=rngs)
        shapes, cin = [], WIDTHS[0]
        for group, width in enumerate(WIDTHS):
            for place in range(blocks):
                shapes.append((cin, width, 2 if group and not place else 1))
                cin = width
        self.blocks = nnx.List(ResidualBlock(a, b, stride, rngs) for a, b, stride in shapes)
        self.norm = layers.batch_norm(WIDTHS[-1], EPS, rngs)
        self.head = nnx.Linear(WIDTHS[-1], classes, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits `[n, classes]` of pictures `[n, h, w, 3]`."""
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return self.head(pooling.global_mean(nnx.relu(self.norm(x))))


class Plain(nnx.Module):
    """Convolution, norm and relu, five times."""

    def __init__(self, classes: int, rngs: nnx.Rngs):
        widths = [3, *(width for width, _ in PLAIN)]
        self.convs = nnx.List(
            layers.Conv(cin, cout, 3, stride=stride, padding=1, rngs=rngs)
            for cin, (cout, stride) in zip(widths[:-1], PLAIN, strict=True)
        )
        self.norms = nnx.List(layers.batch_norm(width, EPS, rngs) for width in widths[1:])
        self.head = nnx.Linear(widths[-1], classes, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits `[n, classes]` of pictures `[n, h, w, 3]`."""
        x = images
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = nnx.relu(norm(conv(x)))
        return self.head(pooling.global_mean(x))


def build(architecture: str, classes: int, rngs: nnx.Rngs) -> Residual | Plain:
    """A freshly initialised network; `architecture` is one of `KNOWN`.

    Raises GenerationError for any other name.
    """
    if architecture in BLOCKS:
        return Residual(BLOCKS[architecture], classes, rngs)
    if architecture == "plain5":
        return Plain(classes, rngs)
    raise GenerationError(f"no network {architecture!r}; expected one of {', '.join(KNOWN)}")
