"""TLS certificate of this server, its reload while clients stay connected, and the end of TLS transports."""

from __future__ import annotations

import asyncio
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
    """Certificate and key from files; ConfigError if they cannot be used.

    After a reload, connected sockets keep the certificate of their handshake.
    """

    def __init__(self, cert: str, key: str) -> None:
        self._files = cert, key
        self.context = _load(cert, key)  # for new sockets

    def reload(self) -> None:
        """Read the files again. If they cannot be used, keep the current certificate and log the reason."""
        try:
            self.context = _load(*self._files)
        except ConfigError as error:
            log(log_events.CERTIFICATE_KEPT, reason=error)
        else:
            log(log_events.CERTIFICATE_READ)


class _NoProtocol(asyncio.BufferedProtocol):
    """Protocol of closed sockets. It is never called."""

    def get_buffer(self, sizehint: int) -> memoryview:
        raise NotImplementedError

    def buffer_updated(self, nbytes: int) -> None:
        raise NotImplementedError


_NO_PROTOCOL = _NoProtocol()


def release(transport: asyncio.Transport) -> None:
    """Make a closed TLS transport forget its protocol. Nothing is done for a plain socket.

    The TLS layer of uvloop keeps methods of the last protocol, which refers to the transport. Without this call, each
    closed TLS connection is a reference cycle, and waits for the garbage collector.
    """
    if transport.get_extra_info("sslcontext") is not None:
        transport.set_protocol(_NO_PROTOCOL)


def _load(cert: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # expensive for the server, cheap for the peer
    context.set_alpn_protocols(["http/1.1"])
    for setting, name in (("tls.cert", cert), ("tls.key", key or cert)):
        try:
            with open(name, "rb"):
                pass
        except OSError as error:
            raise ConfigError(f"{setting}: cannot read {name}: {error.strerror}") from None
    try:
        # Without a password callback OpenSSL would prompt on the terminal, and wait.
        context.load_cert_chain(cert, key or None, password=lambda: "")
    except ssl.SSLError as error:
        why = (error.reason or "").lower().replace("_", " ")
        raise ConfigError(
            f"cannot use tls.cert ({cert}) and tls.key ({key or cert}): {why or 'they are not PEM files'}. tls.cert "
            "needs the certificate with its chain, and tls.key its private key without a password, both in PEM format."
        ) from None
    return context


_DAY_S = 86_400


def certificate_facts(path: str) -> CertificateFacts | None:
    """Return facts of the first certificate in the file, the server's own; None if none can be read."""
    try:
        found = x509.load_pem_x509_certificate(Path(path).read_bytes())
    except (OSError, ValueError):
        return None
    return CertificateFacts(
        path=path, days_left=-_days_since(found.not_valid_after_utc), days_old=_days_since(found.not_valid_before_utc)
    )


def _days_since(moment: datetime) -> float:
    return (time.time() - moment.timestamp()) / _DAY_S
