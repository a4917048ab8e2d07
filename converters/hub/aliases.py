"""Entries of a `config.json` under another name that transformers knows for them."""

from collections.abc import Mapping
from typing import Any

from converters.errors import ConversionError, safe_repr


def own_names(values: Mapping[str, Any], aliases: Mapping[str, str], where: str) -> dict[str, Any]:
    """`values` with what stands under an alias under the family's own name.

    transformers' `attribute_map` sets the own name to what stands under the alias, even where both
    are there.

    Raises:
      ConversionError: alias and own name are both there and differ.
    """
    renamed = dict(values)
    for alias, own in aliases.items():
        if alias not in renamed:
            continue
        value = renamed.pop(alias)
        if own in renamed and renamed[own] != value:
            raise ConversionError(
                f"{where}: {own} is {safe_repr(renamed[own])} and {alias}, another name of it, is "
                f"{safe_repr(value)}; expected one of them, or the same under both"
            )
        renamed[own] = value
    return renamed
