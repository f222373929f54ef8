"""Findings of the doctor: each planted problem is found, and good settings have none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from greendot.config import Settings, load
from greendot.ops.doctor.diagnosis import Facts, diagnosis, invalid_settings
from greendot.ops.doctor.finding import Finding, exit_code
from greendot.ops.facts_model import CertificateFacts, FileFacts, MachineFacts, PostgresFacts, RedisFacts, SqliteFacts

SECRET, KEY, HOOK, ASK, PASSWORD = (
    "9f2c7d81e4b05a6633d8f1c2a7e90b4d5f61820c3ae97b4406d1c85fe2a3b790",
    "1b7e40c9d25f8a63e70c94b1f82d6a35c0e97f4b163d8a52e9c04f7b218d63aa",
    "c3a95e07f1d84b26907ce3b5a1f4d8620e7b93c5d1a86f40e27b95c3f8d10a64",
    "58d0e2c7b39f4a61d8e05c7293bf1a46e80d5c71b29fa364e07d8c51f2b93a60",
    "7Qm2xVt9LcR4wZk8HsPb",
)
MACHINE = MachineFacts(
    cores=4, open_files=65_536, memory_free=4_000_000_000, somaxconn=4_096, clock_synchronised=True, year=2027
)
REDIS = RedisFacts(address="10.0.0.5:6379", version="7.2.4", memory_used=50, memory_most=1_000, listpack_value=256)
POSTGRES = PostgresFacts(
    place="postgresql://10.0.0.6/greendot", version=160_004, most_connections=97, tls=True, tables=14, api_keys=2
)
SQLITE = SqliteFacts(
    path="/var/lib/greendot.db", exists=True, mode=0o600, free_bytes=10**11, filesystem="ext4", tables=14
)
GOOD: dict[str, dict[str, Any]] = {
    "server": {"workers": 4},
    "auth": {"secret": SECRET, "audience": "chat", "issuer": "https://app.example", "longest_token_s": 3600},
    "door": {
        "origins": ["https://app.example"],
        "hosts": ["chat.example"],
        "trusted_proxies": ["10.0.0.7"],
        "connections_per_ip": 500,
    },
    "engine": {"url": f"rediss://greendot:{PASSWORD}@10.0.0.5:6379?ca=ca.pem"},
    "store": {"url": f"postgresql://greendot:{PASSWORD}@10.0.0.6/greendot?sslmode=verify-full"},
    "webhooks": {"url": "https://app.example/hook", "secret": HOOK},
    "visibility": {"policy": "ask", "ask_url": "https://app.example/ask", "ask_secret": ASK},
    "metrics": {"port": 9102},
}
FACTS = Facts(machine=MACHINE, redis=(REDIS,), postgres=POSTGRES, tables=14)
EMBEDDED = {"engine": {"url": "memory"}, "store": {"url": "sqlite:////var/lib/greendot.db"}, "server": {"workers": 1}}

HOME = {"allow_private": ["10.1.0.1"]}
ASKED = {"visibility": {"ask_url": "http://10.1.0.1"}}
INSIDE: dict[str, Any] = {"trusted_proxies": [], "origins": [], "hosts": []}  # no settings for access from outside


def settings(**sections: dict[str, Any]) -> Settings:
    merged = {name: GOOD.get(name, {}) | sections.get(name, {}) for name in {*GOOD, *sections}}
    return load(None, {}, merged)


def found(facts: dict[str, Any] | None = None, **sections: dict[str, Any]) -> list[Finding]:
    findings = diagnosis(settings(**sections), msgspec.structs.replace(FACTS, **(facts or {})))
    said = str(findings)
    for secret in (SECRET, KEY, HOOK, ASK, PASSWORD):
        assert secret not in said
    return findings


def bad(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.weight in ("error", "warning")]


def test_a_good_set_up_has_nothing_but_what_is_ok() -> None:
    findings = found()
    assert {finding.weight for finding in findings} == {"ok"}
    assert exit_code(findings) == 0
    embedded = found({"redis": (), "postgres": None, "sqlite": SQLITE}, **EMBEDDED)
    assert bad(embedded) == []


PLANTED: list[tuple[str, str, str, dict[str, dict[str, Any]]]] = [
    ("error", "auth.secret", "common word", {"auth": {"secret": "a secret of at least thirty-two characters"}}),
    ("error", "auth.secret", "repeats the same", {"auth": {"secret": "ab" * 20}}),
    ("error", "auth.keys", "'k1' is weak", {"auth": {"keys": [{"kid": "k1", "alg": "HS256", "secret": "x" * 32}]}}),
    ("warning", "auth.audience", "jwks_url", {"auth": {"audience": "", "jwks_url": "https://id.example/keys"}}),
    ("note", "auth.audience and auth.issuer", "not set", {"auth": {"audience": "", "issuer": ""}}),
    ("warning", "auth.longest_token_s", "90 days", {"auth": {"longest_token_s": 90 * 86_400}}),
    ("note", "auth.longest_token_s", "30 days", {"auth": {"longest_token_s": 30 * 86_400}}),
    ("warning", "auth.token_in_query", "URLs", {"auth": {"token_in_query": True}}),
    ("note", "auth.algorithms", "signed with auth.secret", {"auth": {"jwks_url": "https://id.example/keys"}}),
    ("error", "api.key", "5 characters", {"api": {"key": "12345"}}),
    ("warning", "api.key", "still in use", {"api": {"key": KEY}}),
    ("warning", "auth.secret", "the same secret is used for auth.secret, api.key", {"api": {"key": SECRET}}),
    ("warning", "webhooks.secret of tenant default", "weak", {"webhooks": {"secret": "x" * 32}}),
    ("warning", "door.origins", "any page", {"door": {"origins": ["*"]}}),
    ("note", "door.origins", "empty", {"door": {"origins": []}}),
    ("note", "door.hosts", "empty", {"door": {"hosts": []}}),
    ("error", "door.trusted_proxies", "0.0.0.0/0", {"door": {"trusted_proxies": ["0.0.0.0/0"]}}),
    ("error", "door.trusted_proxies", "::/0", {"door": {"trusted_proxies": ["10.0.0.7", "::/0"]}}),
    ("warning", "door.trusted_proxies", "8.0.0.0/8 is a large", {"door": {"trusted_proxies": ["8.0.0.0/8"]}}),
    ("note", "door.connections_per_ip", "no limit", {"door": {"connections_per_ip": 0}}),
    ("warning", "tls.cert", "listens on 0.0.0.0", {"door": {"trusted_proxies": []}}),
    ("note", "door.trusted_proxies", "empty", {"door": {"trusted_proxies": []}, "server": {"host": "127.0.0.1"}}),
    ("warning", "limits.enabled", "off", {"limits": {"enabled": False}}),
    ("warning", "limits.enabled", "tenants acme", {"tenants": {"acme": {"limits": {"enabled": False}}}}),
    ("warning", "server.dev", "dev mode", {"server": {"dev": True}, "door": INSIDE}),
    ("error", "server.dev", "door.trusted_proxies", {"server": {"dev": True}}),
    ("warning", "webhooks.allow_private", "`all`", {"webhooks": {"allow_private": ["all"]}}),
    ("warning", "webhooks.allow_private", "169.254", {"webhooks": {"allow_private": ["169.254.169.254/32"]}}),
    ("warning", "webhooks.allow_private", "0.0.0.0/0", {"webhooks": {"allow_private": ["0.0.0.0/0"]}}),
    ("note", "webhooks.allow_private", "10.1.0.0/16", {"webhooks": {"allow_private": ["10.1.0.0/16"]}}),
    ("warning", "webhooks.url", "without TLS", {"webhooks": {"url": "http://10.1.0.1", "allow_private": ["10.1.0.1"]}}),
    ("warning", "visibility.ask_url", "without TLS", {"visibility": {"ask_url": "http://10.1.0.1"}, "webhooks": HOME}),
    ("warning", "tenants.acme.visibility.ask_url", "without TLS", {"tenants": {"acme": ASKED}, "webhooks": HOME}),
    ("warning", "engine.url", "no TLS", {"engine": {"url": f"redis://greendot:{PASSWORD}@10.0.0.5"}}),
    ("warning", "engine.url", "password is weak", {"engine": {"url": "rediss://greendot:hush@10.0.0.5"}}),
    ("warning", "engine.url", "password is weak", {"engine": {"url": "rediss+cluster://ann:hush@[::5],[::6]:7000"}}),
    ("warning", "store.url", "password is weak", {"store": {"url": "postgresql://greendot:hush@10.0.0.6/g"}}),
    ("error", "PostgreSQL 10.0.0.6/greendot", "100 connections", {"store": {"pool": 25}}),
    ("warning", "PostgreSQL 10.0.0.6/greendot", "60 connections", {"store": {"pool": 15}}),
    ("note", "server.workers", "9 workers on 4 cores", {"server": {"workers": 9}}),
    ("note", "server.log", "debug", {"server": {"log": "debug"}}),
    ("note", "metrics.port", "not set, with 4 workers", {"metrics": {"port": 0}}),
]  # fmt: skip


@pytest.mark.parametrize(("weight", "about", "words", "sections"), PLANTED)
def test_a_weak_setting_is_found(weight: str, about: str, words: str, sections: dict[str, dict[str, Any]]) -> None:
    findings = [finding for finding in found(**sections) if finding.about == about and words in finding.found]
    assert [finding.weight for finding in findings] == [weight]
    assert all(finding.why and finding.do for finding in findings)


def redis(**more: Any) -> dict[str, Any]:
    return {"redis": (msgspec.structs.replace(REDIS, **more),)}


def postgres(**more: Any) -> dict[str, Any]:
    return {"postgres": msgspec.structs.replace(POSTGRES, **more)}


def machine(**more: Any) -> dict[str, Any]:
    return {"machine": msgspec.structs.replace(MACHINE, **more)}


def ends(days_left: float, days_old: float = 100) -> dict[str, Any]:
    return {"certificate": CertificateFacts(path="cert.pem", days_left=days_left, days_old=days_old)}


def file(mode: int) -> dict[str, Any]:
    return {"files": (FileFacts(setting="tls.key", path="key.pem", mode=mode),)}


@pytest.mark.parametrize(
    ("weight", "words", "facts"),
    [
        ("error", "not usable: Connection refused", redis(trouble="Connection refused")),
        ("error", "version 6.2.1", redis(version="6.2.1")),
        ("error", "allkeys-lru", redis(policy="allkeys-lru")),
        ("error", "replica", redis(role="slave")),
        ("error", "part of a cluster", redis(clustered=True)),
        ("warning", "listpack-value is 64", redis(listpack_value=64)),
        ("note", "no right to read", redis(listpack_value=None)),
        ("note", "maxmemory is not set", redis(memory_most=0)),
        ("warning", "90% of maxmemory", redis(memory_used=900)),
        ("error", "98% of maxmemory", redis(memory_used=980)),
        ("warning", "no password is needed", redis(lets_anyone_in=True)),
        ("note", "more rights than needed", redis(has_more_rights=True)),
        ("warning", "1.5 s behind", redis(skew_ms=-1_500)),
        ("error", "60.0 s ahead", redis(skew_ms=60_000)),
        ("error", "the last snapshot failed", redis(snapshot_failed=True, persists=True)),
        ("note", "snapshots or a log", redis(persists=True)),
        ("warning", "900 of 1000 connections", redis(clients=900, clients_most=1_000)),
        ("note", "notify-keyspace-events is KEA", redis(notifies="KEA")),
        ("warning", "subscribers at 1.0 MB", redis(pubsub_buffer=1_000_000)),
        ("error", "not usable: it did not answer", postgres(trouble="it did not answer in time")),
        ("error", "version 13", postgres(version=130_011)),
        ("error", "read-only", postgres(read_only=True)),
        ("error", "SQL_ASCII", postgres(encoding="SQL_ASCII")),
        ("error", "fsync is off", postgres(fsync=False)),
        ("error", "synchronous_commit is off", postgres(synchronous_commit="off")),
        ("error", "full_page_writes is off", postgres(full_page_writes=False)),
        ("warning", "autovacuum is off", postgres(autovacuum=False)),
        ("warning", "statement_timeout is 200 ms", postgres(statement_timeout_ms=200)),
        ("error", "there are no tables", postgres(tables=0)),
        ("error", "version 13, but 14", postgres(tables=13)),
        ("error", "newer Greendot", postgres(tables=15)),
        ("warning", "superuser", postgres(superuser=True)),
        ("warning", "no TLS to PostgreSQL", postgres(tls=False)),
        ("warning", "2.0 s ahead", postgres(skew_ms=2_000)),
        ("warning", "1,000 files, but needs 2,700", machine(open_files=1_000)),
        ("warning", "100 MB of memory", machine(memory_free=100_000_000)),
        ("warning", "somaxconn is 128", machine(somaxconn=128)),
        ("warning", "nf_conntrack_max is 8,192", machine(conntrack=8_192)),
        ("error", "the year 1970", machine(year=1970)),
        ("note", "no time synchronisation", machine(clock_synchronised=False)),
        ("error", "expired 3 days ago", ends(-3)),
        ("warning", "expires in 6 days", ends(6)),
        ("error", "not valid yet", ends(90, -1)),
        ("warning", "all users", file(0o644)),
        ("note", "its group", file(0o640)),
        ("warning", "generated by `greendot serve --dev`", {"dev_secret": SECRET}),
    ],
)
def test_what_servers_files_and_machines_are_like_is_judged(weight: str, words: str, facts: dict[str, Any]) -> None:
    findings = [finding for finding in found(facts) if words in finding.found]
    assert [finding.weight for finding in findings] == [weight]
    assert all(finding.why and finding.do for finding in findings)


def sqlite(**more: Any) -> dict[str, Any]:
    return {"redis": (), "postgres": None, "sqlite": msgspec.structs.replace(SQLITE, **more)}


@pytest.mark.parametrize(
    ("weight", "words", "facts"),
    [
        ("error", "may not write", sqlite(trouble="this user may not write there")),
        ("error", "network file system (nfs4)", sqlite(filesystem="nfs4")),
        ("warning", "mode 644", sqlite(mode=0o644)),
        ("note", "its group", sqlite(mode=0o660)),
        ("warning", "500 MB are free", sqlite(free_bytes=500_000_000)),
        ("error", "50 MB are free", sqlite(free_bytes=50_000_000)),
        ("error", "newer Greendot", sqlite(tables=15)),
        ("warning", "in memory", sqlite(path=":memory:")),
    ],
)
def test_the_file_of_a_store_is_judged(weight: str, words: str, facts: dict[str, Any]) -> None:
    findings = [finding for finding in found(facts, **EMBEDDED) if words in finding.found]
    assert [finding.weight for finding in findings] == [weight]


def test_a_cluster_is_judged_as_one() -> None:
    cluster = {"engine": {"url": f"rediss+cluster://greendot:{PASSWORD}@10.0.0.5"}}
    assert bad(found(redis(clustered=True, cluster_state="ok"), **cluster)) == []
    (broken,) = bad(found(redis(clustered=True, cluster_state="fail"), **cluster))
    assert "state is fail" in broken.found
    (single,) = bad(found(redis(), **cluster))
    assert "not part of a cluster" in single.found


@pytest.mark.parametrize("base", ["redis", "rediss"])
def test_the_advice_about_clusters_keeps_tls_in_the_url(base: str) -> None:
    def advice(kind: str, *, clustered: bool) -> list[str]:
        url = f"{base}{kind}://greendot:{PASSWORD}@10.0.0.5"
        findings = found(redis(clustered=clustered), engine={"url": url})
        return [finding.do for finding in findings if "part of a cluster" in finding.found]

    (join,), (leave,) = advice("", clustered=True), advice("+cluster", clustered=False)
    assert f" {base}+cluster://" in join
    assert f" {base}://" in leave


def test_the_advice_about_maxmemory_names_the_memory_in_use() -> None:
    (unset,) = [it for it in found(redis(memory_most=0, memory_used=3_400_000_000)) if "maxmemory" in it.found]
    assert "above the 3,400 MB" in unset.do


def test_a_redis_on_this_machine_needs_no_tls_and_may_be_open_to_it() -> None:
    local = redis(address="127.0.0.1:6379", lets_anyone_in=True, has_more_rights=True)
    findings = found(local, engine={"url": "redis://127.0.0.1"})
    assert bad(findings) == []
    assert [finding for finding in findings if "no password" in finding.found]


def test_a_development_server_checks_tokens_with_the_clock_that_set_their_expiry() -> None:
    dev: dict[str, dict[str, Any]] = {"server": {"dev": True}, "api": {"key": KEY}}
    findings = found(machine(clock_synchronised=False), **dev)
    assert [it for it in findings if it.about == "machine" and it.weight != "ok"] == []
    assert [it.weight for it in findings if it.about == "api.key"] == ["ok"]
    weak = found(**dev | {"api": {"key": "12345"}})
    assert "error" in [it.weight for it in weak if it.about == "api.key"]


def test_dev_mode_on_an_address_that_others_reach_is_an_error() -> None:
    inside = {
        "server": {"dev": True},
        "door": {"trusted_proxies": [], "origins": ["http://localhost:5173"], "hosts": []},
    }
    (only,) = [finding for finding in found(**inside) if finding.about == "server.dev"]
    assert only.weight == "warning"
    (only,) = [finding for finding in found({"host_flag": "0.0.0.0"}, **inside) if finding.about == "server.dev"]
    assert only.weight == "error"


def test_each_wrong_setting_is_an_error_and_the_skipped_checks_are_noted() -> None:
    *mistakes, rest = invalid_settings(["door.origins has 'x'", "auth.secret is short"])
    assert [(one.weight, one.found) for one in mistakes] == [
        ("error", "door.origins has 'x'"),
        ("error", "auth.secret is short"),
    ]
    assert (rest.weight, rest.found) == ("note", "not run, because the settings are wrong")
    assert exit_code([*mistakes, rest]) == 2


def test_the_heaviest_comes_first_and_decides_the_exit_code() -> None:
    findings = found(redis(policy="allkeys-lru"), limits={"enabled": False}, door={"hosts": []})
    assert [f.weight for f in findings if f.weight != "ok"] == ["error", "warning", "note"]
    assert exit_code(findings) == 2
    assert exit_code(findings[1:]) == 1
    assert exit_code(findings[2:]) == 0
