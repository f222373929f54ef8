"""Apps of the Pusher protocol in the settings: by file and environment, one per tenant, complete and different."""

from __future__ import annotations

from pathlib import Path

import pytest

from greendot.config import Settings
from greendot.config.sources import load
from greendot.errors import ConfigError

APP = {"GREENDOT_PUSHER_APP_ID": "1", "GREENDOT_PUSHER_KEY": "key", "GREENDOT_PUSHER_SECRET": "a secret of 16 signs"}
OF_A_TENANT = '[tenants.acme.pusher]\napp_id = "{app_id}"\nkey = "{key}"\nsecret = "another secret of it"\n'


def loaded(tmp_path: Path, text: str = "", **environment: str) -> Settings:
    file = tmp_path / "greendot.toml"
    file.write_text(text)
    return load(file, environment, {})


def test_apps_come_from_the_environment_and_from_sections_of_tenants(tmp_path: Path) -> None:
    assert loaded(tmp_path).pusher_apps == {}
    found = loaded(tmp_path, OF_A_TENANT.format(app_id="2", key="other"), **APP).pusher_apps
    assert {tenant: (app.app_id, app.key) for tenant, app in found.items()} == {
        "default": ("1", "key"),
        "acme": ("2", "other"),
    }
    assert loaded(tmp_path, **APP, GREENDOT_PUSHER_ENABLED="false").pusher_apps == {}


@pytest.mark.parametrize(
    ("text", "change", "mistake"),
    [
        ("", {"GREENDOT_PUSHER_SECRET": ""}, "Set app_id, key and secret, or none of them"),
        ("", {"GREENDOT_PUSHER_SECRET": "short"}, "shorter than 16 characters"),
        ("", {"GREENDOT_PUSHER_KEY": "a/b"}, "may have only letters, digits"),
        (OF_A_TENANT.format(app_id="2", key="key"), {}, "tenants.acme.pusher.key is the same as in [pusher]"),
        (OF_A_TENANT.format(app_id="1", key="other"), {}, "tenants.acme.pusher.app_id is the same as in [pusher]"),
        (OF_A_TENANT.replace("acme", "default").format(app_id="2", key="other"), {}, "has two apps"),
        ("", {"GREENDOT_PUSHER_WEBHOOK_URL": "http://app.example"}, "could be read in transit"),
    ],
)
def test_a_mistake_is_explained(tmp_path: Path, text: str, change: dict[str, str], mistake: str) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, text, **(APP | change))
    assert mistake in str(error.value)
    assert "a secret of" not in str(error.value)
