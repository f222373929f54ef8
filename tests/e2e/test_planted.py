"""`greendot doctor` as an operator calls it: setups with planted problems, and a good setup."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import secrets
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import forked
from e2e.forking import server
from postgres_server import PostgresProcess, execute, postgres_server
from redis_servers import Certificates, RedisProcess, certificates, redis_cluster, rights

PASSWORD = "7Qm2xVt9LcR4wZk8HsPb"
GOOD = {
    "GREENDOT_AUTH_SECRET": "9f2c7d81e4b05a6633d8f1c2a7e90b4d5f61820c3ae97b4406d1c85fe2a3b790",
    "GREENDOT_AUTH_AUDIENCE": "chat",
    "GREENDOT_AUTH_ISSUER": "https://app.example",
    "GREENDOT_AUTH_LONGEST_TOKEN_S": "3600",
    "GREENDOT_DOOR_ORIGINS": "https://app.example",
    "GREENDOT_DOOR_HOSTS": "chat.example",
    "GREENDOT_DOOR_TRUSTED_PROXIES": "10.0.0.7",
}
WITHIN_S = 20.0  # limit for doctor when a server does not answer


class Told(NamedTuple):
    """Result of doctor."""

    code: int
    findings: list[dict[str, str]]
    text: str

    def about(self, words: str) -> list[str]:
        """Return the weights of the findings that contain these words."""
        return [one["weight"] for one in self.findings if words in f"{one['about']}: {one['found']}"]

    @property
    def bad(self) -> list[dict[str, str]]:
        return [one for one in self.findings if one["weight"] in ("error", "warning")]


def greendot() -> list[str]:
    """Return the start of a command that runs `greendot` in a forked process."""
    return [sys.executable, "-I", "-S", str(Path(forked.__file__)), server()]


class Doctor:
    """Caller of doctor in its own folder, with good settings except those given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *flags: str, open_files: int | None = None, **environment: str) -> Told:
        result = self.run("--json", "--connections", "100", *flags, open_files=open_files, **environment)
        assert result.returncode in (0, 1, 2), result.stderr
        assert result.stdout, result.stderr
        return Told(result.returncode, json.loads(result.stdout)["findings"], result.stdout)

    def run(self, *flags: str, open_files: int | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GREENDOT_")}

        def narrow() -> None:
            if open_files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

        # A forked process has the limits of the fork server.
        command = greendot() if open_files is None else [sys.executable, "-m", "greendot"]
        return subprocess.run(
            [*command, "doctor", *flags],
            cwd=self.folder,
            env=clean | GOOD | environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            preexec_fn=narrow,
        )


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    folder = tmp_path / "here"
    folder.mkdir()
    return Doctor(folder)


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresProcess]:
    """Run a PostgreSQL with production settings."""
    with postgres_server(fsync="on", autovacuum="on") as server:
        yield server


