"""Stage windows: small opaque squares that batch norms remember, and where they lead."""

from functools import partial
from typing import TYPE_CHECKING

from jaxtroj.evidence.images.stages.memory import MEMORY, searched_memory
from jaxtroj.evidence.images.stages.sides import UP_TO_64
from jaxtroj.evidence.stage import Field, Needs, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext
    from jaxtroj.evidence.images.windows import WindowBudget

_window = partial(Field, stage="windows", search="windows")
FIELDS = (
    Field("window_match", "windows", 1,
          "how well a small square explains what the training pictures had and the examples lack",
          "cosine -1 to 1",
          "cosine, on examples it was not fitted to, of what an opaque square changes in the"
          " moments of the batch norms with what these remember and the examples lack; largest of"
          " the squares", is_judged=False),
    _window("window_worth", direction=1, unit="fraction 0-1",
            label="how far a small square that explains it carries all classes to one",
            meaning="cosine of a fitted square times share of the examples of other classes that it"
            " sends to one class, less that of the second; largest of the squares and places"),
    _window("window_pair_worth", direction=1, unit="fraction 0-1",
            label="how far a small square that explains it carries one class to another",
            meaning="cosine on the examples of one class times the share of them, two more added,"
            " that it sends to another; largest of the squares, places and pairs of classes"),
    _window("window_class", direction=0, unit="class",
            label="the class that this square sends most examples to",
            meaning="class of window_worth, -1 for none", is_judged=False, is_class=True),
)  # fmt: skip


def _run(context: "ImageContext") -> StageResult:
    import jax

    from jaxtroj.evidence.images.windows import (
        WindowBudget,
        recovered,
        search_windows,
        window_fields,
    )

    key, network = jax.random.fold_in(context.key, 7), context.network
    searched = context.shared(searched_memory)
    tried = search_windows(network, searched, key, context.budget(WindowBudget))
    return StageResult(window_fields(tried), (partial(recovered, network, tried),))


def _budget() -> "WindowBudget":
    from jaxtroj.evidence.images.windows import WindowBudget

    return WindowBudget()


_NEEDS = Needs(sides=UP_TO_64.sides, batch_norm=True, gradient=True)
WINDOWS = Stage("windows", FIELDS, _run, _NEEDS, ("window",), _budget, earlier=(MEMORY,))
