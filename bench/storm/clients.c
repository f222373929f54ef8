/* Clients: connect, disconnect, return, and process received frames. */
#define _GNU_SOURCE
#include "storm.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const double JITTER_S = 0.5, LONGEST_S = 30;
const char *const program = "storm";
const unsigned head_kept = HEAD;
uint64_t ready, resumed, refused, refused_http, failed, lost, heard_by_watchers, signals, misordered;
static uint64_t opened;

double chance(void) { return random() / ((double)RAND_MAX + 1); }

/* ---- connections ---------------------------------------------------------------------------------------------- */

/* Plans the return of a closed connection: after the server's delay plus jitter, or after a back-off. */
static void away(struct conn *c) {
    if (c->role != CROWD || flooding) die("the server closed connection %d, which must stay open", c->number);
    if (c->stage == READY) lost++, ready--;
    close(c->link.fd);
    c->link.fd = -1;
    c->stage = AWAY;
    double bound = JITTER_S * (1 << (c->failures < 6 ? c->failures : 6));
    c->due = now() + (c->hint >= 0 ? c->hint + chance() * JITTER_S : chance() * (bound < LONGEST_S ? bound : LONGEST_S));
    if (c->hint < 0) failed++;
    c->failures++;
    c->hint = -1;
}

void open_conn(struct conn *c) {
    memset(&c->link, 0, sizeof c->link);
    c->link.fd = new_socket(opened, SOCK_NONBLOCK);
    if (c->link.fd < 0) die("no socket for connection %d: %s", c->number, strerror(errno));
    opened++;
    c->stage = CONNECTING;
    if (connect_to(c->link.fd, opt.port) && errno != EINPROGRESS) {
        want(c, EPOLLIN, EPOLL_CTL_ADD);
        away(c);
        return;
    }
    want(c, EPOLLOUT, EPOLL_CTL_ADD);
}

/* ---- sending -------------------------------------------------------------------------------------------------- */

/* Returns false after a short write, which means that the server does not read. */
static bool send_all(struct conn *c, const void *data, size_t size) {
    ssize_t n = send(c->link.fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return true; /* the read side handles it */
    if (n < 0 && errno == EAGAIN) return false;
    if (n != (ssize_t)size) die("connection %d: the server does not read", c->number);
    return true;
}

bool say(struct conn *c, const char *text) {
    unsigned char out[32768];
    size_t size = strlen(text);
    if (size > sizeof out - 8) die("a frame of %zu bytes is too large for the generator", size);
    return send_all(c, out, frame(out, 1, text, size));
}

static void say_hello(struct conn *c) {
    char text[8000], session[96] = "", room[64] = "";
    if (c->session[0]) snprintf(session, sizeof session, "\"session\":\"%s\",", c->session);
    if (c->role == CROWD || (flooding && c->role != PROBE))
        snprintf(room, sizeof room, "\"bench%d\":0", flooding ? 0 : c->number % opt.rooms);
    snprintf(text, sizeof text,
             "{\"type\":\"hello\",\"token\":\"%s\",\"device\":\"d\",\"resume\":{%s\"rooms\":{%s},\"inbox\":0}}",
             token_of(c->number), session, room);
    say(c, text);
}

/* ---- receiving ------------------------------------------------------------------------------------------------ */

static void on_text(struct conn *c) {
    const char *value;
    if (is_type(&c->link, "signal")) {
        signals++;
    } else if (is_type(&c->link, "heartbeat.ack")) {
        if (c->role == PROBE) on_probe();
    } else if (is_type(&c->link, "room.message")) {
        uint64_t seq = (value = field_of(&c->link, "seq")) ? strtoull(value, NULL, 10) : 0;
        if (flooding && seq != c->seq + 1) misordered++;
        c->seq = seq;
    } else if (is_type(&c->link, "welcome")) {
        bool had_session = c->session[0];
        if (!(value = field_of(&c->link, "session"))) die("a welcome without a session");
        snprintf(c->session, sizeof c->session, "%.*s", (int)strcspn(value + 1, "\""), value + 1);
        if (had_session && (value = field_of(&c->link, "resumed")) && !memcmp(value, "true", 4)) resumed++;
        c->stage = READY;
        c->failures = 0;
        c->back_at = now();
        ready++;
    } else if (is_type(&c->link, "overloaded")) {
        refused++;
        if ((value = field_of(&c->link, "retry_in_ms"))) c->hint = atol(value) / 1e3;
    } else if (is_type(&c->link, "presence.changed")) {
        if (c->role == WATCHER) heard_by_watchers++;
    } else if (is_type(&c->link, "reply") || is_type(&c->link, "error")) {
        on_answer(c, is_type(&c->link, "error"));
    }
}

void on_payload(struct link *l, const unsigned char *part, size_t size) { (void)l, (void)part, (void)size; }

void on_frame(struct link *l) {
    struct conn *c = (struct conn *)l;
    unsigned char out[16];
    if (l->hdr[0] == 0x81) {
        on_text(c);
    } else if (l->hdr[0] == 0x88) {
        if (c->role != CROWD || flooding)
            die("connection %d was closed: %d %.*s", c->number, l->head[0] << 8 | l->head[1], (int)l->have - 2,
                l->head + 2);
        send_all(c, out, frame(out, 8, l->head, l->have < 2 ? 0 : 2));
        away(c);
    }
}

void on_http(struct link *l) {
    struct conn *c = (struct conn *)l;
    if (!memcmp(l->head + 8, " 503", 4)) {
        refused_http++;
        c->hint = retry_after(l);
        away(c);
        return;
    }
    if (memcmp(l->head + 8, " 101", 4)) die("no upgrade: %s", l->head);
    c->stage = GREETING;
    say_hello(c);
}

void on_event(struct conn *c, uint32_t events) {
    static unsigned char buffer[256 * 1024];
    char request[512];
    if (c->link.fd < 0) return;
    if (c->stage == CONNECTING) {
        if (events & (EPOLLERR | EPOLLHUP)) {
            away(c);
            return;
        }
        c->stage = UPGRADING;
        want(c, EPOLLIN, EPOLL_CTL_MOD);
        send_all(c, request, snprintf(request, sizeof request, UPGRADE, "/v1/connect"));
        return;
    }
    ssize_t n = recv(c->link.fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0) {
        feed(&c->link, buffer, buffer + n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        away(c);
    }
}
