"""A training whose loss is no finite number: one rejected try, not the end of its round."""

from collections.abc import Iterator

from jaxtroj.errors import GenerationError
from jaxtroj.generate.round import Event, TrainingOutcome, Try


class DivergedError(GenerationError):
    """The loss of a training is not finite.

    Attributes:
        loss: what it is.
        steps: of training so far.
    """

    def __init__(self, loss: float, steps: int):
        super().__init__(f"the training loss is {loss} after {steps} steps; expected a number")
        self.loss, self.steps = loss, steps

    def __reduce__(self):
        # Exceptions are made again of their message alone, in copies and in pools of processes.
        return type(self), (self.loss, self.steps), vars(self)


def rejecting_diverged(
    one: Try, training: Iterator[Event | TrainingOutcome]
) -> Iterator[Event | TrainingOutcome]:
    """The events of a training; where it or that of its base diverges, the try is rejected."""
    try:
        yield from training
    except DivergedError as error:
        attempt = {"sub_seed": one.sub_seed, "loss": str(error.loss), "steps": error.steps}
        yield TrainingOutcome(one, False, attempt, f"loss {error.loss}", error.steps, None)
