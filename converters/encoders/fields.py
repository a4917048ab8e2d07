"""Numbers and names out of a Hugging Face configuration, which is data from a stranger."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from converters.encoders.blocks import ACTIVATIONS, ALIASES
from converters.errors import ConversionError, UnsupportedArchitectureError, safe_repr

# The largest published encoders have 48 layers and widths of some thousands.
MAX_LAYERS = 256
MAX_SIZE = 2**24


@dataclass(frozen=True)
class Fields:
    """Checked access to the entries of `values`, which came from `where`."""

    values: Mapping[str, Any]
    where: str

    def whole(self, name: str, default: int | None = None, most: int = MAX_SIZE) -> int:
        """A whole number from 1 to `most`; `default` when the entry is absent or null.

        Raises:
          ConversionError: it is something else, or absent without a default.
        """
        value = self.values.get(name)
        value = default if value is None else value
        if type(value) is not int or not 1 <= value <= most:
            raise ConversionError(
                f"{self.where}: {name} is {safe_repr(value)}, expected a whole number from 1 to "
                f"{most}"
            )
        return value

    def eps(self, name: str, default: float) -> float:
        """A layer norm's epsilon, in (0, 1)."""
        value = self.values.get(name, default)
        if type(value) is not float or not 0 < value < 1:
            raise ConversionError(
                f"{self.where}: {name} is {safe_repr(value)}, expected a number between 0 and 1"
            )
        return value

    def activation(self, name: str, default: str) -> str:
        """A key of `ACTIVATIONS`."""
        value = self.values.get(name, default)
        known = ALIASES.get(value, value) if isinstance(value, str) else None
        if known not in ACTIVATIONS:
            raise UnsupportedArchitectureError(
                f"{self.where}: {name} is {safe_repr(value)}, expected one of "
                f"{', '.join([*ACTIVATIONS, *ALIASES])}"
            )
        return known

    def only(self, name: str, supported: object) -> None:
        """Refuse a variant: the entry must be absent or `supported`.

        Raises:
          UnsupportedArchitectureError: it is something else.
        """
        value = self.values.get(name, supported)
        if type(value) is not type(supported) or value != supported:
            raise UnsupportedArchitectureError(
                f"{self.where}: {name} is {safe_repr(value)}; only {safe_repr(supported)} is "
                "supported"
            )

    def heads(self, name: str, default: int, width: int) -> int:
        """A number of attention heads that divides `width`."""
        heads = self.whole(name, default)
        if width % heads:
            raise ConversionError(
                f"{self.where}: {name} is {heads}, which does not divide the width {width}"
            )
        return heads
