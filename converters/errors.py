"""Everything `converters` raises on bad input, one class per kind of fault."""

from collections.abc import Sequence

from converters.public_codes import PublicCode


def safe_repr(value: object) -> str:
    """``value`` for a message: ASCII and short; values with content only by type.

    Content from a hostile file may be nested without end, so containers are never formatted.
    """
    if value is None or isinstance(value, (bool, float)):
        return str(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**20 else "an integer of more than 20 digits"
    if isinstance(value, (str, bytes)):
        return ascii(value[:200])
    return f"a {type(value).__name__}"


def first_names(said: object) -> str:
    """What a config says, for a message: of a list the first three.

    >>> first_names(["A", "B", "C", "D"])
    "'A', 'B', 'C'"
    """
    return ", ".join(map(safe_repr, said[:3])) if isinstance(said, list) else safe_repr(said)


ENDS = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What ends a program in order. No other `BaseException` does: a panic of a Rust package is one,
though a file may cause it."""

# What works for a network that is none of the families: two lines where its own code is.
EXPORT = (
    "export it where its code is, then scan model.onnx: "
    "network.load_state_dict(weights); torch.onnx.export(network.eval(), example, 'model.onnx')"
)


class ConverterError(Exception):
    """Base of every error that a model file can cause.

    Messages quote names out of files; what in them is not printable is escaped. They say what was
    got, then what works, and the detail last, where a record may cut it off.

    Attributes:
        digest: SHA-256 of the file in hexadecimal digits, as far as it was read; empty otherwise.
    """

    digest = ""

    def __str__(self) -> str:
        text = super().__str__()
        return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


class LoadError(ConverterError):
    """The file cannot be read as a model."""


class UnknownFormatError(LoadError):
    """The bytes are none of the supported container formats."""


class CorruptFileError(LoadError):
    """The container is truncated, inconsistent or lies about its tensors."""


NOTHING_EXECUTED = "nothing was executed"
"""In the message of every refusal of code; reports tell such files from damaged ones by it."""


class UnsafePickleError(LoadError):
    """The pickle asks for a global or an operation outside the allow-list.

    Attributes:
        global_name: full name it asked for, such as ``"os.system"``; ``None`` for an operation.
    """

    def __init__(self, message: str, global_name: str | None = None):
        super().__init__(_of_code(message))
        self.global_name = global_name


class UnsafeConfigError(LoadError):
    """A config asks for code that is no part of what is installed."""

    def __init__(self, message: str):
        super().__init__(_of_code(message))


def _of_code(message: str) -> str:
    return message if NOTHING_EXECUTED in message else f"{message}; {NOTHING_EXECUTED}"


class TooLargeError(LoadError):
    """The file, or what it expands to, exceeds the caps."""


class ConversionError(ConverterError):
    """The weights were read but do not make a supported Flax model."""


class UnsupportedArchitectureError(ConversionError):
    """No family recognises the tensor names."""


class UnsupportedOperatorError(ConversionError):
    """A graph needs an operator, or a form of one, that no converter and no lowering covers.

    Attributes:
        operator: its name with version, such as ``"ai.onnx Loop-13"`` or ``"aten.sort.stable"``.
        node: where it stands in the graph; empty where the graph does not say.
    """

    def __init__(self, message: str, operator: str = "", node: str = ""):
        super().__init__(message)
        self.operator = operator
        self.node = node


class DataDependentError(ConversionError):
    """A network takes a shape, a branch or a Python number from values that depend on its input.

    Attributes:
        inputs: numbers of the graph inputs that the value depends on.
    """

    def __init__(self, message: str, inputs: tuple[int, ...] = ()):
        super().__init__(message)
        self.inputs = inputs


class MismatchError(ConversionError):
    """Source and target differ: everything missing, unused and misshapen is listed."""


class SharedNamesError(ConversionError):
    """State dicts of several public codes have the names and shapes of a file's tensors.

    Attributes:
        codes: those codes.
    """

    def __init__(self, codes: Sequence[PublicCode], tried: str = ""):
        """
        Args:
            codes: at least two.
            tried: why examples do not tell them apart, where they were tried.
        """
        named = " or ".join(f"--public-code {code.name}" for code in codes)
        tell = (
            f"clean labelled examples do not tell them apart: {tried}"
            if tried
            else ("a state dict does not say which it is of")
        )
        super().__init__(
            f"{len(codes)} public codes have these names and shapes of tensors, and compute other"
            f" logits with them: {' and '.join(map(str, codes))}; {tell}. Name the code, {named},"
            f" or {EXPORT}"
        )
        self.codes, self._tried = tuple(codes), tried

    def __reduce__(self):
        # Exceptions are made again of their message alone, in copies and in pools of processes.
        return type(self), (self.codes, self._tried), vars(self)


class ParityError(ConverterError):
    """The converted model does not agree with its source."""
