"""Models to records: one model, or a folder of them; a scan never fails to answer."""

from jaxtroj.scan.folder import scan, scan_entry
from jaxtroj.scan.identity import identify
from jaxtroj.scan.model import scan_model

__all__ = ["identify", "scan", "scan_entry", "scan_model"]
