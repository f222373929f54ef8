"""Setting `GREENDOT` of a Django project, and the SDK client made from it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.module_loading import import_string

from greendot.sdk import Server
from greendot.sdk.tokens import SHORTEST

NAME = "GREENDOT"
KEYS = (
    "URL",
    "API_KEY",
    "SECRET",
    "WEBHOOK_SECRETS",
    "USER_ID",
    "CLAIMS",
    "TOKEN_TTL",
    "TIMEOUT",
    "RETRIES",
    "CACHE",
)


class Mistake(NamedTuple):
    """Mistake in the setting, as the system check with this id reports it."""

    id: str
    text: str
    hint: str


@dataclass(frozen=True)
class Config:
    """Values of the setting. Secrets are left out of its repr."""

    url: str
    api_key: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    webhook_secrets: tuple[str, ...] = field(default=(), repr=False)
    user_id: Callable[[HttpRequest], object] = field(default=lambda request: signed_in(request))
    claims: Callable[[HttpRequest], Mapping[str, Any]] = field(default=lambda request: full_name(request))
    token_ttl_s: float = 3600.0
    timeout_s: float = 10.0
    retries: int = 2
    cache: str = "default"


def signed_in(request: HttpRequest) -> str | None:
    """Return the primary key of the signed-in user of `django.contrib.auth`; None if no user is signed in."""
    user = getattr(request, "user", None)
    return str(user.pk) if user is not None and user.is_authenticated else None


def full_name(request: HttpRequest) -> dict[str, Any]:
    """Return the claim `name` with the full name of the user, if there is one. Other users see it."""
    full = getattr(getattr(request, "user", None), "get_full_name", str)
    return {"name": name[:200]} if (name := full()) else {}


@lru_cache(maxsize=1)
def config() -> Config:
    """Return the values of the setting. Raise ImproperlyConfigured with all mistakes."""
    found = mistakes(getattr(settings, NAME, None))
    if found:
        raise ImproperlyConfigured("\n".join(f"{one.text} {one.hint}" for one in found))
    given: dict[str, Any] = dict(getattr(settings, NAME))
    fields: dict[str, Any] = {name.lower(): value for name, value in given.items() if name in KEYS}
    for name in ("user_id", "claims"):
        if isinstance(fields.get(name), str):
            fields[name] = import_string(fields[name])
    for name in ("token_ttl", "timeout"):
        if name in fields:
            fields[f"{name}_s"] = seconds(fields.pop(name))
    secrets = fields.get("webhook_secrets", ())
    fields["webhook_secrets"] = (secrets,) if isinstance(secrets, str) else tuple(secrets)
    return Config(**fields)


@lru_cache(maxsize=1)
def server() -> Server:
    """Return the SDK client of this process. It is thread-safe."""
    found = config()
    return Server(found.url, found.api_key, secret=found.secret, timeout=found.timeout_s, retries=found.retries)


def forget(*, setting: str, **_: object) -> None:
    """Forget the values after a change of the setting in a test."""
    if setting == NAME:
        if server.cache_info().currsize:
            server().close()
        server.cache_clear()
        config.cache_clear()


def seconds(duration: float | timedelta) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


# --- mistakes ---


def mistakes(given: object) -> list[Mistake]:
    """Return all mistakes in a value of the setting. No text has a secret."""
    if not isinstance(given, Mapping):
        text = f"The setting {NAME} is missing." if given is None else f"The setting {NAME} is not a dict."
        return [Mistake("greendot.E001", text, f'Add {NAME} = {{"URL": "http://127.0.0.1:8000", …}} to your settings.')]
    return [
        *_unknown(given),
        *_url(given.get("URL")),
        *_secrets(given),
        *_functions(given),
        *_numbers(given),
        *_cache(given.get("CACHE", "default")),
    ]


def _unknown(given: Mapping[object, object]) -> list[Mistake]:
    found = []
    for key in given:
        if key not in KEYS:
            near = difflib.get_close_matches(str(key).upper(), KEYS, 1, 0.5)
            hint = f"Did you mean {near[0]!r}?" if near else f"It may have: {', '.join(KEYS)}."
            found.append(Mistake("greendot.E002", f"{NAME} has an unknown key {key!r}.", hint))
    return found


def _url(url: object) -> list[Mistake]:
    hint = "Set it to the address of the Greendot server, such as http://127.0.0.1:8000."
    if not url:
        return [Mistake("greendot.E003", f'{NAME}["URL"] is missing.', hint)]
    try:
        Server(url if isinstance(url, str) else "")
        urlsplit(str(url)).port  # noqa: B018  (raises ValueError if it is no number)
    except ValueError:
        # The text does not show the address, which may contain a password.
        return [Mistake("greendot.E003", f'{NAME}["URL"] is not the address of a server.', hint)]
    return []


def _secrets(given: Mapping[str, object]) -> list[Mistake]:
    found = [
        Mistake("greendot.E004", f'{NAME}["{key}"] is not a string.', "Set it to a string, or leave it out.")
        for key in ("API_KEY", "SECRET")
        if not isinstance(given.get(key, ""), str)
    ]
    secret = given.get("SECRET")
    if isinstance(secret, str) and 0 < len(secret) < SHORTEST:
        hint = "Set it to auth.secret of the Greendot server (GREENDOT_AUTH_SECRET)."
        found.append(Mistake("greendot.E004", f'{NAME}["SECRET"] has fewer than {SHORTEST} characters.', hint))
    secrets = given.get("WEBHOOK_SECRETS", [])
    listed = [secrets] if isinstance(secrets, str) else secrets
    if not isinstance(listed, list | tuple) or not all(isinstance(each, str) and each for each in listed):
        hint = "Set it to webhooks.secret of the Greendot server (GREENDOT_WEBHOOKS_SECRET), or to a list of secrets."
        text = f'{NAME}["WEBHOOK_SECRETS"] is neither a secret nor a list of secrets, or one is empty.'
        found.append(Mistake("greendot.E005", text, hint))
    return found


def _functions(given: Mapping[str, object]) -> list[Mistake]:
    found = []
    for key, result in (("USER_ID", "the user's id, or None"), ("CLAIMS", "a dict")):
        value = given.get(key)
        trouble = "is neither a function nor the dotted path of one."
        if isinstance(value, str):
            try:
                value = import_string(value)
            except ImportError as error:
                trouble = f"cannot be imported: {error}."
        if value is not None and not callable(value):
            hint = f"The function takes the request and returns {result}."
            found.append(Mistake("greendot.E006", f'{NAME}["{key}"] {trouble}', hint))
    return found


def _numbers(given: Mapping[str, object]) -> list[Mistake]:
    found = []
    for key in ("TOKEN_TTL", "TIMEOUT"):
        value = given.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, int | float | timedelta) or not 0 < seconds(value) < 1e9:
            text = f'{NAME}["{key}"] is {value!r}.'
            found.append(Mistake("greendot.E007", text, "Set it to a number of seconds above 0, or a timedelta."))
    retries = given.get("RETRIES", 0)
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= 100:
        found.append(
            Mistake("greendot.E007", f'{NAME}["RETRIES"] is {retries!r}.', "Set it to a number from 0 to 100.")
        )
    return found


def _cache(alias: object) -> list[Mistake]:
    if alias in settings.CACHES:
        return []
    return [
        Mistake(
            "greendot.E008",
            f'{NAME}["CACHE"] is {alias!r}.',
            f"Set it to a cache of CACHES: {', '.join(settings.CACHES)}.",
        )
    ]
