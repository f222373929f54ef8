/* Two storms, each with a probe that says how responsive the server is meanwhile. One thread, epoll; it only does, counts
 * and times: bench/storms.py is the driver.
 *
 *   storm return --port P --tokens FILE [--connections 10000] [--rooms 500] [--watchers 2] [--spread 0] [--patience 60]
 *   storm flood  --port P --tokens FILE [--connections 500] [--first 1000] [--times 5] [--seconds 30] [--writes 20]
 *
 * Each prints "ready", waits for a line on stdin, does it, prints one line of JSON, and ends when stdin does.
 *
 * probe:   a connection that sends a heartbeat every 10 ms, whether the last one was answered or not. How old the answers
 *          are is how long anything has to wait for the server's loop.
 * return:  all connections are reset at once and come back as clients do: within --spread seconds, after what the server
 *          tells them (`overloaded`, Retry-After) and some jitter, or else after a back-off that doubles. Each resumes its
 *          session and is behind in one room and in its inbox. Watchers watch all of them and count what they are told.
 * flood:   signals to one room, at a rate that grows by a quarter every second until a tenth of the probes took over 100 ms; then
 *          --times that rate for --seconds; then nothing. Meanwhile --writes messages per second are sent to the room,
 *          each until it is accepted, and every subscriber must have them all, in order.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 320, BATCH = 1024, PENDING = 64, SOURCES = 64, WATCHED = 1000, MOST_WRITES = 1 << 16 };
enum stage { AWAY, CONNECTING, UPGRADING, GREETING, READY };
enum role { CROWD, WATCHER, PROBE, WRITER, SENDER };
static const double PROBE_S = 0.01, JITTER_S = 0.5, LONGEST_S = 30, SLOW_S = 0.1, STEP_S = 1;

struct conn {
    int fd, number;
    enum stage stage;
    enum role role;
    double due;               /* when to come back, while it is away */
    double back_at;           /* when it was welcomed */
    double hint;              /* seconds the server asked it to stay away; negative: it did not say */
    unsigned failures;        /* in a row */
    char session[64];
    uint64_t seq;             /* the last message of the room */
    unsigned char hdr[10];    /* header of the frame being read */
    unsigned hdr_have;
    uint64_t size, left;
    unsigned char head[HEAD]; /* beginning of that payload, or of the HTTP response */
    unsigned have, blank;
};

static struct {
    int port, connections, rooms, watchers;
    double spread, patience, first, times, seconds, writes;
    const char *tokens;
} opt = {.rooms = 500, .watchers = 2, .patience = 60, .first = 1000, .times = 5, .seconds = 30, .writes = 20};

static bool flooding; /* the mode */
static struct conn *conns;
static int conn_count;
static char **tokens;
static size_t token_count;
static int epoll_fd;
static bool told;
static uint64_t opened, ready, resumed, refused, refused_http, failed, lost, heard_by_watchers, signals, misordered;

static void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("storm: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double chance(void) { return random() / ((double)RAND_MAX + 1); }

/* ---- samples -------------------------------------------------------------------------------------------------- */

struct samples {
    double *of;
    size_t count, room;
};

static struct samples probes, backs;

static void sample(struct samples *s, double seconds) {
    if (s->count == s->room) {
        s->room = s->room ? s->room * 2 : 65536;
        s->of = realloc(s->of, s->room * sizeof *s->of);
        if (!s->of) die("no memory for so many samples");
    }
    s->of[s->count++] = seconds;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(struct samples *s, double share) {
    if (!s->count) return 0;
    qsort(s->of, s->count, sizeof *s->of, by_value);
    return s->of[(size_t)((s->count - 1) * share)];
}

/* ---- connections ---------------------------------------------------------------------------------------------- */

static void want(struct conn *c, uint32_t events, int how) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll_fd, how, c->fd, &event)) die("epoll: %s", strerror(errno));
}

