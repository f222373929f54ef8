"""FastAPI app with Greendot: tokens for its users, notifications, webhooks. Start it: make example NAME=fastapi"""

import logging
import os
import secrets
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from pydantic import BaseModel
from starlette.middleware.sessions import SessionMiddleware

from greendot import Server
from greendot.sdk import BadWebhook, ServerError

app = FastAPI()
app.add_middleware(SessionMiddleware, secret_key=secrets.token_hex(32))  # a restart signs all users out
greendot = Server(  # one per process; it is thread-safe
    os.environ["GREENDOT_HTTP"],
    os.environ["GREENDOT_API_KEY"],
    secret=os.environ["GREENDOT_AUTH_SECRET"],
    webhook_secret=os.environ["GREENDOT_WEBHOOKS_SECRET"],
)
heard: dict[str, str] = {}  # received webhook events: id → type


class Login(BaseModel):
    """Body of a sign-in request."""

    user: str


@app.post("/login", status_code=204)
async def login(said: Login, request: Request) -> None:
    """Sign a user in. It stands for the sign-in of your app."""
    request.session["user"] = said.user


async def signed_in(request: Request) -> str:
    user = request.session.get("user")
    if not user:
        raise HTTPException(401)
    return str(user)


User = Annotated[str, Depends(signed_in)]


@app.post("/token")
async def token(user: User) -> dict[str, str]:
    """Return a token for the signed-in user. The page requests one at the start and before each token expires.

    Signing needs no request to Greendot.
    """
    try:
        return {"token": greendot.token(user, name=user.title(), rooms=["lobby"], ttl=600)}
    except ValueError as error:  # for example, a name that is not a valid id
        raise HTTPException(400, str(error)) from None


@app.post("/orders", status_code=201)
def order(user: User) -> dict[str, str]:
    """Place an order. Not `async`: FastAPI runs it in a thread, where it may wait for Greendot."""
    number = secrets.token_hex(4)
    try:
        # With the same key, a repeated request creates no second notification.
        greendot.notify(user, "order.placed", {"order": number}, key=f"order-{number}")
    except ServerError:
        # The order stays valid. To write order and notification in one transaction, see examples/django_outbox.
        logging.exception("the user was not notified")
    return {"order": number}


@app.post("/greendot")
async def webhook(request: Request) -> Response:
    try:
        delivery = greendot.verify_webhook(await request.body(), request.headers)
    except BadWebhook as error:
        raise HTTPException(400, str(error)) from None
    for event in delivery.events:
        heard.setdefault(event.id, event.type)  # a repeated delivery has the same id
    return Response(status_code=204)


@app.get("/heard")
async def shown() -> dict[str, list[str]]:
    return {"heard": [*heard.values()]}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
