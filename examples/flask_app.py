"""A Flask app with Greendot: tokens for its users, notifications, webhooks. Start it: make example NAME=flask"""

import logging
import os
import secrets
from typing import Any

from flask import Flask, Response, abort, request, session

from greendot import Server
from greendot.sdk import BadWebhook, ServerError

app = Flask(__name__)
app.secret_key = secrets.token_hex(32)  # of this example: a restart signs everybody out
greendot = Server(  # one for the process: it is for any number of threads
    os.environ["GREENDOT_HTTP"],
    os.environ["GREENDOT_API_KEY"],
    secret=os.environ["GREENDOT_AUTH_SECRET"],
    webhook_secret=os.environ["GREENDOT_WEBHOOKS_SECRET"],
)
heard: dict[str, str] = {}  # what webhooks said: the event's id → its type


@app.post("/login")
def login() -> Response:
    """Stands for the sign-in your app has."""
    session["user"] = request.get_json()["user"]
    return Response(status=204)


def user() -> str:
    return str(session.get("user") or abort(401))


@app.post("/token")
def token() -> dict[str, str]:
    """What the page of a signed-in user asks for, first and before each token ends."""
    try:
        return {"token": greendot.token(user(), name=user().title(), rooms=["lobby"], ttl=600)}
    except ValueError as error:  # such as a name that cannot be an id
        abort(400, str(error))


@app.post("/orders")
def order() -> tuple[dict[str, str], int]:
    number = secrets.token_hex(4)
    try:
        # The key: should this request be repeated, it is the same notification.
        greendot.notify(user(), "order.placed", {"order": number}, key=f"order-{number}")
    except ServerError:
        # The order counts all the same. Where neither may be without the other: see examples/django_outbox.
        logging.exception("the user was not notified")
    return {"order": number}, 201


@app.post("/greendot")
def webhook() -> Response:
    try:
        delivery = greendot.verify_webhook(request.get_data(), request.headers)
    except BadWebhook as error:
        abort(400, str(error))
    for event in delivery.events:
        heard.setdefault(event.id, event.type)  # sent again, it has the same id
    return Response(status=204)


@app.get("/heard")
def shown() -> dict[str, Any]:
    return {"heard": [*heard.values()]}


if __name__ == "__main__":
    app.run("127.0.0.1", int(os.environ["PORT"]))
