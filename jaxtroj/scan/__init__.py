"""Models to records: one model, or many; a scan never fails to answer."""

from jaxtroj.scan.models import TEXT_BATCH, identify, scan, scan_batch, scan_model

__all__ = ["TEXT_BATCH", "identify", "scan", "scan_batch", "scan_model"]
