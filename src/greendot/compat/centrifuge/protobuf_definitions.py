"""Messages of the Centrifuge protocol in Protobuf: names, numbers and types of the fields that we read or send.

A field is `name=number:type`. A type is a scalar of Protobuf or one of these messages. `*` stands before the type of a
list, and `map:` before the type of the values of a map, whose keys are strings. Other fields of clients are ignored.
"""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

PACKAGE = "centrifugal.centrifuge.protocol"
_EXPIRY = "expires=1:bool ttl=2:uint32"
_CHANNEL = "channel=1:string"
_INFO = "info=1:ClientInfo"
MESSAGES = {
    "Command": (
        "id=1:uint32 connect=4:ConnectRequest subscribe=5:SubscribeRequest unsubscribe=6:ChannelRequest "
        "publish=7:PublishRequest presence=8:ChannelRequest presence_stats=9:ChannelRequest history=10:HistoryRequest "
        "ping=11:Nothing send=12:RpcRequest rpc=13:RpcRequest refresh=14:RefreshRequest "
        "sub_refresh=15:SubRefreshRequest"
    ),
    "ConnectRequest": "token=1:string data=2:bytes subs=3:map:SubscribeRequest name=4:string version=5:string",
    "SubscribeRequest": (
        f"{_CHANNEL} token=2:string recover=3:bool epoch=6:string offset=7:uint64 data=8:bytes positioned=9:bool "
        "recoverable=10:bool join_leave=11:bool delta=12:string flag=14:int64 type=15:int32"
    ),
    "ChannelRequest": _CHANNEL,
    "PublishRequest": f"{_CHANNEL} data=2:bytes",
    "HistoryRequest": f"{_CHANNEL} limit=7:int32 since=8:StreamPosition reverse=9:bool",
    "StreamPosition": "offset=1:uint64 epoch=2:string",
    "RpcRequest": "data=1:bytes method=2:string",
    "RefreshRequest": "token=1:string",
    "SubRefreshRequest": f"{_CHANNEL} token=2:string",
    "Nothing": "",
    "Reply": (
        "id=1:uint32 error=2:Error push=4:Push connect=5:ConnectResult subscribe=6:SubscribeResult "
        "unsubscribe=7:Nothing "
        "publish=8:Nothing presence=9:PresenceResult presence_stats=10:PresenceStatsResult history=11:HistoryResult "
        "ping=12:Nothing rpc=13:RpcResult refresh=14:RefreshResult sub_refresh=15:Refresh"
    ),
    "Error": "code=1:uint32 message=2:string temporary=3:bool",
    "ConnectResult": (
        "client=1:string version=2:string expires=3:bool ttl=4:uint32 data=5:bytes subs=6:map:SubscribeResult "
        "ping=7:uint32 pong=8:bool session=9:string node=10:string time=11:int64"
    ),
    "SubscribeResult": (
        f"{_EXPIRY} recoverable=3:bool epoch=6:string publications=7:*Publication recovered=8:bool offset=9:uint64 "
        "positioned=10:bool data=11:bytes was_recovering=12:bool"
    ),
    "PresenceResult": "presence=1:map:ClientInfo",
    "PresenceStatsResult": "num_clients=1:uint32 num_users=2:uint32",
    "HistoryResult": "publications=1:*Publication epoch=2:string offset=3:uint64",
    "RpcResult": "data=1:bytes",
    "RefreshResult": "client=1:string version=2:string expires=3:bool ttl=4:uint32",
    "Push": (
        "channel=2:string pub=4:Publication join=5:Member leave=6:Member unsubscribe=7:Unsubscribe "
        "message=8:RpcResult subscribe=9:Subscribe disconnect=11:Disconnect refresh=12:Refresh"
    ),
    "Publication": "data=4:bytes info=5:ClientInfo offset=6:uint64 tags=7:map:string time=9:int64 channel=10:string",
    "ClientInfo": "user=1:string client=2:string conn_info=3:bytes chan_info=4:bytes",
    "Member": _INFO,
    "Unsubscribe": "code=2:uint32 reason=3:string",
    "Subscribe": "recoverable=1:bool epoch=4:string offset=5:uint64 positioned=6:bool data=7:bytes",
    "Disconnect": "code=1:uint32 reason=2:string reconnect=3:bool",
    "Refresh": _EXPIRY,
}


def definitions() -> FileDescriptorProto:
    """Return the messages as the Protobuf library takes them."""
    file = FileDescriptorProto(name="greendot/centrifuge.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            _add(message, text)
    return file


def _add(message: DescriptorProto, text: str) -> None:
    name, _, rest = text.partition("=")
    number, _, kind = rest.partition(":")
    field = message.field.add(name=name, number=int(number), label=FieldDescriptorProto.LABEL_OPTIONAL)
    if kind.startswith(("*", "map:")):
        field.label = FieldDescriptorProto.LABEL_REPEATED
    if kind.startswith("map:"):
        entry = message.nested_type.add(name="".join(map(str.capitalize, name.split("_"))) + "Entry")
        entry.options.map_entry = True
        _add(entry, "key=1:string")
        _add(entry, f"value=2:{kind.removeprefix('map:')}")
        _set_type(field, f"{message.name}.{entry.name}")
    else:
        _set_type(field, kind.removeprefix("*"))


def _set_type(field: FieldDescriptorProto, kind: str) -> None:
    if kind[0].isupper():
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
