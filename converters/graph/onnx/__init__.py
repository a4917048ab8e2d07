"""ONNX files: read, checked, built into torch modules, captured as graphs.

Names are resolved on first use, because torch and onnx take seconds to import.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "load_onnx": "load",
    "read_onnx": "read",
    "OnnxFile": "read",
    "OnnxLimits": "limits",
    "to_torch": "torch_module",
    "OnnxModule": "torch_module",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
