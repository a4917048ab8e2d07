"""Which names a pickle may ask for.

Nothing is ever imported, called or looked up by the name a file gives: the name is compared with
this list, and what comes out is a `Global` that holds the name itself.
"""

import re

from converters.errors import EXPORT, UnsafePickleError
from converters.pickles.constructors import CONSTRUCTORS
from converters.pickles.standins import (
    PICTURES,
    STORAGES,
    TORCH_DTYPES,
    TYPED_STORAGES,
    Global,
)

# Module classes carry no code here, so whole packages of them are allowed; but only plain class
# names, which keeps out functions, submodules and dotted paths ("modules.os.system").
_MODULE_PACKAGES = re.compile(
    r"(torch\.nn|torchvision\.models|torchvision\.ops|model_factories|timm|transformers|tokenizers"
    r"|__torch__)"
    r"(\.[A-Za-z_]\w*)*",
    re.ASCII,
)
# A module in a package of functions and of modules that draw random numbers.
_MODULE_CLASSES = frozenset({"torchvision.transforms.transforms.Normalize"})
_LONGEST_NAME = 200
_CLASS_NAME = re.compile(r"_*[A-Z]\w*", re.ASCII)

# Names that appear as values only: never called, never entered.
_NAMES = frozenset(
    {
        "builtins.object",
        "builtins.int",
        "builtins.float",
        "builtins.list",
        "builtins.dict",
        "numpy.ndarray",
        "torch.Tensor",
        "torch._tensor.Tensor",
        "torch.contiguous_format",
        "torch.preserve_format",
        "torch.channels_last",
        "torch.strided",
        *(f"torch.{name.replace('Storage', 'Tensor')}" for name in TYPED_STORAGES),
        *(f"torch.cuda.{name.replace('Storage', 'Tensor')}" for name in TYPED_STORAGES),
        *(
            f"torch.nn.functional.{name}"
            for name in ("relu", "relu6", "elu", "selu", "gelu", "silu", "sigmoid", "tanh")
        ),
        "torch._C._nn.gelu",
        # Activations that transformers before 4.10 kept as functions in its modules.
        *(
            f"transformers.activations.{name}"
            for name in ("_gelu_python", "gelu", "gelu_fast", "gelu_new", "gelu_python", "swish")
        ),
    }
)

# Classes whose instances are kept as data although they are not modules.
_DATA_CLASSES = PICTURES | {"argparse.Namespace"}

# Benign but unsupported: the error says what it is instead of only naming it.
_UNSUPPORTED = {
    "torch._dynamo.eval_frame.OptimizedModule": "torch.compile's wrapper (save model._orig_mod)",
    "torch._utils._rebuild_qtensor": "a quantized tensor",
    "torch._utils._rebuild_sparse_tensor": "a sparse tensor",
    "torch._utils._rebuild_nested_tensor": "a nested tensor",
    "torch._utils._rebuild_meta_tensor_no_storage": "a meta tensor without data",
    "torch._utils._rebuild_wrapper_subclass": "a tensor subclass",
    "torch._utils._rebuild_device_tensor_from_numpy": "a tensor of another device type",
    "torch.storage._load_from_bytes": "a torch file inside the pickle",
}


def resolve(module: str, name: str) -> Global:
    """The inert stand-in for ``module.name``.

    Raises:
        UnsafePickleError: it is not on the list; its ``global_name`` is ``module.name``.
    """
    if module == "__builtin__":  # Python 2's name, which pickle protocols below 3 write.
        module = "builtins"
    full = f"{module}.{name}"
    if "." not in name:
        if full in CONSTRUCTORS:
            return Global(full, "constructor")
        if full in STORAGES:
            return Global(full, "storage")
        if full in TORCH_DTYPES:
            return Global(full, "dtype")
        if full in _NAMES:
            return Global(full, "name")
        if full in _DATA_CLASSES or is_module_class(module, name):
            return Global(full, "module")
    shown = ascii(full)[1:-1][:200]
    kind = _UNSUPPORTED.get(full)
    detail = f"{kind}, which is not supported" if kind else "which is not on the allow-list"
    raise UnsafePickleError(
        f"the pickle asks for the global {shown!r}, {detail}; nothing was executed. If the file is "
        f"yours, {EXPORT}. Expected only tensors, containers and modules of torch.nn, torchvision, "
        "timm, transformers or model_factories; of other known networks the weights alone: "
        "torch.save(network.state_dict(), 'weights.pt')",
        global_name=shown,
    )


def is_module_class(module: str, name: str) -> bool:
    """Whether the name is that of a class in a package of network modules."""
    if len(module) + len(name) > _LONGEST_NAME:
        return False
    is_of_package = _MODULE_PACKAGES.fullmatch(module) and _CLASS_NAME.fullmatch(name)
    return bool(is_of_package) or f"{module}.{name}" in _MODULE_CLASSES
