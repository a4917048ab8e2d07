"""The inert values that stand for what a pickle names: data only, no code behind them."""

from dataclasses import dataclass, field
from typing import Any

from converters.errors import CorruptFileError, UnsafePickleError, safe_repr
from converters.tensors import DTYPES


@dataclass(frozen=True, eq=False)
class Global:
    """An allowed name. ``kind``: "module", "storage", "dtype", "constructor" or "name"."""

    name: str
    kind: str


@dataclass(eq=False)
class Standin:
    """An instance of an allowed class: its name and its saved state, without its code."""

    class_name: str
    state: dict[Any, Any] = field(default_factory=dict)
    built: bool = False


# Class of the tokenizers library whose saved state is JSON; see `machine`.
RUST_TOKENIZER = "tokenizers.Tokenizer"
JSON_STATE = "json"
# A class with arguments, which a pickle makes and never calls; its state is not kept.
PARTIAL = "functools.partial"
# Pictures that a training script kept beside the weights, as BackdoorBench's datasets hold them;
# their pixels are not kept.
PICTURES = frozenset(
    {"PIL.Image.Image"}
    | {f"PIL.{name}ImagePlugin.{name}ImageFile" for name in ("Bmp", "Jpeg", "Png")}
)


def named(value: Any) -> str:
    """A value for a message; globals by their full name."""
    return value.name if isinstance(value, Global) else safe_repr(value)


class OrderedMap(dict):
    """Stands for ``collections.OrderedDict``, which unlike ``dict`` may carry attributes."""

    __slots__ = ()


TYPED_STORAGES = {
    "HalfStorage": "float16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "BFloat16Storage": "bfloat16",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
STORAGES = {
    "torch.UntypedStorage": DTYPES["uint8"],
    "torch.storage.UntypedStorage": DTYPES["uint8"],
    "torch.storage._UntypedStorage": DTYPES["uint8"],
    **{f"torch.{name}": DTYPES[dtype] for name, dtype in TYPED_STORAGES.items()},
    **{f"torch.cuda.{name}": DTYPES[dtype] for name, dtype in TYPED_STORAGES.items()},
}
TORCH_DTYPES = {
    **{f"torch.{name}": dtype for name, dtype in DTYPES.items()},
    "torch.half": DTYPES["float16"],
    "torch.float": DTYPES["float32"],
    "torch.double": DTYPES["float64"],
    "torch.int": DTYPES["int32"],
    "torch.long": DTYPES["int64"],
}


class RawText(str):
    """Text of Python 2 that is not ASCII, decoded as latin-1.

    torch.load decodes it as its caller says, by default as UTF-8, so it may name nothing.
    """

    __slots__ = ()


def raw_text(raw: bytes) -> str:
    """Text of Python 2; see `RawText`."""
    text = raw.decode("latin-1")
    return text if raw.isascii() else RawText(text)


def key_of(value: Any) -> Any:
    """``value`` if it may be a dict key or set member.

    Only flat values, and pairs of texts, which are the keys of GPT-2's merges: hashing nested
    tuples recurses in C without a bound, and large integers can be chosen to collide.
    """
    if type(value) is int and abs(value) < 2**60:
        return value
    if value is None or type(value) in (str, bool, float, bytes):
        return value
    if type(value) is tuple and len(value) == 2 and all(type(part) is str for part in value):
        return value
    raise CorruptFileError(
        f"a {type(value).__name__} is a dict key or set member; expected text, a number or None"
    )


def instance_of(cls: Any, args: Any) -> Any:
    """A new inert instance of an allowed class; only module classes without arguments, and dicts.

    A Rust tokenizer alone takes an argument, an empty model, which is dropped.

    Raises:
        UnsafePickleError: any other class, or arguments to its constructor.
    """
    if isinstance(cls, Global) and cls.name == "collections.OrderedDict" and args == ():
        return OrderedMap()
    if isinstance(cls, Global) and cls.name == RUST_TOKENIZER:
        return Standin(cls.name)
    if not isinstance(cls, Global) or cls.kind != "module" or args != ():
        raise UnsafePickleError(
            f"the pickle makes an instance of {named(cls)} with arguments; expected a module "
            "class without; nothing was executed",
            global_name=cls.name if isinstance(cls, Global) else None,
        )
    return Standin(cls.name)
