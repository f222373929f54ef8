/* Connections of clients: opening, resuming, leaving, and the frames that they send and receive. */
#define _GNU_SOURCE
#include "soak.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const double JITTER_S = 0.5, LONGEST_S = 8, DOWN_S = 1;
const char *const program = "soak";
const unsigned head_kept = HEAD;
struct counts counts;
static uint64_t opened;
int on_node[PORTS];              /* connections */
static double down_until[PORTS]; /* of nodes, as seen by this process */

/* ---- opening and closing -------------------------------------------------------------------------------------- */

/* Forgets the socket, which has been closed or is kept open by keep_open. */
static void detach(struct conn *c) {
    c->link.fd = -1;
    free(c->text);
    c->text = NULL;
    c->stage = AWAY;
    c->watch_at = c->join_at = c->deaf_until = c->sends_at = 0;
}

/* Plans the return after a connection was lost: after the server's delay plus jitter, or after a back-off. */
void lose(struct conn *c) {
    if (c->stage >= RESTORING) counts.lost++, c->lost_at = now();
    else counts.failed++;
    close(c->link.fd);
    detach(c);
    double bound = JITTER_S * (1 << (c->failures < 5 ? c->failures : 5));
    c->due = now() + (c->hint >= 0 ? c->hint + chance() * JITTER_S : chance() * (bound < LONGEST_S ? bound : LONGEST_S));
    c->failures++;
    c->hint = -1;
}

/* Leaves by choice: after `bye`, with a close frame, or without any sign, as a phone without a network does. */
void leave(struct conn *c, enum leaving how) {
    unsigned char out[16];
    double t = now();
    if (how == BYE) say(c, "{\"type\":\"bye\"}");
    if (how == CLEAN && c->stage != AWAY) send(c->link.fd, out, frame(out, 8, "\x03\xe8", 2), MSG_NOSIGNAL);
    if (c->stage != AWAY) keep_open(c, how == ABANDONED ? between(1, 10) : 1);
    detach(c);
    if (how == BYE) c->session[0] = 0;
    c->gone_at = t;
    c->held_since = 0;
    c->due = 0;
    counts.left++;
}

/* Continues on another network at once. The old socket stays half-open. */
void switch_network(struct conn *c) {
    keep_open(c, between(1, 10));
    detach(c);
    c->lost_at = c->due = now();
    counts.switched++;
}

/* Goes to another node at once, as a proxy does, because this one does not listen. */
static void try_another(struct conn *c) {
    down_until[c->node] = now() + DOWN_S;
    unsigned failures = c->failures;
    lose(c);
    c->failures = failures;
    for (int i = 0; i < opt.port_count; i++)
        if (down_until[i] <= now()) c->due = now();
}

/* Chooses the node with the fewest connections, but not the last one, and none that does not listen. */
static int choose_node(const struct conn *c) {
    int start = random() % opt.port_count, best = start;
    double t = now();
    for (int k = 0; k < opt.port_count; k++) {
        int i = (start + k) % opt.port_count;
        bool is_down = down_until[i] > t, best_is_down = down_until[best] > t;
        if (is_down != best_is_down) best = is_down ? best : i;
        else if ((i == c->node) != (best == c->node)) best = i == c->node ? best : i;
        else if (on_node[i] < on_node[best]) best = i;
    }
    return best;
}

void open_conn(struct conn *c) {
    memset(&c->link, 0, sizeof c->link);
    c->link.fd = new_socket(opened++, SOCK_NONBLOCK);
    if (c->link.fd < 0) die("no socket for client %d: %s", c->number, strerror(errno));
    c->stage = CONNECTING;
    c->opened_at = c->heard_at = now();
    c->node = choose_node(c);
    on_node[c->node]++;
    int result = connect_to(c->link.fd, opt.ports[c->node]);
    want(c, EPOLLOUT, EPOLL_CTL_ADD);
    if (result && errno != EINPROGRESS) try_another(c);
}

/* ---- sending -------------------------------------------------------------------------------------------------- */

