"""A captured network in a folder, on its way to another process: its graph as JSON, its weights as
safetensors. Reading it executes nothing, and needs no torch."""

import json
from pathlib import Path

from converters.containers.safetensors_file import read_safetensors
from converters.files import read_at_most, read_json, write_atomic
from converters.graph.graph import from_plain
from converters.graph.recorder import Captured
from converters.limits import Limits
from converters.weights import contiguous

GRAPH, PARAMS = "graph.json", "params.safetensors"
# The recorder bakes at most half a gigabyte of constants, a third longer in base64.
_MOST_GRAPH_BYTES = 2**30


def save_captured(captured: Captured, folder: Path) -> None:
    """Write a captured network to a folder, which is made; raises OSError if it cannot be."""
    from safetensors.numpy import save

    arrays = {name: contiguous(value) for name, value in captured.params.items()}
    plain = {"graph": captured.graph.to_plain(), "unused": list(captured.unused)}
    plain["outputs"] = list(captured.output_names)
    write_atomic(folder / PARAMS, save(arrays))
    write_atomic(folder / GRAPH, json.dumps(plain).encode())


def load_captured(folder: Path) -> Captured:
    """What `save_captured` wrote, every type, number and name as it was.

    The folder is one of this user's own: that its calls fit together is not checked again.

    Raises:
      LoadError: a file is missing, damaged, or exceeds `Limits`.
    """
    plain = read_json(folder / GRAPH, _MOST_GRAPH_BYTES)
    limits = Limits()
    tensors, _ = read_safetensors(read_at_most(folder / PARAMS, limits.file_bytes), limits)
    graph = from_plain(plain["graph"])
    params = {name: tensors[name] for name, _ in graph.params}
    return Captured(graph, params, tuple(plain["unused"]), tuple(plain["outputs"]))
