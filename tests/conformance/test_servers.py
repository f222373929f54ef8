"""Test servers: each way of disturbing them has the intended effect."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import hiredis
import pytest

from redis_servers import KINDS, Connection, Proxy, RedisProcess, certificates, redis_cluster, redis_sentinel, until

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_a_killed_server_comes_back_empty_on_its_port(kind: str, tmp_path: Path) -> None:
    with RedisProcess(kind, tmp_path) as server:
        server.command("SET", "key", "value")
        server.kill()
        with pytest.raises(ConnectionRefusedError):
            server.command("PING")
        server.restart()
        assert server.command("GET", "key") is None
    assert not server.alive


def test_a_redis_process_keeps_its_data_over_a_restart_if_requested(tmp_path: Path) -> None:
    with RedisProcess("redis", tmp_path) as server:
        server.command("SET", "key", b"\xff")
        server.restart(keep_data=True)
        assert server.command("GET", "key") == b"\xff"
        server.restart()
        assert server.command("GET", "key") is None


def test_a_stopped_server_accepts_connections_and_answers_when_it_goes_on(tmp_path: Path) -> None:
    with RedisProcess("redis", tmp_path) as server, server.connect() as before:
        server.stop()
        with server.connect() as during:
            before.send("PING")
            during.send("PING")
            with pytest.raises(TimeoutError):
                during.read(within_s=0.1)
            server.cont()
            assert before.read() == during.read() == b"PONG"


def test_a_server_that_was_given_little_memory_refuses_to_write(tmp_path: Path) -> None:
    little = RedisProcess("redis", tmp_path, maxmemory=1, maxmemory_policy="noeviction")
    with little as server, pytest.raises(hiredis.ReplyError, match="OOM"):
        server.command("SET", "key", "value")


def test_users_have_their_own_rights(tmp_path: Path) -> None:
    users = ["default off", "ann on >secret ~a:* &* +@all"]
    with RedisProcess("redis", tmp_path, login=("ann", "secret"), user=users) as server:
        assert server.command("SET", "a:key", "value") == b"OK"
        with pytest.raises(hiredis.ReplyError, match="NOPERM"):
            server.command("SET", "b:key", "value")
        server.login = None
        with pytest.raises(hiredis.ReplyError, match="NOAUTH"):
            server.command("PING")


def test_a_redis_process_that_cannot_start_reports_the_reason(tmp_path: Path) -> None:
    server = RedisProcess("redis", tmp_path, no_such_setting="yes")
    with pytest.raises(AssertionError, match="no-such-setting"), server:
        pass


@every_kind
def test_a_cluster_shares_the_slots_and_a_replica_takes_over(kind: str, tmp_path: Path) -> None:
    with redis_cluster(kind, tmp_path, primaries=3, replicas=1) as cluster:
        assert len(cluster.primaries) == 3
        assert {cluster.owner(slot) for slot in (0, 5461, 16383)} == set(cluster.primaries)
        primary = cluster.primary_of("key")
        (replica,) = cluster.replicas_of(primary)
        with primary.connect() as connection:
            connection.call("SET", "key", "value")
            connection.call("WAIT", 1, 1000)
        assert cluster.fail_over(primary) is replica
        assert cluster.primary_of("key") is replica
        assert replica.command("GET", "key") == b"value"


@every_kind
def test_a_slot_moves_with_its_keys(kind: str, tmp_path: Path) -> None:
    with redis_cluster(kind, tmp_path) as cluster:
        source, keys = cluster.primary_of("{tag}"), [f"{{tag}}{number}" for number in range(150)]
        target = next(process for process in cluster.primaries if process is not source)
        for key in keys:
            source.command("SET", key, "value")
        with cluster.moving_slot(cluster.slot_of("{tag}"), target):
            with pytest.raises(hiredis.ReplyError, match=f"ASK .*:{target.port}"):
                source.command("GET", "{tag}new")
            assert source.command("GET", keys[0]) == b"value"
        assert cluster.primary_of("{tag}") is target
        assert [target.command("GET", key) for key in keys] == [b"value"] * 150
        with pytest.raises(hiredis.ReplyError, match=f"MOVED .*:{target.port}"):
            source.command("GET", keys[0])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisProcess]:
    with RedisProcess("redis", tmp_path) as process:
        yield process


@pytest.fixture
def proxy(server: RedisProcess) -> Iterator[Proxy]:
    with Proxy(server.port) as between:
        yield between


def test_a_cut_network_resets_connections_and_refuses_new_ones_until_it_heals(proxy: Proxy) -> None:
    with Connection(proxy.port) as client:
        assert client.call("PING") == b"PONG"
        assert proxy.connections == 1
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.call("PING")
    with pytest.raises(ConnectionRefusedError):
        Connection(proxy.port)
    assert proxy.connections == 0
    proxy.heal()
    with Connection(proxy.port) as client:
        assert client.call("PING") == b"PONG"


def test_a_frozen_network_is_silent_and_delivers_when_it_thaws(server: RedisProcess, proxy: Proxy) -> None:
    with Connection(proxy.port) as old, server.connect() as direct:
        proxy.freeze()
        with Connection(proxy.port) as new:
            for client in (old, new):
                client.send("INCR", "count")
                with pytest.raises(TimeoutError):
                    client.read(within_s=0.1)
            assert direct.call("GET", "count") is None
            assert proxy.frozen == proxy.connections == 2
            proxy.thaw()
            assert {old.read(), new.read()} == {1, 2}


def test_only_new_connections_freeze(proxy: Proxy) -> None:
    with Connection(proxy.port) as old:
        assert old.call("PING") == b"PONG"
        proxy.freeze_new()
        with Connection(proxy.port) as new:
            new.send("PING")
            with pytest.raises(TimeoutError):
                new.read(within_s=0.1)
            assert old.call("PING") == b"PONG"


def test_only_the_subscriber_freezes(server: RedisProcess, proxy: Proxy) -> None:
    with Connection(proxy.port) as subscriber, Connection(proxy.port) as other:
        assert subscriber.call("SUBSCRIBE", "news") == [b"subscribe", b"news", 1]
        proxy.freeze(b"SUBSCRIBE")
        assert other.call("PUBLISH", "news", "late") == 1
        with pytest.raises(TimeoutError):
            subscriber.read(within_s=0.1)
        with Connection(proxy.port) as second:
            second.send("SUBSCRIBE", "news")
            until(lambda: proxy.frozen == 2, "the second subscriber is frozen")
            assert server.command("PUBSUB", "NUMSUB", "news") == [b"news", 1]
            proxy.thaw()
            assert subscriber.read() == [b"message", b"news", b"late"]
            assert second.read() == [b"subscribe", b"news", 1]


def test_much_passes_unchanged_and_an_end_is_passed_on(server: RedisProcess, proxy: Proxy) -> None:
    much = bytes(range(256)) * 8192
    with Connection(proxy.port) as client:
        assert client.call("SET", "key", much) == b"OK"
        assert client.call("GET", "key") == much
        assert client.call("QUIT") == b"OK"
        with pytest.raises(ConnectionResetError, match="closed"):
            client.read()
    until(lambda: proxy.connections == 0, "the proxy forgets who left")
    with Connection(proxy.port) as client:
        assert client.call("PING") == b"PONG"
        server.kill()
        with pytest.raises(ConnectionResetError):
            client.read()


def test_sentinels_promote_the_replica_of_a_dead_primary(tmp_path: Path) -> None:
    with redis_sentinel(tmp_path) as group:
        old, replica = group.primary, group.replica
        assert group.fail_over() is replica is group.primary
        assert replica.command("SET", "key", "value") == b"OK"
        old.restart()
        group.heal()
        assert old.command("GET", "key") == b"value"


def test_a_split_leaves_two_primaries_that_answer_their_clients_until_it_heals(tmp_path: Path) -> None:
    with redis_sentinel(tmp_path) as group, Connection(group.proxies[group.primary].port) as client:
        client.call("SET", "key", "before")
        client.call("WAIT", 1, 1000)
        old = group.split()
        assert old is not group.primary
        assert client.call("SET", "key", "lost") == b"OK"
        with Connection(group.proxies[old].port) as newcomer:
            assert newcomer.call("ROLE")[0] == group.primary.command("ROLE")[0] == b"master"
        assert group.primary.command("GET", "key") == b"before"
        group.heal()
        assert old.command("GET", "key") == b"before"


@every_kind
def test_the_wall_clock_of_a_running_server_jumps(kind: str, tmp_path: Path) -> None:
    with RedisProcess(kind, tmp_path, clock_file=tmp_path / "clock") as server:
        server.command("SET", "key", "value", "EX", 60)
        first = server.time_ms()
        server.jump(3_600_500)
        assert 3_600_500 <= server.time_ms() - first < 3_620_000
        assert 3_600_500 <= server.command("EVAL", IN_LUA, 0) - first < 3_620_000
        assert server.command("GET", "key") is None
        server.jump(-7_200_999)
        assert -3_600_499 <= server.time_ms() - first < -3_580_000


IN_LUA = "local now = redis.call('TIME') return now[1] * 1000 + math.floor(now[2] / 1000)"


def test_a_server_with_tls_answers_a_user_who_trusts_its_authority(tmp_path: Path) -> None:
    users = ["default off", "ann on >secret ~* &* +@all"]
    made = certificates(tmp_path)
    with RedisProcess("redis", tmp_path, tls=made, login=("ann", "secret"), user=users) as server:
        assert server.command("PING") == b"PONG"
        with pytest.raises(ssl.SSLCertVerificationError):
            Connection(server.port, tls=ssl.create_default_context())
        with Connection(server.port) as plain, pytest.raises(ConnectionResetError):
            plain.call("PING")
        with Connection(server.port, tls=made.context()) as nobody, pytest.raises(hiredis.ReplyError, match="NOAUTH"):
            nobody.call("PING")


def test_a_certificate_for_another_host_is_noticed(tmp_path: Path) -> None:
    made = certificates(tmp_path, hosts=("elsewhere.example",))
    with RedisProcess("redis", tmp_path, tls=made) as server:
        with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
            Connection(server.port, tls=made.context())
        assert server.command("PING") == b"PONG"
