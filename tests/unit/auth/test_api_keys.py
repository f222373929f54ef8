"""API keys of requests: the key of the settings, the keys of the store, their scopes, expiry and use."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from greendot.auth.api_keys import USED_EVERY_MS, ApiKeys
from greendot.auth.model import Caller, KeyScope, hash_of, text_of
from greendot.errors import StoreUnavailable
from greendot.http.problem import Problem
from greendot.ids import new_key_id, new_key_secret
from greendot.store.api_keys import OPERATOR, ApiKey, Secret
from greendot.store.read_cache import BELIEVED_S
from unit.node_parts import NodeParts, in_virtual_time, pass_time

GIVEN = "key-of-the-settings"


def request(authorization: str | None) -> Request:
    headers = [] if authorization is None else [(b"authorization", authorization.encode())]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers})


async def make(
    parts: NodeParts, *scopes: str, tenant: str = "acme", name: str = "backend", expires_at: int | None = None
) -> str:
    """Create a key in the store and return its text."""
    key_id, secret = new_key_id(), new_key_secret()
    now = parts.clock.now_ms()
    kept = Secret(key_id, hash_of(secret), now, expires_at)
    assert await parts.store.create_key(ApiKey(tenant, name, scopes, now), kept)
    return text_of(key_id, secret)


def keys(parts: NodeParts, given: str = GIVEN) -> ApiKeys:
    return ApiKeys(given, parts.store, parts.clock)


async def status(known: ApiKeys, authorization: str | None, scope: KeyScope = "rooms:read") -> int:
    """Return 200 if a request is admitted, else the status of the problem."""
    try:
        await known.admit(request(authorization), scope)
    except Problem as problem:
        return problem.status
    return 200


@in_virtual_time
async def test_the_key_of_the_settings_may_do_everything_in_the_default_tenant(parts: NodeParts) -> None:
    known = keys(parts)
    asked = request(f"Bearer {GIVEN}")
    await known.admit(asked, "rooms:write")
    await known.admit(asked, "operator")
    assert known.tenant(asked) == "default"
    assert parts.store.calls == []
    assert await status(keys(parts, ""), f"Bearer {GIVEN}") == 401


@in_virtual_time
async def test_a_request_without_a_key_in_the_right_form_is_refused_without_a_read(parts: NodeParts) -> None:
    known = keys(parts)
    wrong = (None, "", "Bearer", "Bearer  ", f"Basic {GIVEN}", GIVEN, "Bearer gd_short", f"Bearer {GIVEN}x")
    assert [await status(known, each) for each in wrong] == [401] * len(wrong)
    assert parts.store.count("key_of_secret") == 0
    assert await status(known, f"bearer   {GIVEN} ") == 200


@in_virtual_time
async def test_a_stored_key_has_its_tenant_and_its_scopes(parts: NodeParts) -> None:
    known, text = keys(parts), await make(parts, "rooms:read", "notify")
    asked = request(f"Bearer {text}")
    await known.admit(asked, "rooms:read")
    assert known.caller(asked) == Caller("acme", frozenset({"rooms:read", "notify"}), "backend")
    assert [await status(known, f"Bearer {text}", scope) for scope in ("notify", "rooms:write", "operator")] == [
        200,
        403,
        403,
    ]


@in_virtual_time
async def test_a_key_of_an_operator_belongs_to_no_tenant(parts: NodeParts) -> None:
    known, text = keys(parts), await make(parts, "operator", tenant=OPERATOR)
    asked = request(f"Bearer {text}")
    await known.admit(asked, "operator")
    with pytest.raises(Problem) as problem:
        known.tenant(asked)
    assert problem.value.status == 403
    assert await status(known, f"Bearer {text}", "rooms:read") == 403


@in_virtual_time
async def test_another_secret_with_the_id_of_a_key_is_refused(parts: NodeParts) -> None:
    known, text = keys(parts), await make(parts, "admin")
    forged = f"{text[:-43]}{new_key_secret()}"
    assert [await status(known, f"Bearer {each}") for each in (forged, text, forged)] == [401, 200, 401]
    assert (await known.known(forged), await known.known(text)) == (
        None,
        Caller("acme", frozenset({"admin"}), "backend"),
    )


@in_virtual_time
async def test_a_secret_is_refused_from_its_end_on_though_it_is_remembered(parts: NodeParts) -> None:
    known, text = keys(parts), await make(parts, "admin", expires_at=parts.clock.now_ms() + 2_000)
    assert await status(known, f"Bearer {text}") == 200
    await pass_time(1.9)
    assert await status(known, f"Bearer {text}") == 200
    await pass_time(0.1)
    assert await status(known, f"Bearer {text}") == 401
    assert parts.store.count("key_of_secret") == 1


@in_virtual_time
async def test_a_removed_key_is_refused_when_the_answer_is_not_believed_any_more(parts: NodeParts) -> None:
    known, text = keys(parts), await make(parts, "admin")
    assert await status(known, f"Bearer {text}") == 200
    await parts.store.remove_key("acme", "backend")
    await pass_time(BELIEVED_S - 0.1)
    assert await status(known, f"Bearer {text}") == 200
    await pass_time(0.2)
    assert await status(known, f"Bearer {text}") == 401


@in_virtual_time
async def test_the_use_of_a_secret_is_written_at_most_once_an_hour(parts: NodeParts) -> None:
    known, text = keys(parts), await make(parts, "admin")
    for _ in range(10):
        await status(known, f"Bearer {text}")
        await pass_time(BELIEVED_S)
    first = parts.store.made("key_used")
    assert len(first) == 1
    await pass_time(USED_EVERY_MS / 1000)
    for _ in range(3):
        await status(known, f"Bearer {text}")
    assert parts.store.count("key_used") == 2
    found = await parts.store.key_of_secret(first[0][0])
    assert found is not None
    assert found[1].used_at is not None
    assert found[1].used_at > first[0][1]


@in_virtual_time
async def test_a_use_that_could_not_be_written_does_not_refuse_the_request(parts: NodeParts) -> None:
    known, text = keys(parts), await make(parts, "admin")
    parts.store.away = {"key_used"}
    assert [await status(known, f"Bearer {text}") for _ in range(3)] == [200] * 3
    assert parts.store.count("key_used") == 1


@in_virtual_time
async def test_while_the_store_is_away_a_key_is_not_called_unknown(parts: NodeParts) -> None:
    known, text = keys(parts), await make(parts, "admin")
    parts.store.away = {"key_of_secret"}
    with pytest.raises(StoreUnavailable):
        await known.known(text)
    with pytest.raises(StoreUnavailable):
        await known.admit(request(f"Bearer {text}"), "admin")
