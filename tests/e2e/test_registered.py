"""Push devices: registered over the socket and by the app, limited in number, and shown without tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.processes import Answer, ask
from fake_providers import vapid_key
from greendot.testing.server import API_KEY, Served, serving


async def http(served: Served, method: str, path: str, body: Any = None) -> Answer:
    return await ask(served.port, method, path, body, Authorization=f"Bearer {API_KEY}")


async def devices(served: Served, user: str = "ann") -> dict[str, str]:
    found = (await http(served, "GET", f"/v1/users/{user}/devices")).json()["devices"]
    return {device["device"]: device["token"] for device in found}


async def test_a_client_registers_its_own_device_and_removes_it() -> None:
    async with serving() as served:
        ann = await served.client("ann", device="phone")
        assert await ann.request(type="device.register", provider="fcm", token="a-token-of-fcm") == {}
        assert await devices(served) == {"phone": "…of-fcm"}
        (kept,) = await served.node.store.devices("default", "ann")
        assert (kept.device, kept.provider, kept.token) == ("phone", "fcm", "a-token-of-fcm")
        await ann.request(type="device.register", provider="fcm", token="another-token")
        assert await devices(served) == {"phone": "…-token"}
        for _ in range(2):
            assert await ann.request(type="device.remove") == {}
        assert await devices(served) == {}


async def test_a_browser_gets_the_key_of_its_tenant_to_subscribe_with(tmp_path: Path) -> None:
    file, public = vapid_key(tmp_path)
    push = {"webpush_key_file": str(file), "webpush_subject": "mailto:ops@example.com"}
    async with serving(
        push=push | {"in_server": False}, tenants={"acme": {}, "off": {"push": {"enabled": False}}}
    ) as served:
        ann = await served.client("ann")
        assert await ann.request(type="device.key") == {"public_key": public}
        assert (await http(served, "GET", "/v1/push/key")).json() == {"public_key": public}
        for tenant in ("acme", "off"):
            other = await served.client("ann", claims={"tenant": tenant})
            found = await other.request(type="device.key")
            assert found == {"public_key": public if served.greendot.settings.push_of(tenant).pushes else None}
    async with serving() as served:
        assert await (await served.client("ann")).request(type="device.key") == {"public_key": None}


async def test_a_phone_that_changes_hands_is_pushed_to_for_one_user_only() -> None:
    async with serving() as served:
        for user in ("ann", "bob"):
            client = await served.client(user, device="phone")
            await client.request(type="device.register", provider="fcm", token="the-same")
        assert [await devices(served, user) for user in ("ann", "bob")] == [{}, {"phone": "…e-same"}]


async def test_a_device_known_by_a_name_is_not_taken_by_who_knows_the_name() -> None:
    """Tokens of the provider `webhook` are names that an app chooses, so others can guess them."""
    async with serving() as served:
        ann, eve = [await served.client(user, device="phone") for user in ("ann", "eve")]
        await ann.request(type="device.register", provider="webhook", token="ann@example.org")
        await eve.request(type="device.register", provider="webhook", token="ann@example.org")
        body = {"provider": "webhook", "token": "ann@example.org"}
        assert (await http(served, "PUT", "/v1/users/bob/devices/phone", body)).status == 201
        found = [await devices(served, user) for user in ("ann", "eve", "bob")]
        assert found == [{"phone": "…le.org"}] * 3
        await eve.request(type="device.remove")
        assert await devices(served, "ann") == {"phone": "…le.org"}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ({"provider": "pigeon", "token": "t"}, "provider"),
        ({"provider": "fcm"}, "token"),
        ({"provider": "fcm", "token": ""}, "token"),
        ({"provider": "fcm", "token": "x" * 4_097}, "4096"),
        ({"provider": "fcm", "token": 7}, "token"),
        ({"provider": "apns", "token": "not hexadecimal"}, "hexadecimal"),
        ({"provider": "webpush", "token": "{}"}, "token"),
        ({"provider": "webpush", "token": "https://push.example"}, "token"),
    ],
)
async def test_what_cannot_be_a_token_is_refused_with_a_word(command: dict[str, Any], said: str) -> None:
    async with serving() as served:
        ann = await served.client("ann")
        ann.send(type="device.register", id=1, **command)
        error = await ann.receive("error")
        assert error["code"] == "bad_field"
        assert said in error["message"]
        answer = await http(served, "PUT", "/v1/users/ann/devices/phone", command)
        assert answer.status == 400
        assert said in answer.json()["detail"]
        assert await devices(served) == {}


async def test_of_too_many_devices_those_unused_for_longest_are_forgotten() -> None:
    async with serving() as served:
        for number in range(23):
            body = {"provider": "webhook", "token": f"token-{number:02}"}
            answer = await http(served, "PUT", f"/v1/users/ann/devices/d{number}", body)
            assert answer.status == 201
            served.clock.advance(1)
        kept = await devices(served)
        assert kept.keys() == {f"d{number}" for number in range(3, 23)}
        body = {"provider": "webhook", "token": "token-22"}
        assert (await http(served, "PUT", "/v1/users/ann/devices/d22", body)).status == 200
        assert len(await devices(served)) == 20


async def test_the_app_removes_a_device_and_gets_404_for_an_unknown_one() -> None:
    async with serving() as served:
        assert (await http(served, "DELETE", "/v1/users/ann/devices/phone")).status == 404
        await http(served, "PUT", "/v1/users/ann/devices/phone", {"provider": "webhook", "token": "t"})
        assert (await http(served, "DELETE", "/v1/users/ann/devices/phone")).status == 204
        assert (await http(served, "PUT", "/v1/users/ann/devices/no%20name", {})).status == 400
        without = await ask(served.port, "GET", "/v1/users/ann/devices")
        assert without.status == 401


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"time_zone": "Atlantis/Sunken"}, "time zone"),
        ({"time_zone": "../../etc/passwd"}, "time zone"),
        ({"time_zone": ""}, "time zone"),
        ({"quiet_hours": {"begins": "25:00", "ends": "07:00"}}, "begins"),
        ({"quiet_hours": {"begins": "22:00"}}, "ends"),
    ],
)
async def test_invalid_push_preferences_are_refused(body: dict[str, Any], said: str) -> None:
    async with serving() as served:
        answer = await http(served, "PUT", "/v1/users/ann/push", body)
        assert answer.status == 400, answer
        assert said in answer.json()["detail"]
        plain = {"time_zone": "UTC", "quiet_hours": None}
        assert (await http(served, "GET", "/v1/users/ann/push")).json() == plain
