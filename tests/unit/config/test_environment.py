"""Environment variables that are not settings: likely misspellings are refused, others are ignored or reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from greendot.config import Settings, load, strange_variables
from greendot.errors import ConfigError


def refusal(environment: dict[str, str], file: Path | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(file, environment, {})
    return caught.value.mistakes


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("GREENDOT_PRESENSE_GRACE_S", "Did you mean GREENDOT_PRESENCE_GRACE_S?"),
        ("GREENDOT_PRECENSE_GRACE_S", "Did you mean GREENDOT_PRESENCE_GRACE_S?"),
        ("GREENDOT_SEVER_PORT", "Did you mean GREENDOT_SERVER_PORT?"),
        ("GREENDOT_SECRET", "Did you mean GREENDOT_AUTH_SECRET"),
        ("GREENDOT_ORIGINS", "Did you mean GREENDOT_DOOR_ORIGINS?"),
        ("GREENDOT_PORT", "Did you mean GREENDOT_SERVER_PORT or GREENDOT_ADMIN_PORT or GREENDOT_METRICS_PORT?"),
        ("GREENDOT_JOB_SWEEP_EVERY_S", "Did you mean GREENDOT_JOBS_SWEEP_EVERY_S?"),
        ("greendot_auth_secret", "Did you mean GREENDOT_AUTH_SECRET?"),
        ("GREENDOT_TENANTS_ACME", "Set [tenants] in the file."),
    ],
)
def test_a_variable_that_must_be_meant_for_us_is_refused(name: str, meant: str) -> None:
    (said,) = refusal({name: "hush hush 7"})
    assert said.startswith(f"in the environment: {name} is not a setting. {meant}")
    assert "hush" not in said


def test_a_misspelt_key_of_a_known_section_is_refused_like_one_in_the_file() -> None:
    assert "Did you mean 'grace_s'?" in refusal({"GREENDOT_PRESENCE_GRACES": "5"})[0]


def test_variables_of_clients_and_of_kubernetes_are_ignored() -> None:
    """Clients and examples use variables too. Kubernetes creates some for every service called greendot."""
    others = {
        "GREENDOT_URL": "ws://127.0.0.1:8000",
        "GREENDOT_TOKEN": "x",
        "GREENDOT_HTTP": "http://127.0.0.1:8000",
        "GREENDOT_TEST_POSTGRES": "postgresql://h/d",
        "GREENDOT_SERVICE_HOST": "10.0.0.1",
        "GREENDOT_SERVICE_PORT_HTTP": "8000",
        "GREENDOT_PORT": "tcp://10.0.0.1:8000",
        "GREENDOT_PORT_8000_TCP_ADDR": "10.0.0.1",
        "GREENDOT_SERVER_PORT": "tcp://10.0.0.1:8000",
        "GREENDOT_SERVER_SERVICE_HOST": "10.0.0.1",
        "GREENDOT_STORE_PORT_5432_TCP": "tcp://10.0.0.1:5432",
    }
    assert load(None, others, {}) == Settings()
    assert strange_variables(others) == []


def test_a_variable_that_resembles_no_setting_is_reported_and_not_refused() -> None:
    assert load(None, {"GREENDOT_HOME": "/x"}, {}) == Settings()
    assert strange_variables({"GREENDOT_HOME": "/x", "HOME": "/y"}) == [
        "GREENDOT_HOME is not a setting and has no effect."
    ]


def test_a_file_that_cannot_be_read_does_not_hide_what_is_wrong_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    file.write_text("[presence\ngrace_s = 1")
    said = refusal({"GREENDOT_SERVER_PORT": "http", "GREENDOT_PRESENSE_GRACE_S": "5"}, file)
    assert [
        word for word, line in zip(("TOML", "server.port", "PRESENSE"), said, strict=True) if word not in line
    ] == []