/* Gone, and to return: after what the server asked for and some jitter, or else after a back-off. */
static void away(struct conn *c) {
    if (c->role != CROWD || flooding) die("the server ended connection %d, which is one that must stay", c->number);
    if (c->stage == READY) lost++, ready--;
    close(c->fd);
    c->fd = -1;
    c->stage = AWAY;
    double bound = JITTER_S * (1 << (c->failures < 6 ? c->failures : 6));
    c->due = now() + (c->hint >= 0 ? c->hint + chance() * JITTER_S : chance() * (bound < LONGEST_S ? bound : LONGEST_S));
    if (c->hint < 0) failed++;
    c->failures++;
    c->hint = -1;
}

static void open_conn(struct conn *c) {
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002 + opened % SOURCES)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    to.sin_port = htons(opt.port);
    c->hdr_have = c->have = c->blank = 0;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) die("no socket for connection %d: %s", c->number, strerror(errno));
    setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (bind(c->fd, (void *)&from, sizeof from)) die("bind: %s", strerror(errno));
    opened++;
    c->stage = CONNECTING;
    if (connect(c->fd, (void *)&to, sizeof to) && errno != EINPROGRESS) {
        want(c, EPOLLIN, EPOLL_CTL_ADD);
        away(c);
        return;
    }
    want(c, EPOLLOUT, EPOLL_CTL_ADD);
}

/* A short write means a server that does not read. False then. */
static bool send_all(struct conn *c, const void *data, size_t size) {
    ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return true; /* the read side will see it */
    if (n < 0 && errno == EAGAIN) return false;
    if (n != (ssize_t)size) die("connection %d: the server does not read", c->number);
    return true;
}

