"""Calls of the library `pusher` for Python, with the port of a server as the argument."""

from __future__ import annotations

import json
import sys

import pusher

client = pusher.Pusher(
    app_id="4711", key="a-public-key", secret="a secret of twenty+", host="127.0.0.1", port=int(sys.argv[1]), ssl=False
)
assert client.trigger("news", "greeting", {"text": "hello"}) == {}
assert client.trigger("news", "greeting", {"text": "hello"}) == {}  # the same event in one second, with one signature
assert client.trigger(["news", "other"], "greeting", "text", socket_id="1.2") == {}
assert client.trigger_batch([{"channel": "news", "name": "greeting", "data": {"n": 1}}]) == {}
assert client.channels_info() == {"channels": {"presence-lobby": {}}}
assert client.channels_info("presence-", ["user_count"]) == {"channels": {"presence-lobby": {"user_count": 1}}}
assert client.channel_info("presence-lobby", ["user_count"]) == {"occupied": True, "user_count": 1}
assert client.users_info("presence-lobby") == {"users": [{"id": "ann"}]}
assert client.send_to_user("ann", "note", {"text": "for you"}) == {}
assert client.terminate_user_connections("ann") == {}
try:
    client.users_info("news")
except pusher.errors.PusherBadRequest:
    pass
else:
    raise AssertionError("a public channel has no users")
signed = client.authenticate("presence-lobby", "1.2", {"user_id": "ann"})
hook = client.validate_webhook(sys.argv[2], sys.argv[3], sys.argv[4])
assert hook is not None
print(json.dumps({"auth": signed["auth"], "events": len(hook["events"])}))
