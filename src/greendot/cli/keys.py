"""Command `greendot keys`: API keys, created and revoked in the store. A key is shown once, when it is created."""

from __future__ import annotations

from typing import Any

import click

from greendot.auth.model import SCOPES, hash_of, text_of
from greendot.cli._durations import Duration
from greendot.cli._group import Group
from greendot.cli._options import json_option, print_json
from greendot.cli._store import StoreAccess, store_options
from greendot.cli._tables import NOTHING, ago, duration, left, print_table
from greendot.clock import SystemClock
from greendot.config import Settings, check_id
from greendot.errors import ConfigError
from greendot.ids import new_key_id, new_key_secret
from greendot.store.api_keys import OPERATOR, ApiKey, KeyAndSecrets, Secret
from greendot.store.port import Store
from greendot.store.read_cache import BELIEVED_S

OPERATORS = "(operator)"  # in the tenant column of tables; no tenant can have this name

_tenant = click.option("--tenant", metavar="T", help="Tenant of the key. [default: default]")
_operator = click.option("--operator", is_flag=True, help="Operator key, which belongs to no tenant.")


@click.group(cls=Group)
def keys() -> None:
    """Manage API keys for the HTTP API."""


@keys.command()
@click.argument("name")
@_tenant
@_operator
@click.option("--scope", "scopes", multiple=True, type=click.Choice(SCOPES), help="Scope of the key; may be repeated.")
@click.option("--expires", type=Duration(), help="Lifetime of the key, such as 90d.")
@json_option
@store_options
def create(
    name: str,
    tenant: str | None,
    operator: bool,
    scopes: tuple[str, ...],
    expires: int | None,
    as_json: bool,
    access: StoreAccess,
) -> None:
    """Create an API key called NAME and print it. It cannot be shown again."""
    owner = _owner(name, tenant, operator)
    if operator == bool(scopes):
        raise click.UsageError(
            "An operator key has no scopes. Leave out --scope."
            if operator
            else f"A key needs a scope. Add --scope {' or '.join(SCOPES)}."
        )
    shown, secret = _new_secret(expires)
    key = ApiKey(owner, name, ("operator",) if operator else tuple(dict.fromkeys(scopes)), secret.created_at)

    async def make(store: Store) -> bool:
        await _check_registered(access.settings, store, owner)
        return await store.create_key(key, secret)

    if not access.run(make):
        raise ConfigError(
            f"key {name!r} of {_whose(owner)} already exists. Rotate or revoke it, or choose another name."
        )
    _show(shown, f"Created key {name} of {_whose(owner)}: {', '.join(key.scopes)}. The key", key, secret, as_json)


@keys.command()
@click.argument("name")
@_tenant
@_operator
@click.option(
    "--overlap", type=Duration(), default="24h", show_default=True, help="Time for which the old secret stays valid."
)
@click.option("--expires", type=Duration(), help="Lifetime of the new secret. [default: that of the old one]")
@json_option
@store_options
def rotate(
    name: str, tenant: str | None, operator: bool, overlap: int, expires: int | None, as_json: bool, access: StoreAccess
) -> None:
    """Create a new secret for the key NAME and print it. The old secret stays valid for a while."""
    owner = _owner(name, tenant, operator)

    async def change(store: Store) -> tuple[ApiKey, str, Secret]:
        found = await store.api_key(owner, name)
        if found is not None:
            key, secrets = found
            newest = secrets[-1]
            lasts = expires if expires is not None else newest.expires_at and newest.expires_at - newest.created_at
            shown, secret = _new_secret(lasts)
            if await store.rotate_key(owner, name, secret, old_ends_at=secret.created_at + overlap):
                return key, shown, secret
        raise _no_key(owner, name)

    key, shown, secret = access.run(change)
    how = f"stays valid for {duration(overlap)}" if overlap else f"is refused within {BELIEVED_S:.0f} s"
    said = f"Created a new secret for key {name} of {_whose(owner)}. The old secret {how}. The new secret"
    _show(shown, said, key, secret, as_json)