async def prepared(database: PostgresProcess) -> str:
    """Return the URL of a database with current tables, owned by an ordinary user."""
    name = f"doctor_{time.time_ns()}"
    await execute(database.url, f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    await execute(database.url, f"CREATE SCHEMA {name} AUTHORIZATION {name}")
    url = f"postgresql://{name}:{PASSWORD}@127.0.0.1:{database.port}/postgres?search_path={name}"
    migrate = [*greendot(), "migrate", "--store", url]
    await asyncio.to_thread(subprocess.run, migrate, check=True, capture_output=True, timeout=WITHIN_S)
    return url


# --- ten at once ---


async def test_ten_planted_problems_are_all_found_by_one_call_each_with_advice(doctor: Doctor, tmp_path: Path) -> None:
    """Problems in settings, Redis, PostgreSQL, clocks, files and the machine: no finding hides another."""
    file = doctor.folder / "greendot.toml"
    file.write_text("[limits]\nenabled = false\n[api]\nkey = 'hush-hush'\n")
    file.chmod(0o644)
    awry = {"maxmemory_policy": "allkeys-lru", "client_output_buffer_limit": "pubsub 1mb 1mb 1"}
    with (
        RedisProcess("redis", tmp_path / "redis", clock_file=tmp_path / "clock", **awry) as redis,
        postgres_server(synchronous_commit="off", autovacuum="off", statement_timeout="100ms") as database,
    ):
        redis.jump(-90_000)
        told = doctor(
            *("--config", str(file), "--engine", f"redis://127.0.0.1:{redis.port}", "--store", database.url),
            open_files=250,
            GREENDOT_DOOR_ORIGINS="*",
        )
    planted = {
        "limits.enabled": "warning",
        "api.key: the key is weak": "error",
        "can be read or written by all users on this machine (mode 644)": "warning",
        "door.origins: `*`": "warning",
        "maxmemory-policy is allkeys-lru": "error",
        "disconnects subscribers at 1.0 MB": "warning",
        "its clock is": "error",
        "synchronous_commit is off": "error",
        "autovacuum is off": "warning",
        "statement_timeout is 100 ms": "warning",
        "a process may open 250 files": "warning",
    }
    assert {words: told.about(words) for words in planted} == {words: [weight] for words, weight in planted.items()}
    assert [one for one in told.bad if not (one["why"] and one["do"])] == []
    assert (told.code, "hush-hush" in told.text) == (2, False)


# --- a good setup ---


async def test_a_good_set_up_has_nothing_to_be_done(doctor: Doctor, database: PostgresProcess, tmp_path: Path) -> None:
    """Redis with TLS and one user with the documented rights; PostgreSQL with its own user."""
    tls = certificates(tmp_path)
    users = [f"greendot on >{PASSWORD} {rights()}", "default off", "admin on nopass ~* &* +@all"]
    config: dict[str, Any] = {"maxmemory": "100mb", "hash_max_listpack_value": 256, "user": users}
    with RedisProcess("redis", tmp_path / "redis", tls=tls, login=("admin", "x"), **config) as redis:
        told = doctor(
            "--engine",
            f"rediss://greendot:{PASSWORD}@127.0.0.1:{redis.port}?ca={tls.authority}",
            "--store",
            await prepared(database),
            GREENDOT_ENGINE_PREFIX="gd:",
        )
    assert told.bad == []
    assert told.code == 0
    assert told.about(f"Redis 127.0.0.1:{redis.port}: Redis ") == ["ok"]
    assert told.about("PostgreSQL 127.0.0.1") == ["ok"]
    assert PASSWORD not in told.text


def test_the_embedded_store_is_good_and_looking_makes_none(doctor: Doctor) -> None:
    told = doctor()
    assert (told.code, told.bad) == (0, [])
    assert list(doctor.folder.iterdir()) == []


# --- Redis ---


def test_a_development_server_has_its_key_and_its_own_clock(doctor: Doctor) -> None:
    data = doctor.folder / ".greendot"
    data.mkdir()
    for name in ("secret", "api-key"):
        (data / name).write_text(f"{secrets.token_hex(32)}\n")
    told = doctor("--dev")
    assert told.about("there is no API key") == []
    assert told.about("the development server has a key") != []
    assert told.about("no time synchronisation") == []


def test_what_is_wrong_with_a_redis_is_found(doctor: Doctor, tmp_path: Path) -> None:
    with RedisProcess("redis", tmp_path, maxmemory_policy="allkeys-lru", maxmemory="100mb") as redis:
        told = doctor("--engine", f"redis://127.0.0.1:{redis.port}")
    assert told.code == 2
    assert told.about("maxmemory-policy is allkeys-lru") == ["error"]
    assert told.about("hash-max-listpack-value is 64") == ["warning"]
    assert told.about("no password is needed") == ["note"]  # the server is on this machine


def test_a_redis_whose_clock_is_elsewhere_is_found(doctor: Doctor, tmp_path: Path) -> None:
    with RedisProcess("valkey", tmp_path, clock_file=tmp_path / "clock") as redis:
        assert doctor("--engine", f"redis://127.0.0.1:{redis.port}").about("its clock is") == []
        redis.jump(-90_000)
        told = doctor("--engine", f"redis://127.0.0.1:{redis.port}")
    assert told.about("s behind this machine's") == ["error"]


def test_a_redis_that_cannot_be_used_is_a_finding_in_bounded_time(doctor: Doctor, tmp_path: Path) -> None:
    with RedisProcess("redis", tmp_path, requirepass="hush") as redis:
        url = f"127.0.0.1:{redis.port}"
        assert doctor("--engine", f"redis://{url}").about("a user and password are required") == ["error"]
        told = doctor("--engine", f"redis://:wrong-{PASSWORD}@{url}")
        assert told.about("not usable: WRONGPASS") == ["error"]
        assert PASSWORD not in told.text
        assert doctor("--engine", f"redis://:hush@{url}").about("the password is weak") == ["warning"]
        redis.stop()
        try:
            assert doctor("--engine", f"redis://:hush@{url}").about("no answer in time") == ["error"]
        finally:
            redis.cont()
        redis.kill()
        assert doctor("--engine", f"redis://:hush@{url}").about("Connection refused") == ["error"]


def test_a_cluster_is_looked_at_server_by_server(doctor: Doctor, tmp_path: Path) -> None:
    with redis_cluster("redis", tmp_path, hash_max_listpack_value=256, maxmemory="50mb") as cluster:
        told = doctor("--engine", cluster.url)
        assert told.bad == []
        assert len(told.about("Redis 127.0.0.1:")) == 3
        first = cluster.processes[0]
        single = doctor("--engine", f"redis://127.0.0.1:{first.port}")
        assert single.about("the server is part of a cluster") == ["error"]
        first.kill()
        broken = doctor("--engine", cluster.url)
        assert broken.about("not usable") == ["error"]
        assert broken.code == 2


# --- PostgreSQL ---


async def test_what_is_wrong_with_a_postgres_is_found(doctor: Doctor) -> None:
    with postgres_server(synchronous_commit="off", max_connections="20") as server:
        told = doctor("--store", server.url, GREENDOT_STORE_POOL="16")
        assert told.code == 2
        assert told.about("synchronous_commit is off") == ["error"]
        assert told.about("fsync is off") == ["error"]
        assert told.about("there are no tables") == ["error"]
        assert told.about("the login is a superuser") == ["warning"]
        assert told.about("16 connections (store.pool 16 × server.workers 1), but PostgreSQL allows 17") == ["warning"]
        many = doctor("--store", server.url, GREENDOT_STORE_POOL="18")
        assert many.about("18 connections") == ["error"]
        server.freeze(True)
        try:
            assert doctor("--store", server.url).about("not usable: it did not answer in time") == ["error"]
        finally:
            server.freeze(False)


async def test_tables_of_another_version_and_a_key_that_is_left_are_found(
    doctor: Doctor, database: PostgresProcess
) -> None:
    url = await prepared(database)
    assert doctor("--store", url).bad == []
    await execute(url, "INSERT INTO greendot_api_keys VALUES ('default', 'app', 'notify', 0)")
    key = {"GREENDOT_API_KEY": "1b7e40c9d25f8a63e70c94b1f82d6a35c0e97f4b163d8a52e9c04f7b218d63aa"}
    assert doctor("--store", url, **key).about("GREENDOT_API_KEY is still in use") == ["warning"]
    await execute(url, "DELETE FROM greendot_schema WHERE version > 10")
    assert doctor("--store", url).about("the tables have version 10") == ["error"]
    assert doctor("--store", url, GREENDOT_STORE_MIGRATE="true").about("the tables have version 10") == ["note"]
    await execute(url, "INSERT INTO greendot_schema (version, name) VALUES (9999, 'later')")
    assert doctor("--store", url).about("tables belong to a newer Greendot") == ["error"]
    wrong = url.replace(PASSWORD, "nobody").replace("postgres?", "nowhere?")
    told = doctor("--store", wrong)
    assert told.about("not usable") == ["error"]


async def test_looking_changes_nothing_in_a_database(doctor: Doctor, database: PostgresProcess) -> None:
    name = f"empty_{time.time_ns()}"
    await execute(database.url, f"CREATE SCHEMA {name}")
    doctor("--store", f"{database.url}?search_path={name}")
    link = await asyncpg.connect(database.url)
    try:
        assert await link.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = $1", name) == 0
    finally:
        await link.close()


# --- files, TLS, the machine ---


def test_a_store_file_that_others_may_read_is_found(doctor: Doctor) -> None:
    file = doctor.folder / "greendot.db"
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("PRAGMA user_version = 1")
    file.chmod(0o644)
    told = doctor("--store", f"sqlite:///{file}")
    assert told.about("all users of this machine can read or write the file (mode 644)") == ["warning"]
    file.chmod(0o600)
    assert doctor("--store", f"sqlite:///{file}").bad == []
    file.write_bytes(b"this is no database at all" * 100)
    assert doctor("--store", f"sqlite:///{file}").about("file is not a database") == ["error"]
    assert doctor("--store", "sqlite:////dev/null/greendot.db").about("not usable") == ["error"]


def test_a_key_that_others_may_read_and_a_certificate_that_ends_soon_are_found(doctor: Doctor, tmp_path: Path) -> None:
    made = certificates(tmp_path)  # valid for a day
    made.key.chmod(0o644)
    told = doctor(**shown(made))
    assert told.about(f"{made.key} can be read or written by all users") == ["warning"]
    assert told.about("tls.cert: the certificate expires in 1 day") == ["warning"]
    made.key.chmod(0o600)
    signed(made, days=90)
    assert doctor(**shown(made)).bad == []
    signed(made, days=-2)
    assert doctor(**shown(made)).about("tls.cert: the certificate expired 2 days ago") == ["error"]
    assert doctor(GREENDOT_TLS_CERT="/nowhere/cert.pem").about("cannot read /nowhere/cert.pem") == ["error"]


def shown(made: Certificates) -> dict[str, str]:
    return {"GREENDOT_TLS_CERT": str(made.certificate), "GREENDOT_TLS_KEY": str(made.key)}


def signed(made: Certificates, days: int) -> None:
    """Write another certificate for the same key that expires in `days` days."""
    key = serialization.load_pem_private_key(made.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "doctor")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=100))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def test_a_limit_of_open_files_that_is_too_low_is_found(doctor: Doctor) -> None:
    assert doctor(open_files=250).about("a process may open 250 files, but needs 300") == ["warning"]
    assert doctor(open_files=300).bad == []


