"""What decides an answer where the evidence alone would be on the other side."""

from jaxtroj.numerics import is_above


def what_decides(
    probability: float, at_even_odds: float, base_rate: float, threshold: float
) -> tuple[str, ...]:
    """A sentence where the verdict is not the side that the evidence speaks for; else nothing.

    Reasons name what the evidence says. Without this sentence they contradict such a verdict.

    Args:
        probability: P(poisoned) at `base_rate`, in (0, 1).
        at_even_odds: the same at a base rate of one half, so that the evidence alone speaks.
        base_rate: P(poisoned) before the evidence, in (0, 1).
        threshold: above which a model is called poisoned.

    >>> what_decides(0.944, 0.1455, 0.99, 0.5)
    ('the base rate 0.99 decides: at even odds 0.1455',)
    >>> what_decides(0.8, 0.8, 0.5, 0.9)
    ('the threshold 0.9 decides: the probability is 0.8',)
    >>> what_decides(0.8, 0.8, 0.5, 0.5)
    ()
    """
    is_for_poisoned = is_above(at_even_odds)
    if is_above(probability, threshold) == is_for_poisoned:
        return ()
    if is_above(probability) == is_for_poisoned:
        return (f"the threshold {threshold:g} decides: the probability is {probability:.4g}",)
    return (f"the base rate {base_rate:g} decides: at even odds {at_even_odds:.4g}",)
