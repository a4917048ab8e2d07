"""Does a converted network compute what torchvision computes from the same weights?

Logits and input gradients, with batch norms as they are and folded, in float64 and float32. The
reference is always torchvision in float64, so float32 errors are those of this side alone.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from converters import reference
from converters.artifact import Artifact
from converters.errors import ParityError
from converters.folding import fold
from converters.model import Model, apply

Shape = tuple[int, int, int]

# Batch, height, width: not square, and two batch sizes. Inception v3 needs 75 pixels.
SHAPES: tuple[Shape, ...] = ((1, 75, 107), (3, 97, 80))
# Largest relative errors. The gradient of a float32 network jumps wherever a relu or a maximum
# falls on the other side, so it is reported but has no bound.
TOLERANCES = {("float64", "logits"): 1e-10, ("float64", "gradients"): 1e-10}
TOLERANCES |= {("float32", "logits"): 1e-4}


@dataclass(frozen=True)
class Comparison:
    """One program against torchvision.

    Attributes:
      folded: whether batch norms were folded into convolutions.
      dtype: "float64" or "float32".
      shape: batch, height, width of the images.
      logits: largest absolute difference over the largest absolute value; None when a value is
        not finite.
      gradients: the same of the input gradient of a randomly weighted sum of logits.
      passed: every error that has a tolerance is within it.
    """

    folded: bool
    dtype: str
    shape: Shape
    logits: float | None
    gradients: float | None
    passed: bool


@dataclass(frozen=True)
class ParityReport:
    """How far a converted network is from torchvision.

    Attributes:
      architecture: of the model.
      sha256: of the file.
      torchvision: version compared with.
      tolerances: "dtype quantity" -> largest relative error allowed.
      comparisons: one per folding, type and shape.
      passed: all comparisons passed.
    """

    architecture: str
    sha256: str
    torchvision: str
    tolerances: dict[str, float]
    comparisons: tuple[Comparison, ...]
    passed: bool

    def require(self) -> "ParityReport":
        """The report itself.

        Raises:
          ParityError: a comparison did not pass; the worst ones are named.
        """
        if self.passed:
            return self
        failed = [c for c in self.comparisons if not c.passed]
        raise ParityError(
            f"{self.architecture}: {len(failed)} of {len(self.comparisons)} comparisons with "
            f"torchvision failed, the first is {failed[0]}; expected at most {self.tolerances}. "
            "Do not trust results for this model, and report it with the file."
        )


def check_parity(
    artifact: Artifact, model: Model, shapes: tuple[Shape, ...] = SHAPES, seed: int = 0
) -> ParityReport:
    """Compare a model with torchvision running the weights of the file it was made from.

    Args:
      artifact: the opened file.
      model: `convert(artifact)`, not folded.
      shapes: batch, height, width of random images.
      seed: of the images and of the weights of the logits.

    Raises:
      ParityError: torchvision has no such module.
      ValueError: the model is folded.
    """
    import torchvision

    module = reference.filled_module(model.config, artifact.weights.tensors)
    # Folded in float64, lest folding's own rounding is taken for a difference.
    with jax.enable_x64(True):
        exact = model.astype(jnp.float64)
        programs = [(exact, "float64"), (fold(exact), "float64")]
    programs += [(model, "float32"), (fold(model), "float32")]
    comparisons = []
    for shape in shapes:
        images, weights = _inputs(model, shape, seed)
        expected = _torch_values(module, images, weights)
        comparisons += [
            _compare(program, dtype, shape, _values(program, dtype, images, weights), expected)
            for program, dtype in programs
        ]
    return ParityReport(
        architecture=model.architecture,
        sha256=artifact.sha256,
        torchvision=torchvision.__version__,
        tolerances={" ".join(key): value for key, value in TOLERANCES.items()},
        comparisons=tuple(comparisons),
        passed=bool(comparisons) and all(c.passed for c in comparisons),
    )


def relative_error(got: np.ndarray, expected: np.ndarray) -> float | None:
    """Largest absolute difference over the largest absolute expected value; None if not finite.

    >>> relative_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    0.5
    """
    if not (np.isfinite(got).all() and np.isfinite(expected).all()):
        return None
    largest = float(np.abs(expected).max(initial=0.0))
    difference = float(np.abs(got - expected).max(initial=0.0))
    return difference / largest if largest else difference


def _inputs(model: Model, shape: Shape, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images `[n, h, w, c]` in [0, 1] and weights `[n, classes]`, keyed by their shape."""
    random = np.random.default_rng([seed, *shape])
    return random.random((*shape, model.channels)), random.normal(
        size=(shape[0], model.num_classes)
    )


def _torch_values(module, images: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """torchvision's logits and input gradients, NHWC."""
    import torch

    x = torch.from_numpy(images.transpose(0, 3, 1, 2).copy()).requires_grad_(True)
    logits = module(x)
    (gradients,) = torch.autograd.grad((logits * torch.from_numpy(weights)).sum(), x)
    return logits.detach().numpy(), gradients.numpy().transpose(0, 2, 3, 1)


def logits_and_gradients(config, params, images: jax.Array, weights: jax.Array):
    """Logits `[n, classes]` and the input gradient `[n, h, w, c]` of their sum times `weights`."""

    def total(images):
        logits = apply(config, params, images)
        return (logits * weights).sum(), logits

    (_, logits), gradients = jax.value_and_grad(total, has_aux=True)(images)
    return logits, gradients


_compiled = jax.jit(logits_and_gradients, static_argnums=0)


def _values(model: Model, dtype: str, images: np.ndarray, weights: np.ndarray):
    # The type of the literals decides; outside this block 64-bit types stay off.
    with jax.enable_x64(dtype == "float64"):
        given = (jnp.asarray(images, dtype), jnp.asarray(weights, dtype))
        logits, gradients = _compiled(model.config, model.params, *given)
        return np.asarray(logits), np.asarray(gradients)


def _compare(model: Model, dtype: str, shape: Shape, got, expected) -> Comparison:
    errors = {
        name: relative_error(mine.astype(np.float64), theirs)
        for name, mine, theirs in zip(("logits", "gradients"), got, expected, strict=True)
    }
    passed = all(
        error is not None and error <= TOLERANCES.get((dtype, name), np.inf)
        for name, error in errors.items()
    )
    folded = bool(model.config.folded)  # pyright: ignore[reportAttributeAccessIssue]
    return Comparison(folded, dtype, shape, errors["logits"], errors["gradients"], passed)
