"""Checks of access: tokens, API keys, ingress policy, TLS."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from greendot.config import Settings
from greendot.ops.doctor.finding import Finding, Findings, Weight, error, note, ok, or_ok, warning
from greendot.ops.doctor.secrets import weakness
from greendot.ops.facts_model import CertificateFacts, FileFacts

DAY_S = 86_400
LONG_TOKEN_S, TOO_LONG_TOKEN_S = DAY_S, 30 * DAY_S
CERTIFICATE_DAYS = 21  # days left for a warning; automatic renewal happens with thirty left
MAKE_ONE = "Make one with: openssl rand -hex 32"
_WIDEST = {4: 16, 6: 32}  # shortest prefix of a network of proxies with public addresses, by IP version


def is_local(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def tokens(settings: Settings, dev_secret: str) -> Findings:
    auth = settings.auth
    yield from or_ok("auth", "nothing weak about keys and tokens", _tokens(settings, dev_secret))
    for key in auth.keys:
        if key.secret and (weak := weakness(key.secret)):
            why = "Whoever guesses it can be anybody."
            yield error("auth.keys", f"the secret of key {key.kid!r} is weak: {weak}", why, MAKE_ONE)


def _tokens(settings: Settings, dev_secret: str) -> Findings:
    auth = settings.auth
    if auth.secret and (weak := weakness(auth.secret)):
        yield error("auth.secret", f"it is weak: {weak}", "Whoever guesses it can be anybody, on all nodes.", MAKE_ONE)
    if auth.secret and auth.secret == dev_secret and not settings.server.dev:
        why = "It was made to try things out, and lies in a file beside them."
        yield warning("auth.secret", "it is the one that `greendot serve --dev` made", why, MAKE_ONE)
    if auth.secret and (auth.jwks_url or auth.keys) and not auth.algorithms:
        why = "What all nodes share can then make tokens, beside the keys you meant."
        yield note(
            "auth.algorithms", "empty: auth.secret signs tokens too", why, 'Set it to those of your keys: ["RS256"]'
        )
    missing = [name for name in ("audience", "issuer") if not getattr(auth, name)]
    if "audience" in missing and auth.jwks_url:
        yield warning(
            "auth.audience",
            "not set, and keys come from auth.jwks_url",
            "A token that the same provider made for another app opens this one.",
            "Set auth.audience to what your tokens have in `aud`, and auth.issuer to their `iss`.",
        )
    elif missing:
        names = " and ".join(f"auth.{name}" for name in missing)
        why = "Tokens made with the same key for something else are taken too."
        yield note(names, "not set", why, f"Set {names} to what your tokens say.")
    if auth.longest_token_s > LONG_TOKEN_S:
        yield Finding(
            "warning" if auth.longest_token_s > TOO_LONG_TOKEN_S else "note",
            "auth.longest_token_s",
            f"tokens may hold for {auth.longest_token_s / DAY_S:g} days",
            "A token that is lost opens the door for so long, unless it is revoked.",
            "Set it to the longest your app gives out, such as 3600.",
        )
    if auth.token_in_query:
        yield warning(
            "auth.token_in_query",
            "tokens are taken from addresses",
            "Proxies, browsers and logs keep addresses.",
            "Set it to false; send the token in `hello`, or with the request.",
        )


def api_key(settings: Settings, stored_keys: int) -> Findings:
    """Yield the findings about the API key. `stored_keys` is the number of keys in the store."""
    key = settings.api.key
    if key:
        yield from or_ok("api.key", "it looks as if made by chance", _api_key(key, stored_keys))
    elif stored_keys:
        yield ok("api.key", "not set: the keys are in the store")
    else:
        do = "greendot keys create NAME, or GREENDOT_API_KEY for the first one."
        yield note("api.key", "there is no API key", "Nobody can use the HTTP API.", do)


def _api_key(key: str, stored_keys: int) -> Findings:
    if weak := weakness(key):
        why = "Whoever guesses it may read, write and revoke everything of tenant `default`."
        yield error("api.key", f"it is weak: {weak}", why, MAKE_ONE)
    why = "It has scope admin, is an operator's key beside, and never ends."
    if stored_keys:
        do = "Leave GREENDOT_API_KEY out: `greendot keys list` shows the keys that do without it."
        yield warning("api.key", "the first key is still on, beside those in the store", why, do)
    else:
        do = "For production: greendot keys create, one for each app with its scopes, then leave GREENDOT_API_KEY out."
        yield note("api.key", "the first key is in use", why, do)


def shared(settings: Settings) -> Findings:
    """Yield the findings about secrets that are used twice, and about weak secrets of hashes and webhooks."""
    named: dict[str, str] = {
        "auth.secret": settings.auth.secret,
        "api.key": settings.api.key,
        "privacy.hash_key": settings.privacy.hash_key,
        "visibility.ask_secret": settings.visibility.ask_secret,
    }
    named |= {f"webhooks.secret of tenant {tenant}": hook.secret for tenant, hook in settings.hooks.items()}
    names: dict[str, list[str]] = {}
    for name, secret in named.items():
        if secret:
            names.setdefault(secret, []).append(name)
    for several in names.values():
        if len(several) > 1:
            why = "Who learns the one, such as the app that is told by webhook, has the other."
            yield warning(several[0], f"the same secret is in {', '.join(several)}", why, f"One for each. {MAKE_ONE}")
    for name, secret in named.items():
        if secret and name not in ("auth.secret", "api.key") and (weak := weakness(secret)):
            yield warning(name, f"it is weak: {weak}", "It can be guessed.", MAKE_ONE)


def door(settings: Settings) -> Findings:
    yield from or_ok("door", "it is not open to all", _door(settings))


def _door(settings: Settings) -> Findings:
    door = settings.door
    if "*" in door.origins:
        yield warning(
            "door.origins",
            "`*`: any page may open a WebSocket",
            "A page of anybody's can use what a visitor's browser has of yours.",
            'List your pages: door.origins = ["https://app.example.com"]',
        )
    elif not door.origins:
        why = "Only pages from the host the socket goes to may connect. Behind a proxy that needs its Host header."
        yield note("door.origins", "no list", why, 'Pages elsewhere: door.origins = ["https://app.example.com"]')
    if not door.hosts and not settings.server.dev:
        why = "A name that is made to lead here is answered like your own."
        yield note("door.hosts", "no list", why, 'door.hosts = ["chat.example.com"]')
    for text in door.trusted_proxies:
        network = ip_network(text)
        if network.prefixlen == 0:
            why = "Any client can say where it is, and so has no limit of connections."
            yield error("door.trusted_proxies", f"{text}: everybody is trusted", why, "List exactly your proxies.")
        elif not network.is_private and network.prefixlen < _WIDEST[network.version]:
            why = "Whoever has an address in it can say he is somewhere else."
            yield warning("door.trusted_proxies", f"{text} is wide and public", why, "List exactly your proxies.")
    if is_local(settings.server.host) and not door.trusted_proxies and not settings.server.dev:
        why = "If a proxy is in front, all its clients count as one address."
        yield note("door.trusted_proxies", "none, and only this machine is listened to", why, "List the proxy.")
    if not door.connections_per_ip:
        why = "One address can take all sockets."
        yield note("door.connections_per_ip", "0: no limit", why, "Set it, such as 1000, unless load is tested.")


def transport(settings: Settings, certificate: CertificateFacts | None, files: tuple[FileFacts, ...]) -> Findings:
    yield from or_ok("tls", _how(settings), _transport(settings, certificate))
    for file in files:
        if file.mode & 0o077:
            who = "everybody" if file.mode & 0o007 else "its group"
            weight: Weight = "warning" if file.mode & 0o007 else "note"
            found = f"{file.path} may be read or written by {who} on this machine (mode {file.mode:03o})"
            yield Finding(weight, file.setting, found, "It has a secret in it.", f"chmod 600 {file.path}")


def _how(settings: Settings) -> str:
    return "TLS of its own" if settings.tls.cert else "no TLS here: a proxy in front, or this machine only"


def _transport(settings: Settings, certificate: CertificateFacts | None) -> Findings:
    server = settings.server
    if not settings.tls.cert and not is_local(server.host) and not settings.door.trusted_proxies and not server.dev:
        yield warning(
            "tls.cert",
            f"no TLS, no trusted proxy, and {server.host} is listened on",
            "Whoever is on the way reads tokens, keys and messages.",
            "Set tls.cert and tls.key, or put a proxy with TLS in front and list it in door.trusted_proxies.",
        )
    if certificate is None:
        return
    renew = f"Renew {certificate.path}, then send the server SIGHUP."
    if certificate.days_left <= 0:
        yield error("tls.cert", f"it ended {_days(-certificate.days_left)} ago", "Browsers refuse to connect.", renew)
    elif certificate.days_left < CERTIFICATE_DAYS:
        yield warning(
            "tls.cert", f"it ends in {_days(certificate.days_left)}", "Then browsers refuse to connect.", renew
        )
    if certificate.days_old < 0:
        why = "Browsers refuse to connect; or the clock of this machine is wrong."
        yield error("tls.cert", "it is not valid yet", why, "Look at `date`, and at the certificate's beginning.")


def _days(count: float) -> str:
    return f"{count:.0f} day" if round(count) == 1 else f"{count:.0f} days"


def dev_mode(settings: Settings, host_flag: str | None) -> Findings:
    if not settings.server.dev:
        return
    why = "Dev mode gives a token of anybody to whoever asks."
    outside = [name for name in ("trusted_proxies", "origins", "hosts") if not _is_inside(getattr(settings.door, name))]
    if host_flag is not None and not is_local(host_flag):
        yield error(
            "server.dev", f"dev mode on {host_flag}", f"{why} A server refuses to start so.", "Leave out --dev."
        )
    elif outside:
        names = ", ".join(f"door.{name}" for name in outside)
        yield error("server.dev", f"dev mode, and {names} speak of others than this machine", why, "Leave out --dev.")
    else:
        yield warning("server.dev", "dev mode", why, "Leave out --dev where others get there.")


def _is_inside(names: tuple[str, ...]) -> bool:
    return all(_host_of(name) in ("127.0.0.1", "localhost", "::1") or is_local(_host_of(name)) for name in names)


def _host_of(text: str) -> str:
    """Return the host of an origin, of a host with a port, or of a network."""
    rest = text.rpartition("://")[2].partition("/")[0]
    return (
        rest.partition("]")[0].strip("[")
        if rest.startswith("[")
        else rest
        if rest.count(":") > 1
        else rest.partition(":")[0]
    )
