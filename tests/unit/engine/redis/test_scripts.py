"""Lua scripts: one per verb, with flags that let Redis run them when it is out of memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path

import hiredis
import pytest

import greendot.engine.redis
from greendot.engine.redis import scripts
from greendot.engine.redis.scripts import SCRIPTS, Script
from redis_servers import KINDS, RedisProcess

LUA = Path(greendot.engine.redis.__file__).parent / "lua"
WRITES = re.compile(
    r"clear_user|users_there|'(HSET|HSETNX|HDEL|ZADD|ZREM\w*|PEXPIRE)'|settle\(|publish|ARGV\[[23]\], ARGV"
)
every_script = pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())


def flags(script: Script) -> set[str]:
    head = script.source.splitlines()[0]
    assert head.startswith("#!lua")
    return {*head.partition("flags=")[2].split(",")} - {""}


@pytest.fixture(scope="module", params=KINDS)
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """Start a server that is out of memory."""
    with RedisProcess(request.param, tmp_path_factory.mktemp(request.param)) as process:
        process.command("HSET", "nodes", "k1", "live")
        process.command("CONFIG", "SET", "maxmemory", 1)
        yield process


def test_there_is_one_script_for_each_file() -> None:
    assert {path.stem for path in LUA.glob("*.lua")} - {"record"} == SCRIPTS.keys()
    assert scripts._FLAGS.keys() <= SCRIPTS.keys()


@every_script
def test_a_script_is_known_by_the_hash_of_its_source(script: Script) -> None:
    assert script.sha == sha1(script.source.encode()).hexdigest()


@every_script
def test_the_head_of_a_verb_names_its_keys_or_goes_on_where_the_shared_part_began(script: Script) -> None:
    head = [line for line in (LUA / f"{script.name}.lua").read_text().splitlines() if line.startswith("--")]
    assert (
        any("KEYS" in line for line in head) or any("ARGV from 7" in line for line in head) or script.name == "settle"
    )


@every_script
def test_a_script_that_only_looks_writes_nothing(script: Script) -> None:
    own = re.sub(r"--.*", "", (LUA / f"{script.name}.lua").read_text())  # without comments
    assert ("no-writes" in flags(script)) == (WRITES.search(own) is None)


@every_script
def test_a_server_takes_every_script(full: RedisProcess, script: Script) -> None:
    assert full.command("SCRIPT", "LOAD", script.source).decode() == script.sha


@every_script
def test_out_of_memory_nothing_new_is_taken_in_and_everything_else_goes_on(full: RedisProcess, script: Script) -> None:
    """Scripts that remove data or only read must still run: removal frees the memory."""
    grows = script.name in ("enter", "grow", "index", "register", "restore", "status", "touch", "typing_start")
    assert bool(flags(script)) != grows
    full.command("SCRIPT", "LOAD", script.source)
    assert answer(full, script).startswith("OOM") == grows


def answer(redis: RedisProcess, script: Script) -> str:
    """Return the result or error of a call without keys. Some scripts fail without keys after Redis has admitted
    them."""
    try:
        return str(redis.command("EVALSHA", script.sha, 0))
    except hiredis.ReplyError as error:
        return str(error)
