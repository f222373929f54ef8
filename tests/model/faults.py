"""Setup for a forked node under test (`FORKED_FIRST`): its bus loses, duplicates and delays published messages."""

from __future__ import annotations

import asyncio
import os
import random

from greendot.engine.messages import Message, Topic
from greendot.engine.redis.bus import RedisBus
from greendot.inbox import delivery as inboxes
from greendot.rooms import delivery

chance = random.Random(os.environ["FAULTS_SEED"])
publish = RedisBus.publish


def badly(bus: RedisBus, topic: Topic, message: Message) -> None:
    if chance.random() < 0.3:
        return
    for _ in range(2 if chance.random() < 0.1 else 1):
        if chance.random() < 0.3:
            asyncio.get_running_loop().call_later(chance.expovariate(1 / 0.05), publish, bus, topic, message)
        else:
            publish(bus, topic, message)


RedisBus.publish = badly  # type: ignore[method-assign]
delivery.COMPARE_S = float(os.environ["FAULTS_COMPARE_S"])
inboxes.COMPARE_S = float(os.environ["FAULTS_COMPARE_S"])