def test_a_file_of_settings_with_a_secret_that_others_may_read_is_found(doctor: Doctor) -> None:
    file = doctor.folder / "greendot.toml"
    file.write_text(f'[auth]\nsecret = "{GOOD["GREENDOT_AUTH_SECRET"]}"\n')
    file.chmod(0o644)
    assert doctor("--config", str(file)).about("--config") == ["warning"]
    file.chmod(0o600)
    assert doctor("--config", str(file)).bad == []


# --- settings and output ---


def test_weak_settings_are_found_together_and_no_secret_is_shown(doctor: Doctor) -> None:
    planted = {
        "GREENDOT_AUTH_SECRET": "a-greendot-secret-of-enough-characters",
        "GREENDOT_API_KEY": "hunter2-hunter2",
        "GREENDOT_AUTH_TOKEN_IN_QUERY": "true",
        "GREENDOT_DOOR_ORIGINS": "*",
        "GREENDOT_DOOR_TRUSTED_PROXIES": "0.0.0.0/0",
        "GREENDOT_LIMITS_ENABLED": "false",
        "GREENDOT_WEBHOOKS_URL": "http://127.0.0.1:9/path-with-hunter2",
        "GREENDOT_WEBHOOKS_SECRET": "hunter2" * 6,
        "GREENDOT_WEBHOOKS_ALLOW_PRIVATE": "all",
    }
    told = doctor(**planted)
    assert told.code == 2
    for about in ("auth.secret: the secret is weak", "api.key: the key is weak", "door.trusted_proxies: 0.0.0.0/0"):
        assert told.about(about) == ["error"], about
    for about in ("auth.token_in_query", "door.origins", "limits.enabled", "webhooks.url", "webhooks.allow_private"):
        assert told.about(about) == ["warning"], about
    result = doctor.run(**planted)
    for text in (told.text, result.stdout):
        assert "hunter2" not in text
        assert planted["GREENDOT_AUTH_SECRET"] not in text
    assert "ERROR" in result.stdout
    assert "→ Generate one with: openssl rand -hex 32" in result.stdout


