"""What a stage is given: seed, budgets, and what earlier stages computed, each thing once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    import jax

T = TypeVar("T")


@dataclass(frozen=True)
class Context(ABC):
    """One model as the stages of its kind see it; see the subclasses for the model itself.

    Attributes:
      seed: of all random choices; they are keyed by it, by class and by candidate number.
      budgets: what stages may spend, where it is not their default; at most one of a type.
      seconds: wall time of what was prepared before the stages, by name.
    """

    seed: int = 0
    budgets: tuple[object, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    _known: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def key(self) -> "jax.Array":
        """The random key of the seed."""
        import jax

        return jax.random.key(self.seed)

    def shared(self, compute: Callable[[Self], T]) -> T:
        """What several stages start from, computed by the first one that asks."""
        if compute not in self._known:
            self._known[compute] = compute(self)
        return self._known[compute]

    def known(self, compute: Callable[[Self], T]) -> T | None:
        """The same if some stage has asked for it, else None."""
        return self._known.get(compute)

    def budget(self, kind: type[T]) -> T:
        """The budget of a type: the one that was given, or the default."""
        return next((found for found in self.budgets if isinstance(found, kind)), None) or kind()

    @property
    def has_gradient(self) -> bool:
        """Whether the model's answers have a gradient by its input."""
        return True

    @abstractmethod
    def recover(self, candidates: Sequence[Any]) -> tuple[Any, ...]:
        """Triggers, the strongest first, from all candidates of the stages that ran."""
