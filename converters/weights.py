"""What a model file holds once it is read: named arrays and the description of its modules.

`single_precision` refuses weights that no network computes with before anything is made of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from converters.errors import ConversionError, safe_repr

Scalar = int | float | bool | str | None
Plain = Scalar | tuple["Plain", ...]
# By NumPy's letter for a kind of numbers: what such weights are, and what to do.
_KINDS = {
    "c": "Networks of complex numbers are not supported: give it real weights, then save it again.",
    "b": "These are true and false, as the masks of pruned weights: save the weights themselves.",
}
_QUANTISED = "Quantised networks are not supported: export the original one."
# What norms add to a variance where nobody says it: only that it is more than nothing.
_HUGE, _TINY = 1e12, 1e-15
"""Sizes that weights of one network do not have both."""
_UNKNOWN = float(np.finfo(np.float32).tiny)


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


def children_of(modules: Mapping[str, ModuleInfo]) -> dict[str, tuple[str, ...]]:
    """Path -> names of its submodules, in the order of the file."""
    found: dict[str, list[str]] = {}
    for path in filter(None, modules):
        parent, _, name = path.rpartition(".")
        found.setdefault(parent, []).append(name)
    return {parent: tuple(names) for parent, names in found.items()}


@dataclass(frozen=True, eq=False)
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

    @property
    def findings(self) -> tuple[str, ...]:
        """What the modules say that a reader should know."""
        root = self.modules.get("")
        if root is None:  # a state dict, which is copied into a network of float32
            return ()
        narrow = {str(t.dtype) for t in self.tensors.values()} & {"float16", "bfloat16"}
        found = [
            f"a network saved in {name}; scanned in float32, which may answer otherwise where two "
            "logits are close"
            for name in sorted(narrow)
        ]
        if root.attributes.get("training") is True:
            found.append("saved in training mode; scanned in evaluation mode")
        return tuple(found)


def single_precision(
    tensors: Mapping[str, np.ndarray], eps: float | Mapping[str, float] = _UNKNOWN
) -> dict[str, np.ndarray]:
    """The same weights as float32.

    Args:
      tensors: name -> array; names of variances end in "var".
      eps: what norms add to a variance; of each variance by its name, where they differ. Where it
        is not known, a variance of 0 is let pass: channels that no picture reaches have it.

    Raises:
      ConversionError: a weight is NaN, infinite or no floating number, a variance negative, or
        numbers are so small and so large that what processors make of their products differs.
    """
    _refuse_kinds(tensors)
    # Finite float64 weights may overflow here; they are refused below, so numpy need not warn.
    with np.errstate(over="ignore"):
        single = {path: np.asarray(value, np.float32) for path, value in tensors.items()}
    _refuse_values(single, eps)
    refuse_extremes(single)
    return single


def _refuse_kinds(params: Mapping[str, np.ndarray]) -> None:
    import jax.numpy as jnp  # knows the kinds beyond NumPy's own: bfloat16, float8

    faulty = [
        path for path, value in params.items() if not jnp.issubdtype(value.dtype, jnp.floating)
    ]
    if faulty:
        kind = params[faulty[0]].dtype
        said = _KINDS.get(kind.kind, _QUANTISED)
        raise ConversionError(
            f"{len(faulty)} weights are no floating numbers, the first is {faulty[0]} of type "
            f"{kind}; expected float32 or another floating type. {said}"
        )


def _refuse_values(params: Mapping[str, np.ndarray], eps: float | Mapping[str, float]) -> None:
    faulty = [path for path, value in params.items() if not np.isfinite(value).all()]
    if faulty:
        raise ConversionError(
            f"{len(faulty)} tensors hold NaN or infinite values, the first is {faulty[0]}; "
            "expected finite weights. The network computes nothing: train or save it again."
        )
    added = eps if isinstance(eps, Mapping) else dict.fromkeys(params, eps)
    negative = [
        path
        for path, value in params.items()
        if path.endswith((".var", "running_var")) and (value + added.get(path, _UNKNOWN) <= 0).any()
    ]
    if negative:
        raise ConversionError(
            f"{len(negative)} running variances are negative, the first is {negative[0]}; "
            "expected 0 or more. The network computes NaN: save it again."
        )


def refuse_extremes(params: Mapping[str, np.ndarray]) -> None:
    """Weights of which one takes values below those of normal floats, and another one back.

    torch and onnxruntime compute with such values, XLA takes them for 0: behind them a file could
    hide a second network from a scan. Trained networks have small weights, but none so large.

    Args:
        params: name -> float32 array.

    Raises:
        ConversionError: names one weight of either size.
    """
    largest = {path: float(np.abs(value).max(initial=0.0)) for path, value in params.items()}
    huge = max(largest, key=largest.__getitem__, default=None)
    if huge is None or largest[huge] <= _HUGE:
        return
    for path, value in params.items():
        sizes = np.abs(value)
        if ((sizes > 0) & (sizes < _TINY)).any():
            raise ConversionError(
                f"weights are as large as {largest[huge]:.1e} ({safe_repr(huge)}) and smaller than"
                f" {_TINY} ({safe_repr(path)}): products of both leave the range of normal floats,"
                " where a scan computes otherwise than torch; expected the weights of a trained"
                " network"
            )


def contiguous(value: np.ndarray) -> np.ndarray:
    """The same numbers one after the other; NumPy gives a single number an axis, here it has none.

    >>> contiguous(np.float32(3)).shape
    ()
    """
    return np.ascontiguousarray(value).reshape(np.shape(value))