def test_mistakes_are_findings_and_the_rest_is_looked_at_once_they_are_corrected(
    doctor: Doctor, tmp_path: Path
) -> None:
    file = doctor.folder / "greendot.toml"
    file.write_text("[webhooks]\nsecrets = 'hush'\n")
    values = {"GREENDOT_SERVER_PORT": "http", "GREENDOT_PRESENSE_GRACE_S": "5"}
    relations = {"GREENDOT_STORE_URL": "mysql://me:hush@h/db", "GREENDOT_AUTH_SECRET": ""}
    with RedisProcess("redis", tmp_path, maxmemory_policy="allkeys-lru") as redis:
        engine = ("--engine", f"redis://127.0.0.1:{redis.port}")
        first = doctor("--config", str(file), *engine, **values, **relations)
        second = doctor(*engine, **relations)
        third = doctor(*engine, GREENDOT_AUTH_SECRET="")
        last = doctor(*engine)
    assert first.about("server.port is 'http'") == ["error"]
    assert first.about("PRESENSE_GRACE_S is not a setting. Did you mean GREENDOT_PRESENCE_GRACE_S?") == ["error"]
    assert first.about("[webhooks] has no setting 'secrets'. Did you mean 'secret'?") == ["error"]
    assert second.about("store.url begins with 'mysql'") == ["error"]
    assert third.about("auth.secret is not set") == ["error"]
    for told, mistakes in ((first, 3), (second, 1), (third, 1)):
        assert told.code == 2
        assert len(told.bad) == mistakes
        assert told.about("other checks: not run, because the settings are wrong") == ["note"]
        assert told.about("maxmemory-policy is allkeys-lru") == []
        assert "hush" not in told.text
    assert last.about("maxmemory-policy is allkeys-lru") == ["error"]
    assert last.about("other checks") == []


