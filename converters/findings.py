"""Findings that put an answer in doubt, by how they begin; all others say how a file was read."""

from collections.abc import Iterable

SUSPICION = "possible architectural backdoor"
PRECISION = "the network computes in"
ONE_ONLY = "the file leaves the number of images open, but the network runs for one only"
NOT_TOGETHER = (
    "the file leaves the number of images open, and an image beside others was not compared with "
    "the image alone, since several at once take more than the caps allow"
)
COMMON_RANGE = "the network quantises by the range of all images that it gets at once"
BARE_RANGE = (
    "the network quantises by ranges that leave out 0, as onnxruntime's quantiser wrote them "
    "before opset 11: where all values that a layer takes are above 0, such as those of a picture "
    "without black, its answers are wrong; quantise the network again, from a file of opset 13"
)
LARGE_OFFSET = 1e5
"""Beside it float32 has steps of 1/128: of values around 1, to which norms bring them, 7 bits are
left. Trained networks add hundreds at most."""
TWICE_QUANTISED = "the network quantises values twice in a row, by other scales or zero points,"
HOT_CHANNEL = "a batch norm has a channel that varies"
_DOUBTS = (
    *(SUSPICION, PRECISION, ONE_ONLY, NOT_TOGETHER, COMMON_RANGE, BARE_RANGE),
    *(TWICE_QUANTISED, HOT_CHANNEL),
)


def rounded_away_beside(
    added: float, place: str, precision: str = "float32", limit: float = LARGE_OFFSET
) -> str:
    """What is to be said of a constant of at least `limit` that a network adds."""
    return (
        f"{place} adds {added:.1g} to values that the image decides: {precision} rounds them away "
        f"beside numbers of {limit:g} and more"
    )


def doubts(findings: Iterable[str]) -> tuple[str, ...]:
    """Those that a reader of the answer must know, in their order.

    >>> doubts(["batch norm x13", "possible architectural backdoor: gt at n compares pixels"])
    ('possible architectural backdoor: gt at n compares pixels',)
    """
    return tuple(finding for finding in findings if finding.startswith(_DOUBTS))
