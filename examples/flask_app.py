"""Flask app with Greendot: tokens for its users, notifications, webhooks. Start it: make example NAME=flask"""

import logging
import os
import secrets
from typing import Any

from flask import Flask, Response, abort, request, session

from greendot import Server
from greendot.sdk import BadWebhook, ServerError

app = Flask(__name__)
app.secret_key = secrets.token_hex(32)  # a restart signs all users out
greendot = Server(  # one per process; it is thread-safe
    os.environ["GREENDOT_URL"],
    os.environ["GREENDOT_API_KEY"],
    secret=os.environ["GREENDOT_AUTH_SECRET"],
    webhook_secret=os.environ["GREENDOT_WEBHOOKS_SECRET"],
)
heard: dict[str, str] = {}  # received webhook events: id → type


@app.post("/login")
def login() -> Response:
    """Sign a user in. It stands for the sign-in of your app."""
    session["user"] = request.get_json()["user"]
    return Response(status=204)


def user() -> str:
    return str(session.get("user") or abort(401))


@app.post("/greendot/token")
def token() -> dict[str, str]:
    """Return a token for the signed-in user. The page requests one at the start and before each token expires."""
    try:
        return {"token": greendot.token(user(), name=user().title(), rooms=["lobby"], ttl=600)}
    except ValueError as error:  # for example, a name that is not a valid id
        abort(400, str(error))


@app.post("/orders")
def order() -> tuple[dict[str, str], int]:
    number = secrets.token_hex(4)
    try:
        # With the same key, a repeated request creates no second notification.
        greendot.notify(user(), "order.placed", {"order": number}, key=f"order-{number}")
    except ServerError:
        # The order stays valid. To write order and notification in one transaction, see examples/django_outbox.
        logging.exception("the user was not notified")
    return {"order": number}, 201


@app.post("/greendot/webhook")
def webhook() -> Response:
    try:
        delivery = greendot.verify_webhook(request.get_data(), request.headers)
    except BadWebhook as error:
        abort(400, str(error))
    for event in delivery.events:
        heard.setdefault(event.id, event.type)  # a repeated delivery has the same id
    return Response(status=204)


@app.get("/heard")
def shown() -> dict[str, Any]:
    return {"heard": [*heard.values()]}


if __name__ == "__main__":
    app.run("127.0.0.1", int(os.environ["PORT"]))
