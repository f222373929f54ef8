"""Django app with Greendot: tokens for its users, notifications, webhooks. Start it: make example NAME=django"""

import json
import logging
import os
import secrets

from django.conf import settings
from django.core.management import execute_from_command_line
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path
from django.views.decorators.http import require_GET, require_POST

from greendot.integrations.django import server
from greendot.integrations.django.signals import Event, event_received
from greendot.sdk import ServerError


def user(request: HttpRequest) -> str | None:
    """Return the signed-in user. Without `USER_ID`, the id is the primary key of `request.user`."""
    return request.session.get("user")


def claims(request: HttpRequest) -> dict[str, object]:
    return {"name": request.session["user"].title(), "rooms": ["lobby"]}


settings.configure(  # a project in one file
    SECRET_KEY=secrets.token_hex(32),  # a restart signs all users out
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["greendot.integrations.django"],
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    GREENDOT={
        "URL": os.environ["GREENDOT_URL"],
        "API_KEY": os.environ["GREENDOT_API_KEY"],
        "SECRET": os.environ["GREENDOT_AUTH_SECRET"],
        "WEBHOOK_SECRETS": os.environ["GREENDOT_WEBHOOKS_SECRET"],
        "USER_ID": user,
        "CLAIMS": claims,
        "TOKEN_TTL": 600,
    },
)
heard: dict[str, str] = {}  # received webhook events: id → type


@require_POST
def login(request: HttpRequest) -> HttpResponse:
    """Sign a user in. It stands for the sign-in of your app."""
    request.session["user"] = json.loads(request.body)["user"]
    return HttpResponse(status=204)


@require_POST
def order(request: HttpRequest) -> HttpResponse:
    customer = user(request)
    if not customer:
        return HttpResponse(status=401)
    number = secrets.token_hex(4)
    try:
        # With the same key, a repeated request creates no second notification.
        server().notify(customer, "order.placed", {"order": number}, key=f"order-{number}")
    except ServerError:
        # The order stays valid. To write order and notification in one transaction, see examples/django_outbox.
        logging.exception("the user was not notified")
    return JsonResponse({"order": number}, status=201)


@receiver(event_received)  # or a signal of one type, such as room_message
def remember(event: Event[object], **_: object) -> None:
    heard[event.id] = event.type


@require_GET
def shown(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"heard": [*heard.values()]})


urlpatterns = [
    path("login", login),
    path("orders", order),
    path("heard", shown),
    path("greendot/", include("greendot.integrations.django.urls")),  # greendot/token, greendot/webhook
]

if __name__ == "__main__":
    execute_from_command_line(["manage.py", "runserver", "--noreload", f"127.0.0.1:{os.environ['PORT']}"])
