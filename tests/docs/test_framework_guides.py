"""Programs of the guides for web frameworks: with a real server, and the Django project on a real PostgreSQL."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from docs import test_guides
from docs.test_guides import ROOT, DevServer, blocks
from examples.frameworks import django_database, needs
from postgres_server import fresh_schema

pytestmark = pytest.mark.timeout(90)
GUIDES = ROOT / "docs" / "guides"
WEBHOOK_SECRET = "the secret of webhooks, for guides only"

# Content of the project before the blocks of the page are added.
PROJECT = {
    "settings.py": """
import json, os

SECRET_KEY = "a key for tests only"
ALLOWED_HOSTS = ["testserver"]
ROOT_URLCONF = "urls"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
DATABASES = {"default": json.loads(os.environ["DATABASE"])}
""",
    "urls.py": "urlpatterns = []\n",
}
SIGNED = """
import time
from greendot.protocol.webhooks import signature


def signed(type, data, number):
    event = {"id": f"event-{number}", "type": type, "tenant": "default", "at": 1, "data": data}
    body = json.dumps({"id": f"delivery-{number}", "sent_at": 1, "events": [event]}).encode()
    return body, signature([os.environ["GREENDOT_WEBHOOKS_SECRET"]], int(time.time()), body)


message = {"room": "r", "seq": 1, "id": "m", "user": "ann", "name": None, "body": {"text": "bye"}, "at": 1}
"""
DJANGO = f"""
import json, os
import django
from django.core.management import call_command

django.setup()
call_command("check", fail_level="WARNING")
call_command("migrate", verbosity=0)
from django.contrib.auth.models import User
from django.test import Client
import orders, receivers, reminders
from greendot.integrations.django import server
from greendot.integrations.django.models import Outbox
{SIGNED}
ann = User.objects.create_user("ann")
ann.groups.create(name="team")
browser = Client(enforce_csrf_checks=True)
browser.cookies["csrftoken"] = "c" * 32
csrf = {{"X-CSRFToken": "c" * 32}}
tokens = [browser.post("/greendot/token", headers=csrf).status_code]
browser.force_login(ann)
tokens += [browser.post("/greendot/token", headers=headers).status_code for headers in ({{}}, csrf)]
orders.ship(17, str(ann.pk))
reminders.remind(str(ann.pk))
words = []
for number, (type, data) in enumerate([("room.message", message), ("user.offline", {{"user": "ann"}})]):
    body, header = signed(type, data, number)
    sent = {{"data": body, "content_type": "application/json", "headers": {{"Greendot-Signature": header}}}}
    tokens.append(browser.post("/greendot/webhook", **sent).status_code)
    words.append(dict(receivers.last_words))
rows = [[str(row), row.kind, row.body] for row in Outbox.objects.order_by("id")]
inbox = [entry.body for entry in server().inbox(str(ann.pk)).notifications]
print(json.dumps([tokens, rows, inbox, words]))
"""
FASTAPI = f"""
import asyncio, json, os
import httpx2
{SIGNED}

async def main():
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://app") as browser:
        headers = {{"Authorization": "Bearer Ann"}}
        statuses = [(await browser.post("/greendot/token", headers=each)).status_code for each in ({{}}, headers)]
        shipped = (await browser.post("/orders/17/ship", headers=headers)).json()
        words = []
        for number, (type, data) in enumerate([("room.message", message), ("user.offline", {{"user": "ann"}})]):
            body, header = signed(type, data, number)
            answer = await browser.post("/greendot/webhook", content=body, headers={{"Greendot-Signature": header}})
            statuses.append(answer.status_code)
            words.append(dict(last_words))
        inbox = [entry.body for entry in greendot.server.inbox("7").notifications]
        greendot.server.close()
        print(json.dumps([statuses, shipped, inbox, words]))


asyncio.run(main())
"""
WORDS = [{"ann": {"text": "bye"}}, {}]


server = test_guides.server  # the fixture


def environment(server: DevServer) -> dict[str, str]:
    return {
        "GREENDOT_URL": f"http://127.0.0.1:{server.port}",
        "GREENDOT_API_KEY": server.kept("api-key"),
        "GREENDOT_AUTH_SECRET": server.kept("secret"),
        "GREENDOT_WEBHOOKS_SECRET": WEBHOOK_SECRET,
    }


def write_project(page: Path, folder: Path) -> None:
    """Write each block to the file that its first line names."""
    files = dict(PROJECT)
    for _, text in blocks(page, "python"):
        name = text.splitlines()[0].removeprefix("# ")
        assert name.endswith(".py"), f"name the file in the first line of this block:\n{text}"
        files[name] = files.get(name, "") + text
    for name, text in files.items():
        (folder / name).write_text(text)


async def test_the_project_of_the_django_guide_runs(server: DevServer, tmp_path: Path, postgres: str) -> None:
    needs("django", "psycopg")
    write_project(GUIDES / "django.md", tmp_path)
    async with fresh_schema(postgres) as place:
        given = environment(server) | {"DATABASE": json.dumps(django_database(place)), "PYTHONPATH": str(tmp_path)}
        printed = server.run([sys.executable, "-W", "error", "-c"], DJANGO, **given, DJANGO_SETTINGS_MODULE="settings")
    statuses, rows, inbox, words = json.loads(printed.splitlines()[-1])
    assert statuses == [401, 403, 200, 204, 204]  # without a user, without a CSRF token, a token, webhooks
    shipped = {"text": "Order 17 is on its way"}
    assert rows == [
        ["notification for 1", "order.shipped", {"order": 17}],
        ["message for warehouse", None, shipped],
    ]
    assert inbox == [{"text": "Standup in 5 minutes"}]
    assert words == WORDS


def test_the_app_of_the_fastapi_guide_runs(server: DevServer) -> None:
    needs("fastapi")
    program = "\n".join(text for _, text in blocks(GUIDES / "fastapi.md", "python"))
    printed = server.run([sys.executable, "-W", "error", "-c"], program + FASTAPI, **environment(server))
    statuses, shipped, inbox, words = json.loads(printed)
    assert statuses == [401, 200, 204, 204]
    assert (shipped, inbox) == (["7"], [{"order": 17}])
    assert words == WORDS
