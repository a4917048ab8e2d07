"""`LightMode`: the base of this package's dispatch modes."""

from torch.utils._python_dispatch import TorchDispatchMode


class LightMode(TorchDispatchMode):
    """A dispatch mode that torch's compiler, which never runs here, is not told of.

    torch would import the compiler at the first call to tell it: 1.5 s of every process.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
