"""Fixtures of the tests of push providers."""

from __future__ import annotations

from pathlib import Path

import pytest

from greendot.transport.address_model import networks
from greendot.transport.http_client import Terms
from redis_servers.tls import Certificates, certificates


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(Path(tmp_path_factory.mktemp("tls")))


@pytest.fixture
def terms(made: Certificates) -> Terms:
    """Allow calls to loopback and trust its certificates."""
    return Terms(
        allowed=networks(["127.0.0.0/8"]),
        timeout_s=10.0,
        ca_file=str(made.authority),
        listed_in="push.allow_private",
    )
