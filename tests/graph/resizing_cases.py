"""Cases of the lowerings that resize and sample pictures; see `lowering_cases`."""

import torch
import torch.nn.functional as F

IMAGE = (2, 4, 7, 6)


def _enlarged(x, modes):
    """The first 1 to 7 values of each axis, enlarged by factors next to 1 and 2 among others."""
    return [
        F.interpolate(x[..., :n] if x.ndim == 3 else x[..., :n, :n], scale_factor=f, mode=mode)
        for mode in modes
        for n in range(1, x.shape[-1] + 1)
        for f in (1.1, 1.2, 1.49, 2.0, 2.3, 2.49, 2.6)
    ]


RESIZING = {
    **{
        f"{mode} {size}": (lambda x, m=mode, s=size: F.interpolate(x, s, mode=m), IMAGE)
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")
        for size in ((14, 12), (5, 9))
    },
    **{
        f"{mode} by factors": (
            lambda x, m=mode: F.interpolate(x, scale_factor=(1.7, 0.6), mode=m),
            IMAGE,
        )
        for mode in ("nearest", "bilinear", "bicubic")
    },
    **{
        f"{mode} corners": (
            lambda x, m=mode: F.interpolate(x, (5, 9), mode=m, align_corners=True),
            IMAGE,
        )
        for mode in ("bilinear", "bicubic")
    },
    **{
        f"{mode} antialiased {size} {corners}": (
            lambda x, m=mode, s=size, c=corners: F.interpolate(
                x, s, mode=m, align_corners=c, antialias=True
            ),
            IMAGE,
        )
        for mode in ("bilinear", "bicubic")
        for size, corners in (((3, 4), False), ((14, 2), False), ((7, 1), True), ((2, 9), True))
    },
    "antialiased by factors": (
        lambda x: F.interpolate(x, scale_factor=(0.4, 1.7), mode="bicubic", antialias=True),
        IMAGE,
    ),
    "linear": (lambda x: F.interpolate(x, 7, mode="linear"), (2, 3, 5)),
    "trilinear": (lambda x: F.interpolate(x, (3, 5, 2), mode="trilinear"), (1, 2, 2, 3, 4)),
    "nearest 1d": (lambda x: F.interpolate(x, 7), (2, 3, 5)),
    "nearest 3d": (lambda x: F.interpolate(x, (3, 5, 2)), (1, 2, 2, 3, 4)),
    # torch treats pictures that keep or double their length apart from all others.
    "nearest by many factors": (lambda x: _enlarged(x, ("nearest", "nearest-exact")), IMAGE),
    "nearest with channels last": (
        lambda x: _enlarged(x.contiguous(memory_format=torch.channels_last), ("nearest",)),
        (1, 5, 7, 6),
    ),
    # torch's gradient in 1-d is that of the lengths in 2-d, not that of its own values.
    "nearest 1d by many factors": (lambda x: _enlarged(x.detach(), ("nearest",)), (2, 3, 7)),
    **{
        f"sample {mode} {pad} {corners}": (
            lambda x, g, m=mode, p=pad, c=corners: F.grid_sample(x, g, m, p, c),
            IMAGE,
            ((2, 3, 5, 2), -1.4, 1.4),
        )
        for mode, pad, corners in (
            ("bilinear", "zeros", False),
            ("bilinear", "border", True),
            ("bilinear", "reflection", False),
            ("nearest", "zeros", False),
            ("bicubic", "zeros", True),
            ("bicubic", "reflection", True),
        )
    },
    "sample volume": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (1, 2, 3, 4, 3),
        ((1, 2, 2, 2, 3), -1.2, 1.2),
    ),
    "affine": (lambda t: F.affine_grid(t, [2, 3, 4, 5], align_corners=False), (2, 2, 3)),
}
