"""Everything `converters` raises on bad input, one class per kind of fault."""


class ConverterError(Exception):
    """Base of every error that a model file can cause."""


class LoadError(ConverterError):
    """The file cannot be read as a model."""


class UnknownFormatError(LoadError):
    """The bytes are none of the supported container formats."""


class CorruptFileError(LoadError):
    """The container is truncated, inconsistent or lies about its tensors."""


class UnsafePickleError(LoadError):
    """The pickle asks for a global or an operation outside the allow-list."""


class TooLargeError(LoadError):
    """The file, or what it expands to, exceeds the caps."""


class ConversionError(ConverterError):
    """The weights were read but do not make a supported Flax model."""


class UnsupportedArchitectureError(ConversionError):
    """No family recognises the tensor names."""


class MismatchError(ConversionError):
    """Source and target differ: everything missing, unused and misshapen is listed."""


class ParityError(ConverterError):
    """The converted model does not agree with its source."""
