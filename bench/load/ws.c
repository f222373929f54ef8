/* Connections and their frames: sending and parsing. */
#define _GNU_SOURCE
#include "load.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static const char *const STAGES[] = {"unused", "upgrading", "opening", "ready", "leaving"};

uint64_t opened, ready, closed, lost, acks;
const char *refused;
bool tolerant, timed;
double heard_at;
struct samples timings;
const char *const program = "load";
const unsigned head_kept = 128;

double timed_ms(double share) {
    if (!timings.count) die("nothing was timed");
    return percentile(&timings, share) * 1000;
}

/* ---- sending -------------------------------------------------------------------------------------------------- */

/* All frames are far smaller than an empty socket buffer. A short write means that the server does not read, and the
 * figures would be invalid. */
void send_all(struct conn *c, const void *data, size_t size) {
    ssize_t n = send(c->link.fd, data, size, MSG_NOSIGNAL);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return; /* the read side handles it */
    if (n != (ssize_t)size) die("could not send to the server: %s", n < 0 ? strerror(errno) : "it does not read");
}

static void say(struct conn *c, unsigned char opcode, const void *payload, size_t size) {
    unsigned char out[8192];
    if (size > sizeof out - 8) die("a frame of %zu bytes is too large for the generator", size);
    send_all(c, out, frame(out, opcode, payload, size));
}

/* Copies `text` with $T, $N and $B replaced. */
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
    if (at >= room - 1) die("a text of more than %zu bytes is too large for the generator", room);
    out[at] = 0;
    return at;
}

void say_text(struct conn *c, const char *text) {
    char out[8000];
    size_t size = expand(out, sizeof out, text, c);
    say(c, 1, out, size);
}

static const struct dialect *spoken(const struct conn *c) {
    bool is_sender = mode->subscribes && c == &conns[opt.connections];
    return is_sender && opt.dialect->sender_speaks ? dialect_named(opt.dialect->sender_speaks) : opt.dialect;
}

void leave(struct conn *c) {
    c->stage = LEAVING;
    if (spoken(c)->bye) {
        say_text(c, spoken(c)->bye);
    } else {
        say(c, 8, "\x03\xe8", 2);
    }
}

/* ---- connections ---------------------------------------------------------------------------------------------- */

/* If `tolerant`, a refused connection is a result; otherwise it is an error. */
static void unobtainable(struct conn *c, const char *why) {
    if (!tolerant) die("connection %llu to port %d: %s", (unsigned long long)c->number, opt.port, why);
    refused = why;
    if (c->link.fd >= 0) close(c->link.fd);
    c->link.fd = -1;
    c->stage = UNUSED;
}

static void request_upgrade(struct conn *c) {
    char request[512];
    const char *path = c->subscriber ? opt.dialect->subscriber : opt.dialect->plain;
    if (&conns[opt.connections] == c && mode->subscribes) path = opt.dialect->sender;
    int n = snprintf(request, sizeof request, UPGRADE, path);
    c->stage = UPGRADING;
    send_all(c, request, n);
}

static void open_further(struct conn *c);

void open_conn(struct conn *c) {
    struct timeval patience = {.tv_sec = STALL_S};
    bool sender = mode->subscribes && c == &conns[opt.connections];
    memset(c, 0, sizeof *c);
    c->number = opened;
    c->subscriber = mode->subscribes && !sender;
    c->link.fd = new_socket(opened, 0);
    if (c->link.fd < 0) {
        unobtainable(c, strerror(errno));
        return;
    }
    setsockopt(c->link.fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    /* Blocking: on loopback the kernel completes the handshake within the call, unless the backlog is full. */
    if (connect_to(c->link.fd, sender && opt.sender_port ? opt.sender_port : opt.port)) {
        unobtainable(c, strerror(errno));
        return;
    }
    watch(c);
    opened++;
    if (opt.dialect->plain) {
        request_upgrade(c);
    } else {
        c->link.upgraded = true;
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
    close(c->link.fd);
    c->link.fd = -1;
    c->stage = UNUSED;
    closed++;
}

/* ---- receiving ------------------------------------------------------------------------------------------------ */

bool begins(const struct conn *c, const char *text) {
    size_t size = text ? strlen(text) : 0;
    return size && c->link.have >= size && !memcmp(c->link.head, text, size);
}

static bool is(const struct conn *c, const char *text) { return text && c->link.size == strlen(text) && begins(c, text); }

/* Starts the next exchange of the opening. Joining is the last one. */
static const struct exchange *next_exchange(const struct conn *c) {
    const struct dialect *d = spoken(c);
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
    const struct dialect *d = spoken(c);
    if (is(c, d->ping)) {
        say_text(c, d->pong);
    } else if (begins(c, d->refusal)) {
        die("the server refused connection %llu, %s: %.*s", (unsigned long long)c->number, STAGES[c->stage],
            (int)c->link.have, c->link.head);
    } else if (c->stage == OPENING && begins(c, next_exchange(c)->await)) {
        c->exchange++;
        open_further(c);
    } else if (begins(c, d->beaten)) {
        acks++;
    } else if (c->stage == READY && mode->on_text) {
        mode->on_text(c);
    } /* other events of a room are not measured */
}

void on_frame(struct link *l) {
    struct conn *c = (struct conn *)l;
    char why[HEAD + 32];
    switch (l->hdr[0]) {
    case 0x81:
        on_text(c);
        break;
    case 0x88:
        snprintf(why, sizeof why, "close code %d %.*s", l->have < 2 ? 1005 : l->head[0] << 8 | l->head[1],
                 l->have < 2 ? 0 : (int)l->have - 2, l->head + 2);
        say(c, 8, l->head, l->have < 2 ? 0 : 2); /* the close frame that RFC 6455 requires */
        close_conn(c, why);
        break;
    case 0x89:
        say(c, 10, l->head, l->have);
        break;
    case 0x8a:
        break;
    default:
        die("unexpected frame that begins with 0x%02x", l->hdr[0]);
    }
}

void on_http(struct link *l) {
    if (l->have < 12 || memcmp(l->head + 8, " 101", 4)) die("no upgrade: %s", l->head);
    open_further((struct conn *)l);
}

/* Counts markers, not frames, because some servers put several messages into one frame. */
void on_payload(struct link *l, const unsigned char *p, size_t size) {
    struct conn *c = (struct conn *)l;
    if (c->stage != READY || !mode->on_delivery) return;
    for (const unsigned char *end = p + size; (p = memchr(p, MARKER, end - p)); p++) mode->on_delivery(c);
}

void on_readable(struct conn *c) {
    static unsigned char buffer[256 * 1024];
    ssize_t n = recv(c->link.fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0) {
        if (timed) heard_at = now();
        feed(&c->link, buffer, buffer + n);
    } else if (n == 0) {
        close_conn(c, "end of stream");
    } else if (errno != EAGAIN && errno != EINTR) {
        close_conn(c, strerror(errno));
    }
}
