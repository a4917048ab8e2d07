"""What the outputs of an exported program are called."""

from torch.export import ExportedProgram
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_unflatten

from converters.errors import ConversionError


def returned_names(program: ExportedProgram) -> list[str | None]:
    """Of each output in the program's order: its name; None where it returns None there.

    The keys of dicts are names, as in the module that was exported; others are called by the value
    that is returned.

    Raises:
        ConversionError: an output is a number, not a tensor.
    """
    outputs = program.graph_signature.user_outputs
    paths = _paths(program, len(outputs))
    return [_name(output, path) for output, path in zip(outputs, paths, strict=True)]


def _name(output: object, path: str) -> str | None:
    if output is None:
        return None
    if not isinstance(output, str):
        raise ConversionError(
            f"the exported program returns {output!r} beside its tensors; expected tensors alone: "
            "export the network without it"
        )
    return path or output


def _paths(program: ExportedProgram, count: int) -> list[str]:
    """Keys of each output between dots; empty where it stands in no dict."""
    spec = program.call_spec.out_spec
    if spec is None or spec.num_leaves != count:
        return [""] * count
    places, _ = tree_flatten_with_path(tree_unflatten(list(range(count)), spec))
    return [_words(path) for path, _ in places]


def _words(path) -> str:
    keys = [str(getattr(part, "key", getattr(part, "idx", ""))) for part in path]
    return ".".join(keys) if "['" in keystr(path) else ""
