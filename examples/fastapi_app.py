"""A FastAPI app with Greendot: tokens for its users, notifications, webhooks. Start it: make example NAME=fastapi"""

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
app.add_middleware(SessionMiddleware, secret_key=secrets.token_hex(32))  # a restart signs everybody out
greendot = Server(  # one for the process: it is for any number of threads
    os.environ["GREENDOT_HTTP"],
    os.environ["GREENDOT_API_KEY"],
    secret=os.environ["GREENDOT_AUTH_SECRET"],
    webhook_secret=os.environ["GREENDOT_WEBHOOKS_SECRET"],
)
heard: dict[str, str] = {}  # what webhooks said: the event's id → its type


class Login(BaseModel):
    """Who signs in."""

    user: str


@app.post("/login", status_code=204)
async def login(said: Login, request: Request) -> None:
    """Stands for the sign-in your app has."""
    request.session["user"] = said.user


async def signed_in(request: Request) -> str:
    user = request.session.get("user")
    if not user:
        raise HTTPException(401)
    return str(user)


User = Annotated[str, Depends(signed_in)]


@app.post("/token")
async def token(user: User) -> dict[str, str]:
    """What the page of a signed-in user asks for, first and before each token ends. Nothing is asked of the server."""
    try:
        return {"token": greendot.token(user, name=user.title(), rooms=["lobby"], ttl=600)}
    except ValueError as error:  # such as a name that cannot be an id
        raise HTTPException(400, str(error)) from None


@app.post("/orders", status_code=201)
def order(user: User) -> dict[str, str]:
    """Not `async`: FastAPI runs it in a thread, where it may wait for the server."""
    number = secrets.token_hex(4)
    try:
        # The key: should this request be repeated, it is the same notification.
        greendot.notify(user, "order.placed", {"order": number}, key=f"order-{number}")
    except ServerError:
        # The order counts all the same. Where neither may be without the other: see examples/django_outbox.
        logging.exception("the user was not notified")
    return {"order": number}


@app.post("/greendot")
async def webhook(request: Request) -> Response:
    try:
        delivery = greendot.verify_webhook(await request.body(), request.headers)
    except BadWebhook as error:
        raise HTTPException(400, str(error)) from None
    for event in delivery.events:
        heard.setdefault(event.id, event.type)  # sent again, it has the same id
    return Response(status_code=204)


@app.get("/heard")
async def shown() -> dict[str, list[str]]:
    return {"heard": [*heard.values()]}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
