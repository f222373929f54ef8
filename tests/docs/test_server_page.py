"""Examples of docs/server-sdk.md with a real server."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest

from greendot import sdk
from greendot.protocol.webhooks import signature
from greendot.sdk import errors
from greendot.testing import serving
from greendot.testing.server import API_KEY, SECRET

PAGE = (Path(__file__).parents[2] / "docs" / "server-sdk.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
BODY = b'{"id":"d1","sent_at":1,"events":[{"id":"e1","type":"ping","tenant":"default","at":1,"data":{}}]}'


async def test_the_examples_run_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving() as served:
        names: dict[str, Any] = {
            "URL": f"http://127.0.0.1:{served.port}",
            "API_KEY": API_KEY,
            "AUTH_SECRET": SECRET,
            "WEBHOOK_SECRET": SECRET,
        }
        bob = await served.client("bob")
        for example in EXAMPLES:
            await asyncio.to_thread(exec, example, names)
        await bob.closed()
        signed = {"Greendot-Signature": signature([SECRET], int(time.time()), BODY)}
        assert [names["receive"](BODY, headers) for headers in (signed, {})] == [204, 400]
        names["server"].close()
    said = capsys.readouterr().out
    for line in (
        "2 unread",
        "['alice', 'bob']",
        "1 system {'text': 'Welcome'}",
        "bob online None",
        "1 online: bob",
        "ping e1",
    ):
        assert line in said


def test_every_error_is_in_the_table() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    kinds = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.ServerError)
    }
    assert {*documented} == kinds


def test_every_call_is_named() -> None:
    calls = {name for name in dir(sdk.Server) if not name.startswith("_")} - {"close"}
    assert {name for name in calls if not re.search(rf"\b{name}\b", PAGE)} == set()


def test_the_typescript_sdk_has_every_call() -> None:
    reference = (Path(__file__).parents[2] / "docs" / "reference" / "server.md").read_text()
    found = re.search(r"^class Server \{\n(.*?)^\}", reference, re.MULTILINE | re.DOTALL)
    assert found is not None
    methods = {*re.findall(r"^  (\w+)[(<]", found[1], re.MULTILINE)}
    calls = {name for name in dir(sdk.Server) if not name.startswith("_")} - {"close"}  # runtimes own the connections
    assert len(calls) > 50
    assert {re.sub(r"_(\w)", lambda letter: letter[1].upper(), name) for name in calls} <= methods
