"""TLS: the certificate this server shows, and how it is changed while everybody stays."""

from __future__ import annotations

import ssl
import time
from datetime import datetime
from pathlib import Path

from cryptography import x509

from greendot.errors import ConfigError
from greendot.ops.facts_model import CertificateFacts
from greendot.telemetry import log_events
from greendot.telemetry.log import log


class Certificate:
    """From its files; ConfigError if there is none in them. Sockets that are there keep the one they came in by."""

    def __init__(self, cert: str, key: str) -> None:
        self._files = cert, key
        self.context = _load(cert, key)  # for sockets that come now

    def reload(self) -> None:
        """Show what is in the files now. If that is nothing one could show, it stays as it is."""
        try:
            self.context = _load(*self._files)
        except ConfigError as error:
            log(log_events.CERTIFICATE_KEPT, reason=error)
        else:
            log(log_events.CERTIFICATE_READ)


def _load(cert: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # it costs us much and who asks for it little
    context.set_alpn_protocols(["http/1.1"])
    for setting, name in (("tls.cert", cert), ("tls.key", key or cert)):
        try:
            with open(name, "rb"):
                pass
        except OSError as error:
            raise ConfigError(f"{setting}: cannot read {name}: {error.strerror}") from None
    try:
        # Without a word of ours for it, OpenSSL would ask for a password on the terminal, and wait.
        context.load_cert_chain(cert, key or None, password=lambda: "")
    except ssl.SSLError as error:
        why = (error.reason or "").lower().replace("_", " ")
        raise ConfigError(
            f"tls.cert ({cert}) and tls.key ({key or cert}) cannot be used: {why or 'they are not PEM'}. The first has "
            "the certificate and those up to the authority, the second its key without a password, both in PEM."
        ) from None
    return context


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
