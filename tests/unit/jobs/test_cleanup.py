"""Cleanup jobs: expired rows are removed, one batch per commit."""

from __future__ import annotations

from greendot.jobs.cleanup import AT_ONCE, DAY_MS
from greendot.store.inbox import Notice
from greendot.store.push import Device, Settled
from greendot.store.revocations import Revocation
from greendot.testing.server import Served, serving

T = "default"


async def note(served: Served, name: str) -> str:
    """Return the note of the last run."""
    (last,) = await served.node.store.job_runs(name, 1)
    assert last.outcome == "ok"
    return last.note


async def test_retention_removes_expired_records_and_devices_receive_the_new_badge() -> None:
    async with serving() as served:
        store, now = served.node.store, served.clock.now_ms()
        ann = await served.client("ann")
        many = [Notice(T, f"u{n}", "k", b"1", "k", now, now + 1_000) for n in range(AT_ONCE + 10)]
        await served.node.inbox_service.notify([*many, Notice(T, "ann", "k", b"1", "k", now, now + 1_000)])
        await store.put_revocation(Revocation(T, "session", "s1", now + 500))
        await store.put_revocation(Revocation(T, "user", "bob", now + 500, now))  # kept for tokens without `iat`
        await served.advance(2, [ann])
        await ann.quiet()
        await served.job("retention")
        assert (await note(served, "retention")).startswith(
            f"removed: notifications from {AT_ONCE + 11} inboxes, 1 revocations"
        )
        assert (await store.inbox(T, "ann")).unread == 0
        ((frames),) = await served.advance(1, [ann])
        badges = [frame["data"] for frame in frames if frame["type"] == "inbox.badge"]
        assert badges == [{"unread": 0, "unseen": 0}]
        await served.job("retention")
        assert (await note(served, "retention")).startswith("removed: notifications from 0 inboxes, 0 revocations")


async def test_the_result_of_a_push_is_kept_as_long_as_the_settings_require() -> None:
    push = {"enabled": True, "dry_run": True, "keep_s": 3_600.0}
    async with serving(push=push) as served:
        store, now = served.node.store, served.clock.now_ms()
        (made,) = await store.notify([Notice(T, "ann", "k", b"1", "k", now)])
        (push_of_it,) = await store.claim_pushes("w", now, 1_000, 10, since=now)
        await store.settle_pushes("w", [Settled(push_of_it.id, "no_device")], [], now)
        for later_s, known in ((3_600, 1), (1, 0)):
            await served.advance(later_s)
            await served.job("retention")
            assert len(await store.push_of(T, made.notification.id)) == known


async def test_devices_that_were_not_used_for_sixty_days_are_removed() -> None:
    async with serving() as served:
        store, now = served.node.store, served.clock.now_ms()
        for age in (59, 61):
            used_at = now - age * DAY_MS
            await store.put_device(Device(T, "ann", f"d{age}", "fcm", f"token{age}", used_at, used_at))
        await served.job("cleanup-tokens")
        assert await note(served, "cleanup-tokens") == "1 devices removed"
        assert [device.device for device in await store.devices(T, "ann")] == ["d59"]


async def test_sweep_ends_what_no_longer_counts() -> None:
    async with serving() as served:
        await served.client("ann")
        await served.job("sweep")
        assert await note(served, "sweep") == "0 leftover sessions ended, 0 users went offline"
