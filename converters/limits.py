"""Caps on what reading one model file may cost; every one is checked before allocating."""

from dataclasses import dataclass

MIB = 2**20
GIB = 2**30
ONNX_BYTES = 2 * GIB - 4096
"""Size of an ONNX file; protobuf holds, and Linux reads at once, just below 2 GiB."""
EXTERNAL_BYTES = 16 * GIB
"""Size of a file of an ONNX model's external tensors, and of all these tensors together."""

AS_TENSORS = (
    "weights that lie in a pickle as NumPy arrays take its space: save them as tensors (torch.save "
    "of torch.from_numpy of each), or as safetensors"
)


@dataclass(frozen=True)
class Limits:
    """Caps of `open_artifact`. Exceeding one raises `TooLargeError` naming the field.

    Attributes:
        file_bytes: size of the file, which is read into memory once. The largest network of
            TrojAI rounds 0-6 is below 600 MB.
        pickle_bytes: size of one pickle. DenseNet201 as a whole module takes 0.3 MB, with the
            source text that legacy streams carry 0.4 MB.
        pickle_steps: opcodes of one pickle, and values read from its modules. DenseNet201 takes
            140,000; a million costs about one second and at most 150 MB.
        pickle_text: characters of one text or bytes value inside a pickle.
        members: entries of a zip or tar; one per tensor, DenseNet201 has 1,200.
        expansion_ratio: bytes that a compressed zip may expand to per byte of the file. Weights
            compress to 0.9 of their size; 64 leaves room for mostly pruned networks.
        free_expansion_bytes: expansion allowed whatever the ratio, so that tiny files of zeros
            still load.
        tensors: number of named tensors.
        modules: number of submodules, counting one that appears under two names twice.
        module_depth: nesting of submodules; torchvision needs 6.
        tensor_bytes: size of one tensor.
        view_ratio: total bytes of all named tensors, per byte of their storages. Tied weights
            count once per name, and ``expand``-ed tensors their full size.
        header_bytes: JSON header of a safetensors file; 50,000 tensors take 4 MiB, and the worst
            JSON of that size about 100 MB of memory.
    """

    file_bytes: int = 4 * GIB
    pickle_bytes: int = 64 * MIB
    pickle_steps: int = 1_000_000
    pickle_text: int = 32 * MIB
    members: int = 100_000
    expansion_ratio: int = 64
    free_expansion_bytes: int = 16 * MIB
    tensors: int = 100_000
    modules: int = 20_000
    module_depth: int = 32
    tensor_bytes: int = 4 * GIB
    view_ratio: int = 4
    header_bytes: int = 4 * MIB
