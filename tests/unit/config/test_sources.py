"""Errors in settings, reported in rounds: all values with their sources, then relations, then files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from greendot.config import Check, Settings, load
from greendot.errors import ConfigError

WRONG = """
[presence]
grace_s = "long"
heartbeats_s = 5
idle_s = 0
[presense]
x = 1
[limits]
rooms = 0
commands_per_s = 300
[auth]
secret = "hush hush"
algorithms = ["RS256", "none", "HS1"]
[[auth.keys]]
alg = "HS256"
secret = 12345
[[auth.keys]]
kid = "b"
alg = "hush"
secrets = "hush hush"
[tenants.acme.limits]
watches = -1
sends_per_s = 5
[tenants.acme.webhooks]
timeout_s = 5
[tenants.other]
limits = 7
[kinds.alarm]
promise = "eternal"
"""


def mistakes(
    file: Path | None = None,
    environment: dict[str, str] | None = None,
    checks: Sequence[Check] = (),
    **flags: dict[str, Any],
) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(file, environment or {}, flags, checks)
    return caught.value.mistakes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "greendot.toml"


def test_all_wrong_values_of_all_sources_are_reported_together(file: Path) -> None:
    file.write_text(WRONG)
    environment = {"GREENDOT_SERVER_PORT": "http", "GREENDOT_DOOR_ORIGIN": "https://a.example", "GREENDOT_API_KEY": "k"}
    said = mistakes(file, environment, server={"workers": 0})
    expected = [
        (file, "presence.grace_s is 'long' but must be a number from 0 to 2592000"),
        (file, "[presence] has no setting 'heartbeats_s'. Did you mean 'heartbeat_s'?"),
        (file, "presence.idle_s is 0 but must be a number above 0 and at most 2592000"),
        (file, "there is no section [presense]. Did you mean 'presence'?"),
        (file, "limits.rooms is 0 but must be a whole number from 1 to 10000000"),
        (file, "auth.algorithms[1] is 'none' but must be one of HS256, HS384, HS512, RS256, ES256, EdDSA"),
        (file, "auth.algorithms[2] is 'HS1' but must be one of"),
        (file, "auth.keys[0].secret must be a string"),
        (file, "[auth.keys[0]] needs kid"),
        (file, "auth.keys[1].alg is 'hush' but must be one of"),
        (file, "[auth.keys[1]] has no setting 'secrets'. Did you mean 'secret'?"),
        (file, "tenants.acme.limits.watches is -1 but must be a whole number from 1"),
        (file, "[tenants.acme.limits]: sends_per_s applies to the whole node. Set it in [limits]"),
        (file, "[tenants.acme.webhooks]: timeout_s applies to all webhooks. Set it in [webhooks]"),
        (file, "[tenants.other.limits] must be a section with settings, as in [limits]"),
        (file, "kinds.alarm.promise is 'eternal' but must be one of ephemeral, recomputable, durable, acknowledged"),
        ("the environment (GREENDOT_SERVER_PORT)", "server.port is 'http' but must be a whole number from 0 to 65535"),
        ("the environment (GREENDOT_DOOR_ORIGIN)", "[door] has no setting 'origin'. Did you mean 'origins'?"),
        ("on the command line", "server.workers is 0 but must be a whole number from 1 to 1024"),
    ]
    for place, sentence in expected:
        assert [line for line in said if str(place) in line and sentence in line], sentence
    assert len(said) == len(expected)
    assert "hush hush" not in "".join(said)
    assert "12345" not in "".join(said)


def test_all_relations_that_do_not_hold_are_reported_together_once_all_values_are_valid(file: Path) -> None:
    file.write_text('[limits]\ncommands_per_s = 300\n[auth]\nsecret = "hush hush"\n[presence]\ndead_after_s = 20\n')
    environment = {"GREENDOT_PRESENCE_HEARTBEAT_S": "15"}
    said = mistakes(file, environment, engine={"url": "amqp://me:hush@h"})
    expected = [
        "presence.dead_after_s (20) must be at least twice presence.heartbeat_s (15)",
        "limits.commands_burst (200) must be at least limits.commands_per_s (300)",
        "auth.secret is shorter than 32 characters",
        "engine.url begins with 'amqp'",
    ]
    for sentence, line in zip(expected, said, strict=True):
        assert line.startswith(sentence)
    assert "hush" not in "".join(said)
    (only,) = mistakes(file, environment | {"GREENDOT_SERVER_PORT": "http"}, engine={"url": "amqp://me:hush@h"})
    assert only.startswith("in the environment (GREENDOT_SERVER_PORT): server.port is 'http'")


def test_several_errors_are_listed_one_per_line_and_a_single_one_without_a_count(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"GREENDOT_LIMITS_ROOMS": "0", "GREENDOT_LIMITS_WATCHES": "0"}, {})
    first, *others = str(caught.value).splitlines()
    assert first == "2 settings are wrong:"
    assert len(others) == 2
    with pytest.raises(ConfigError) as caught:
        load(None, {"GREENDOT_LIMITS_ROOMS": "0"}, {})
    words = "limits.rooms is '0' but must be a whole number from 1 to 10000000."
    assert str(caught.value) == f"in the environment (GREENDOT_LIMITS_ROOMS): {words}"


def test_a_relation_to_an_unreadable_value_is_not_reported(file: Path) -> None:
    """The server cannot compare a limit of 20 s with a heartbeat of `soon`."""
    file.write_text("[presence]\ndead_after_s = 20\nheartbeat_s = 'soon'\n")
    (said,) = mistakes(file)
    assert "presence.heartbeat_s is 'soon'" in said


def test_a_common_error_is_reported_once_and_an_error_of_a_tenant_names_that_tenant(file: Path) -> None:
    common = "[limits]\ncommands_per_s = 300\n[tenants.a.limits]\nrooms = 5\n[tenants.plain]\n"
    file.write_text(common)
    (said,) = mistakes(file)
    assert "limits.commands_burst (200)" in said
    assert "tenants" not in said
    file.write_text(common + '[tenants."b.c".limits]\ncommands_burst = 299\n')
    both = mistakes(file)
    assert len(both) == 2
    assert "tenants.b.c.limits.commands_burst (299)" in both[1]
    file.write_text('[visibility]\npolicy = "ask"\n[tenants.a.visibility]\nrecent_days = 3\n[tenants.b]\n')
    (said,) = mistakes(file)
    assert said.startswith("visibility.policy is `ask`")


def test_values_that_may_hold_a_password_are_not_repeated(file: Path) -> None:
    for section, key, value in (
        ("auth", "secret", 987654),
        ("api", "key", 987654),
        ("privacy", "hash_key", 987654),
        ("visibility", "ask_secret", 987654),
        ("webhooks", "secret", 987654),
        ("webhooks", "url", 987654),
        ("engine", "url", 987654),
        ("engine", "url", "me:987654@localhost"),
        ("store", "url", "me:987654@localhost"),
        ("outbox", "url", "me:987654@localhost"),
        ("auth", "keys", "987654"),
        ("auth", "secrte", "987654"),
    ):
        (said,) = mistakes(**{section: {key: value}})
        assert f"{section}" in said
        assert "987654" not in said


def test_a_long_value_is_cut(file: Path) -> None:
    (said,) = mistakes(environment={"GREENDOT_SERVER_PORT": "9" * 5000})
    assert len(said) < 250


def test_further_checks_run_on_valid_settings_only_and_all_their_findings_are_reported() -> None:
    def certificate(settings: Settings) -> None:
        raise ConfigError(f"tls.cert: cannot read {settings.tls.cert}")

    def keys(settings: Settings) -> None:
        raise ConfigError("auth.keys: one.", "auth.keys: two.")

    checks = (certificate, lambda settings: settings.tls.cert, keys)
    environment = {"GREENDOT_TLS_CERT": "x"}
    assert mistakes(None, environment, checks) == ("tls.cert: cannot read x", "auth.keys: one.", "auth.keys: two.")
    (only,) = mistakes(None, environment | {"GREENDOT_LIMITS_ROOMS": "0"}, checks)
    assert "limits.rooms" in only
    (only,) = mistakes(None, environment | {"GREENDOT_PRESENCE_DEAD_AFTER_S": "1"}, checks)
    assert "presence.dead_after_s" in only
