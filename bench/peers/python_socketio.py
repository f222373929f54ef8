"""python-socketio under uvicorn on uvloop: `python_socketio.py PORT`. WebSocket transport only."""

import sys

import socketio
import uvicorn

server = socketio.AsyncServer(async_mode="asgi", transports=["websocket"], ping_interval=30, cors_allowed_origins="*")


@server.event
async def connect(sid, environ):
    if "sub=1" in environ["QUERY_STRING"]:
        await server.enter_room(sid, "bench")


@server.on("b")
async def broadcast(sid, body):
    await server.emit("b", body, room="bench", skip_sid=sid)


async def ready(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ready"})


uvicorn.run(
    socketio.ASGIApp(server, other_asgi_app=ready),
    port=int(sys.argv[1]), loop="uvloop", http="httptools", ws="websockets-sansio", ws_ping_interval=30,
    ws_per_message_deflate=False, log_level="warning", lifespan="off",
)  # fmt: skip