/* Sends a text frame. If the server does not read, the connection counts as lost. */
void say(struct conn *c, const char *text) {
    unsigned char out[8192];
    if (c->link.fd < 0) return;
    ssize_t size = frame(out, 1, text, strlen(text)), n = send(c->link.fd, out, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return; /* the read side handles it */
    if (n != size) lose(c);
}

static void say_hello(struct conn *c) {
    char text[4000], resume[256] = "";
    int guests = opt.guests, regulars = opt.connections - guests;
    long token = c->guest ? regulars + c->day * guests + (c->number - regulars) : c->number;
    if (c->session[0])
        snprintf(resume, sizeof resume, ",\"resume\":{\"session\":\"%s\",\"rooms\":{\"soak%d-%ld\":%ld}}", c->session,
                 c->number / opt.in_room, c->day, c->seq < 0 ? 0 : c->seq);
    snprintf(text, sizeof text, "{\"type\":\"hello\",\"token\":\"%s\",\"device\":\"d\"%s}", token_of(token), resume);
    say(c, text);
}

int watched_guest(const struct conn *c) { return opt.connections - 1 - c->number % opt.guests; }

/* Watches one guest of this day, and regular users who are spread over all nodes and rooms. */
void say_watch(struct conn *c, const char *type, const char *id) {
    char text[3000];
    int regulars = opt.connections - opt.guests, stride = regulars / (opt.watched + 1) + 1;
    int at = sprintf(text, "{\"type\":\"%s\",\"id\":\"%s\",\"users\":[\"g%ldx%d\"", type, id, c->day, watched_guest(c));
    for (int k = 1; k < opt.watched; k++)
        at += sprintf(text + at, ",\"u%ld\"", (c->number + (long)k * stride) % regulars);
    sprintf(text + at, "]}");
    say(c, text);
}

void say_join(struct conn *c) {
    char text[100];
    sprintf(text, "{\"type\":\"room.join\",\"id\":\"j\",\"room\":\"soak%d-%ld\"}", c->number / opt.in_room, c->day);
    say(c, text);
}

/* ---- receiving ------------------------------------------------------------------------------------------------ */

static void on_welcome(struct conn *c, const char *text, const char *end) {
    const char *value = value_of(text, end, "session");
    bool had_session = c->session[0];
    char room[40];
    if (!value) die("a welcome without a session");
    snprintf(c->session, sizeof c->session, "%.*s", (int)strcspn(value + 1, "\""), value + 1);
    bool resumed = (value = value_of(text, end, "resumed")) && !memcmp(value, "true", 4);
    if (resumed) counts.resumed++;
    else if (had_session) counts.fresh++;
    snprintf(room, sizeof room, "soak%d-%ld", c->number / opt.in_room, c->day);
    const char *state = value_of(text, end, room);
    const char *recovered = state ? value_of(state, end, "recovered") : NULL;
    if (!recovered || memcmp(recovered, "true", 4)) c->seq = -1;
    if (!c->held_since || now() - c->lost_at > opt.grace - 2) c->held_since = now();
    c->stage = RESTORING;
    c->beat_at = now() + opt.heartbeat * chance();
    c->awaited = state ? 1 : 2;
    say_watch(c, "watch", "w");
    if (!state && c->stage == RESTORING) say_join(c);
}

/* Repeats a command that the server could not accept yet, as the client libraries do. Other errors are faults. */
static void on_error(struct conn *c, const char *text, const char *end) {
    const char *retry = value_of(text, end, "retry"), *wait = value_of(text, end, "retry_in_ms");
    const char *id = value_of(text, end, "id");
    if (retry && !memcmp(retry, "true", 4)) {
        double due = now() + (wait ? atol(wait) / 1e3 : JITTER_S);
        counts.retried++;
        if (id && id[1] == 'w') c->watch_at = due;
        if (id && id[1] == 'j') c->join_at = due;
    } else if (counts.errors++ < 50 && story) {
        fprintf(story, "%.2f error: client %d of node %d: %s\n", now() - opt.start, c->number, c->node, text);
        fflush(story);
    }
}

static void on_reply(struct conn *c, const char *text, const char *end) {
    const char *id = value_of(text, end, "id"), *head;
    if (!id) return;
    if (id[1] == 'w' || id[1] == 'p') check_presence(c, text, true);
    if (id[1] == 'j' && (head = value_of(text, end, "head"))) c->seq = atol(head);
    if ((id[1] == 'w' || id[1] == 'j') && c->stage == RESTORING && !--c->awaited) {
        c->stage = READY;
        c->failures = 0;
        c->act_at = now() + chance() * opt.day_s / opt.acts;
    }
}

static void on_notification(struct conn *c, const char *text, const char *end) {
    const char *value = value_of(text, end, "seq");
    char command[100];
    counts.notified++;
    if (!value || chance() < 0.5) return;
    snprintf(command, sizeof command, "{\"type\":\"inbox.read\",\"id\":\"i\",\"through\":%ld}", atol(value));
    say(c, command);
}

static void on_text(struct conn *c, const char *text, const char *end) {
    const char *value;
    if (is_type(&c->link, "heartbeat.ack")) {
        if (!c->held_since && !c->deaf_until) c->held_since = now();
    } else if (is_type(&c->link, "presence.changed")) {
        counts.changes++;
        check_presence(c, text, false);
    } else if (is_type(&c->link, "room.message")) {
        check_message(c, text);
    } else if (is_type(&c->link, "reply")) {
        on_reply(c, text, end);
    } else if (is_type(&c->link, "welcome")) {
        on_welcome(c, text, end);
    } else if (is_type(&c->link, "notification.created")) {
        on_notification(c, text, end);
    } else if (is_type(&c->link, "overloaded") || is_type(&c->link, "drain")) {
        counts.refused++;
        if ((value = value_of(text, end, "retry_in_ms"))) c->hint = atol(value) / 1e3;
    } else if (is_type(&c->link, "resync")) {
        counts.resyncs++;
        c->seq = -1;
    } else if (is_type(&c->link, "error")) {
        on_error(c, text, end);
    }
}

/* The server closed the connection. Codes from 4500 on would end a client for good: they are faults. */
static void on_close(struct conn *c) {
    int code = c->link.have < 2 ? 1005 : c->link.head[0] << 8 | c->link.head[1];
    if (code >= 4500 && counts.errors++ < 50 && story) {
        fprintf(story, "%.2f closed with %d: client %d of node %d\n", now() - opt.start, code, c->number, c->node);
        fflush(story);
    }
    lose(c);
}

/* Keeps whole payloads of frames that are longer than the kept head. */
void on_payload(struct link *l, const unsigned char *part, size_t size) {
    struct conn *c = (struct conn *)l;
    if (l->size <= HEAD) return;
    if (!c->text) {
        c->text = malloc(l->size + 1);
        c->text_size = 0;
        if (!c->text) die("no memory for a frame");
    }
    memcpy(c->text + c->text_size, part, size);
    c->text_size += size;
    c->text[c->text_size] = 0;
}

void on_frame(struct link *l) {
    struct conn *c = (struct conn *)l;
    char *whole = c->text;
    const char *text = whole ? whole : (char *)l->head;
    c->text = NULL;
    c->heard_at = now();
    if (l->hdr[0] == 0x81) on_text(c, text, text + (whole ? c->text_size : l->have));
    else if (l->hdr[0] == 0x88) on_close(c);
    free(whole);
}

void on_http(struct link *l) {
    struct conn *c = (struct conn *)l;
    if (!memcmp(l->head + 8, " 503", 4)) {
        counts.refused++;
        c->hint = retry_after(l);
        lose(c);
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
        int size = snprintf(request, sizeof request, UPGRADE, "/v1/connect");
        if (send(c->link.fd, request, size, MSG_NOSIGNAL | MSG_DONTWAIT) != size) lose(c);
        return;
    }
    if (c->deaf_until) {
        if (events & (EPOLLERR | EPOLLHUP)) lose(c);
        return;
    }
    ssize_t n = recv(c->link.fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0) {
        feed(&c->link, buffer, buffer + n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        lose(c);
    }
}
