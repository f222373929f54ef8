"""FastAPI app with Greendot: tokens for its users, notifications, webhooks. Start it: make example NAME=fastapi"""

import logging
import os
import secrets
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel
from starlette.middleware.sessions import SessionMiddleware

from greendot.integrations.fastapi import Event, Greendot, ThreadedServer
from greendot.sdk import ServerError

app = FastAPI()
app.add_middleware(SessionMiddleware, secret_key=secrets.token_hex(32))  # a restart signs all users out
greendot = Greendot()  # settings from the environment; one per process
heard: dict[str, str] = {}  # received webhook events: id → type


class Login(BaseModel):
    """Body of a sign-in request."""

    user: str


@app.post("/login", status_code=204)
async def login(body: Login, request: Request) -> None:
    """Sign a user in. It stands for the sign-in of your app."""
    request.session["user"] = body.user


async def signed_in(request: Request) -> str:
    user = request.session.get("user")
    if not user:
        raise HTTPException(401)
    return str(user)


def claims(user: str) -> dict[str, Any]:
    return {"name": user.title(), "rooms": ["lobby"]}


app.include_router(greendot.router(signed_in, claims=claims), prefix="/greendot")  # /greendot/token, /greendot/webhook


@app.post("/orders", status_code=201)
async def order(
    user: Annotated[str, Depends(signed_in)], server: Annotated[ThreadedServer, Depends(greendot.client)]
) -> dict[str, str]:
    number = secrets.token_hex(4)
    try:
        # With the same key, a repeated request creates no second notification.
        await server.notify(user, "order.placed", {"order": number}, key=f"order-{number}")
    except ServerError:
        # The order stays valid. To write order and notification in one transaction, see examples/django_outbox.
        logging.exception("the user was not notified")
    return {"order": number}


@greendot.on("*")  # or events of one type, such as room.message
async def remember(event: Event[Any]) -> None:
    heard[event.id] = event.type


@app.get("/heard")
async def shown() -> dict[str, list[str]]:
    return {"heard": [*heard.values()]}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
