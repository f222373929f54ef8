"""The servers that the engine is tested against do what the tests say they do to them."""

from __future__ import annotations

from pathlib import Path

import hiredis
import pytest

from redis_servers import KINDS, RedisProcess

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


def test_a_server_keeps_its_data_over_a_restart_if_told_to(tmp_path: Path) -> None:
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


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = RedisProcess("redis", tmp_path, no_such_setting="yes")
    with pytest.raises(AssertionError, match="no-such-setting"), server:
        pass
