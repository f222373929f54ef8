"""Checks of the token settings. The contents of keys are not checked here."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from greendot.config.fields import Mistakes, check_length, check_name
from greendot.config.settings import Auth, AuthKey


def check_auth(auth: Auth) -> Mistakes:
    """Yield the mistakes in `[auth]`. The contents of keys are not checked here."""
    yield from check_length("auth.secret", auth.secret)
    kids: set[str] = set()
    for key in auth.keys:
        if key.kid in kids:
            yield f"auth.keys: two keys have the kid {key.kid!r}. Give each key its own kid."
        kids.add(key.kid)
        yield from _check_key(auth, key)
    yield from _check_jwks(auth)


def _check_key(auth: Auth, key: AuthKey) -> Mistakes:
    what = f"auth.keys: key {key.kid!r}"
    if bool(key.secret) + bool(key.public_key) + bool(key.file) != 1:
        yield f"{what} needs exactly one of secret, public_key and file."
    elif key.secret and not key.alg.startswith("HS"):
        yield f"{what} is for {key.alg} but has a secret. Set public_key instead, or file with a public key."
    elif key.public_key and key.alg.startswith("HS"):
        yield f"{what} is for {key.alg} but has a public_key. Set secret instead, or file with a secret."
    if auth.algorithms and key.alg not in auth.algorithms:
        yield f"{what} is for {key.alg}, which auth.algorithms does not list. Add {key.alg} there, or remove the key."
    if key.tenant:
        yield from check_name(f"{what}: the tenant", key.tenant)
    if key.not_after is not None and key.not_after.tzinfo is None:
        yield f"{what}: not_after needs a time zone, such as 2030-01-31T12:00:00Z."


def _check_jwks(auth: Auth) -> Mistakes:
    if not auth.jwks_url:
        return
    try:
        url = urlsplit(auth.jwks_url)
        host = url.hostname or ""
        _ = url.port
    except ValueError:
        yield "auth.jwks_url is not a valid URL. Write an IPv6 address as [::1], and a port as a number up to 65535."
        return
    if url.username is not None or url.password is not None:
        yield "auth.jwks_url has a user or password, which public keys do not need. Remove both."
    if not host or url.scheme not in ("https", "http") or (url.scheme == "http" and not _is_here(host)):
        yield (
            "auth.jwks_url must begin with https:// and a host, or keys could be replaced in transit. Use http:// "
            "for this machine only (http://127.0.0.1:PORT/...)."
        )
    if auth.algorithms and all(alg.startswith("HS") for alg in auth.algorithms):
        yield "auth.jwks_url provides public keys, but auth.algorithms accepts none. Add RS256, ES256 or EdDSA there."


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