static size_t frame(unsigned char *out, unsigned char opcode, const void *payload, size_t size) {
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

static bool say(struct conn *c, const char *text) {
    unsigned char out[32768];
    size_t size = strlen(text);
    if (size > sizeof out - 8) die("a frame of %zu bytes is more than this program sends", size);
    return send_all(c, out, frame(out, 1, text, size));
}

static void say_hello(struct conn *c) {
    char text[8000], session[96] = "", room[64] = "";
    if (c->session[0]) snprintf(session, sizeof session, "\"session\":\"%s\",", c->session);
    if (c->role == CROWD || (flooding && c->role != PROBE)) snprintf(room, sizeof room, "\"bench%d\":0", flooding ? 0 : c->number % opt.rooms);
    snprintf(text, sizeof text,
             "{\"type\":\"hello\",\"token\":\"%s\",\"device\":\"d\",\"resume\":{%s\"rooms\":{%s},\"inbox\":0}}",
             tokens[c->number % token_count], session, room);
    say(c, text);
}

static void say_watch(struct conn *c) {
    static char text[32000];
    for (int first = 0; first < opt.connections; first += WATCHED) {
        int at = sprintf(text, "{\"type\":\"watch\",\"users\":[");
        for (int n = first; n < first + WATCHED && n < opt.connections; n++)
            at += sprintf(text + at, "%s\"u%d\"", n == first ? "" : ",", n);
        sprintf(text + at, "]}");
        say(c, text);
    }
}

/* ---- what is heard -------------------------------------------------------------------------------------------- */

static bool is(const struct conn *c, const char *type) {
    size_t size = strlen(type);
    return c->have > 9 + size && !memcmp(c->head, "{\"type\":\"", 9) && !memcmp(c->head + 9, type, size) &&
           c->head[9 + size] == '"';
}

/* What follows `"name":` in the head, or NULL. */
static const char *field(struct conn *c, const char *name) {
    char wanted[32];
    c->head[c->have < HEAD ? c->have : HEAD - 1] = 0;
    snprintf(wanted, sizeof wanted, "\"%s\":", name);
    char *found = strstr((char *)c->head, wanted);
    return found ? found + strlen(wanted) : NULL;
}

static double probed_at[4096]; /* by number: when a heartbeat was sent */
static uint64_t probes_sent, probes_heard;
static double worst; /* probe since it was last asked */
static unsigned slow, quick;
static bool probing;

static void on_probe(void) {
    double took = now() - probed_at[probes_heard++ % 4096];
    if (took > worst) worst = took;
    if (took > SLOW_S) slow++; else quick++;
    if (probing) sample(&probes, took);
}

static double write_due[MOST_WRITES]; /* by number: when to send it (again) */
static bool accepted[MOST_WRITES];
static uint64_t written, writes_accepted, writes_refused;

static void on_answer(struct conn *c, bool is_error) {
    const char *id = field(c, "id"), *wait = field(c, "retry_in_ms");
    long number = id ? atol(id) : -1;
    if (c->role != WRITER || number < 0 || number >= MOST_WRITES) return;
    if (is_error) {
        if (!wait) die("a message was refused for good: %s", (char *)c->head);
        writes_refused++;
        write_due[number] = now() + atol(wait) / 1e3;
    } else if (!accepted[number]) {
        accepted[number] = true;
        writes_accepted++;
    }
}

static void on_text(struct conn *c) {
    const char *value;
    if (is(c, "signal")) {
        signals++;
    } else if (is(c, "heartbeat.ack")) {
        if (c->role == PROBE) on_probe();
    } else if (is(c, "room.message")) {
        uint64_t seq = (value = field(c, "seq")) ? strtoull(value, NULL, 10) : 0;
        if (flooding && seq != c->seq + 1) misordered++;
        c->seq = seq;
    } else if (is(c, "welcome")) {
        bool had_session = c->session[0];
        if (!(value = field(c, "session"))) die("a welcome without a session");
        snprintf(c->session, sizeof c->session, "%.*s", (int)strcspn(value + 1, "\""), value + 1);
        if (had_session && (value = field(c, "resumed")) && !memcmp(value, "true", 4)) resumed++;
        c->stage = READY;
        c->failures = 0;
        c->back_at = now();
        ready++;
    } else if (is(c, "overloaded")) {
        refused++;
        if ((value = field(c, "retry_in_ms"))) c->hint = atol(value) / 1e3;
    } else if (is(c, "presence.changed")) {
        if (c->role == WATCHER) heard_by_watchers++;
    } else if (is(c, "reply") || is(c, "error")) {
        on_answer(c, is(c, "error"));
    }
}

static void on_frame(struct conn *c) {
    unsigned char out[16];
    if (c->hdr[0] == 0x81) {
        on_text(c);
    } else if (c->hdr[0] == 0x88) {
        if (c->role != CROWD || flooding)
            die("connection %d was closed: %d %.*s", c->number, c->head[0] << 8 | c->head[1], (int)c->have - 2,
                c->head + 2);
        send_all(c, out, frame(out, 8, c->head, c->have < 2 ? 0 : 2));
        away(c);
    }
}

static unsigned header_size(const struct conn *c) {
    return c->hdr_have < 2 || c->hdr[1] < 126 ? 2 : c->hdr[1] == 126 ? 4 : 10;
}

static const unsigned char *feed_upgrade(struct conn *c, const unsigned char *p, const unsigned char *end) {
    while (p < end) {
        if (c->have < HEAD - 1) c->head[c->have++] = *p;
        c->blank = *p == "\r\n\r\n"[c->blank] ? c->blank + 1 : *p == '\r';
        p++;
        if (c->blank < 4) continue;
        c->head[c->have] = 0;
        if (!memcmp(c->head + 8, " 503", 4)) {
            char *after = strcasestr((char *)c->head, "retry-after:");
            refused_http++;
            if (after) c->hint = atof(after + 12);
            away(c);
            return end;
        }
        if (memcmp(c->head + 8, " 101", 4)) die("no upgrade: %s", c->head);
        c->stage = GREETING;
        say_hello(c);
        break;
    }
    return p;
}

static void feed(struct conn *c, const unsigned char *p, const unsigned char *end) {
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
        c->have += keep;
        c->left -= take;
        p += take;
        if (c->left) return;
        on_frame(c);
        c->hdr_have = 0;
    }
}

