"""Does a converted network compute what torch computes from the same weights?

Logits and input gradients in float64 and float32: of image networks with batch norms as they are
and folded, of recurrent heads over sequences and reduced to a single step. The reference is always
torchvision, or torch.nn for heads, in float64, so float32 errors are those of this side alone.
"""

import importlib
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from converters.artifact import Artifact
from converters.errors import ParityError
from converters.families import family_of
from converters.families.folding import fold, single_step
from converters.families.reference import filled_module
from converters.inner_network import inner_network
from converters.model import Model, apply
from converters.weights import Weights

Shape = tuple[int, ...]

# Batch, height, width: not square, and two batch sizes. Inception v3 needs 75 pixels.
SHAPES: tuple[Shape, ...] = ((1, 75, 107), (3, 97, 80))
# Batch, steps: one step is what TrojAI's heads see.
HEAD_SHAPES: tuple[Shape, ...] = ((1, 1), (32, 1), (5, 3), (2, 7))
# Largest relative errors. The gradient of a float32 network jumps wherever a relu or a maximum
# falls on the other side, so it is reported but has no bound.
TOLERANCES = {("float64", "logits"): 1e-10, ("float64", "gradients"): 1e-10}
TOLERANCES |= {("float32", "logits"): 1e-4}


@dataclass(frozen=True)
class ParityComparison:
    """One program against torch.

    Attributes:
      folded: whether batch norms were folded into convolutions.
      single_step: whether a recurrent head was reduced to what one step needs.
      dtype: "float64" or "float32".
      shape: batch, height, width of the images, or batch, steps of the embeddings.
      logits: largest absolute difference over the largest absolute value; None when a value is
        not finite.
      gradients: the same of the input gradient of a randomly weighted sum of logits.
      passed: every error that has a tolerance is within it.
    """

    folded: bool
    single_step: bool
    dtype: str
    shape: Shape
    logits: float | None
    gradients: float | None
    passed: bool


@dataclass(frozen=True)
class ParityReport:
    """How far a converted network is from torch.

    Attributes:
      architecture: of the model.
      sha256: of the file.
      reference: package and version compared with.
      tolerances: "dtype quantity" -> largest relative error allowed.
      comparisons: one per program and shape.
      passed: all comparisons passed.
    """

    architecture: str
    sha256: str
    reference: str
    tolerances: dict[str, float]
    comparisons: tuple[ParityComparison, ...]
    passed: bool

    def require(self) -> "ParityReport":
        """The report itself.

        Raises:
          ParityError: a comparison did not pass; the worst ones are named.
        """
        if self.passed:
            return self
        failed = [c for c in self.comparisons if not c.passed]
        package = self.reference.split()[0]
        raise ParityError(
            f"{self.architecture}: {len(failed)} of {len(self.comparisons)} comparisons with "
            f"{package} failed, the first is {failed[0]}; expected at most {self.tolerances}. "
            "Do not trust results for this model, and report it with the file."
        )


def check_parity(
    artifact: Artifact,
    model: Model,
    shapes: tuple[Shape, ...] | None = None,
    seed: int = 0,
    public_code: str | None = None,
) -> ParityReport:
    """Compare a model with torch running the weights of the file it was made from.

    Args:
      artifact: the opened file.
      model: `convert(artifact)`, neither folded nor reduced to a single step.
      shapes: batch, height, width of random images, or batch, steps of random embeddings; None
        for `SHAPES` or `HEAD_SHAPES`.
      seed: of the inputs and of the weights of the logits.
      public_code: whose code the file is of, as the model was made with it; see `InputForm`.

    Raises:
      ParityError: torch has no such module.
      ValueError: the model is folded or reduced.
    """
    read = artifact.weights
    bare = inner_network(read.tensors, read.modules).weights(read)
    module = torch_module(model, bare, public_code)
    comparisons = []
    for shape in _default_shapes(model) if shapes is None else shapes:
        inputs, weights = _inputs(model, shape, seed)
        expected = _torch_values(module, inputs, weights)
        comparisons += [
            _compare(program, shape, _values(program, inputs, weights), expected)
            for program in _programs(model, shape)
        ]
    return ParityReport(
        architecture=model.architecture,
        sha256=artifact.sha256,
        reference=_reference(model),
        tolerances={" ".join(key): value for key, value in TOLERANCES.items()},
        comparisons=tuple(comparisons),
        passed=bool(comparisons) and all(c.passed for c in comparisons),
    )


def image_shapes(model: Model, size: tuple[int, int]) -> tuple[Shape, ...]:
    """Batch, height, width for `check_parity` of images of one size.

    Raises:
      ConversionError: they are too small for the network.
    """
    image = jax.ShapeDtypeStruct((1, *size, model.channels), jnp.float32)
    jax.eval_shape(partial(apply, model.config), model.params, image)
    return _of_size(size)


