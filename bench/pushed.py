"""Rate and cost of push notifications to offline users.

    python bench/pushed.py [--users N]

A server's push worker runs with its store and engine on one core. A fake FCM (HTTP/2 over TLS, as the real one) runs in
a separate process on the other core. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

import uvloop  # noqa: E402

from fake_providers import PlayedFcm, playing  # noqa: E402
from greendot.app.adapters import make_store  # noqa: E402
from greendot.app.push import make_pushing  # noqa: E402
from greendot.clock import SystemClock  # noqa: E402
from greendot.config import load  # noqa: E402
from greendot.engine.memory import MemoryEngine  # noqa: E402
from greendot.push.policy_model import PushCandidate, PushPolicy, RecipientState, decide  # noqa: E402
from greendot.store.inbox import Notice  # noqa: E402
from greendot.store.port import Store  # noqa: E402
from greendot.store.push import Device  # noqa: E402
from redis_servers.tls import certificates  # noqa: E402

T = "default"
TOGETHER = 500  # notifications per request
GATE_TIMES = 200_000


def provider(folder: str, ready: Any, taken: Any) -> None:
    """Run the fake FCM. `taken` is the number of accepted pushes."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    async def serve() -> None:
        async with playing(PlayedFcm(), certificates(Path(folder))) as fcm:
            (Path(folder) / "account.json").write_text(fcm.account())
            ready.put(fcm.url)
            while True:
                taken.value = len(fcm.taken)
                await asyncio.sleep(0.01)

    uvloop.run(serve())


def gate_us() -> float:
    """Return the microseconds of one push decision with all inputs set."""
    matter = PushCandidate(1_000, "high", "lobby", 10_000_000)
    seen, policy = RecipientState("online", {"hall"}, busy=True, busy_until=90_000), PushPolicy(per_hour=20)
    recent = [*range(1_000, 11_000, 1_000)]
    begun = time.perf_counter()
    for _ in range(GATE_TIMES):
        decide(matter, seen, policy, 20_000, quiet_until=30_000, recent=recent)
    return (time.perf_counter() - begun) / GATE_TIMES * 1e6


def notices(users: Sequence[str], key: str, *, push: bool) -> list[Notice]:
    now, body = SystemClock().now_ms(), b'{"title":"Ann","text":"Shall we meet at noon?"}'
    return [Notice(T, user, "mention", body, key, now, push=push) for user in users]


async def notified_s(store: Store, users: Sequence[str], key: str, *, push: bool, together: int = TOGETHER) -> float:
    """Write notifications and return the CPU seconds, which a busy machine changes less than wall time."""
    begun = time.process_time()
    for at in range(0, len(users), together):
        await store.notify(notices(users[at : at + together], key, push=push))
    return time.process_time() - begun


async def ratio(store: Store, users: Sequence[str], together: int) -> float:
    """Return the cost ratio of notifications with and without push, as the median of alternating pairs."""
    found = []
    for number in range(9):
        plain, pushed = f"plain{together}-{number}", f"pushed{together}-{number}"
        without_s = await notified_s(store, users, plain, push=False, together=together)
        found.append(await notified_s(store, users, pushed, push=True, together=together) / without_s)
    return round(median(found), 2)


async def claimed_us(store: Store, count: int) -> float:
    """Return the microseconds to claim one push, including all data for its decision."""
    now, begun, found = SystemClock().now_ms(), time.perf_counter(), 0
    while claimed := await store.claim_pushes("bench", now, 1, TOGETHER, since=now - 3_600_000):
        found += len(claimed)
        if found >= count:
            break
    return (time.perf_counter() - begun) / found * 1e6


async def measure(folder: str, url: str, taken: Any, count: int) -> dict[str, Any]:
    clock = SystemClock()
    push = {
        "fcm_credentials_file": f"{folder}/account.json",
        "fcm_url": url,
        "allow_private": ["127.0.0.0/8"],
        "ca_file": f"{folder}/authority.pem",
    }
    settings = load(None, {}, {"push": push, "store": {"url": f"sqlite:///{folder}/bench.db"}})
    store = make_store(settings)
    await store.start()
    engine = MemoryEngine(clock, grace_ms=1, typing_ttl_ms=1, typing_throttle_ms=1, seen_retention_ms=1)
    users, now = [f"u{number}" for number in range(count)], clock.now_ms()
    for user in users:
        await store.put_device(Device(T, user, "phone", "fcm", f"token-{user}", now, now))
    alone, together = await ratio(store, users[:200], 1), await ratio(store, users[:1_000], TOGETHER)
    pushing = make_pushing(settings, engine, store, clock)
    claim_us = await claimed_us(store, 5_000)
    await asyncio.sleep(0.01)
    await pushing.worker.once()  # opens the connections and sends the pushes of the measurements above
    before = taken.value
    await notified_s(store, users, "last", push=True)
    used, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    pushing.worker.start()
    while taken.value < before + count and time.perf_counter() - begun < 120:
        await asyncio.sleep(0.01)
    took_s, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    sent = taken.value - before
    await pushing.close()
    left = (await store.push_counts(clock.now_ms())).waiting
    await store.close()
    return {
        "pushes": sent,
        "seconds": round(took_s, 2),
        "pushes_per_s": round(sent / took_s),
        "cpu_us_per_push": round(cpu_s / max(sent, 1) * 1e6),
        "claim_us_per_push": round(claim_us, 1),
        "notify_ratio_alone": alone,
        "notify_ratio_500_together": together,
        "left_in_queue": left,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=10_000)
    count = parser.parse_args().users
    context = multiprocessing.get_context("spawn")
    ready, taken = context.Queue(), context.Value("l", 0)
    with tempfile.TemporaryDirectory() as folder:
        played = context.Process(target=provider, args=(folder, ready, taken), daemon=True)
        played.start()
        try:
            url = ready.get(timeout=30)
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            found = uvloop.run(measure(folder, url, taken, count))
        finally:
            played.kill()
            played.join()
    print(json.dumps({"gate_us": round(gate_us(), 2)} | found))


if __name__ == "__main__":
    main()
