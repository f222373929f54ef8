/* Wire protocols of the servers. The servers in bench/peers send `welcome` after the subscription. The others use their own
 * protocol. */
#include "load.h"
#include <string.h>

#define UPGRADED_ALIKE(path) .subscriber = path, .plain = path, .sender = path
#define HELLO(more) "{\"type\":\"hello\",\"token\":\"$T\",\"device\":\"d\"" more "}"
#define GREENDOT                                                                                                      \
    UPGRADED_ALIKE("/v1/connect"), .sender_joins = true, .bye = "{\"type\":\"bye\"}", .refusal = "{\"type\":\"error\"",                    \
        .heartbeat = "{\"type\":\"heartbeat\"}", .beaten = "{\"type\":\"heartbeat.ack\"",                            \
        .message = "{\"type\":\"signal.send\",\"room\":\"bench\",\"kind\":\"b\",\"body\":\"$B\"}"
#define WELCOME "{\"type\":\"welcome\""
#define JOIN(room) {"{\"type\":\"room.join\",\"room\":\"" room "\",\"id\":1}", "{\"type\":\"reply\""}
#define PUSHER "/app/bench?protocol=7&client=js&version=8.6.0&flash=false"
#define SOCKET_IO "/socket.io/?EIO=4&transport=websocket"

static const struct dialect dialects[] = {
    {.name = "greendot", GREENDOT, .opening = {{HELLO(""), WELCOME}}, .joining = JOIN("bench")},
    {.name = "apart", GREENDOT, .opening = {{HELLO(""), WELCOME}}, .joining = JOIN("bench$N")},
    {.name = "returning", GREENDOT, .opening = {{HELLO(",\"resume\":{\"rooms\":{\"bench\":0}}"), WELCOME}}},
    /* No upgrade and no protocol: bench/rawcast.c relays bytes unchanged, so a message is built as a server frame. */
    {.name = "raw", .opening = {{NULL, WELCOME}}},
    /* The servers for Bun, ws and Django Channels in bench/peers. */
    {.name = "app", .subscriber = "/sub", .plain = "/", .sender = "/send", .opening = {{NULL, "welcome"}},
     .message = "$B"},
    /* Engine.IO 4 over the WebSocket transport: 0 open, 2 ping, 3 pong, 40 connect, 42 event, 44 refused. */
    {.name = "socketio", .subscriber = SOCKET_IO "&sub=1", .plain = SOCKET_IO, .sender = SOCKET_IO,
     .opening = {{NULL, "0{"}, {"40", "40{"}}, .message = "42[\"b\",\"$B\"]", .ping = "2", .pong = "3",
     .refusal = "44"},
    /* A frame may hold several replies, one per line, so deliveries are counted by their markers. */
    {.name = "centrifugo", UPGRADED_ALIKE("/connection/websocket"),
     .opening = {{"{\"id\":1,\"connect\":{\"token\":\"$T\"}}", "{\"id\":1,\"connect\""}},
     .joining = {"{\"id\":2,\"subscribe\":{\"channel\":\"bench\"}}", "{\"id\":2,\"subscribe\""},
     .message = "{\"id\":3,\"publish\":{\"channel\":\"bench\",\"data\":\"$B\"}}", .ping = "{}", .pong = "{}",
     .refusal = "{\"id\":3,\"error\""},
    /* Clients of Pusher in the public channel of a room. The sender is a native client, because it needs no signature. */
    {.name = "pusher", .subscriber = PUSHER, .plain = PUSHER, .sender = "/v1/connect", .sender_speaks = "greendot",
     .opening = {{NULL, "{\"event\":\"pusher:connection_established\""}},
     .joining = {"{\"event\":\"pusher:subscribe\",\"data\":{\"auth\":\"\",\"channel\":\"bench\"}}",
                 "{\"event\":\"pusher_internal:subscription_succeeded\""},
     .message = "{\"type\":\"signal.send\",\"room\":\"bench\",\"kind\":\"b\",\"body\":\"$B\"}",
     .refusal = "{\"event\":\"pusher:error\""},
    /* Centrifuge clients of Greendot in the channel of a room. The sender is a native client, as with Pusher. */
    {.name = "centrifuge", .subscriber = "/connection/websocket", .plain = "/connection/websocket",
     .sender = "/v1/connect", .sender_speaks = "greendot",
     .opening = {{"{\"id\":1,\"connect\":{\"token\":\"$T\"}}", "{\"id\":1,\"connect\""}},
     .joining = {"{\"id\":2,\"subscribe\":{\"channel\":\"bench\"}}", "{\"id\":2,\"subscribe\""},
     .message = "{\"type\":\"signal.send\",\"room\":\"bench\",\"kind\":\"publication\",\"body\":\"$B\"}",
     .ping = "{}", .pong = "{}", .refusal = "{\"id\":3,\"error\""},
    {.name = "nchan", .subscriber = "/sub/bench", .plain = "/sub/idle", .sender = "/pub/bench", .message = "$B"},
};

const struct dialect *dialect_named(const char *name) {
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++)
        if (!strcmp(dialects[i].name, name)) return &dialects[i];
    die("unknown dialect %s (see load/dialects.c)", name);
}
