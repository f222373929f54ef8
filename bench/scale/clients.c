/* Clients: each watches some users, is in one room, and returns with its session when its connection is lost. */
#define _GNU_SOURCE
#include "scale.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const double JITTER_S = 0.5, LONGEST_S = 10, DOWN_S = 1;
static const char OFFLINE[] = "\"state\":\"offline\"";
const char *const program = "scale";
const unsigned head_kept = HEAD;
struct counts counts;
struct samples delays;
int ready;
static uint64_t opened;
static struct { int connections; double down_until; } nodes[PORTS]; /* as seen by this process */

static double chance(void) { return random() / ((double)RAND_MAX + 1); }

/* Plans the return: after the server's delay plus jitter, or after a back-off. */
static void away(struct conn *c) {
    if (c->stage == READY) ready--;
    if (c->stage >= RESTORING) counts.lost++;
    else if (c->hint < 0) counts.failed++;
    close(c->link.fd);
    c->link.fd = -1;
    c->stage = AWAY;
    c->watch_at = c->join_at = 0;
    nodes[c->node].connections--;
    double bound = JITTER_S * (1 << (c->failures < 6 ? c->failures : 6));
    c->due = now() + (c->hint >= 0 ? c->hint + chance() * JITTER_S : chance() * (bound < LONGEST_S ? bound : LONGEST_S));
    c->failures++;
    c->hint = -1;
}

/* Chooses a node as the proxies in deploy/ do: the one with the fewest connections, except nodes that do not listen. */
static int least_loaded(void) {
    int start = random() % opt.port_count, best = start;
    double t = now();
    for (int k = 0; k < opt.port_count; k++) {
        int i = (start + k) % opt.port_count;
        bool is_down = nodes[i].down_until > t, best_is_down = nodes[best].down_until > t;
        if (is_down != best_is_down ? best_is_down : nodes[i].connections < nodes[best].connections) best = i;
    }
    return best;
}

/* Goes to another node at once, as a proxy does, because this one does not listen. */
static void try_another(struct conn *c) {
    nodes[c->node].down_until = now() + DOWN_S;
    unsigned failures = c->failures;
    away(c);
    c->failures = failures;
    for (int i = 0; i < opt.port_count; i++)
        if (nodes[i].down_until <= now()) c->due = 0;
}

void open_conn(struct conn *c) {
    memset(&c->link, 0, sizeof c->link);
    c->link.fd = new_socket(opt.first + opened++, SOCK_NONBLOCK);
    if (c->link.fd < 0) die("no socket for user %d: %s", c->number, strerror(errno));
    c->stage = CONNECTING;
    c->matched = c->offline = 0;
    c->node = least_loaded();
    nodes[c->node].connections++;
    int result = connect_to(c->link.fd, opt.ports[c->node]);
    want(c, EPOLLOUT, EPOLL_CTL_ADD);
    if (result && errno != EINPROGRESS) try_another(c);
}

/* ---- sending -------------------------------------------------------------------------------------------------- */

