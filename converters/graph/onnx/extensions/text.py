"""Text, of known values only: arrays of strings stay in NumPy and never reach torch."""

import numpy as np

from converters.graph.onnx.operators import operator

_CASES = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}


def _text(values) -> np.ndarray:
    made = np.empty(len(values), object)
    made[:] = values
    return made


@operator("StringNormalizer", (10,), static=(0,))
def normalize(call, x):
    """Without stop words, in another case; nothing left is one empty text."""
    if call["locale"] not in (None, "", "en_US"):
        raise call.refuse("locales other than en_US")
    change = _CASES[call["case_change_action"]]
    exact = bool(call["is_case_sensitive"])
    stops = {word if exact else word.lower() for word in call["stopwords"] or []}
    flat = [str(word) for word in np.asarray(x).reshape(-1)]
    kept = [change(w) for w in flat if (w if exact else w.lower()) not in stops] or [""]
    return _text(kept).reshape((1, -1) if np.ndim(x) == 2 else (-1,))


@operator("StringConcat", (20,), static=(0, 1))
def concat(_, a, b):
    """One text after the other, place by place."""
    left, right = np.broadcast_arrays(np.asarray(a, object), np.asarray(b, object))
    pairs = zip(left.reshape(-1), right.reshape(-1), strict=True)
    return _text([str(x) + str(y) for x, y in pairs]).reshape(left.shape)
