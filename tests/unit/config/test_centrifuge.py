"""Settings of the Centrifuge protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from greendot.config import load
from greendot.errors import ConfigError


def loaded(folder: Path, text: str, **environment: str) -> dict[str, list[str]]:
    """Return the tenants with the protocol, each with its namespaces."""
    file = folder / "greendot.toml"
    file.write_text(text)
    return {tenant: [*given.namespaces] for tenant, given in load(file, environment, {}).centrifuges.items()}


def test_the_protocol_is_off_unless_a_tenant_has_it(tmp_path: Path) -> None:
    assert loaded(tmp_path, "") == {}
    assert loaded(tmp_path, "", GREENDOT_CENTRIFUGE_ENABLED="true") == {"default": []}
    assert loaded(tmp_path, "[tenants.acme.centrifuge]\nenabled = true\n[tenants.acme.centrifuge.namespaces.a]") == {
        "acme": ["a"]
    }
    assert loaded(tmp_path, "[tenants.default.centrifuge]\nenabled = true\n") == {"default": []}


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('[centrifuge.namespaces."a:b"]\n', "no name of a namespace"),
        ("[centrifuge.namespaces.a]\nhistry = true\n", "history"),
        ("[centrifuge]\nnamespaces = 5\n", "must be a section"),
        ('[centrifuge]\nrpc_url = "https://h/rpc"\n', "centrifuge.rpc_secret must have at least 32"),
        (f'[centrifuge]\nrpc_secret = "{"x" * 32}"\n', "centrifuge.rpc_url is not"),
        (f'[centrifuge]\nrpc_url = "http://10.0.0.1/"\nrpc_secret = "{"x" * 32}"\n', "webhooks.allow_private"),
        ("[centrifuge]\nrpc_timeout_s = 11\n", "rpc_timeout_s"),
        ("[tenants.acme.centrifuge]\nenabled = 3\n", "true or false"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, mistake: str) -> None:
    with pytest.raises(ConfigError, match=mistake):
        loaded(tmp_path, text)