def test_a_file_of_settings_that_is_not_there_is_a_finding(doctor: Doctor) -> None:
    told = doctor("--config", "missing.toml")
    assert (told.code, told.about("cannot read missing.toml: No such file")) == (2, ["error"])


def test_dev_mode_where_others_get_there_is_found(doctor: Doctor) -> None:
    told = doctor("--dev", "--host", "0.0.0.0")
    assert told.about("server.dev: dev mode on 0.0.0.0") == ["error"]


def test_beside_a_dev_server_its_secret_is_found(doctor: Doctor) -> None:
    (doctor.folder / ".greendot").mkdir()
    (doctor.folder / ".greendot" / "secret").write_text(f"{GOOD['GREENDOT_AUTH_SECRET']}\n")
    inside = dict.fromkeys(("GREENDOT_DOOR_ORIGINS", "GREENDOT_DOOR_HOSTS", "GREENDOT_DOOR_TRUSTED_PROXIES"), "")
    told = doctor(**inside, GREENDOT_AUTH_SECRET="")
    assert told.about("auth.secret is not set") == []
    assert told.about("the settings were checked as if --dev were given") == ["note"]
    assert told.about("server.dev: dev mode") == ["warning"]
    assert GOOD["GREENDOT_AUTH_SECRET"] not in told.text
