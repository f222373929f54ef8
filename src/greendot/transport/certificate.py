"""What a certificate says of itself."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

from cryptography import x509

from greendot.ops.facts_model import CertificateFacts

_DAY_S = 86_400


def certificate_facts(path: str) -> CertificateFacts | None:
    """Of the first in the file, which is the server's own; None if there is none to be read."""
    try:
        found = x509.load_pem_x509_certificate(Path(path).read_bytes())
    except (OSError, ValueError):
        return None
    return CertificateFacts(
        path=path, days_left=-_days_since(found.not_valid_after_utc), days_old=_days_since(found.not_valid_before_utc)
    )


def _days_since(moment: datetime) -> float:
    return (time.time() - moment.timestamp()) / _DAY_S
