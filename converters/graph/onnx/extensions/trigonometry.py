"""Functions of one value, taken place by place, that have no hyperparameters."""

import torch

from converters.graph.onnx.operators import operator
from converters.graph.onnx.values import ordered

_FUNCTIONS = {
    "Acos": (torch.acos, (7, 22)),
    "Acosh": (torch.acosh, (9, 22)),
    "Asin": (torch.asin, (7, 22)),
    "Asinh": (torch.asinh, (9, 22)),
    "Atan": (torch.atan, (7, 22)),
    "Atanh": (torch.atanh, (9, 22)),
    "Ceil": (torch.ceil, (1, 6, 13)),
    "Cos": (torch.cos, (7, 22)),
    "Cosh": (torch.cosh, (9, 22)),
    "Erf": (torch.erf, (9, 13)),
    "Exp": (torch.exp, (1, 6, 13)),
    "Floor": (torch.floor, (1, 6, 13)),
    "IsNaN": (torch.isnan, (9, 13, 20)),
    "Log": (torch.log, (1, 6, 13)),
    "Round": (torch.round, (11, 22)),
    "Sin": (torch.sin, (7, 22)),
    "Sinh": (torch.sinh, (9, 22)),
    "Sqrt": (torch.sqrt, (1, 6, 13)),
    "Tan": (torch.tan, (7, 22)),
    "Tanh": (torch.tanh, (1, 6, 13)),
}


def _register(name: str, function, versions: tuple[int, ...]) -> None:
    @operator(name, versions)
    def elementwise(_, x):
        # Half precision as NumPy computes it: in float32, rounded once.
        if x.dtype == torch.float16 and function is not torch.isnan:
            return function(x.float()).half()
        return function(x)


for _name, (_function, _versions) in _FUNCTIONS.items():
    _register(_name, _function, _versions)


@operator("Abs", (1, 6, 13))
def absolute(_, x):
    """Absolute value; unsigned values are their own."""
    return x if x.dtype in (torch.uint16, torch.uint32, torch.uint64) else torch.abs(x)


@operator("Sign", (9, 13))
@ordered
def sign(_, x):
    """-1, 0 or 1; what is not a number stays so, which torch makes 0."""
    return torch.where(x.isnan(), x, torch.sign(x)) if x.is_floating_point() else torch.sign(x)


@operator("IsInf", (10, 20))
def isinf(call, x):
    """Infinities, of either or both signs."""
    wide = x.float() if x.element_size() == 1 else x
    positive = torch.isinf(wide) & (wide > 0) if call["detect_positive"] else False
    negative = torch.isinf(wide) & (wide < 0) if call["detect_negative"] else False
    found = positive | negative
    return found if isinstance(found, torch.Tensor) else torch.zeros_like(wide, dtype=torch.bool)


@operator("Det", (11, 22))
def determinant(_, x):
    """Determinants of the last two axes."""
    return torch.linalg.det(x)