@keys.command()
@click.argument("name")
@_tenant
@_operator
@store_options
def revoke(name: str, tenant: str | None, operator: bool, access: StoreAccess) -> None:
    """Revoke the key NAME with all its secrets."""
    owner = _owner(name, tenant, operator)
    if not access.run(lambda store: store.remove_key(owner, name)):
        raise _no_key(owner, name)
    click.echo(f"Revoked key {name} of {_whose(owner)}. Servers refuse it within {BELIEVED_S:.0f} s.")


@keys.command("list")
@click.option("--tenant", metavar="T", help="Only keys of this tenant.")
@click.option("--operator", is_flag=True, help="Only operator keys.")
@json_option
@store_options
def list_keys(tenant: str | None, operator: bool, as_json: bool, access: StoreAccess) -> None:
    """List the keys with the dates of their secrets. Secrets are not shown."""
    owner = None if tenant is None and not operator else _owner("x", tenant, operator)
    found = access.run(lambda store: store.api_keys(owner))
    if as_json:
        print_json({"keys": [_entry(key, secrets) for key, secrets in found]})
        return
    now = SystemClock().now_ms()
    rows = [row for of in found for row in _rows(of, now)]
    head = ("TENANT", "NAME", "SECRET", "SCOPES", "CREATED", "LAST USED", "EXPIRES IN")
    print_table(head, rows, "There are no keys. Create one with: greendot keys create")


def _rows(of: KeyAndSecrets, now: int) -> list[tuple[str, ...]]:
    key, secrets = of
    return [
        (
            key.tenant or OPERATORS,
            key.name,
            f"gd_{secret.id}_…",
            ", ".join(key.scopes),
            ago(secret.created_at, now),
            ago(secret.used_at, now),
            NOTHING if secret.expires_at is None else left(secret.expires_at - now),
        )
        for secret in secrets
    ]


def _entry(key: ApiKey, secrets: list[Secret]) -> dict[str, Any]:
    return {
        "tenant": key.tenant or None,
        "name": key.name,
        "scopes": key.scopes,
        "created_at": key.created_at,
        "secrets": [
            {"id": it.id, "created_at": it.created_at, "expires_at": it.expires_at, "used_at": it.used_at}
            for it in secrets
        ],
    }


def _owner(name: str, tenant: str | None, operator: bool) -> str:
    """Return the tenant of the key, or OPERATOR."""
    if operator and tenant is not None:
        raise click.UsageError("Give either --tenant or --operator.")
    check_id("the key's name", name)
    return OPERATOR if operator else check_id("tenant", tenant if tenant is not None else "default")


def _whose(owner: str) -> str:
    return "the operators" if owner == OPERATOR else f"tenant {owner}"


def _new_secret(lasts_ms: int | None) -> tuple[str, Secret]:
    """Return the text to show, and the secret as it is stored."""
    id, secret, now = new_key_id(), new_key_secret(), SystemClock().now_ms()
    return text_of(id, secret), Secret(id, hash_of(secret), now, None if lasts_ms is None else now + lasts_ms)


async def _check_registered(settings: Settings, store: Store, owner: str) -> None:
    if settings.auth.tenants != "registered" or owner == OPERATOR or owner in settings.tenants:
        return
    if await store.tenant(owner) is None:
        raise ConfigError(
            f"tenant {owner} is not registered, and auth.tenants admits only registered tenants. Register it: greendot "
            f"tenants create {owner}"
        )


def _no_key(owner: str, name: str) -> ConfigError:
    return ConfigError(f"key {name!r} of {_whose(owner)} not found. List the keys with: greendot keys list")


def _show(shown: str, said: str, key: ApiKey, secret: Secret, as_json: bool) -> None:
    """Print the key. Without JSON only the key goes to stdout, so that a program can read it from there."""
    if as_json:
        print_json({"key": shown, **_entry(key, [secret])})
        return
    ends = "" if secret.expires_at is None else f" and expires in {duration(secret.expires_at - secret.created_at)}"
    click.echo(f"{said} is shown only now{ends}:", err=True)
    click.echo(shown)
