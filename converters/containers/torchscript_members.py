"""Which members a TorchScript archive may have: those that `torch.jit.save` writes, and no others.

torch's lite interpreter runs `bytecode.pkl`, not the code beside it, which may say something else.
"""

import re

from converters.containers.zip_file import ZipReader
from converters.errors import UnknownFormatError, safe_repr

_KNOWN = re.compile(
    r"data\.pkl|constants\.pkl|version|byteorder|\.data/(version|serialization_id)"
    r"|(data|constants|traced_inputs)/[0-9]+|traced_inputs\.pkl"
    r"|code/\w[\w/]*\.py(\.debug_pkl)?|extra/.+"
)
_SIGNS = ("constants.pkl", "bytecode.pkl")


def is_script(archive: ZipReader, root: str) -> bool:
    """Whether torch takes an archive for TorchScript, or its lite interpreter would.

    Raises:
      UnknownFormatError: it is one, and has members that `torch.jit.save` does not write.
    """
    if not any(archive.find(root + sign) for sign in _SIGNS):
        return False
    for name in archive.members:
        if not _KNOWN.fullmatch(name, len(root)):
            lite = "; the lite interpreter runs that member" if "bytecode" in name else ""
            raise UnknownFormatError(
                f"the TorchScript archive has {safe_repr(name)}, which torch.jit.save does not "
                f"write{lite}; expected the network's code and data alone: save it with "
                "torch.jit.save, export it with torch.onnx.export or torch.export.save, or save "
                "its state dict"
            )
    if _is_frozen(archive, root):
        raise UnknownFormatError(
            "a frozen TorchScript archive (torch.jit.freeze, or optimize_for_inference), whose "
            "weights are constants of code, which is not run; save the network before it is "
            "frozen, export it with torch.onnx.export or torch.export.save, or save its state dict"
        )
    return True


def _is_frozen(archive: ZipReader, root: str) -> bool:
    folders = {name.removeprefix(root).partition("/")[0] for name in archive.members}
    return "constants" in folders and "data" not in folders
