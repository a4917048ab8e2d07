"""Results as lines of text for people."""

from typing import Any

from jaxtroj.backgrounds.results import CHALLENGE


def text(result: dict[str, Any]) -> str:
    """One result of `results`, in the words of the original where it has them."""
    lines = _challenge(result) if result["kind"] == CHALLENGE else _in9(result)
    title = f"{result['model']} ({result['architecture']}, {result['normalization']['name']})"
    notes = [f"not comparable with published figures: {note}" for note in result["reservations"]]
    return "\n  ".join([title, *lines, *notes])


def _in9(result: dict[str, Any]) -> list[str]:
    lines = []
    for name, variant in result["variants"].items():
        lines.append(
            f"Accuracy on {name} is {100 * variant['accuracy']:.2f}%  "
            f"(outside the nine classes {100 * variant['outside']:.2f}%)"
        )
        lines.append(f"  {_each(variant['per_class'])}")
    if result["bg_gap"] is not None:
        lines.append(f"BG-Gap {100 * result['bg_gap']:.2f} points")
    return lines


def _challenge(result: dict[str, Any]) -> list[str]:
    vulnerable, total = result["vulnerable"], result["foregrounds"]
    bound = "at most " if result["is_upper_bound"] else ""
    accuracy = f"{bound}{100 * result['challenge_accuracy']:.2f}%"
    share = f"{100 * vulnerable / total:.2f}%"
    lines = [
        f"Summary: {vulnerable}/{total} ({share}) are vulnerable foregrounds.",
        f"Challenge accuracy {accuracy}  ({_each(result['per_class'])})",
        f"{result['pairs']} pairs answered, {result['passes']} forward passes in this call",
    ]
    if "matrix" in result:
        without = result["matrix"]["challenge_accuracy_without_own_class"]
        lines.append(f"without backgrounds of the own class {100 * without:.2f}%")
    return lines


def _each(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {100 * share:.1f}" for name, share in shares.items())
