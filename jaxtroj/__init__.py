"""Scanner for poisoned (backdoored, trojaned) neural networks.

Importing this package loads neither jax nor torch; each step is imported where it is used.
"""

from jaxtroj.errors import JaxtrojError

__version__ = "0.1.0"

__all__ = ["JaxtrojError", "__version__"]
