"""Where torch trains networks, and in which number format it multiplies there."""

from functools import cache


@cache
def torch_device() -> str:
    """ "cuda" where torch finds such a GPU, else "cpu"; `CUDA_VISIBLE_DEVICES` can hide it."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def step_precision() -> str:
    """ "bfloat16" where that device is fast at it, else "float32"."""
    import torch

    if torch_device() == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    # torch has no public name for it; without it the steps are only slower.
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return "bfloat16" if supported is not None and supported() else "float32"
