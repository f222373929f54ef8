"""Certificates for TLS servers."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOCAL = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Certificates:
    """PEM files: an authority, and a server's certificate and key signed by it. Clients may use the latter, too."""

    authority: Path
    certificate: Path
    key: Path

    def settings(self, port: int) -> dict[str, str | int]:
        """Return the settings of a server that accepts TLS only, from clients without a certificate."""
        return {
            "port": 0,
            "tls-port": port,
            "tls-ca-cert-file": str(self.authority),
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.key),
            "tls-auth-clients": "no",
        }

    def context(self, *, any_host: bool = False) -> ssl.SSLContext:
        """Return the context of a client that trusts the authority only."""
        context = ssl.create_default_context(cafile=self.authority)
        context.check_hostname = not any_host
        return context


def certificates(folder: Path, hosts: tuple[str, ...] = LOCAL) -> Certificates:
    """Create an authority and a certificate for a server with these names, valid since yesterday for two days."""
    made = Certificates(folder / "authority.pem", folder / "server.pem", folder / "server.key")
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name, issuer = _name("greendot test server"), _name("greendot test authority")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _builder(issuer, issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(authority_id, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([_host(host) for host in hosts])
    certificate = (
        _builder(name, issuer, key.public_key())
        .add_extension(names, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    made.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made


def _builder(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder(issuer, name, key, x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
