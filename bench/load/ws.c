/* Connections and their frames: what is sent, and how what is heard is taken apart. */
#define _GNU_SOURCE
#include "load.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { SOURCES = 64 };
static const char *const STAGES[] = {"unused", "upgrading", "opening", "ready", "leaving"};

uint64_t opened, ready, closed, lost, acks;
const char *refused;
bool tolerant, timed;
double heard_at;

/* ---- what is sent --------------------------------------------------------------------------------------------- */

/* Everything a client says here is far smaller than an empty socket buffer: a short write means a server that does not
 * read, and no figure would mean anything then. */
void send_all(struct conn *c, const void *data, size_t size) {
    ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return; /* the read side will see it and judge */
    if (n != (ssize_t)size) die("could not send to the server: %s", n < 0 ? strerror(errno) : "it does not read");
}

/* A masked client frame in `out`. The mask may be any number but zero: unmasking must cost the server its price. */
size_t frame(unsigned char *out, unsigned char opcode, const void *payload, size_t size) {
    static const unsigned char mask[4] = {0x37, 0xfa, 0x21, 0x3d};
    size_t at = 0;
    out[at++] = 0x80 | opcode;
    if (size < 126) {
        out[at++] = 0x80 | size;
    } else {
        out[at++] = 0x80 | 126;
        out[at++] = size >> 8;
        out[at++] = size & 0xff;
    }
    memcpy(out + at, mask, 4);
    at += 4;
    for (size_t i = 0; i < size; i++) out[at + i] = ((const unsigned char *)payload)[i] ^ mask[i & 3];
    return at + size;
}

static void say(struct conn *c, unsigned char opcode, const void *payload, size_t size) {
    unsigned char out[8192];
    if (size > sizeof out - 8) die("a frame of %zu bytes is more than this program sends", size);
    send_all(c, out, frame(out, opcode, payload, size));
}

/* `text` with its $T, $N and $B put in. */
size_t expand(char *out, size_t room, const char *text, const struct conn *c) {
    size_t at = 0;
    for (; *text && at < room - 1; text++) {
        if (*text != '$') {
            out[at++] = *text;
            continue;
        }
        switch (*++text) {
        case 'T': at += snprintf(out + at, room - at, "%s", token_of(c->number)); break;
        case 'N': at += snprintf(out + at, room - at, "%llu", (unsigned long long)c->number); break;
        case 'B': at += snprintf(out + at, room - at, "%c%0*d", MARKER, opt.body_bytes - 1, 0); break;
        }
    }
    if (at >= room - 1) die("a text of more than %zu bytes is more than this program sends", room);
    out[at] = 0;
    return at;
}

void say_text(struct conn *c, const char *text) {
    char out[8000];
    size_t size = expand(out, sizeof out, text, c);
    say(c, 1, out, size);
}

void leave(struct conn *c) {
    c->stage = LEAVING;
    if (opt.dialect->bye) {
        say_text(c, opt.dialect->bye);
    } else {
        say(c, 8, "\x03\xe8", 2);
    }
}

/* ---- connections ---------------------------------------------------------------------------------------------- */

/* While tolerant, a connection that is not to be had is an answer; otherwise it is the end. */
static void unobtainable(struct conn *c, const char *why) {
    if (!tolerant) die("connection %llu to port %d: %s", (unsigned long long)c->number, opt.port, why);
    refused = why;
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->stage = UNUSED;
}

static void request_upgrade(struct conn *c) {
    char request[512];
    const char *path = c->subscriber ? opt.dialect->subscriber : opt.dialect->plain;
    if (&conns[opt.connections] == c && mode->subscribes) path = opt.dialect->sender;
    int n = snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
                     path);
    c->stage = UPGRADING;
    send_all(c, request, n);
}

static void open_further(struct conn *c);

void open_conn(struct conn *c) {
    /* Several source addresses: one has some 28,000 ports, and closed connections keep theirs for a minute. */
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002 + opened % SOURCES)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = STALL_S};
    bool sender = mode->subscribes && c == &conns[opt.connections];
    int on = 1;
    to.sin_port = htons(sender && opt.sender_port ? opt.sender_port : opt.port);
    memset(c, 0, sizeof *c);
    c->number = opened;
    c->subscriber = mode->subscribes && !sender;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0) {
        unobtainable(c, strerror(errno));
        return;
    }
    setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    /* Blocking: on loopback the kernel completes the handshake within the call, as long as the backlog has room. */
    if (bind(c->fd, (void *)&from, sizeof from) || connect(c->fd, (void *)&to, sizeof to)) {
        unobtainable(c, strerror(errno));
        return;
    }
    watch(c);
    opened++;
    if (opt.dialect->plain) {
        request_upgrade(c);
    } else {
        c->stage = OPENING;
    }
}

static void close_conn(struct conn *c, const char *why) {
    if (c->stage != LEAVING) {
        if (tolerant && c->stage != READY) {
            refused = "the server closed it";
        } else if (mode != &idle_mode || c->stage != READY) {
            die("the server ended connection %llu, %s: %s", (unsigned long long)c->number, STAGES[c->stage], why);
        } else {
            lost++;
        }
    }
    close(c->fd);
    c->fd = -1;
    c->stage = UNUSED;
    closed++;
}