static void on_event(struct conn *c, uint32_t events) {
    static unsigned char buffer[256 * 1024];
    if (c->fd < 0) return;
    if (c->stage == CONNECTING) {
        if (events & (EPOLLERR | EPOLLHUP)) {
            away(c);
            return;
        }
        static const char request[] = "GET /v1/connect HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                                      "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                                      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
        c->stage = UPGRADING;
        want(c, EPOLLIN, EPOLL_CTL_MOD);
        send_all(c, request, sizeof request - 1);
        return;
    }
    ssize_t n = recv(c->fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0) {
        feed(c, buffer, buffer + n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        away(c);
    }
}

static void probe(void) {
    static double next;
    struct conn *c = &conns[opt.connections];
    double t = now();
    if (c->stage != READY) return;
    if (next < t - 1) next = t;
    for (; next <= t; next += PROBE_S) {
        /* Timed from when it was due: what the generator is late counts against the server, never for it. */
        probed_at[probes_sent % 4096] = next;
        if (!say(c, "{\"type\":\"heartbeat\"}")) return;
        probes_sent++;
    }
    if (probes_sent - probes_heard >= 4096) die("the probe was not answered for %.0f s", 4096 * PROBE_S);
}

static void turn(int timeout_ms) {
    static struct epoll_event events[BATCH];
    int n = epoll_wait(epoll_fd, events, BATCH, timeout_ms);
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr) {
            on_event(events[i].data.ptr, events[i].events);
        } else {
            char line[64];
            if (read(STDIN_FILENO, line, sizeof line) <= 0) exit(0);
            told = true;
        }
    }
    probe();
}

/* Opens connections first..last-1, not more than PENDING unanswered at a time. */
static void open_some(int first, int last) {
    double heard = now();
    uint64_t target = ready + last - first, before = ready;
    for (int next = first; ready < target;) {
        while (next < last && (uint64_t)(next - first) - (ready - (target - (last - first))) < PENDING)
            open_conn(&conns[next++]);
        for (int i = first; i < next; i++)
            if (conns[i].stage == AWAY && conns[i].due <= now()) open_conn(&conns[i]);
        turn(5);
        if (ready != before) before = ready, heard = now();
        if (now() - heard > 20) die("only %llu connections got ready", (unsigned long long)ready);
    }
}

static void pass(double seconds) {
    for (double end = now() + seconds; now() < end;) turn(2);
}

static void until_told(void) {
    puts("ready");
    fflush(stdout);
    while (!told) turn(5);
}

/* ---- the storms ----------------------------------------------------------------------------------------------- */

