"""Redis URLs of the settings.

    redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]             one server
    unix://[USER[:PASSWORD]@]/PATH[?db=DB]                 one server, by a Unix socket; also redis+unix://
    redis+sentinel://…HOST[:PORT],HOST[:PORT]…/NAME[/DB]   the primary that Sentinel calls NAME
    redis+cluster://…HOST[:PORT],HOST[:PORT]…              a cluster, found through any of these

`rediss` in place of `redis` means TLS; `?ca=FILE` names the authority, `?cert=FILE&key=FILE` our own certificate.
"""

from __future__ import annotations

import re
import ssl
from typing import Literal, NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from msgspec import Struct

from greendot.errors import ConfigError

RedisMode = Literal["standalone", "sentinel", "cluster"]
_KINDS: dict[str, RedisMode] = {"": "standalone", "sentinel": "sentinel", "cluster": "cluster"}
_PORTS: dict[RedisMode, int] = {"standalone": 6379, "sentinel": 26379, "cluster": 6379}
_UNIX = ("unix", "redis+unix")
_FILES = {"ca", "cert", "key"}
_END_OF_HOSTS = re.compile("[/?#]")


class Address(NamedTuple):
    """Host and port of one server; port 0: the host is the path of a Unix socket."""

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RedisTarget(Struct, frozen=True):
    """Servers of a URL, with login and TLS options."""

    kind: RedisMode
    hosts: tuple[Address, ...]
    user: str | None = None
    password: str | None = None
    service: str = ""  # name of the primary in Sentinel
    db: int = 0
    tls: bool = False
    files: dict[str, str] = {}  # TLS files: ca, cert, key

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None without TLS. Raise ConfigError if a file cannot be used."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.files.get("ca"))
            if "cert" in self.files:
                context.load_cert_chain(self.files["cert"], self.files.get("key"))
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"engine.url: cannot use the TLS files {self.files}: {error}") from None
        return context


def parse(url: str) -> RedisTarget:
    """Return the target of a URL. Raise ConfigError with the reason, which does not repeat the password."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme in _UNIX:
        return _parse_unix(url)
    base, _, word = scheme.partition("+")
    if not separator or base not in ("redis", "rediss") or word not in _KINDS:
        raise _bad("must begin with redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://")
    kind, split = _KINDS[word], _split(url)
    login, at, places = split.netloc.rpartition("@")
    user, _, password = login.partition(":")
    path = split.path.strip("/").split("/") if split.path.strip("/") else []
    service = path.pop(0) if kind == "sentinel" and path else ""
    if kind == "sentinel" and not service:
        raise _bad("needs the name of the primary for Sentinel: redis+sentinel://HOST:26379/mymaster")
    if kind == "cluster" and path:
        raise _bad("has a database number, but a cluster has no numbered databases. Leave out the part after the hosts")
    if len(path) > 1 or not all(part.isdecimal() for part in path):
        raise _bad(f"has {'/'.join(path)!r} in place of a database number")
    hosts = tuple(_address(text, _PORTS[kind]) for text in places.split(","))
    if kind == "standalone" and len(hosts) > 1:
        raise _bad("has several hosts, which need redis+cluster:// or redis+sentinel://")
    return RedisTarget(
        kind,
        hosts,
        user=unquote(user) or None,
        password=unquote(password) if at and password else None,
        service=service,
        db=int(path[0]) if path else 0,
        tls=base == "rediss",
        files=_options(split.query, base == "rediss"),
    )


def _parse_unix(url: str) -> RedisTarget:
    split = _split(url)
    login, _, host = split.netloc.rpartition("@")
    if host or len(split.path) < 2:
        raise _bad("names no absolute path. Write a Unix socket as unix:///PATH, with three slashes")
    options = parse_qs(split.query, keep_blank_values=True)
    db = options.pop("db", ["0"])[-1]
    if options:
        raise _bad(f"has the unknown option {next(iter(options))!r}. A Unix socket has only db, a database number")
    if not db.isdecimal():
        raise _bad(f"has {db!r} in place of a database number")
    user, _, password = login.partition(":")
    address = Address(unquote(split.path), 0)
    return RedisTarget(
        "standalone", (address,), user=unquote(user) or None, password=unquote(password) or None, db=int(db)
    )


def without_login(url: str) -> str:
    """Return a URL accepted by `parse` without user and password, for display. `memory` stays unchanged."""
    split = _split(url)
    shown = split._replace(netloc=split.netloc.rpartition("@")[2])
    return f"{shown.scheme}://{shown.path}" if shown.scheme in _UNIX else shown.geturl()


def _split(url: str) -> SplitResult:
    # Newer Pythons (3.14, and security fixes of 3.11) refuse several hosts if one of them is in brackets.
    scheme, separator, rest = url.partition("://")
    places = _END_OF_HOSTS.split(rest, maxsplit=1)[0]
    if places.count("[") != places.count("]"):
        raise _bad("is not a valid URL. Write an IPv6 address as [::1]")
    split = urlsplit(scheme + separator + rest[len(places) :])._replace(netloc=places)
    beyond = split.path + split.fragment + ("" if "@" in split.netloc else split.query)
    if "@" in beyond:  # part of a password would be taken for a host, and repeated where hosts are shown
        raise _bad(
            "has an unencoded / ? # or @ in the user or password, or an @ after the host. Write them as %2F %3F %23 "
            "and %40"
        )
    return split


def _options(query: str, tls: bool) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    for name in options:
        if name not in _FILES:
            raise _bad(f"has the unknown option {name!r}. Valid options are ca, cert and key (TLS files)")
        if not tls:
            raise _bad(f"has the TLS option {name!r}, but no TLS. Write rediss in place of redis")
    return options


def _address(text: str, port: int) -> Address:
    try:
        split = urlsplit(f"//{text}")
        if not split.hostname:
            raise ValueError
        return Address(split.hostname, split.port or port)
    except ValueError:
        raise _bad(f"has {text!r} in place of HOST or HOST:PORT") from None


def _bad(predicate: str) -> ConfigError:
    return ConfigError(f"engine.url {predicate}.")
