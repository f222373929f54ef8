"""Django integration: checks, token view, webhook view and outbox, with a real PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import jwt
import pytest

from e2e.processes import API_KEY, SECRET, running
from examples.deliveries import WEBHOOK_SECRET, delivery, signed
from examples.frameworks import django_database, needs
from greendot import Server
from greendot.client import Client
from greendot.errors import ConfigError
from greendot.protocol.events import NotificationCreated, RoomMessage
from greendot.store.postgres import PostgresOutbox
from greendot.store.postgres.migrations import outbox_sql
from postgres_server import execute

pytestmark = pytest.mark.timeout(60)
SETTING = {
    "URL": "http://127.0.0.1:1",
    "API_KEY": API_KEY,
    "SECRET": SECRET,
    "WEBHOOK_SECRETS": ["another secret of the app", WEBHOOK_SECRET],
}
ROLE = f"greendot_django_{os.getpid()}"


@pytest.fixture(scope="module")
def place(postgres: str) -> Iterator[str]:
    """Set up Django in this process, and yield the URL of the schema that its database `default` uses."""
    needs("django", "psycopg")
    import django
    from django.conf import settings

    schema = f"greendot_django_{os.getpid()}"
    run(postgres, f"CREATE SCHEMA {schema}")
    place = f"{postgres}{'&' if '?' in postgres else '?'}search_path={schema}"
    settings.configure(
        SECRET_KEY="a key for tests only",
        ALLOWED_HOSTS=["testserver"],
        ROOT_URLCONF="greendot.integrations.django.urls",
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "greendot.integrations.django",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        DATABASES={
            "default": django_database(place),
            "lite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
        LOGGING_CONFIG=None,
        USE_TZ=True,
        GREENDOT=SETTING,
    )
    django.setup()
    from django.core.management import call_command
    from django.db import connections

    try:
        call_command("migrate", verbosity=0)
        yield place
    finally:
        connections.close_all()
        run(postgres, f"SET client_min_messages = error; DROP SCHEMA {schema} CASCADE")


@pytest.fixture(autouse=True)
def empty(place: str) -> Iterator[None]:
    from django.contrib.auth.models import User
    from django.core.cache import cache

    from greendot.integrations.django.models import Outbox

    yield
    cache.clear()
    Outbox.objects.all().delete()
    User.objects.all().delete()


def run(url: str, sql: str) -> None:
    with asyncio.Runner() as runner:
        runner.run(execute(url, sql))


def found(**setting: object) -> list[tuple[str, str]]:
    """Return id and text of the errors that `manage.py check` reports for a setting."""
    from django.core.checks import run_checks
    from django.test import override_settings

    with override_settings(GREENDOT=setting or None):
        return [(one.id, one.msg) for one in run_checks(tags=["greendot"]) if one.is_serious()]


@contextmanager
def setting(**changes: object) -> Iterator[None]:
    from django.test import override_settings

    with override_settings(GREENDOT=SETTING | changes):
        yield


def browser(**options: Any) -> Any:
    from django.test import Client as Browser

    return Browser(**options)


def post(body: bytes, header: str | None, **options: Any) -> Any:
    """Send a webhook to the view, as Greendot does: without a cookie or a CSRF token."""
    headers = {} if header is None else {"Greendot-Signature": header}
    sender = browser(enforce_csrf_checks=True, **options)
    return sender.post("/webhook", body, content_type="application/json", headers=headers)


# --- settings ---


def test_a_project_without_mistakes_passes_the_checks() -> None:
    assert found(**SETTING) == []
    assert found(URL="https://rt.example.com") == []


@pytest.mark.parametrize(
    ("changes", "id_", "words"),
    [
        ({"URL": ""}, "greendot.E003", 'GREENDOT["URL"] is missing.'),
        ({"URL": "rt.example.com"}, "greendot.E003", "is not the address of a server"),
        ({"URL": "http://user:secret-word@rt.example.com"}, "greendot.E003", "is not the address of a server"),
        ({"SECRET": "secret-word"}, "greendot.E004", "has fewer than 32 characters"),
        ({"API_KEY": None}, "greendot.E004", 'GREENDOT["API_KEY"] is not a string.'),
        ({"WEBHOOK_SECRETS": None}, "greendot.E005", "is neither a secret nor a list of secrets"),
        ({"WEBHOOK_SECRETS": ["secret-word", ""]}, "greendot.E005", "or one is empty"),
        ({"CLAIMS": "nowhere.claims"}, "greendot.E006", "cannot be imported: No module named 'nowhere'."),
        ({"USER_ID": 7}, "greendot.E006", "is neither a function nor the dotted path of one"),
        ({"TOKEN_TTL": 0}, "greendot.E007", 'GREENDOT["TOKEN_TTL"] is 0.'),
        ({"RETRIES": -1}, "greendot.E007", 'GREENDOT["RETRIES"] is -1.'),
        ({"CACHE": "shared"}, "greendot.E008", "GREENDOT[\"CACHE\"] is 'shared'."),
        ({"WEBHOOK_SECRET": "secret-word"}, "greendot.E002", "unknown key 'WEBHOOK_SECRET'"),
    ],
)
def test_a_mistake_is_reported_by_its_check_without_secrets(changes: dict[str, object], id_: str, words: str) -> None:
    from django.core.exceptions import ImproperlyConfigured

    from greendot.integrations.django import server

    ((reported, text),) = found(**(SETTING | changes))
    assert reported == id_
    assert words in text
    assert "secret-word" not in text
    with setting(**changes), pytest.raises(ImproperlyConfigured) as raised:
        server()
    assert text in str(raised.value)


def test_a_misspelt_key_has_a_suggestion() -> None:
    from django.core.checks import run_checks

    with setting(WEBHOOK_SECRET="x"):
        (error,) = run_checks(tags=["greendot"])
    assert error.hint == "Did you mean 'WEBHOOK_SECRETS'?"


def test_all_mistakes_are_reported_at_once() -> None:
    assert found() == [("greendot.E001", "The setting GREENDOT is missing.")]
    assert [id_ for id_, _ in found(URL="x", SECRET="short")] == ["greendot.E003", "greendot.E004"]


def test_a_cache_of_one_process_is_reported_before_a_deployment() -> None:
    from django.core.checks import Tags, run_checks
    from django.test import override_settings

    def warnings() -> set[str | None]:
        return {one.id for one in run_checks(tags=[Tags.security], include_deployment_checks=True)}

    assert "greendot.W002" in warnings()
    with override_settings(CACHES={"default": {"BACKEND": "django.core.cache.backends.db.DatabaseCache"}}):
        assert "greendot.W002" not in warnings()


def test_server_is_one_client_of_the_process_with_the_settings() -> None:
    from greendot.integrations.django import server

    assert server() is server()
    with setting(URL="http://127.0.0.1:2"):
        assert repr(server()) == "Server('http://127.0.0.1:2')"
    assert repr(server()) == "Server('http://127.0.0.1:1')"


# --- tokens ---


def claims_of(answer: Any) -> dict[str, Any]:
    made: dict[str, Any] = jwt.decode(answer.json()["token"], SECRET, algorithms=["HS256"])
    return made


def signed_in(**options: Any) -> tuple[Any, Any]:
    from django.contrib.auth.models import User

    user = User.objects.create_user("ann", first_name="Ann", last_name="Ash")
    client = browser(**options)
    client.force_login(user)
    return client, user


def test_a_signed_in_user_gets_a_token_with_name_and_lifetime() -> None:
    client, user = signed_in()
    answer = client.post("/token")
    made = claims_of(answer)
    assert (made["sub"], made["name"]) == (str(user.pk), "Ann Ash")
    assert made["exp"] - made["iat"] == pytest.approx(3600, abs=2)
    assert "no-store" in answer["Cache-Control"]


def test_without_a_user_the_answer_is_401_as_json() -> None:
    answer = browser().post("/token")
    assert (answer.status_code, answer["Content-Type"]) == (401, "application/problem+json")
    assert answer.json()["detail"] == "no user is signed in; sign in first"


def test_a_user_who_was_deactivated_gets_no_token() -> None:
    client, user = signed_in()
    user.is_active = False
    user.save()
    assert client.post("/token").status_code == 401


def test_the_view_is_protected_by_the_csrf_middleware_and_takes_posts_only() -> None:
    client, _ = signed_in(enforce_csrf_checks=True)
    assert client.get("/token").status_code == 405
    assert client.post("/token").status_code == 403
    client.cookies["csrftoken"] = "c" * 32
    assert client.post("/token", headers={"X-CSRFToken": "c" * 32}).status_code == 200


def test_user_claims_and_lifetime_come_from_the_settings() -> None:
    with setting(
        USER_ID=lambda request: request.headers.get("X-User"),
        CLAIMS=lambda request: {"rooms": ["lobby"], "send": False},
        TOKEN_TTL=timedelta(minutes=5),
    ):
        made = claims_of(browser().post("/token", headers={"X-User": "carol"}))
        assert (made["sub"], made["rooms"], made["send"]) == ("carol", ["lobby"], False)
        assert made["exp"] - made["iat"] == pytest.approx(300, abs=2)
        assert browser().post("/token").status_code == 401
        refused = browser().post("/token", headers={"X-User": "not an id"})
        assert refused.status_code == 400
        assert "invalid claim" in refused.json()["detail"] or "valid id" in refused.json()["detail"]


def test_a_view_without_its_secret_names_the_missing_setting() -> None:
    from django.core.exceptions import ImproperlyConfigured
    from django.test import override_settings

    with override_settings(GREENDOT={"URL": SETTING["URL"]}):
        with pytest.raises(ImproperlyConfigured, match='"SECRET"'):
            browser().post("/token")
        with pytest.raises(ImproperlyConfigured, match="WEBHOOK_SECRETS"):
            post(b"{}", "t=1,v1=00")


# --- webhooks ---


@contextmanager
def received(*signals: Any) -> Iterator[list[Any]]:
    """Collect the events of signals. An event of the user `broken` makes the receiver fail."""
    events: list[Any] = []

    def take(event: Any, **_: object) -> None:
        events.append(event)
        if getattr(event.data, "user", None) == "broken":
            raise RuntimeError("the receiver of the test fails")

    for signal in signals:
        signal.connect(take)
    try:
        yield events
    finally:
        for signal in signals:
            signal.disconnect(take)


def test_each_type_of_event_has_a_signal_with_typed_data() -> None:
    from examples.deliveries import EVENTS
    from greendot.integrations.django.signals import BY_TYPE
    from greendot.protocol.webhooks import TYPES

    assert BY_TYPE.keys() == {*TYPES} == EVENTS.keys()
    with received(*BY_TYPE.values()) as events:
        assert post(*signed(delivery(*EVENTS.items()))).status_code == 204
    assert {event.type: type(event.data).__name__ for event in events} == {
        "user.online": "UserChange",
        "user.offline": "UserChange",
        "room.occupied": "RoomChange",
        "room.vacated": "RoomChange",
        "room.message": "Message",
        "notification.created": "NotificationCreated",
        "notification.updated": "NotificationUpdated",
        "audit.created": "AuditCreated",
    }
    message = next(event for event in events if event.type == "room.message")
    assert (message.data.user, message.data.body, message.tenant) == ("ann", {"text": "hello"}, "default")


def test_events_of_unknown_types_and_pings_reach_the_signal_for_all_events() -> None:
    from greendot.integrations.django.signals import event_received

    with received(event_received) as events:
        later = {"user": 7, "mood": "new"}  # of a newer server, with a user of another type
        assert post(*signed(delivery(("ping", {}), ("mood.changed", later), ("user.online", later)))).status_code == 204
    assert [(event.type, event.data) for event in events] == [
        ("ping", {}),
        ("mood.changed", later),
        ("user.online", later),
    ]


def test_a_delivery_needs_a_recent_signature_by_one_of_the_secrets() -> None:
    from greendot.integrations.django.signals import event_received

    body = delivery(("user.online", {"user": "ann"}))
    late = signed(body, at=time.time() - 301)[1]
    refused = [
        (None, "no Greendot-Signature header"),
        ("", "no Greendot-Signature header"),
        ("t=1,v1=00", "does not match"),
        (signed(body, secret="a secret of a stranger")[1], "does not match"),
        (signed(body + b" ")[1], "does not match"),
        (late, "too old or from the future"),
        (signed(body, at=time.time() + 310)[1], "too old or from the future"),
    ]
    with received(event_received) as events:
        for header, words in refused:
            answer = post(body, header)
            assert (answer.status_code, words in answer.json()["detail"]) == (400, True), answer.json()
        assert events == []
        assert post(*signed(body, secret="another secret of the app")).status_code == 204
        assert len(events) == 1


def test_a_replay_is_refused_and_a_repeated_event_has_no_second_effect() -> None:
    from greendot.integrations.django.signals import user_online

    first = signed(delivery(("user.online", {"user": "ann"}), id_="d1"))
    repeated = signed(delivery(("user.online", {"user": "ann"}), ("user.online", {"user": "bob"}), id_="d2"))
    with received(user_online) as events:
        assert post(*first).status_code == 204
        assert post(*first).status_code == 409
        assert post(*repeated).status_code == 204  # the first event has the same id
    assert [event.data.user for event in events] == ["ann", "bob"]


def test_events_whose_receiver_failed_are_taken_again_and_the_others_are_not() -> None:
    from greendot.integrations.django.signals import user_online

    events = (("user.online", {"user": "ann"}), ("user.online", {"user": "broken"}), ("user.online", {"user": "bob"}))
    with received(user_online) as taken:
        assert post(*signed(delivery(*events, id_="d1"))).status_code == 500
        assert [event.data.user for event in taken] == ["ann", "broken", "bob"]
        assert post(*signed(delivery(*events, id_="d2"))).status_code == 500
    assert [event.data.user for event in taken] == ["ann", "broken", "bob", "broken"]


def test_a_large_body_is_refused_and_other_methods_too() -> None:
    from greendot.integrations.webhooks import MOST_BYTES

    large = delivery(("ping", {"filler": "x" * MOST_BYTES}))
    assert post(*signed(large)).status_code == 413
    fitting = delivery(("ping", {"filler": "x" * (MOST_BYTES - 200)}))
    assert post(*signed(fitting)).status_code == 204
    assert browser().get("/webhook").status_code == 405


# --- outbox ---


def rows() -> list[Any]:
    from greendot.integrations.django.models import Outbox

    return [*Outbox.objects.order_by("id")]


def test_rows_are_written_in_the_transaction_of_the_app() -> None:
    from django.db import transaction

    from greendot.integrations.django import notify_on_commit, send_on_commit

    with transaction.atomic():
        notify_on_commit("ann", "lost", {})
        assert len(rows()) == 1
        transaction.set_rollback(True)
    assert rows() == []
    expires = datetime(2099, 1, 1, tzinfo=UTC)
    with transaction.atomic():
        notify_on_commit(
            7,
            "disk.full",
            {"free": Decimal("0.5")},
            key="k",
            expires_at=expires,
            room="ops",
            collapse="disk",
            push=False,
        )
        send_on_commit("ops", {"at": expires}, user="shop", name="The shop", tenant="acme")
    first, second = rows()
    assert (first.target, first.tenant, first.user_id, first.kind, first.body) == (
        "notification",
        "default",
        "7",
        "disk.full",
        {"free": "0.5"},
    )
    assert (first.key, first.expires_at, first.room, first.collapse_key, first.push) == (
        "k",
        expires,
        "ops",
        "disk",
        False,
    )
    assert (second.target, second.tenant, second.room, second.user_id, second.name, second.body) == (
        "message",
        "acme",
        "ops",
        "shop",
        "The shop",
        {"at": "2099-01-01T00:00:00Z"},
    )


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("not an id", "k"), {}, "user is not a valid id"),
        ((object(), "k"), {}, "user must be an id, such as request.user.pk, and is of type object"),
        (("ann", ""), {}, "kind is not a valid id"),
        (("ann", "k"), {"key": "a key"}, "key is not a valid id"),
        (("ann", "k"), {"tenant": "a tenant"}, "tenant is not a valid id"),
        (("ann", "k"), {"room": "a room"}, "room is not a valid id"),
        (("ann", "k"), {"collapse": ""}, "collapse is not a valid id"),
        (("ann", "k"), {"importance": "huge"}, "importance 'huge' must be one of low, normal, high, critical"),
        (("ann", "k"), {"expires_at": datetime(2099, 1, 1)}, "expires_at has no time zone"),
        (("ann", "k", object()), {}, "body cannot be sent as JSON"),
        (("ann", "k", float("nan")), {}, "body cannot be sent as JSON"),
        (("ann", "k", "\0"), {}, "body has a NUL character"),
        (("ann", "k", "\ud800"), {}, "body cannot be sent as JSON"),
        (("ann", "k", "x" * 65_536), {}, "body may have at most 65536 bytes, and has 65538"),
        (("ann", "k", 10**400), {}, "body has a number beyond 1.8e308"),
    ],
)
def test_what_greendot_could_not_send_is_refused_before_it_is_written(
    arguments: tuple[Any, ...], options: dict[str, Any], words: str
) -> None:
    from greendot.integrations.django import notify_on_commit

    with pytest.raises(ValueError) as raised:
        notify_on_commit(*arguments, **options)
    assert words in str(raised.value)
    assert rows() == []


def test_a_body_with_the_letters_of_an_escape_and_a_user_with_a_uuid_are_written() -> None:
    from greendot.integrations.django import notify_on_commit

    notify_on_commit(UUID(int=7), "k", "\\u0000")
    assert [(row.user_id, row.body) for row in rows()] == [(str(UUID(int=7)), "\\u0000")]


def test_a_name_of_a_sender_is_limited() -> None:
    from greendot.integrations.django import send_on_commit

    with pytest.raises(ValueError, match="name may have at most 200 characters"):
        send_on_commit("ops", {}, user="shop", name="x" * 201)


def test_another_database_than_postgresql_is_named_by_the_check_and_by_the_error() -> None:
    from django.core.checks import run_checks
    from django.core.management import call_command
    from django.db import NotSupportedError, connections
    from django.test import override_settings

    from greendot.integrations.django import notify_on_commit

    class ToLite:
        def db_for_write(self, model: object, **_: object) -> str:
            return "lite"

    with override_settings(DATABASE_ROUTERS=[ToLite()]):
        (warning,) = run_checks(tags=["greendot"])
        assert (warning.id, warning.msg) == (
            "greendot.W001",
            "There is no outbox in the database 'lite', which is sqlite.",
        )
        with pytest.raises(NotSupportedError, match=r"needs PostgreSQL.*transaction.on_commit"):
            notify_on_commit("ann", "k")
    call_command("migrate", database="lite", verbosity=0)  # creates nothing, and does not fail
    assert "greendot_outbox" not in connections["lite"].introspection.table_names()
    notify_on_commit("ann", "k", using="default")
    assert len(rows()) == 1


def test_a_missing_table_is_reported_with_the_command_that_creates_it(place: str) -> None:
    from django.db import ProgrammingError

    from greendot.integrations.django import notify_on_commit

    run(place, "ALTER TABLE greendot_outbox RENAME TO away")
    try:
        with pytest.raises(ProgrammingError, match=r"manage\.py migrate greendot --database default"):
            notify_on_commit("ann", "k")
    finally:
        run(place, "ALTER TABLE away RENAME TO greendot_outbox")


# --- migration ---


def migrate(*words: str) -> None:
    from django.core.management import call_command

    call_command("migrate", "greendot", *words, verbosity=0)


async def shape(place: str) -> list[str]:
    """Return the names that `greendot outbox install` would create now, and check the table as the servers do."""
    outbox = PostgresOutbox(place)
    assert await outbox.check()
    return await outbox.install()


async def test_the_migration_creates_the_table_of_the_servers(place: str) -> None:
    assert await shape(place) == []


def test_the_migration_leaves_a_table_of_another_role_as_it_is(place: str) -> None:
    """The operator has installed the outbox, and dropped the trigger. The app may insert and nothing else."""
    from django.db import connection, transaction

    from greendot.integrations.django import notify_on_commit

    run(place, f"DROP TRIGGER greendot_outbox_tell ON greendot_outbox; CREATE ROLE {ROLE} NOLOGIN")
    run(place, f"GRANT USAGE ON SCHEMA {place.rpartition('=')[2]} TO {ROLE}; GRANT INSERT ON greendot_outbox TO {ROLE}")
    migrate("zero", "--fake")
    try:
        migrate()
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL ROLE {ROLE}")
            notify_on_commit("ann", "k")
            with pytest.raises(Exception, match="permission denied"), transaction.atomic():
                rows()
        assert len(rows()) == 1
    finally:
        with asyncio.Runner() as runner:
            assert runner.run(shape(place)) == ["trigger greendot_outbox_tell"]
        run(place, f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


def test_the_migration_adds_columns_to_a_table_of_an_earlier_version(place: str) -> None:
    run(place, "ALTER TABLE greendot_outbox DROP COLUMN importance, DROP COLUMN push")
    migrate("zero", "--fake")
    migrate()
    with asyncio.Runner() as runner:
        assert runner.run(shape(place)) == []


def test_the_migration_is_undone_unless_rows_wait(place: str) -> None:
    from django.db import ProgrammingError

    from greendot.integrations.django import notify_on_commit

    notify_on_commit("ann", "k")
    with pytest.raises(ProgrammingError, match="greendot_outbox still has 1 rows"):
        migrate("zero")
    assert len(rows()) == 1
    run(place, "DELETE FROM greendot_outbox")
    migrate("zero")
    with asyncio.Runner() as runner, pytest.raises(ConfigError, match="there is no table greendot_outbox"):
        runner.run(PostgresOutbox(place).check())
    migrate()
    with asyncio.Runner() as runner:
        assert runner.run(shape(place)) == []


def test_the_migration_has_all_of_the_model_and_the_model_all_columns(place: str) -> None:
    from django.core.management import call_command
    from django.db import connection

    from greendot.integrations.django import table
    from greendot.integrations.django.models import Outbox

    call_command("makemigrations", "greendot", check=True, dry_run=True, verbosity=0)
    assert table.outbox_sql() == outbox_sql()
    with connection.cursor() as cursor:
        columns = {column.name for column in connection.introspection.get_table_description(cursor, "greendot_outbox")}
    # A new column needs a new migration, which calls `create_table` again.
    assert columns == table.NEEDED == {field.column for field in Outbox._meta.get_fields()} | {"shard"}


# --- with a server ---


async def test_rows_of_a_committed_transaction_reach_users_and_rooms(place: str, tmp_path: Path) -> None:
    from django.db import connections, transaction

    from greendot.integrations.django import notify_on_commit, send_on_commit, server

    def work(url: str) -> None:
        with setting(URL=url):
            server().put_room("club", open=True)
        with transaction.atomic():
            notify_on_commit("ann", "order", {"order": 0})
            transaction.set_rollback(True)
        with transaction.atomic():
            notify_on_commit("ann", "order", {"order": 1}, key="order-1")
            send_on_commit("club", {"text": "Order 1"}, user="shop", name="The shop")
        connections.close_all()

    async with running(tmp_path, GREENDOT_OUTBOX_URL=place) as greendot:
        url = f"http://127.0.0.1:{greendot.port}"
        app = Server(url, API_KEY, secret=SECRET)
        token = app.token("ann", rooms=["club"])
        await asyncio.to_thread(app.put_room, "club")
        async with Client(f"{url.replace('http', 'ws')}/v1/connect", token) as ann:
            await ann.join("club")
            events: asyncio.Queue[Any] = asyncio.Queue()
            ann.on(NotificationCreated, events.put_nowait)
            ann.on(RoomMessage, events.put_nowait)
            await asyncio.to_thread(work, url)
            async with asyncio.timeout(30):
                arrived = [await events.get() for _ in range(2)]
        app.close()
    assert {event.type: json.loads(bytes(event.body)) for event in arrived} == {
        "notification.created": {"order": 1},
        "room.message": {"text": "Order 1"},
    }
