"""Settings: sources, precedence, and error texts for wrong values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from greendot.config import Kind, Settings, check_id, load
from greendot.errors import ConfigError

SECRET = "a secret of at least thirty-two characters"


def complaint(file: Path | None = None, environment: dict[str, str] | None = None, **flags: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        load(file, environment or {}, flags)
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "greendot.toml"


def test_without_any_source_the_defaults_hold() -> None:
    assert load(None, {}, {}) == Settings()


def test_an_empty_file_changes_nothing(file: Path) -> None:
    file.write_text("")
    assert load(file, {}, {}) == Settings()


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(file: Path) -> None:
    file.write_text("[limits]\nwatches = 2\nrooms = 2\ncommands_burst = 2000\n")
    environment = {"GREENDOT_LIMITS_WATCHES": "3", "GREENDOT_LIMITS_ROOMS": "3"}
    limits = load(file, environment, {"limits": {"watches": 4}}).limits
    assert (limits.watches, limits.rooms, limits.commands_burst, limits.commands_per_s) == (4, 3, 2000, 50)


@pytest.mark.parametrize("section", [field.name for field in msgspec.structs.fields(Settings)])
def test_every_setting_has_a_name_in_the_environment_and_in_the_file(section: str, file: Path) -> None:
    values = {}  # by full name without the section
    for key, value in msgspec.to_builtins(getattr(Settings(), section)).items():
        values |= {(key, name): of for name, of in value.items()} if isinstance(value, dict) else {(key,): value}
    texts = {key: ",".join(value) if isinstance(value, list | tuple) else str(value) for key, value in values.items()}
    environment = {f"GREENDOT_{section}_{'_'.join(key)}".upper(): text for key, text in texts.items()}
    assert load(None, environment, {}) == Settings()
    lines = [f"{'.'.join(key)} = {msgspec.json.encode(value).decode()}" for key, value in values.items()]
    file.write_text("\n".join([f"[{section}]", *lines]))
    assert load(file, {}, {}) == Settings()


def test_a_jobs_settings_come_from_several_places(file: Path) -> None:
    file.write_text('[jobs.cleanup_tokens]\ncron = "30 3 * * *"\nzone = "Europe/Berlin"\nunused_days = 9\n')
    environment = {"GREENDOT_JOBS_CLEANUP_TOKENS_UNUSED_DAYS": "7", "GREENDOT_JOBS_SWEEP_ENABLED": "false"}
    jobs = load(file, environment, {}).jobs
    assert (jobs.cleanup_tokens.cron, jobs.cleanup_tokens.zone, jobs.cleanup_tokens.unused_days) == (
        "30 3 * * *",
        "Europe/Berlin",
        7.0,
    )
    assert (jobs.sweep.enabled, jobs.retention.enabled) == (False, True)


def test_invalid_settings_of_jobs_are_refused_with_the_reason(file: Path) -> None:
    file.write_text('[jobs.sweep]\nevery_s = 5\n[jobs.retention]\nzone = "Europe/Berlin"\n')
    said = complaint(file)
    assert "jobs.sweep.jitter_s (30) must not exceed jobs.sweep.every_s (5). Lower jitter_s." in said
    assert "jobs.retention.zone is set but jobs.retention.cron is not" in said
    file.write_text("[jobs.reminder]\nevery_s = 5\n")
    assert "[jobs] has no setting 'reminder'" in complaint(file)
    assert "jobs.sweep.every_s is 'soon' but must be a number" in complaint(
        None, {"GREENDOT_JOBS_SWEEP_EVERY_S": "soon"}
    )


STABLE = {
    "GREENDOT_AUTH_SECRET": ("auth", "secret", SECRET),
    "GREENDOT_API_KEY": ("api", "key", "123"),
    "GREENDOT_PRESENCE_HEARTBEAT_S": ("presence", "heartbeat_s", 31.0),
    "GREENDOT_PRESENCE_DEAD_AFTER_S": ("presence", "dead_after_s", 76.0),
    "GREENDOT_PRESENCE_GRACE_S": ("presence", "grace_s", 31.0),
    "GREENDOT_PRESENCE_CLEAN_GRACE_S": ("presence", "clean_grace_s", 0.0),
    "GREENDOT_PRESENCE_IDLE_S": ("presence", "idle_s", 0.5),
    "GREENDOT_TYPING_TTL_S": ("typing", "ttl_s", 6.0),
    "GREENDOT_TYPING_THROTTLE_S": ("typing", "throttle_s", 0.0),
    "GREENDOT_NODE_LEASE_S": ("node", "lease_s", 16.0),
    "GREENDOT_NODE_RENEW_S": ("node", "renew_s", 1.0),
    "GREENDOT_LIMITS_ENABLED": ("limits", "enabled", False),
}


@pytest.mark.parametrize("name", STABLE)
def test_the_names_that_are_promised_work(name: str) -> None:
    section, key, value = STABLE[name]
    assert getattr(getattr(load(None, {name: str(value)}, {}), section), key) == value


@pytest.mark.parametrize("text", ["false", "False", "FALSE", "0"])
def test_switches_are_read_in_the_usual_spellings(text: str) -> None:
    assert load(None, {"GREENDOT_LIMITS_ENABLED": text}, {}).limits.enabled is False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[presence\ngrace_s = 5", ["is not valid TOML", "line 1"]),
        ("[presence]\ngrace_s = 5\ngrace_s = 6", ["is not valid TOML"]),
        ("\udcff", ["is not valid TOML"]),
        ("[presence]\nheartbeats_s = 5", ["[presence]", "'heartbeats_s'", "Did you mean 'heartbeat_s'?"]),
        ("[presence]\nzzz = 5", ["[presence]", "'zzz'", "Valid names: heartbeat_s, dead_after_s"]),
        ("[presense]\ngrace_s = 5", ["[presense]", "Did you mean 'presence'?"]),
        ("[zzz]", ["[zzz]", "Valid names: server, door"]),
        ("grace_s = 5", ["grace_s"]),
        ("presence = 5", ["[presence]", "section with settings"]),
        ("presence = ['grace_s']", ["[presence]", "section with settings"]),
        ("[presence]\ngrace_s = 'long'", ["presence.grace_s is 'long'", "a number from 0 to 2592000"]),
        ("[presence]\ngrace_s = nan", ["presence.grace_s"]),
        ("[presence]\nidle_s = inf", ["presence.idle_s"]),
        ("[presence]\nidle_s = 0", ["presence.idle_s"]),
        ("[presence]\ngrace_s = -1", ["presence.grace_s"]),
        ("[server]\nport = 70000", ["server.port", "65535"]),
        ("[server]\nport = 8000.5", ["server.port"]),
        ("[server]\nhost = 5", ["server.host"]),
        ("[limits]\nrooms = 0", ["limits.rooms"]),
    ],
)
def test_a_file_that_is_wrong_is_named_and_explained(file: Path, text: str, words: list[str]) -> None:
    file.write_text(text, errors="surrogateescape")
    said = complaint(file)
    assert str(file) in said
    for word in words:
        assert word in said


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "No such file" in complaint(tmp_path / "missing.toml")
    assert str(tmp_path) in complaint(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GREENDOT_PRESENCE_GRACE_S", "soon"),
        ("GREENDOT_PRESENCE_GRACE_S", ""),
        ("GREENDOT_PRESENCE_GRACE_S", "nan"),
        ("GREENDOT_PRESENCE_GRACE_S", "-1"),
        ("GREENDOT_SERVER_PORT", "http"),
        ("GREENDOT_LIMITS_ENABLED", "perhaps"),
    ],
)
def test_a_wrong_value_in_the_environment_is_named(name: str, value: str) -> None:
    said = complaint(environment={name: value})
    assert "the environment" in said
    assert name.removeprefix("GREENDOT_").replace("_", ".", 1).lower() in said


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (
            {"presence": {"heartbeat_s": 30, "dead_after_s": 59.9}},
            ["presence.dead_after_s (59.9)", "presence.heartbeat_s (30)", "Raise dead_after_s or lower heartbeat_s"],
        ),
        ({"presence": {"clean_grace_s": 31}}, ["presence.clean_grace_s (31)", "presence.grace_s (30)"]),
        (
            {"presence": {"celebrity_polling": 999}},
            ["presence.celebrity_polling (999)", "presence.celebrity_watchers (1000)", "Raise celebrity_polling"],
        ),
        ({"presence": {"polled": ["star"]}}, ["presence.polled", "'star'", "default/star"]),
        ({"presence": {"polled": [""]}}, ["presence.polled", "tenant/user"]),
        ({"presence": {"polled": ["acme/pop star"]}}, ["presence.polled: the user", "'pop star'", "valid id"]),
        ({"presence": {"polled": ["/star"]}}, ["presence.polled: the tenant", "valid id"]),
        ({"presence": {"polled": "acme/star"}}, ["presence.polled is 'acme/star'", "a list, each item a string"]),
        ({"presence": {"celebrity_watchers": 0}}, ["celebrity_watchers"]),
        ({"typing": {"throttle_s": 5}}, ["typing.throttle_s (5)", "typing.ttl_s (5)"]),
        (
            {"typing": {"repeat_s": 1.5}},
            ["typing.repeat_s (1.5)", "typing.throttle_s (2)", "leave repeat_s out"],
        ),
        ({"typing": {"repeat_s": 5}}, ["every 5 s (typing.repeat_s)", "typing.ttl_s (5)", "lower repeat_s"]),
        ({"typing": {"repeat_s": 4.6}}, ["every 4.6 s", "at most 90% of typing.ttl_s (5)"]),
        (
            {"typing": {"ttl_s": 3, "throttle_s": 2.9}},
            ["every 2.93 s", "typing.ttl_s (3)", "Raise ttl_s or lower throttle_s (2.9)"],
        ),
        ({"node": {"renew_s": 8}}, ["node.lease_s (15)", "node.renew_s (8)"]),
        ({"limits": {"commands_burst": 49}}, ["limits.commands_burst (49)", "limits.commands_per_s (50)"]),
        (
            {"tenants": {"acme": {"limits": {"commands_per_s": 300}}}},
            ["tenants.acme.limits.commands_burst (200)", "tenants.acme.limits.commands_per_s (300)"],
        ),
        ({"tenants": {"a b": {}}}, ["tenants", "'a b'", "valid id"]),
        ({"tenants": {"acme": 5}}, ["[tenants.acme]"]),
        ({"tenants": {"acme": {"limit": {}}}}, ["[tenants.acme]", "'limit'", "Did you mean 'limits'?"]),
        ({"tenants": {"acme": {"limits": 5}}}, ["[tenants.acme.limits]", "section with settings"]),
        (
            {"tenants": {"acme": {"limits": {"room_send_per_s": 5}}}},
            ["[tenants.acme.limits]", "'room_send_per_s'", "Did you mean 'room_sends_per_s'?"],
        ),
        ({"tenants": {"acme": {"limits": {"rooms": 0}}}}, ["tenants.acme.limits.rooms is 0", "from 1 to 10000000"]),
        (
            {"tenants": {"acme": {"limits": {"user_sends_per_s": -1}}}},
            ["limits.user_sends_per_s is -1", "from 0 to 10000000"],
        ),
        ({"tenants": {"acme": {"limits": {"sends_per_s": 5}}}}, ["sends_per_s", "whole node", "[limits]"]),
        (
            {"visibility": {"policy": "nobody"}},
            ["visibility.policy is 'nobody'", "tenant, shared_rooms, contacts, recent_contacts, ask"],
        ),
        ({"before_publish": {"url": "https://h"}}, ["before_publish.secret", "32", "openssl rand -hex 32"]),
        ({"before_publish": {"secret": "x" * 32}}, ["before_publish.secret", "before_publish.url", "Set both"]),
        (
            {"before_publish": {"url": "http://10.0.0.1/", "secret": "x" * 32}},
            ["before_publish.url", "http://", "webhooks.allow_private"],
        ),
        (
            {"tenants": {"acme": {"before_publish": {"url": "https://h", "secret": "short"}}}},
            ["tenants.acme.before_publish.secret", "32"],
        ),
        ({"visibility": {"policy": "ask"}}, ["visibility.policy is `ask`", "visibility.ask_url"]),
        ({"visibility": {"ask_url": "ftp://h", "ask_secret": "x" * 32}}, ["visibility.ask_url", "https://"]),
        (
            {"visibility": {"ask_url": "http://10.0.0.1/", "ask_secret": "x" * 32}},
            ["visibility.ask_url", "http://", "webhooks.allow_private"],
        ),
        ({"visibility": {"ask_url": "https://u:p@h/", "ask_secret": "x" * 32}}, ["visibility.ask_url", "password"]),
        (
            {"tenants": {"acme": {"visibility": {"ask_url": "https://h", "ask_secret": "short"}}}},
            ["tenants.acme.visibility.ask_secret", "32", "openssl rand -hex 32"],
        ),
        ({"tenants": {"acme": {"visibility": {"polcy": "ask"}}}}, ["[tenants.acme.visibility]", "'policy'"]),
        ({"tenants": {"acme": {"visibility": 5}}}, ["[tenants.acme.visibility]", "as in [visibility]"]),
        ({"limits": {"burst_s": 0}}, ["limits.burst_s"]),
        ({"limits": {"room_sends_per_s": 10_000_001}}, ["limits.room_sends_per_s"]),
        ({"auth": {"secret": "x" * 31}}, ["auth.secret", "32", "openssl rand -hex 32"]),
        ({"server": {"log": "loud"}}, ["server.log", "'loud'", "debug, info, warning, error"]),
        ({"server": {"workers": 2}, "engine": {"url": "memory"}}, ["2 workers", "memory", "--engine", "redis://"]),
        (
            {"server": {"workers": 2}, "engine": {"url": "redis://h"}, "store": {"url": "sqlite:///:memory:"}},
            ["store in memory", "sqlite:///FILE"],
        ),
        ({"engine": {"url": "amqp://localhost"}}, ["engine.url", "'amqp'", "memory", "redis://", "redis+cluster://"]),
        ({"engine": {"prefix": "a{b}"}}, ["engine.prefix", "'a{b}'", "letters, digits"]),
        ({"engine": {"prefix": "x" * 65}}, ["engine.prefix", "64"]),
        ({"store": {"url": "mysql://ann:hush@localhost"}}, ["store.url", "'mysql'", "postgresql://", "sqlite:///"]),
        ({"store": {"url": "postgres://ann:hu/sh@localhost"}}, ["store.url", "%2F"]),
        ({"store": {"url": "postgresql://ann:hu@sh@localhost/db"}}, ["store.url", "%40"]),
        ({"store": {"url": "postgresql://localhost/db?password=hush"}}, ["store.url", "USER:PASSWORD@HOST"]),
        ({"store": {"url": "postgresql://[::1/db"}}, ["store.url", "[::1]"]),
        ({"store": {"pool": 0}}, ["pool"]),
        ({"inbox": {"keep_days": 0}}, ["keep_days"]),
        ({"kinds": {"a b": {}}}, ["kinds", "'a b'", "valid id"]),
        ({"kinds": {"alarm": "acknowledged"}}, ["[kinds.alarm]"]),
        ({"kinds": {"alarm": {"promises": "durable"}}}, ["[kinds.alarm]", "'promises'", "Did you mean 'promise'?"]),
        ({"kinds": {"alarm": {"promise": "eternal"}}}, ["'eternal'", "kinds"]),
        ({"kinds": {"alarm": {"bus": "none"}}}, ["'none'", "kinds"]),
    ],
)
def test_a_violated_relation_of_settings_names_the_setting_to_change(
    sections: dict[str, dict[str, Any]], words: list[str]
) -> None:
    said = complaint(**sections)
    for word in words:
        assert word in said


def test_a_list_is_written_with_commas_in_the_environment(file: Path) -> None:
    file.write_text('[presence]\npolled = ["acme/star", "default/news"]\n')
    assert load(file, {}, {}).presence.polled == ("acme/star", "default/news")
    environment = {"GREENDOT_PRESENCE_POLLED": "acme/star, default/news,"}
    assert load(None, environment, {}) == load(file, {}, {})
    assert "default/star" in complaint(environment={"GREENDOT_PRESENCE_POLLED": "star"})


def test_kinds_are_named_in_the_file_and_only_there(file: Path) -> None:
    file.write_text('[kinds.alarm]\npromise = "acknowledged"\n[kinds.badge]\npromise = "recomputable"\nbus = "hint"\n')
    assert load(file, {}, {}).kinds == {"alarm": Kind("acknowledged"), "badge": Kind("recomputable", "hint")}
    assert "Set [kinds] in the file." in complaint(file, {"GREENDOT_KINDS_ALARM": "durable"})


def test_a_tenant_has_the_limits_of_all_but_for_its_own(file: Path) -> None:
    file.write_text(
        "[limits]\nrooms = 20\nwatches = 30\n[tenants.acme.limits]\nrooms = 40\nroom_sends_per_s = 7\n[tenants.b]\n"
    )
    loaded = load(file, {"GREENDOT_LIMITS_WATCHES": "50"}, {})
    acme, plain = loaded.tenants["acme"].limits, loaded.tenants["b"].limits
    assert (acme.rooms, acme.watches, acme.room_sends_per_s) == (40, 50, 7)
    assert acme == msgspec.structs.replace(loaded.limits, rooms=40, room_sends_per_s=7)
    assert plain == loaded.limits


def test_relations_are_checked_over_all_sources_together(file: Path) -> None:
    file.write_text("[presence]\ndead_after_s = 20")
    assert "dead_after_s" in complaint(file)
    assert load(file, {"GREENDOT_PRESENCE_HEARTBEAT_S": "10"}, {}).presence.dead_after_s == 20


def test_several_workers_share_a_private_engine_unless_one_is_named() -> None:
    def engine(environment: dict[str, str], **flags: dict[str, Any]) -> str:
        return load(None, environment, flags).engine.url

    assert engine({}) == engine({}, server={"workers": 1}) == "memory"
    assert engine({}, server={"workers": 2}) == engine({"GREENDOT_SERVER_WORKERS": "2"}) == "local"
    assert engine({"GREENDOT_ENGINE_URL": "redis://h"}, server={"workers": 2}) == "redis://h"
    assert engine({}, engine={"url": "local"}) == "local"


@pytest.mark.parametrize("base", ["redis", "rediss"])
@pytest.mark.parametrize("kind", ["", "+sentinel", "+cluster"])
def test_workers_may_share_any_redis(base: str, kind: str) -> None:
    engine = {"url": f"{base}{kind}://localhost", "prefix": "app.live_1:"}
    assert load(None, {}, {"server": {"workers": 4}, "engine": engine}).server.workers == 4


def test_a_secret_is_never_repeated() -> None:
    assert "hush" not in complaint(auth={"secret": "hush"})
    assert "hush" not in complaint(engine={"url": "amqp://me:hush@localhost"})


@pytest.mark.parametrize(
    ("url", "data_dir", "path"),
    [
        ("", "data", "data/greendot.db"),
        ("sqlite:///here.db", "data", "here.db"),
        ("sqlite:////var/lib/g.db", "data", "/var/lib/g.db"),
        ("sqlite:///:memory:", "data", ":memory:"),
    ],
)
def test_the_store_path_is_that_of_the_url_or_in_the_data_directory(url: str, data_dir: str, path: str) -> None:
    assert load(None, {}, {"store": {"url": url}, "server": {"data_dir": data_dir}}).store_path == path


def test_an_id_is_checked_with_the_rule_in_words() -> None:
    assert check_id("user", "ada") == "ada"
    with pytest.raises(ConfigError, match=r"user 'a b' is not a valid id: 1 to 128"):
        check_id("user", "a b")


@pytest.mark.parametrize(
    ("typing", "repeat_s"),
    [
        ({}, 3.0),
        ({"ttl_s": 3}, 2 + 1 / 3),
        ({"ttl_s": 1, "throttle_s": 0.4}, 0.6),
        ({"throttle_s": 0}, 5 / 3),
        ({"repeat_s": 4}, 4.0),
    ],
)
def test_clients_repeat_a_typing_start_after_the_throttle_and_before_its_end(
    file: Path, typing: dict[str, float], repeat_s: float
) -> None:
    file.write_text("[typing]\n" + "".join(f"{name} = {value}\n" for name, value in typing.items()))
    settings = load(file, {}, {}).typing
    assert settings.repeats_every_s == pytest.approx(repeat_s)
    assert settings.throttle_s <= settings.repeats_every_s < settings.ttl_s
