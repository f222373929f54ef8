"""AsyncAPI 3 document of the WebSocket protocol, generated from the structs of commands, replies and events.

The document takes the server's point of view: the server receives commands and sends replies, errors and events. All of
them are messages of one channel, the address that clients connect to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from greendot import __version__
from greendot.http.schema import Json, ecma, having, never, one_of
from greendot.protocol import commands
from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.codes import CLOSED, REFUSED, RETRYABLE, invites_return
from greendot.protocol.commands import COMMANDS, CommandId
from greendot.protocol.events import EVENTS, Event, HeartbeatAck, NotificationUpdatedV1, Welcome
from greendot.protocol.replies import REPLIES, Reply

ABOUT = f"""\
Frames are text. Each frame is one JSON object. A client's frame has at most {MAX_FRAME // 1024} KiB. The first frame is
`hello`. The server executes and answers commands in order. A command with an `id` gets a reply with the same `id`.
Errors are always sent, with or without an `id`. The server sends events without a request. Times are integer
milliseconds UTC; null means unknown. Both sides ignore unknown fields.
"""
CHANNEL = "connect"
# Constraints between fields, which types cannot express. The command handlers check them.
RULES: dict[type[commands.Command], Json] = {
    commands.SignalSend: one_of("room", "user"),
    commands.RoomHistory: never(having("before", "after")),
    **dict.fromkeys(commands.MARKS, one_of("ids", "through")),
}
# Commands that are answered with an event or a close frame, with or without an `id`.
_ANSWERS: dict[type[commands.Command], list[str]] = {
    commands.Hello: [Welcome.type],
    commands.Heartbeat: [HeartbeatAck.type, Reply.__name__],  # both for a heartbeat with an `id`
    commands.Bye: [],
}
# Older versions of events in `EVENTS`, for clients that do not ask for newer ones.
OLDER: tuple[type[Event], ...] = (NotificationUpdatedV1,)
_ERROR = "error"
_NUMBER: Json = msgspec.json.schema(CommandId)


def document() -> Json:
    """Return the AsyncAPI document: all commands, events, replies and codes."""
    messages = _messages()
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Greendot",
            "version": __version__,
            "description": ABOUT,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {"this": _server()},
        "channels": {
            CHANNEL: {
                "address": "/v1/connect",
                "title": "Connection of a client",
                "description": "One WebSocket. The client reconnects after close codes 4000 to 4499, and does not "
                "after 4500 to 4999.",
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
                "bindings": {"ws": {"method": "GET"}},
                "x-close-codes": _close_codes(),
            }
        },
        "operations": _operations(),
        "components": {
            "messages": messages,
            "schemas": _schemas(),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "JWT",
                    "description": "Token of a user. Send it in `hello`, in this header, or as the subprotocol "
                    "`bearer.TOKEN` together with `greendot.v1`.",
                }
            },
        },
    }


def event_name(kind: type[Event]) -> str:
    """Return the name of an event's message: its type, followed by the version unless that is 1."""
    return kind.type if kind.v == 1 else f"{kind.type}.v{kind.v}"


def _server() -> Json:
    return {
        "host": "{host}",
        "protocol": "wss",
        "description": "Address of the server. Use `ws` without TLS.",
        "variables": {"host": {"default": "localhost:8000", "description": "Host and port of the server."}},
        "security": [{"$ref": "#/components/securitySchemes/token"}],
    }


# --- messages ---


def _messages() -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, command in COMMANDS.items():
        found[name] = _message(name, command, _ref(command), "command")
    for event in _all_events():
        found[event_name(event)] = _message(event.type, event, _event(event), "event")
    for reply in _all_replies():
        found[reply.__name__] = _message("reply", reply, _reply(reply), "reply")
    found[_ERROR] = {  # errors have no struct
        "name": _ERROR,
        "title": _ERROR,
        "summary": "Refusal of a command, or of a frame that is not a command.",
        "tags": [{"name": _ERROR}],
        "payload": {"$ref": "#/components/schemas/Error"},
    }
    return found


def _message(name: str, kind: type[Struct], payload: Json, tag: str) -> Json:
    title = kind.__name__ if tag == "reply" else name
    found = {"name": name, "title": title, "summary": _summary(kind), "tags": [{"name": tag}]}
    if more := (kind.__doc__ or "").partition("\n\n")[2]:
        found["description"] = " ".join(more.split())
    return found | {"payload": payload}


