"""Caps on what reading and building one ONNX model may cost."""

from dataclasses import dataclass

from converters.graph.guard import WorkLimits
from converters.limits import EXTERNAL_BYTES, MIB, ONNX_BYTES


@dataclass(frozen=True)
class OnnxLimits:
    """Caps of the ONNX front end. Exceeding one raises `TooLargeError` naming the field.

    Attributes:
        file_bytes: the model file itself; protobuf holds, and Linux reads at once, just below
            2 GiB. Larger models keep their weights in external data.
        external_bytes: all external tensors together, and all files that a checksum is taken of.
        fields: protobuf fields of the file outside tensor data. A ResNet50 has 5,000, the largest
            language models some 100,000; a million takes a second to walk.
        text_bytes: names, strings and everything else of the file that is not tensor data.
        packed_bytes: packed integers, which take eight times their size in memory.
        nodes: nodes of all graphs, after functions are inlined and loops unrolled; the largest
            shipped files have 5,000.
        depth: graphs inside graphs.
        tensor_elements: elements of one weight.
        batch: images that a file may be made for at once.
        work: caps on running the network once while it is built.
    """

    file_bytes: int = ONNX_BYTES
    external_bytes: int = EXTERNAL_BYTES
    fields: int = 1_000_000
    text_bytes: int = 64 * MIB
    packed_bytes: int = 64 * MIB
    nodes: int = 20_000
    depth: int = 8
    tensor_elements: int = 2**31
    batch: int = 64
    work: WorkLimits = WorkLimits()