static void run_return(void) {
    int n = opt.connections;
    open_some(0, n);
    open_some(n, conn_count);
    for (int i = n + 1; i < conn_count; i++) say_watch(&conns[i]);
    pass(3);
    until_told();
    heard_by_watchers = refused = failed = 0;
    probing = true;
    double start = now();
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    for (int i = 0; i < n; i++) {
        setsockopt(conns[i].fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(conns[i].fd);
        conns[i].fd = -1;
        conns[i].stage = AWAY;
        conns[i].due = start + chance() * opt.spread;
        ready--;
        if (i % 100 == 0) turn(0); /* what this takes must not count as the server's */
    }
    double cut = now() - start, looked = 0, all_back = 0;
    int first = 0; /* all before it are not away */
    while (now() < start + opt.patience) {
        double t = now();
        if (t - looked >= 0.001) {
            looked = t;
            /* Not too many connects in a row: what the server answers meanwhile must be read and timed. */
            for (int i = 0, tried = 0; i < n && tried < 100; i++, first = (first + 1) % n)
                if (conns[first].stage == AWAY && conns[first].due <= t) open_conn(&conns[first]), tried++;
        }
        turn(1);
        if (!all_back && ready == (uint64_t)conn_count) {
            all_back = now();
            probing = false; /* what comes after the storm must not make the figures better */
        }
    }
    for (int i = 0; i < n; i++)
        if (conns[i].stage == READY) sample(&backs, conns[i].back_at - start);
    printf("{\"mode\":\"return\",\"connections\":%d,\"back\":%zu,\"resumed\":%llu,\"p50_s\":%.2f,\"p99_s\":%.2f,"
           "\"max_s\":%.2f,\"cut_s\":%.2f,\"refused\":%llu,\"refused_http\":%llu,\"failed\":%llu,\"lost\":%llu,"
           "\"watchers_told\":%llu,\"probes\":%zu,\"probe_p50_ms\":%.1f,\"probe_p99_ms\":%.1f,\"probe_max_ms\":%.1f}\n",
           n, backs.count, (unsigned long long)resumed, percentile(&backs, 0.5),
           backs.count * 100 >= (size_t)n * 99 ? backs.of[(size_t)(n * 0.99) - 1] : -1.0, percentile(&backs, 1), cut,
           (unsigned long long)refused, (unsigned long long)refused_http, (unsigned long long)failed,
           (unsigned long long)lost, (unsigned long long)heard_by_watchers, probes.count, percentile(&probes, 0.5) * 1e3,
           percentile(&probes, 0.99) * 1e3, percentile(&probes, 1) * 1e3);
}

static void write_messages(struct conn *c, double rate, double start, double t) {
    char text[512];
    while (written < MOST_WRITES && start + written / rate <= t) write_due[written++] = t;
    for (uint64_t i = 0; i < written; i++) {
        if (accepted[i] || write_due[i] > t) continue;
        snprintf(text, sizeof text, "{\"type\":\"room.send\",\"room\":\"bench0\",\"key\":\"w%llu\",\"body\":\"%064d\",\"id\":%llu}",
                 (unsigned long long)i, 0, (unsigned long long)i);
        write_due[i] = t + 10; /* if nothing is heard of it */
        if (!say(c, text)) return;
    }
}

static uint64_t offered, held_back;

/* A signal, or what is left of the last one: the server may stop reading anywhere. False then. */
static bool send_signal(int fd, const unsigned char *signal, size_t whole) {
    static size_t at;
    ssize_t n = send(fd, signal + at, whole - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) die("the sender: %s", strerror(errno));
    at = n < 0 ? at : (at + n) % whole;
    return n > 0 && !at;
}

/* So many signals per second until `end`. Whether a tenth of the probes took too long meanwhile: one may, on a machine
 * that does other things too. */
static bool flood(double rate, double end, double start) {
    static unsigned char signal[512];
    char text[256];
    int size = snprintf(text, sizeof text, "{\"type\":\"signal.send\",\"room\":\"bench0\",\"kind\":\"b\",\"body\":\"%0128d\"}", 0);
    size_t whole = frame(signal, 1, text, size);
    struct conn *sender = &conns[conn_count - 1], *writer = &conns[conn_count - 2];
    double from = now();
    uint64_t done = 0;
    slow = quick = 0;
    for (double t = from; t < end; t = now()) {
        uint64_t due = (t - from) * rate;
        for (; done < due; done++, offered++) {
            if (!send_signal(sender->fd, signal, whole)) {
                held_back += due - done; /* the server does not read it: they are not kept for later */
                done = due;
                break;
            }
        }
        if (start) write_messages(writer, opt.writes, start, t);
        turn(1);
    }
    return slow * 10 > slow + quick;
}

static void run_flood(void) {
    int n = opt.connections;
    open_some(0, conn_count);
    until_told();
    pass(0.5);
    worst = 0;
    double start = now(), rate = opt.first;
    while (!flood(rate, now() + STEP_S, start)) rate *= 1.25;
    pass(2); /* what this left behind is not part of what follows */
    uint64_t ramped = offered, signals_before = signals;
    probing = true;
    printf("{\"passed_at\":%.0f}\n", rate);
    fflush(stdout);
    flood(rate * opt.times, now() + opt.seconds, start);
    double p50 = percentile(&probes, 0.5), p99 = percentile(&probes, 0.99), most = percentile(&probes, 1);
    uint64_t during = offered - ramped, heard = signals - signals_before;
    puts("over");
    fflush(stdout);
    /* Calm again: from when on no probe of a whole second was slow. */
    double over = now(), calm = 0, since = over;
    while (now() < over + 20 && !calm) {
        worst = 0;
        write_messages(&conns[conn_count - 2], 1e-9, start, now());
        pass(0.1);
        if (worst > SLOW_S || (probes_sent > probes_heard && now() - probed_at[probes_heard % 4096] > SLOW_S)) since = now();
        if (now() - since > 1) calm = since - over;
    }
    for (double end = now() + 30; writes_accepted < written && now() < end;) {
        write_messages(&conns[conn_count - 2], 1e-9, start, now());
        turn(5);
    }
    pass(1);
    uint64_t behind = 0;
    for (int i = 0; i < n; i++) behind += conns[i].seq != writes_accepted;
    printf("{\"mode\":\"flood\",\"subscribers\":%d,\"passed_at\":%.0f,\"rate\":%.0f,\"offered\":%llu,\"held_back\":%llu,"
           "\"delivered\":%llu,\"probe_p50_ms\":%.1f,\"probe_p99_ms\":%.1f,\"probe_max_ms\":%.1f,\"calm_s\":%.2f,"
           "\"written\":%llu,\"accepted\":%llu,\"writes_refused\":%llu,\"misordered\":%llu,\"behind\":%llu}\n",
           n, rate, rate * opt.times, (unsigned long long)during, (unsigned long long)held_back, (unsigned long long)heard,
           p50 * 1e3, p99 * 1e3, most * 1e3, calm, (unsigned long long)written, (unsigned long long)writes_accepted,
           (unsigned long long)writes_refused, (unsigned long long)misordered, (unsigned long long)behind);
}

/* ---- the program ---------------------------------------------------------------------------------------------- */

static void read_tokens(void) {
    FILE *file = fopen(opt.tokens, "r");
    char *line = NULL;
    size_t room = 0;
    if (!file) die("%s: %s", opt.tokens, strerror(errno));
    for (ssize_t n; (n = getline(&line, &room, file)) > 0;) {
        if (line[n - 1] == '\n') line[n - 1] = 0;
        tokens = realloc(tokens, (token_count + 1) * sizeof *tokens);
        tokens[token_count++] = strdup(line);
    }
    free(line);
    fclose(file);
    if (token_count < (size_t)conn_count) die("%s has %zu tokens for %d connections", opt.tokens, token_count, conn_count);
}

int main(int count, char **words) {
    static const struct option known[] = {
        {"port", 1, 0, 'p'},    {"tokens", 1, 0, 't'},   {"connections", 1, 0, 'c'}, {"rooms", 1, 0, 'r'},
        {"watchers", 1, 0, 'w'}, {"spread", 1, 0, 's'},  {"patience", 1, 0, 'P'},    {"first", 1, 0, 'f'},
        {"times", 1, 0, 'x'},   {"seconds", 1, 0, 'S'},  {"writes", 1, 0, 'W'},      {"pid", 1, 0, 'i'},  {0}};
    if (count < 2 || (strcmp(words[1], "return") && strcmp(words[1], "flood"))) die("usage: storm return|flood OPTIONS");
    flooding = !strcmp(words[1], "flood");
    opt.connections = flooding ? 500 : 10000;
    for (int c; (c = getopt_long(count - 1, words + 1, "", known, NULL)) != -1;) {
        switch (c) {
        case 'p': opt.port = atoi(optarg); break;
        case 't': opt.tokens = optarg; break;
        case 'c': opt.connections = atoi(optarg); break;
        case 'r': opt.rooms = atoi(optarg); break;
        case 'w': opt.watchers = atoi(optarg); break;
        case 's': opt.spread = atof(optarg); break;
        case 'P': opt.patience = atof(optarg); break;
        case 'f': opt.first = atof(optarg); break;
        case 'x': opt.times = atof(optarg); break;
        case 'S': opt.seconds = atof(optarg); break;
        case 'W': opt.writes = atof(optarg); break;
        case 'i': break; /* given to all generators */
        default: return 2;
        }
    }
    if (!opt.port || !opt.tokens || opt.connections < 1) die("--port and --tokens are needed");
    conn_count = opt.connections + 1 + (flooding ? 2 : opt.watchers);
    read_tokens();
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < (rlim_t)conn_count + 20) die("a process may open only %ld files here", (long)files.rlim_cur);
    srandom(1);
    epoll_fd = epoll_create1(0);
    struct epoll_event driver = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &driver)) die("stdin must be a pipe or a terminal");
    conns = calloc(conn_count, sizeof *conns);
    if (!conns) die("no memory for %d connections", conn_count);
    for (int i = 0; i < conn_count; i++) {
        conns[i].number = i;
        conns[i].fd = -1;
        conns[i].hint = -1;
        if (i == opt.connections) conns[i].role = PROBE;
        if (i > opt.connections) conns[i].role = !flooding ? WATCHER : i == conn_count - 1 ? SENDER : WRITER;
    }
    if (flooding) {
        run_flood();
    } else {
        run_return();
    }
    fflush(stdout);
    for (told = false;;) turn(100); /* the driver looks at the server now; stdin's end is ours */
}
