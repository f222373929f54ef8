"""Django Channels with its in-memory layer, uvicorn and uvloop: `channels_app.py PORT`. Subscribers come to /sub."""

import sys

import django
import uvicorn
from django.conf import settings

LAYER = {
    "BACKEND": "channels.layers.InMemoryChannelLayer",
    "CONFIG": {"capacity": 100_000},
}  # the default of 100 would drop messages
settings.configure(ALLOWED_HOSTS=["*"], CHANNEL_LAYERS={"default": LAYER}, SECRET_KEY="none", LOGGING_CONFIG=None)
django.setup()

from channels.generic.websocket import AsyncWebsocketConsumer  # noqa: E402
from channels.routing import ProtocolTypeRouter  # noqa: E402


class Broadcaster(AsyncWebsocketConsumer):
    async def connect(self):
        await self.accept()
        if self.scope["path"] == "/sub":
            await self.channel_layer.group_add("bench", self.channel_name)
        await self.send("welcome")

    async def disconnect(self, code):
        await self.channel_layer.group_discard("bench", self.channel_name)

    async def receive(self, text_data=None, bytes_data=None):
        await self.channel_layer.group_send("bench", {"type": "told", "text": text_data})

    async def told(self, event):
        await self.send(event["text"])


async def ready(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ready"})


uvicorn.run(
    ProtocolTypeRouter({"http": ready, "websocket": Broadcaster.as_asgi()}),
    port=int(sys.argv[1]), loop="uvloop", http="httptools", ws="wsproto", ws_ping_interval=30,
    ws_per_message_deflate=False, log_level="warning", lifespan="off",
)  # fmt: skip
