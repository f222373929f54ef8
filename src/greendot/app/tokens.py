"""Tokens and keys from the settings. Mistakes are reported at the start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from greendot.auth.claims import TokenRules
from greendot.auth.jwks import RemoteKeys
from greendot.auth.keyring import HASHES, BadKey, VerificationKey, public_key_of, secret_of
from greendot.auth.tokens import Tokens
from greendot.config.settings import Auth, AuthKey
from greendot.errors import ConfigError


def make_tokens(auth: Auth, now: Callable[[], float]) -> Tokens:
    """Return the tokens of the settings. Raise ConfigError with the name of a key that is not valid.

    `now` returns monotonic seconds.
    """
    rules = TokenRules(
        algorithms=frozenset(auth.algorithms) or None,
        audience=auth.audience,
        issuer=auth.issuer,
        leeway_ms=round(auth.leeway_s * 1000),
    )
    remote = None
    if auth.jwks_url:
        from greendot.auth.jwks_fetch import JwksFetch  # only servers that need it load an HTTP client

        remote = RemoteKeys(JwksFetch(auth.jwks_url, auth.jwks_timeout_s), now)
    return Tokens(auth.secret, [_key(key) for key in auth.keys], rules, remote)


def _key(key: AuthKey) -> VerificationKey:
    try:
        given = Path(key.file).read_bytes().strip() if key.file else (key.secret or key.public_key).encode()
        material = secret_of(key.alg, given) if key.alg in HASHES else public_key_of(key.alg, given)
    except OSError as error:
        raise ConfigError(f"auth.keys: cannot read the file of key {key.kid!r}: {error.strerror}.") from None
    except BadKey as error:
        raise ConfigError(f"auth.keys: key {key.kid!r}: {error}.") from None
    ends = None if key.not_after is None else round(key.not_after.timestamp() * 1000)
    return VerificationKey(key.alg, material, key.kid, key.tenant or None, key.retired, ends)