/* ---- what is heard -------------------------------------------------------------------------------------------- */

bool begins(const struct conn *c, const char *text) {
    size_t size = text ? strlen(text) : 0;
    return size && c->have >= size && !memcmp(c->head, text, size);
}

static bool is(const struct conn *c, const char *text) { return text && c->size == strlen(text) && begins(c, text); }

unsigned header_size(const struct conn *c) {
    return c->hdr_have < 2 || c->hdr[1] < 126 ? 2 : c->hdr[1] == 126 ? 4 : 10;
}

/* What comes after the exchanges before this one, joining being the last. */
static const struct exchange *next_exchange(const struct conn *c) {
    const struct dialect *d = opt.dialect;
    unsigned openings = sizeof d->opening / sizeof *d->opening, own = 0;
    while (own < openings && d->opening[own].await) own++;
    if (c->exchange < own) return &d->opening[c->exchange];
    if (c->exchange == own && d->joining.await && mode->subscribes && (c->subscriber || d->sender_joins))
        return &d->joining;
    return NULL;
}

static void open_further(struct conn *c) {
    const struct exchange *next = next_exchange(c);
    if (next) {
        c->stage = OPENING;
        if (next->say) say_text(c, next->say);
    } else {
        c->stage = READY;
        ready++;
        if (mode->on_ready) mode->on_ready(c);
    }
}

static void on_text(struct conn *c) {
    const struct dialect *d = opt.dialect;
    if (is(c, d->ping)) {
        say_text(c, d->pong);
    } else if (begins(c, d->refusal)) {
        die("the server refused connection %llu, %s: %.*s", (unsigned long long)c->number, STAGES[c->stage],
            (int)c->have, c->head);
    } else if (c->stage == OPENING && begins(c, next_exchange(c)->await)) {
        c->exchange++;
        open_further(c);
    } else if (begins(c, d->beaten)) {
        acks++;
    } else if (c->stage == READY && mode->on_text) {
        mode->on_text(c);
    } /* whatever else a room tells its members is not what is measured */
}

static void on_frame(struct conn *c) {
    char why[HEAD + 32];
    switch (c->hdr[0]) {
    case 0x81:
        on_text(c);
        break;
    case 0x88:
        snprintf(why, sizeof why, "close code %d %.*s", c->have < 2 ? 1005 : c->head[0] << 8 | c->head[1],
                 c->have < 2 ? 0 : (int)c->have - 2, c->head + 2);
        say(c, 8, c->head, c->have < 2 ? 0 : 2); /* the echo RFC 6455 asks for */
        close_conn(c, why);
        break;
    case 0x89:
        say(c, 10, c->head, c->have);
        break;
    case 0x8a:
        break;
    default:
        die("a frame that begins with 0x%02x is nothing this server should send", c->hdr[0]);
    }
}

static const unsigned char *feed_upgrade(struct conn *c, const unsigned char *p, const unsigned char *end) {
    while (p < end) {
        if (c->have < HEAD) c->head[c->have++] = *p;
        c->blank = *p == "\r\n\r\n"[c->blank] ? c->blank + 1 : *p == '\r';
        p++;
        if (c->blank < 4) continue;
        if (c->have < 12 || memcmp(c->head + 8, " 101", 4)) die("no upgrade: %.*s", (int)c->have, c->head);
        open_further(c);
        break;
    }
    return p;
}

/* Counts markers, not frames: some servers put several messages into one. */
static void count_deliveries(struct conn *c, const unsigned char *p, size_t size) {
    for (const unsigned char *end = p + size; (p = memchr(p, MARKER, end - p)); p++) mode->on_delivery(c);
}

/* Takes frames out of the stream. They come joined in one segment or cut anywhere, so each byte may be the last. */
void feed(struct conn *c, const unsigned char *p, const unsigned char *end) {
    while (p < end && c->fd >= 0) {
        if (c->stage == UPGRADING) {
            p = feed_upgrade(c, p, end);
            continue;
        }
        if (c->hdr_have < header_size(c)) {
            c->hdr[c->hdr_have++] = *p++;
            if (c->hdr_have < header_size(c)) continue;
            c->have = 0;
            c->size = header_size(c) == 2 ? c->hdr[1] : 0;
            for (unsigned i = 2; i < c->hdr_have; i++) c->size = c->size << 8 | c->hdr[i];
            c->left = c->size;
        }
        uint64_t take = c->left < (uint64_t)(end - p) ? c->left : (uint64_t)(end - p);
        unsigned keep = take < HEAD - c->have ? take : HEAD - c->have;
        memcpy(c->head + c->have, p, keep);
        if (c->stage == READY && mode->on_delivery) count_deliveries(c, p, take);
        c->have += keep;
        c->left -= take;
        p += take;
        if (c->left) return;
        on_frame(c);
        c->hdr_have = 0;
    }
}

void on_readable(struct conn *c) {
    static unsigned char buffer[256 * 1024];
    ssize_t n = recv(c->fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0) {
        if (timed) heard_at = now();
        feed(c, buffer, buffer + n);
    } else if (n == 0) {
        close_conn(c, "end of stream");
    } else if (errno != EAGAIN && errno != EINTR) {
        close_conn(c, strerror(errno));
    }
}
