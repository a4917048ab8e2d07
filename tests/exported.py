"""Programs of torch.export as members of their archives, to be changed and written again."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch


def saved(net: torch.nn.Module, dynamic: bool = False) -> dict[str, bytes]:
    """The members of a network's .pt2, for one picture of 8 x 8 or for up to eight."""
    sizes = ({0: torch.export.Dim("n", min=1, max=8)},) if dynamic else None
    image, out = torch.zeros(2 if dynamic else 1, 3, 8, 8), io.BytesIO()
    program = torch.export.export(net.eval(), (image,), dynamic_shapes=sizes, strict=False)
    torch.export.save(program, out)
    with zipfile.ZipFile(out) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def written(members: Mapping[str, bytes], path: Path) -> Path:
    """The archive of these members."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return path