def _event(kind: type[Event]) -> Json:
    properties: Json = {
        "type": {"const": kind.type, "description": "Type of the event."},
        "v": {"const": kind.v, "description": "Version of the event."},
        "ts": {"type": "integer", "description": "Time of the event, in milliseconds UTC."},
        "data": _ref(kind),
    }
    trace = {"type": "string", "description": "Field `trace` of the command that caused the event, if it had one."}
    parent = {"type": "string", "description": "W3C Trace Context of the event's cause, if it had one."}
    optional = {"trace": trace, "traceparent": parent}
    return {"type": "object", "properties": properties | optional, "required": [*properties]}


def _reply(kind: type[Reply]) -> Json:
    properties: Json = {
        "type": {"const": "reply", "description": "Always `reply`."},
        "id": _NUMBER | {"description": "The `id` of the command."},
        "data": _ref(kind),
    }
    return {"type": "object", "properties": properties, "required": [*properties]}


def _error() -> Json:
    """Return the schema of error frames, which the codec builds without a struct."""
    listed = "".join(f"\n- `{code}`: {meaning}" for code, meaning in REFUSED.items())
    properties: Json = {
        "type": {"const": "error", "description": "Always `error`."},
        "id": {
            "description": "The `id` of the command; null if it had none.",
            "anyOf": [*_NUMBER["anyOf"], {"type": "null"}],
        },
        "code": {"enum": [str(code) for code in REFUSED], "description": f"Cause of the error:\n{listed}"},
        "message": {"type": "string", "description": "Explanation for people, with the field or limit and the remedy."},
        "retry": {
            "type": "boolean",
            "description": "Whether the client may retry the command later. "
            f"True for {', '.join(f'`{code}`' for code in sorted(map(str, RETRYABLE)))}.",
        },
    }
    wait = {"type": "integer", "description": "Time to wait before the next try, in milliseconds."}
    return {
        "title": "Error",
        "description": "Error of a command: its cause, and whether to retry the command.",
        "type": "object",
        "properties": properties | {"retry_in_ms": wait},
        "required": [*properties],
    }


# --- operations ---


def _operations() -> dict[str, Json]:
    channel = {"$ref": f"#/channels/{CHANNEL}"}
    found: dict[str, Json] = {}
    for name, kind in COMMANDS.items():
        found[name] = {
            "action": "receive",
            "channel": channel,
            "summary": _summary(kind),
            "messages": [_in_channel(name)],
            "reply": {"channel": channel, "messages": [*map(_in_channel, _answers(kind))]},
        }
    for event in _all_events():
        name = event_name(event)
        found[f"send.{name}"] = {
            "action": "send",
            "channel": channel,
            "summary": _summary(event),
            "messages": [_in_channel(name)],
        }
    return found


def _answers(kind: type[commands.Command]) -> list[str]:
    """Return the names of the messages that may answer a command."""
    return [*_ANSWERS.get(kind, [REPLIES.get(kind, Reply).__name__]), _ERROR]


def _summary(kind: type[Struct]) -> str:
    return " ".join((kind.__doc__ or "").partition("\n\n")[0].split())


def _in_channel(name: str) -> Json:
    return {"$ref": f"#/channels/{CHANNEL}/messages/{name}"}


def _close_codes() -> list[Json]:
    return [
        {"code": int(code), "name": code.name.lower(), "meaning": meaning, "come_back": invites_return(code)}
        for code, meaning in CLOSED.items()
    ]


# --- types ---


def _all_events() -> Iterable[type[Event]]:
    return [*EVENTS.values(), *OLDER]


def _all_replies() -> list[type[Reply]]:
    kinds: list[type[Reply]] = [Reply, *REPLIES.values()]
    return [*dict.fromkeys(kinds)]


def _ref(kind: type[Any]) -> Json:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _schemas() -> dict[str, Json]:
    kinds = [*COMMANDS.values(), *_all_events(), *_all_replies()]
    _, found = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas: dict[str, Json] = ecma(found)
    for kind in COMMANDS.values():
        schemas[kind.__name__]["properties"]["type"]["description"] = "Type of the command."
    for kind, rule in RULES.items():
        schemas[kind.__name__] |= rule
    return schemas | {"Error": _error()}
