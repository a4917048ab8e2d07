"""Everything `jaxtroj` raises on bad input, one class per kind of fault.

Faults of model files are `converters.errors.ConverterError`; the scan turns both into records.
"""


class JaxtrojError(Exception):
    """Base of every error that a user's input or environment can cause."""


class UsageError(JaxtrojError):
    """The command line or a setting asks for something that cannot be done."""


class ExamplesError(JaxtrojError):
    """The example pictures are missing, unreadable or do not fit the model."""


class DatasetError(JaxtrojError):
    """A dataset folder, its METADATA.csv or a truth file is not what it should be."""


class EvidenceError(JaxtrojError):
    """The evidence of a model could not be gathered or is not finite."""


class CalibrationError(JaxtrojError):
    """A calibrator cannot be fitted, read, or used on the evidence at hand."""


class StoreError(JaxtrojError):
    """A run folder cannot be written, is locked, or belongs to other settings."""


class HeldError(StoreError):
    """Another process is writing to the folder."""


class EngineError(JaxtrojError):
    """A scan cannot be carried out at all: its processes do not start, or Ray cannot be used."""


class LimitError(JaxtrojError):
    """Guarded work took more time or memory than it may, or ended its process."""


class GenerationError(JaxtrojError):
    """A synthetic round cannot be generated as asked."""


class RepairError(JaxtrojError):
    """A network cannot be repaired: it, or what training made of it, computes no numbers."""
