"""Copies of a model file: a fit meets a file once, and judges none that it has met."""

from collections.abc import Iterable

from jaxtroj.errors import UsageError


def file_of(sha256: str, model: str) -> str:
    """What copies share: the digest of the file, or the model's name where it could not be read."""
    return sha256 or model


def first_of_each_file(models: Iterable[tuple[str, str, bool]]) -> list[int]:
    """Places of the models that are no copy of an earlier one.

    Args:
        models: name, sha256 and label of each.

    >>> first_of_each_file([("a", "12", True), ("b", "12", True), ("c", "", False)])
    [0, 2]

    Raises:
        UsageError: a file has two labels.
    """
    kept: dict[str, tuple[int, str, bool]] = {}
    for place, (model, sha256, label) in enumerate(models):
        _, first, said = kept.setdefault(file_of(sha256, model), (place, model, label))
        if said != label:
            raise UsageError(
                f"{first} and {model} are one file (sha256 {sha256[:12]}) with two labels;"
                " expected one: correct the truth"
            )
    return [place for place, _, _ in kept.values()]
