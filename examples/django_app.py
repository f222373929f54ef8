"""Django app with Greendot: tokens for its users, notifications, webhooks. Start it: make example NAME=django"""

import json
import logging
import os
import secrets

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from greendot import Server
from greendot.sdk import BadWebhook, ServerError

# A project in one file. In your project, create `greendot` in a separate module.
settings.configure(
    SECRET_KEY=secrets.token_hex(32),  # a restart signs all users out
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
)
greendot = Server(  # one per process; it is thread-safe
    os.environ["GREENDOT_HTTP"],
    os.environ["GREENDOT_API_KEY"],
    secret=os.environ["GREENDOT_AUTH_SECRET"],
    webhook_secret=os.environ["GREENDOT_WEBHOOKS_SECRET"],
)
heard: dict[str, str] = {}  # received webhook events: id → type


@require_POST
def login(request: HttpRequest) -> HttpResponse:
    """Sign a user in. It stands for the sign-in of your app (`request.user`)."""
    request.session["user"] = json.loads(request.body)["user"]
    return HttpResponse(status=204)


@require_POST
def token(request: HttpRequest) -> HttpResponse:
    """Return a token for the signed-in user. The page requests one at the start and before each token expires."""
    user = request.session.get("user")
    if not user:
        return HttpResponse(status=401)
    try:
        return JsonResponse({"token": greendot.token(user, name=user.title(), rooms=["lobby"], ttl=600)})
    except ValueError as error:  # for example, a name that is not a valid id
        return HttpResponse(str(error), status=400)


@require_POST
def order(request: HttpRequest) -> HttpResponse:
    user = request.session.get("user")
    if not user:
        return HttpResponse(status=401)
    number = secrets.token_hex(4)
    try:
        # With the same key, a repeated request creates no second notification.
        greendot.notify(user, "order.placed", {"order": number}, key=f"order-{number}")
    except ServerError:
        # The order stays valid. To write order and notification in one transaction, see examples/django_outbox.
        logging.exception("the user was not notified")
    return JsonResponse({"order": number}, status=201)


@csrf_exempt  # Greendot sends no cookie; the signature authenticates the request
@require_POST
def webhook(request: HttpRequest) -> HttpResponse:
    try:
        delivery = greendot.verify_webhook(request.body, request.headers)
    except BadWebhook as error:
        return HttpResponse(str(error), status=400)
    for event in delivery.events:
        heard.setdefault(event.id, event.type)  # a repeated delivery has the same id
    return HttpResponse(status=204)


@require_GET
def shown(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"heard": [*heard.values()]})


urlpatterns = [
    path("login", login),
    path("token", token),
    path("orders", order),
    path("greendot", webhook),
    path("heard", shown),
]

if __name__ == "__main__":
    execute_from_command_line(["manage.py", "runserver", "--noreload", f"127.0.0.1:{os.environ['PORT']}"])
