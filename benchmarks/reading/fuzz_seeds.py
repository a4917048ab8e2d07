"""Small real files of every format that the readers take, made once and kept."""

import io
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

from converters.files import write_atomic


def seeds(folder: Path, own: Path | None = None) -> dict[str, bytes]:
    """Name -> bytes of the files to mutate.

    Args:
      folder: where they are kept; made if it is not there.
      own: folder whose files are added.
    """
    if not folder.is_dir():
        made = _made()
        folder.mkdir(parents=True)
        for name, content in made.items():
            write_atomic(folder / name, content)
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    for path in sorted(own.iterdir()) if own else ():
        found[f"own-{path.name}"] = path.read_bytes()
    return found


def _made() -> dict[str, bytes]:
    import torch
    from safetensors.torch import save

    torch.manual_seed(0)
    network = _small().eval()
    vision = _shufflenet().eval()
    return {
        "zip.pt": _saved(network),
        "zip-vision.pt": _saved(vision),
        "zip-state.pt": _saved({"epoch": 3, "state_dict": vision.state_dict()}),
        "legacy.pt": _saved(network, zipped=False),
        "legacy-vision.pt": _saved(vision, zipped=False),
        "old.tar": _tar(network),
        "numpy.pkl": pickle.dumps({n: t.numpy() for n, t in network.state_dict().items()}, 4),
        "net.safetensors": save(network.state_dict()),
        "scripted.pt": _scripted(torch.jit.script, vision),
        "traced.pt": _scripted(lambda n: torch.jit.trace(n, torch.zeros(1, 3, 32, 32)), vision),
        "net.pt2": _exported(network),
        **_onnx(network),
    }


def _small() -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


def _shufflenet() -> Any:
    from torchvision import models

    return models.ShuffleNetV2([1, 1, 1], [4, 4, 4, 8, 8], 3)


def _saved(value: Any, zipped: bool = True) -> bytes:
    import torch

    out = io.BytesIO()
    torch.save(value, out, _use_new_zipfile_serialization=zipped)
    return out.getvalue()


def _scripted(make: Any, network: Any) -> bytes:
    import torch

    out = io.BytesIO()
    torch.jit.save(make(network), out)
    return out.getvalue()


def _exported(network: Any) -> bytes:
    import torch

    out = io.BytesIO()
    program = torch.export.export(network, (torch.zeros(1, 3, 8, 8),), strict=False)
    torch.export.save(program, out)
    return out.getvalue()


class _Tensor:
    """Stands for a tensor in a pickle, which refers to it by its key."""

    def __init__(self, key: int):
        self.key = key


class _TarPickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> int | None:
        return obj.key if isinstance(obj, _Tensor) else None


def _tar(network: Any) -> bytes:
    """torch's container of before 0.1.10: a state dict, each tensor with a storage of its own."""
    import torch

    state = {n: t for n, t in network.state_dict().items() if t.is_floating_point()}
    storages, tensors = pickle.dumps(len(state), 2), pickle.dumps(len(state), 2)
    for key, tensor in enumerate(state.values()):
        storages += pickle.dumps((key, "cpu", torch.FloatStorage), 2)
        storages += struct.pack("<q", tensor.numel()) + tensor.numpy().tobytes()
        tensors += pickle.dumps((100 + key, key, torch.FloatTensor), 2)
        tensors += struct.pack("<i4x", tensor.ndim)
        tensors += struct.pack(f"<{2 * tensor.ndim + 1}q", *tensor.shape, *tensor.stride(), 0)
    root = io.BytesIO()
    _TarPickler(root, 2).dump({name: _Tensor(100 + key) for key, name in enumerate(state)})
    members = {
        "sys_info": pickle.dumps({"protocol_version": 1000, "little_endian": True}, 2),
        "storages": storages + pickle.dumps([], 2),
        "tensors": tensors,
        "pickle": root.getvalue(),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def _onnx(network: Any) -> dict[str, bytes]:
    """A small classifier, and one with a branch, a loop and shape arithmetic."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    state = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    names = [f"1.{n}" for n in ("weight", "bias", "running_mean", "running_var")]
    nodes = [
        helper.make_node("Conv", ["x", "0.weight", "0.bias"], ["a"], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["a", *names], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
    ]
    plain = [*nodes, helper.make_node("Flatten", ["d"], ["e"])]
    shaped = [
        *nodes,
        helper.make_node("Shape", ["d"], ["s"]),
        helper.make_node("Slice", ["s", "zero", "one"], ["n"]),
        helper.make_node("Concat", ["n", "minus"], ["to"], axis=0),
        helper.make_node("Reshape", ["d", "to"], ["e"]),
    ]
    last = helper.make_node("Gemm", ["e", "5.weight", "5.bias"], ["logits"], transB=1)
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 3])
    numbers = {"zero": np.array([0]), "one": np.array([1]), "minus": np.array([-1])}
    found = {}
    for name, body in (("plain.onnx", plain), ("shaped.onnx", shaped)):
        used = {i for node in [*body, last] for i in node.input}
        weights = [
            numpy_helper.from_array(v, k) for k, v in {**state, **numbers}.items() if k in used
        ]
        graph = helper.make_graph([*body, last], "net", [image], [output], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        found[name] = model.SerializeToString()
    return found