static void send_all(struct conn *c, const void *data, size_t size) {
    ssize_t n = send(c->link.fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return; /* the read side handles it */
    if (n != (ssize_t)size) die("user %d: the server does not read", c->number);
}

static void say(struct conn *c, const char *text) {
    unsigned char out[8192];
    send_all(c, out, frame(out, 1, text, strlen(text)));
}

static void say_hello(struct conn *c) {
    char text[4000], resume[256] = "";
    if (c->session[0])
        snprintf(resume, sizeof resume, ",\"resume\":{\"session\":\"%s\",\"rooms\":{\"scale%d\":0}}", c->session,
                 c->number % opt.rooms);
    snprintf(text, sizeof text, "{\"type\":\"hello\",\"token\":\"%s\",\"device\":\"d\"%s}",
             token_of(c->number - opt.first), resume);
    say(c, text);
}

/* The watched users are 4,999 apart, so that they are spread over all processes and nodes. */
static void say_watch(struct conn *c) {
    char text[6000];
    int at = sprintf(text, "{\"type\":\"watch\",\"id\":\"w\",\"users\":[");
    for (int k = 1; k <= opt.watched; k++)
        at += sprintf(text + at, "%s\"u%ld\"", k == 1 ? "" : ",", (c->number + k * 4999L) % opt.users);
    sprintf(text + at, "]}");
    say(c, text);
}

static void say_join(struct conn *c) {
    char text[100];
    sprintf(text, "{\"type\":\"room.join\",\"id\":\"j\",\"room\":\"scale%d\"}", c->number % opt.rooms);
    say(c, text);
}

/* Repeats refused commands that are due. */
void say_again(struct conn *c, double t) {
    if (c->watch_at && c->watch_at <= t) c->watch_at = 0, say_watch(c);
    if (c->join_at && c->join_at <= t) c->join_at = 0, say_join(c);
}

void say_heartbeat(struct conn *c) {
    say(c, "{\"type\":\"heartbeat\"}");
    counts.heartbeats++;
}

void say_status(struct conn *c) {
    char text[120];
    sprintf(text, "{\"type\":\"status.set\",\"status\":\"busy\",\"text\":\"t%.6f\"}", now());
    say(c, text);
}

/* ---- receiving ------------------------------------------------------------------------------------------------ */

static void on_welcome(struct conn *c) {
    const char *value = field_of(&c->link, "session");
    bool had_session = c->session[0];
    if (!value) die("a welcome without a session");
    snprintf(c->session, sizeof c->session, "%.*s", (int)strcspn(value + 1, "\""), value + 1);
    bool resumed = (value = field_of(&c->link, "resumed")) && !memcmp(value, "true", 4);
    if (resumed) counts.resumed++;
    else if (had_session) counts.fresh++;
    c->stage = RESTORING;
    c->awaited = resumed ? 1 : 2;
    say_watch(c);
    if (!resumed) say_join(c);
}

/* Repeats a command that the server could not accept yet, as the client libraries do. Other errors are faults. */
static void on_error(struct conn *c) {
    const char *retry = field_of(&c->link, "retry"), *wait = field_of(&c->link, "retry_in_ms");
    const char *id = field_of(&c->link, "id");
    if (id && retry && !memcmp(retry, "true", 4)) {
        *(id[1] == 'w' ? &c->watch_at : &c->join_at) = now() + (wait ? atol(wait) / 1e3 : JITTER_S);
        counts.repeated++;
    } else if (!counts.errors++) {
        fprintf(stderr, "scale: %s\n", c->link.head);
    }
}

static void on_text(struct conn *c) {
    const char *value;
    if (is_type(&c->link, "heartbeat.ack")) {
        counts.acks++;
    } else if (is_type(&c->link, "presence.changed")) {
        if ((value = field_of(&c->link, "status_text")) && !memcmp(value, "\"t", 2)) sample(&delays, now() - atof(value + 2));
        if (c->offline) counts.offline++;
        else if (field_of(&c->link, "stale")) counts.stale++;
        else counts.changed++;
    } else if (is_type(&c->link, "room.entered")) {
        counts.entered++;
    } else if (is_type(&c->link, "room.left")) {
        counts.left++;
    } else if (is_type(&c->link, "room.count")) {
        counts.count++;
    } else if (is_type(&c->link, "welcome")) {
        on_welcome(c);
    } else if (is_type(&c->link, "overloaded") || is_type(&c->link, "drain")) {
        counts.refused++;
        if ((value = field_of(&c->link, "retry_in_ms"))) c->hint = atol(value) / 1e3;
    } else if (is_type(&c->link, "error")) {
        on_error(c);
    } else if (is_type(&c->link, "reply")) {
        counts.snapshot += c->offline;
        if (c->stage == RESTORING && !--c->awaited) {
            c->stage = READY;
            c->failures = 0;
            ready++;
        }
    }
}

/* Counts the offline users in a payload, which may be longer than the kept head. */
void on_payload(struct link *l, const unsigned char *part, size_t size) {
    struct conn *c = (struct conn *)l;
    for (size_t i = 0; i < size; i++) {
        c->matched = part[i] == (unsigned char)OFFLINE[c->matched] ? c->matched + 1 : part[i] == '"';
        if (c->matched == sizeof OFFLINE - 1) c->offline++, c->matched = 0;
    }
}

void on_frame(struct link *l) {
    struct conn *c = (struct conn *)l;
    unsigned char out[16];
    if (l->hdr[0] == 0x81) {
        on_text(c);
    } else if (l->hdr[0] == 0x88) {
        send_all(c, out, frame(out, 8, l->head, l->have < 2 ? 0 : 2));
        away(c);
    }
    c->matched = c->offline = 0;
}

void on_http(struct link *l) {
    struct conn *c = (struct conn *)l;
    if (!memcmp(l->head + 8, " 503", 4)) {
        counts.refused++;
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
            try_another(c);
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