def torch_module(model: Model, weights: Weights, public_code: str | None = None) -> Any:
    """torch's module of a converted file, float64, in evaluation mode on the CPU.

    Args:
      model: what the file converted to, not folded.
      weights: of that same file.
      public_code: whose code it is of, see `InputForm`.

    Raises:
      ParityError: torch has no such module.
      ConversionError: the file makes no network that is rebuilt.
    """
    if family_of(model.config) is not None:
        return filled_module(model.config, weights.tensors)
    from converters.rebuilt.network import rebuild

    return with_exact_gradients(rebuild(weights, public_code).module.double())


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


def _default_shapes(model: Model) -> tuple[Shape, ...]:
    if model.image_size is not None:
        return _of_size(model.image_size)
    return HEAD_SHAPES if model.input_kind == "embedding" else SHAPES


def _of_size(size: tuple[int, int]) -> tuple[Shape, ...]:
    return ((1, *size), (3, *size))


def _reference(model: Model) -> str:
    """Name and version of the package that the model is compared with."""
    package = importlib.import_module("torch" if model.input_kind == "embedding" else "torchvision")
    return f"{package.__name__} {package.__version__}"


@dataclass(frozen=True)
class _Program:
    """A model in one floating type, as it is or as a scan runs it."""

    model: Model
    dtype: str


def _programs(model: Model, shape: Shape) -> list[_Program]:
    """The model and its simplified form, in both types."""
    # Simplified in float64, lest the simplification's own rounding is taken for a difference.
    with jax.enable_x64(True):
        exact = _with_simplified(model.astype(jnp.float64), shape)
    programs = [_Program(simple, "float64") for simple in exact]
    return programs + [_Program(simple, "float32") for simple in _with_simplified(model, shape)]


def _with_simplified(model: Model, shape: Shape) -> list[Model]:
    """The model as it is and, where that differs, as a scan runs it."""
    one_step = model.input_kind == "embedding" and shape[1] == 1
    simple = single_step(model) if one_step else fold(model)
    return [model] if simple is model else [model, simple]


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
    """Random inputs and weights `[n, classes]`, keyed by their shape.

    Images `[n, h, w, c]` are uniform in [0, 1], embeddings normal and laid out as the head takes
    them.
    """
    random = np.random.default_rng([seed, *shape])
    if model.input_kind == "embedding":
        inputs = random.normal(size=(*shape, model.input_size))
        inputs = inputs if model.config.batch_first else inputs.swapaxes(0, 1)
    else:
        inputs = random.random((*shape, model.channels))
    return inputs, random.normal(size=(shape[0], model.num_classes))


def _torch_values(module, inputs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """torch's logits and input gradients, laid out as the inputs."""
    import torch

    # Images are NHWC here and NCHW there; embeddings are the same in both.
    x = torch.from_numpy(np.ascontiguousarray(_moved(inputs, 3, 1))).requires_grad_(True)
    logits = module(x)
    (gradients,) = torch.autograd.grad((logits * torch.from_numpy(weights)).sum(), x)
    return logits.detach().numpy(), _moved(gradients.numpy(), 1, 3)


def _moved(images: np.ndarray, source: int, target: int) -> np.ndarray:
    """Images with their channels elsewhere; what is no image as it is."""
    return np.moveaxis(images, source, target) if images.ndim == 4 else images


def logits_and_gradients(config, params, inputs: jax.Array, weights: jax.Array):
    """Logits `[n, classes]` and the input gradient of their sum times `weights`."""

    def total(inputs):
        logits = apply(config, params, inputs)
        return (logits * weights).sum(), logits

    (_, logits), gradients = jax.value_and_grad(total, has_aux=True)(inputs)
    return logits, gradients


_compiled = jax.jit(logits_and_gradients, static_argnums=0)


def _values(program: _Program, inputs: np.ndarray, weights: np.ndarray):
    # The type of the literals decides; outside this block 64-bit types stay off.
    with jax.enable_x64(program.dtype == "float64"):
        given = (jnp.asarray(inputs, program.dtype), jnp.asarray(weights, program.dtype))
        logits, gradients = _compiled(program.model.config, program.model.params, *given)
        return np.asarray(logits), np.asarray(gradients)


def _compare(program: _Program, shape: Shape, got, expected) -> ParityComparison:
    errors = {
        name: relative_error(mine.astype(np.float64), theirs)
        for name, mine, theirs in zip(("logits", "gradients"), got, expected, strict=True)
    }
    passed = all(
        error is not None and error <= TOLERANCES.get((program.dtype, name), np.inf)
        for name, error in errors.items()
    )
    return ParityComparison(
        folded=program.model.config.folded,
        single_step=program.model.config.single_step,
        dtype=program.dtype,
        shape=shape,
        logits=errors["logits"],
        gradients=errors["gradients"],
        passed=passed,
    )
