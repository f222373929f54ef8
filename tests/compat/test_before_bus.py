"""Nodes of earlier versions and of this one read each other's data, on the bus and in Redis."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from compat import bus
from compat.talk import differences
from compat.versions import VERSIONS, decoders, written
from greendot.engine.messages import AnySent, Topic
from greendot.engine.redis.bus_codec import BusCodec
from greendot.presence.model import SessionEpoch
from redis_servers import RedisProcess

every_version = pytest.mark.parametrize("version", VERSIONS)


def all_of(version: str) -> list[dict[str, Any]]:
    then = written(version, "bus.json")
    return [entry | {"channel": bus.NODE_CHANNEL} for entry in then["sent"]] + then["told"]


def test_one_of_each_kind_of_message_is_tried() -> None:
    assert {type(message) for message in bus.SENT} == {*AnySent.__args__}


@every_version
def test_bus_messages_of_the_version_before_are_readable(version: str) -> None:
    topic, messages = Topic("node", "", "k3Fa"), BusCodec(bus.KEY)
    for entry in all_of(version):
        _, message = messages.reader(entry["channel"], topic)(b64decode(entry["bytes"]))
        assert bus.kind(message) == entry["kind"]
        assert [*differences(entry["fields"], bus.fields(message), entry["kind"])] == []


@every_version
def test_nodes_of_an_older_version_decode_messages_of_that_version(version: str) -> None:
    """Check the copy of the old decoders."""
    for entry in all_of(version):
        assert decoders(version).read(bus.KEY, entry["channel"], b64decode(entry["bytes"])) == (
            entry["kind"],
            entry["fields"],
        )


@every_version
async def test_nodes_of_an_older_version_decode_current_messages(version: str, tmp_path: Path) -> None:
    """Old nodes ignore new types: a message that does not decode is dropped and counted."""
    then = decoders(version)
    told, _ = await bus.recorded(tmp_path / "redis")
    now = [entry | {"channel": bus.NODE_CHANNEL} for entry in bus.sent() if entry["kind"] in then.KINDS] + told
    assert {entry["kind"] for entry in now} >= then.KINDS | {"Change", "Typing", "Entered", "Left"}
    for entry in now:
        kind, fields = then.read(bus.KEY, entry["channel"], b64decode(entry["bytes"]))
        assert kind == entry["kind"]
        assert [*differences(fields, entry["fields"], kind)] == []


@every_version
async def test_what_a_node_of_then_left_in_redis_is_gone_on_with(version: str, tmp_path: Path) -> None:
    then = written(version, "redis.json")
    with RedisProcess("redis", tmp_path / "redis") as redis:
        bus.put_back(redis, then)
        node = bus.People(redis.port).node
        await node.start()
        try:
            assert [*differences(then["seen"], await bus.seen_by(node))] == []
            taken = SessionEpoch(f"{node.incarnation}-ann", node.incarnation, 1)
            adopted = await node.engine.adopt("t1", "ann", f"{then['incarnation']}-ann2", taken)
            assert adopted is not None
            assert (adopted.incarnation, adopted.idle) == (then["incarnation"], True)
        finally:
            await node.close()
