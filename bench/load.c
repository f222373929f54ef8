/* A load generator for the Greendot wire, made not to be what limits the figures: one thread, epoll, broadcast frames
 * built once, one recv() per wake-up. It only counts and times; bench/run.py is the driver.
 *
 *   load broadcast --port P --tokens FILE [--connections 1000] [--in-flight 1] [--warmup 1] [--seconds 5] [--pid PID]
 *   load broadcast --port P --raw --frame-bytes B ...        the same against bench/rawcast.c
 *   load idle      --port P --tokens FILE [--connections 15000] [--heartbeat 30] [--seconds 60] [--control]
 *   load connect   --port P --tokens FILE [--concurrency 64] [--warmup 1] [--seconds 5] [--pid PID]
 *   load send      --port P --tokens FILE [--connections 50] [--apart] [--warmup 1] [--seconds 5] [--pid PID]
 *   load told      --port P --tokens FILE [--connections 50] [--rate 200] [--warmup 1] [--seconds 5] [--pid PID]
 *   load return    --port P --tokens FILE [--connections 1000] [--behind 50] [--control] [--pid PID]
 *
 * Each prints one line of JSON; with --pid it also says how much of a core that process used meanwhile (a server below
 * 1.0 was waiting for us). `idle` prints "ready" first; with --control it then waits for a line on stdin, and after its
 * JSON keeps the connections until stdin ends, so that a driver can look at the server in between.
 *
 * broadcast: a message counts as received when every subscriber has it; only then is the next one sent, so that exactly
 *            --in-flight messages are under way. Every message is a send() of its own, as a real sender's would be.
 * connect:   a cycle is TCP connect, upgrade, hello, welcome, `bye`, the server's close frame, TCP close. `bye` and not
 *            a bare TCP close, because a lost socket leaves a session lingering and later rounds would pay for it.
 * send:      every connection joins the room (with --apart, one of its own) and sends one message after the other, the
 *            next when the one before was acknowledged. In one room each gets everybody's messages meanwhile.
 * told:      one connection sends messages evenly spread over time, and each is timed until it is on the others' sockets.
 * return:    all connections are opened at once and say which message they have; a connection is back when it has the
 *            --behind messages after that, in order. `ready` and --control are as for `idle`, before and after.
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

enum { HEAD = 128, RING = 1024, BATCH = 1024, PENDING = 128, SOURCES = 64, STALL_S = 5 };
enum stage { UNUSED, UPGRADING, GREETING, JOINING, READY, LEAVING };
static const char *const STAGES[] = {"unused", "upgrading", "greeting", "joining", "ready", "leaving"};

struct conn {
    int fd;
    enum stage stage;
    uint64_t number;          /* among all ever opened */
    unsigned char hdr[10];    /* header of the frame being read */
    unsigned hdr_have;        /* bytes in hdr */
    uint64_t size, left;      /* payload bytes of that frame, and those still to come */
    unsigned char head[HEAD]; /* beginning of that payload, or of the HTTP response */
    unsigned have;            /* bytes in head */
    unsigned blank;           /* how much of "\r\n\r\n", the end of the HTTP response, was seen */
    uint64_t received;        /* signals: the n-th received is the n-th sent, since a connection keeps the order */
    double said;              /* when the message was sent that is not acknowledged yet */
};

static struct {
    int port, pid, connections, in_flight, concurrency, frame_bytes, body_bytes, behind;
    double seconds, warmup, heartbeat, rate;
    const char *tokens;
    bool raw, control, apart;
} opt = {.in_flight = 1, .concurrency = 64, .body_bytes = 128, .warmup = 1, .heartbeat = 30, .behind = 50, .rate = 200};

static enum { BROADCAST, IDLE, CONNECT, SEND, TOLD, RETURN } mode;
static const char *const MODES[] = {"broadcast", "idle", "connect", "send", "told", "return"};
static struct conn *conns;
static char **tokens;
static size_t token_count;
static int epoll_fd;
static uint64_t opened, ready, closed, lost, welcomed, acks, signals; /* running totals */
static bool told;                                                       /* the driver wrote a line (--control) */

static void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu_used(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static double process_cpu_used(int pid) {
    char path[64], text[1024];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    char *name_end = strrchr(text, ')'); /* a process name may hold spaces: count fields from behind it */
    if (name_end) sscanf(name_end, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    return (double)(user + system) / sysconf(_SC_CLK_TCK);
}

/* Seconds of CPU the watched server has used, all its threads and workers together. */
static double server_cpu_used(void) {
    char path[64];
    if (!opt.pid) return 0;
    double used = process_cpu_used(opt.pid);
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", opt.pid, opt.pid);
    FILE *file = fopen(path, "r");
    if (!file) return used;
    for (int child; fscanf(file, "%d", &child) == 1;) used += process_cpu_used(child);
    fclose(file);
    return used;
}

/* ---- what is sent --------------------------------------------------------------------------------------------- */

/* Everything a client says here is far smaller than an empty socket buffer: a short write means a server that does not
 * read, and no figure would mean anything then. */
static void send_all(struct conn *c, const void *data, size_t size) {
    ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return; /* the read side will see it and judge */
    if (n != (ssize_t)size) die("could not send to the server: %s", n < 0 ? strerror(errno) : "it does not read");
}

/* A masked client frame in `out`. The mask may be any number but zero: unmasking must cost the server its price. */
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

static void say(struct conn *c, unsigned char opcode, const void *payload, size_t size) {
    unsigned char out[8192];
    if (size > sizeof out - 8) die("a frame of %zu bytes is more than this program sends", size);
    send_all(c, out, frame(out, opcode, payload, size));
}

static void say_text(struct conn *c, const char *text) { say(c, 1, text, strlen(text)); }

static void say_hello(struct conn *c) {
    char text[8000];
    const char *token = tokens[c->number % token_count];
    const char *resume = mode == RETURN ? ",\"resume\":{\"rooms\":{\"bench\":0}}" : "";
    snprintf(text, sizeof text, "{\"type\":\"hello\",\"token\":\"%s\",\"device\":\"d\"%s}", token, resume);
    say_text(c, text);
}

static void say_join(struct conn *c) {
    char text[128];
    if (mode == SEND && opt.apart) {
        snprintf(text, sizeof text, "{\"type\":\"room.join\",\"room\":\"bench%llu\",\"id\":1}",
                 (unsigned long long)c->number);
    } else {
        snprintf(text, sizeof text, "{\"type\":\"room.join\",\"room\":\"bench\",\"id\":1}");
    }
    say_text(c, text);
}

static void say_message(struct conn *c) {
    char text[8192], room[32] = "bench";
    if (opt.apart) snprintf(room, sizeof room, "bench%llu", (unsigned long long)c->number);
    snprintf(text, sizeof text, "{\"type\":\"room.send\",\"room\":\"%s\",\"body\":\"%0*d\",\"id\":2}", room,
             opt.body_bytes, 0);
    c->said = now();
    say_text(c, text);
}

/* The message that is broadcast. The raw broadcaster relays what it gets, so there it is made as a server's frame. */
static size_t build_message(unsigned char *out) {
    char text[8192];
    if (!opt.raw) {
        int n = snprintf(text, sizeof text,
                         "{\"type\":\"signal.send\",\"room\":\"bench\",\"kind\":\"b\",\"body\":\"%0*d\"}",
                         opt.body_bytes, 0);
        return frame(out, 1, text, n);
    }
    size_t size = opt.frame_bytes - 4;
    memset(out, 'x', opt.frame_bytes);
    memcpy(out, (unsigned char[]){0x81, 126, size >> 8, size & 0xff}, 4);
    memcpy(out + 4, "{\"type\":\"signal\"", 16);
    return opt.frame_bytes;
}

/* ---- connections ---------------------------------------------------------------------------------------------- */

static void open_conn(struct conn *c) {
    /* Several source addresses: one has some 28,000 ports, and closed connections keep theirs for a minute. */
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002 + opened % SOURCES)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = STALL_S};
    int on = 1;
    to.sin_port = htons(opt.port);
    memset(c, 0, sizeof *c);
    c->number = opened;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0) die("no socket for connection %llu: %s", (unsigned long long)opened, strerror(errno));
    setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    /* Blocking: on loopback the kernel completes the handshake within the call, as long as the backlog has room. */
    if (bind(c->fd, (void *)&from, sizeof from) || connect(c->fd, (void *)&to, sizeof to))
        die("connection %llu to port %d: %s", (unsigned long long)opened, opt.port, strerror(errno));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event)) die("epoll: %s", strerror(errno));
    opened++;
    if (opt.raw) {
        c->stage = GREETING;
        return;
    }
    c->stage = UPGRADING;
    static const char request[] = "GET /v1/connect HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                                  "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    send_all(c, request, sizeof request - 1);
}

static void close_conn(struct conn *c, const char *why) {
    if (c->stage != LEAVING) {
        if (mode != IDLE || c->stage != READY)
            die("the server ended connection %llu, %s: %s", (unsigned long long)c->number, STAGES[c->stage], why);
        lost++;
    }
    close(c->fd);
    c->fd = -1;
    c->stage = UNUSED;
    closed++;
}

/* ---- what is heard -------------------------------------------------------------------------------------------- */

static bool is(const struct conn *c, const char *type) {
    size_t size = strlen(type);
    return c->have > 9 + size && !memcmp(c->head, "{\"type\":\"", 9) && !memcmp(c->head + 9, type, size) &&
           c->head[9 + size] == '"';
}

static unsigned arrived[RING]; /* by message number: how many subscribers have it */
static uint64_t complete;      /* messages every subscriber has */
static unsigned signal_bytes;  /* size of a whole signal frame */

static unsigned header_size(const struct conn *c) {
    return c->hdr_have < 2 || c->hdr[1] < 126 ? 2 : c->hdr[1] == 126 ? 4 : 10;
}

static void on_signal(struct conn *c) {
    if (c == &conns[opt.connections]) die("the sending connection got its own signal back");
    signal_bytes = header_size(c) + c->size;
    signals++;
    unsigned *count = &arrived[c->received++ % RING];
    if (++*count == (unsigned)opt.connections) {
        *count = 0;
        complete++;
    }
}

static double *samples; /* seconds */
static size_t sample_count, sample_room;
static bool sampling;

static void sample(double seconds) {
    if (!sampling) return;
    if (sample_count == sample_room) {
        sample_room = sample_room ? sample_room * 2 : 65536;
        samples = realloc(samples, sample_room * sizeof *samples);
        if (!samples) die("no memory for so many samples");
    }
    samples[sample_count++] = seconds;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A percentile of the samples, in milliseconds. */
static double percentile(double share) {
    if (!sample_count) die("nothing was timed");
    qsort(samples, sample_count, sizeof *samples, by_value);
    return samples[(size_t)((sample_count - 1) * share)] * 1000;
}

static double sent_at[RING * 64]; /* by message number, in mode `told` */

static void on_message(struct conn *c) {
    signals++;
    if (mode == TOLD && c != &conns[opt.connections]) sample(now() - sent_at[c->received % (RING * 64)]);
    if (++c->received == (uint64_t)opt.behind && mode == RETURN) {
        c->stage = READY;
        ready++;
    }
}

static void on_text(struct conn *c) {
    if (c->stage == READY && mode == BROADCAST && is(c, "signal")) {
        on_signal(c);
    } else if (mode >= SEND && is(c, "room.message")) {
        on_message(c);
    } else if (c->stage == READY && mode == SEND && is(c, "reply")) {
        acks++;
        sample(now() - c->said);
        say_message(c);
    } else if (c->stage == READY && mode == TOLD && is(c, "reply")) {
        acks++;
    } else if (c->stage == GREETING && mode == RETURN && is(c, "welcome")) {
        welcomed++;
        c->stage = JOINING;
    } else if (is(c, "error")) {
        die("the server refused connection %llu, %s: %.*s", (unsigned long long)c->number, STAGES[c->stage],
            (int)c->have, c->head);
    } else if (c->stage == GREETING && is(c, "welcome")) {
        welcomed++;
        if (mode == CONNECT) {
            c->stage = LEAVING;
            say_text(c, "{\"type\":\"bye\"}");
        } else if ((mode == BROADCAST && !opt.raw) || mode >= SEND) {
            c->stage = JOINING;
            say_join(c);
        } else {
            c->stage = READY;
            ready++;
        }
    } else if (c->stage == JOINING && is(c, "reply")) {
        c->stage = READY;
        ready++;
    } else if (is(c, "heartbeat.ack")) {
        acks++;
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
        c->stage = GREETING;
        say_hello(c);
        break;
    }
    return p;
}

/* Takes frames out of the stream. They come joined in one segment or cut anywhere, so each byte may be the last. */
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

static void on_readable(struct conn *c) {
    static unsigned char buffer[256 * 1024];
    ssize_t n = recv(c->fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0) {
        feed(c, buffer, buffer + n);
    } else if (n == 0) {
        close_conn(c, "end of stream");
    } else if (errno != EAGAIN && errno != EINTR) {
        close_conn(c, strerror(errno));
    }
}

static void on_driver(void) {
    char line[64];
    ssize_t n = read(STDIN_FILENO, line, sizeof line);
    if (n <= 0) exit(0); /* the driver is done with us, or dead */
    told = true;
}

/* One turn of the loop; `after` runs behind each connection's input. */
static void turn(int timeout_ms, void (*after)(void)) {
    static struct epoll_event events[BATCH];
    int n = epoll_wait(epoll_fd, events, BATCH, timeout_ms);
    for (int i = 0; i < n; i++) {
        struct conn *c = events[i].data.ptr;
        if (c) {
            on_readable(c);
        } else {
            on_driver();
        }
        if (after) after();
    }
}

/* Opens connections 0..n-1, not more than PENDING unanswered at a time: a listening queue must not overflow. */
static void open_all(int n) {
    double heard = now();
    for (uint64_t before = 0; ready < (uint64_t)n;) {
        while (opened < (uint64_t)n && opened - ready < PENDING) open_conn(&conns[opened]);
        turn(1000, NULL);
        if (ready != before) before = ready, heard = now();
        if (now() - heard > STALL_S * 2)
            die("only %llu of %d connections got ready, then nothing for %d s", (unsigned long long)ready, n,
                STALL_S * 2);
    }
}

/* ---- modes ---------------------------------------------------------------------------------------------------- */

static unsigned char message[16384];
static size_t message_size;
static uint64_t sent;

static void top_up(void) {
    for (; sent < complete + opt.in_flight; sent++) send_all(&conns[opt.connections], message, message_size);
}

static void dropped(void) {
    die("message %llu reached %u of %d subscribers, then nothing for %d s", (unsigned long long)complete,
        arrived[complete % RING], opt.connections, STALL_S);
}

/* Runs the broadcast until `end`. */
static void broadcast_until(double end) {
    uint64_t before = complete;
    double progress = now();
    for (double t = progress; t < end; t = now()) {
        turn(100, top_up);
        if (complete != before) before = complete, progress = t;
        if (t - progress > STALL_S) dropped();
    }
}

/* Waits for what is under way. Were a single delivery missing, a run with several in flight would go on, with fewer of
 * them than it claims: here it shows. */
static void await_stragglers(void) {
    for (double end = now() + STALL_S; complete < sent && now() < end;) turn(100, NULL);
    if (complete < sent) dropped();
}

static void leave_all(int n) {
    for (int i = 0; i < n; i++) {
        conns[i].stage = LEAVING;
        say_text(&conns[i], "{\"type\":\"bye\"}");
    }
    for (double end = now() + STALL_S; closed < (uint64_t)n && now() < end;) turn(100, NULL);
}

static void run_broadcast(void) {
    open_all(opt.connections + 1); /* the last one is the sender */
    message_size = build_message(message);
    top_up();
    broadcast_until(now() + opt.warmup);
    double start = now(), cpu = cpu_used(), server_cpu = server_cpu_used();
    uint64_t signals_before = signals, complete_before = complete;
    broadcast_until(start + opt.seconds);
    double took = now() - start, cpu_share = (cpu_used() - cpu) / took;
    double server_share = (server_cpu_used() - server_cpu) / took;
    uint64_t deliveries = signals - signals_before, messages = complete - complete_before;
    await_stragglers();
    if (!messages) die("no message reached all %d subscribers within %.1f s", opt.connections, took);
    printf("{\"mode\":\"broadcast\",\"raw\":%s,\"subscribers\":%d,\"in_flight\":%d,\"seconds\":%.3f,"
           "\"deliveries_per_s\":%.0f,\"messages_per_s\":%.1f,\"frame_bytes\":%u,\"generator_cpu\":%.2f,"
           "\"server_cpu\":%.2f}\n",
           opt.raw ? "true" : "false", opt.connections, opt.in_flight, took, deliveries / took, messages / took,
           signal_bytes, cpu_share, server_share);
    fflush(stdout);
    if (!opt.raw) leave_all(opt.connections + 1);
}

static void await_driver(void) {
    for (told = false; opt.control && !told;) turn(1000, NULL);
}

static void run_idle(void) {
    double start = now();
    open_all(opt.connections);
    double connecting = now() - start;
    puts("ready");
    fflush(stdout);
    await_driver();
    start = now();
    uint64_t beats = 0, total = opt.connections * opt.seconds / opt.heartbeat;
    double spacing = opt.heartbeat / opt.connections;
    for (double t = start; t < start + opt.seconds; t = now()) {
        for (; beats < total && start + beats * spacing <= t; beats++) {
            struct conn *c = &conns[beats % opt.connections];
            if (c->stage == READY) say_text(c, "{\"type\":\"heartbeat\"}");
        }
        turn(1, NULL);
    }
    for (double end = now() + 1; acks + lost < beats && now() < end;) turn(10, NULL);
    printf("{\"mode\":\"idle\",\"connections\":%d,\"connect_s\":%.2f,\"seconds\":%.3f,\"heartbeats\":%llu,"
           "\"acks\":%llu,\"lost\":%llu}\n",
           opt.connections, connecting, now() - start, (unsigned long long)beats, (unsigned long long)acks,
           (unsigned long long)lost);
    fflush(stdout);
    await_driver();
}

static void reopen_closed(void) {
    for (int i = 0; opened - closed < (uint64_t)opt.concurrency; i++)
        if (conns[i].stage == UNUSED) open_conn(&conns[i]);
}

static void connect_until(double end) {
    double progress = now();
    uint64_t before = welcomed;
    for (double t = progress; t < end; t = now()) {
        turn(100, NULL);
        reopen_closed();
        if (welcomed != before) before = welcomed, progress = t;
        if (t - progress > STALL_S) die("no connection was welcomed for %d s", STALL_S);
    }
}

static void run_connect(void) {
    reopen_closed();
    connect_until(now() + opt.warmup);
    double start = now(), cpu = cpu_used(), server_cpu = server_cpu_used();
    uint64_t before = welcomed;
    connect_until(start + opt.seconds);
    double took = now() - start;
    printf("{\"mode\":\"connect\",\"concurrency\":%d,\"seconds\":%.3f,\"cycles\":%llu,\"connects_per_s\":%.1f,"
           "\"generator_cpu\":%.2f,\"server_cpu\":%.2f}\n",
           opt.concurrency, took, (unsigned long long)(welcomed - before), (welcomed - before) / took,
           (cpu_used() - cpu) / took, (server_cpu_used() - server_cpu) / took);
}

static void turn_until(double end) {
    for (double t = now(); t < end; t = now()) turn((int)((end - t) * 1000) + 1, NULL);
}

static void run_send(void) {
    open_all(opt.connections);
    for (int i = 0; i < opt.connections; i++) say_message(&conns[i]);
    turn_until(now() + opt.warmup);
    double start = now(), cpu = cpu_used(), server_cpu = server_cpu_used();
    uint64_t acks_before = acks, signals_before = signals;
    sampling = true;
    turn_until(start + opt.seconds);
    double took = now() - start;
    if (acks == acks_before) die("no message was acknowledged within %.1f s", took);
    printf("{\"mode\":\"send\",\"senders\":%d,\"seconds\":%.3f,\"messages_per_s\":%.1f,\"deliveries_per_s\":%.0f,"
           "\"p50_ms\":%.2f,\"p99_ms\":%.2f,\"generator_cpu\":%.2f,\"server_cpu\":%.2f}\n",
           opt.connections, took, (acks - acks_before) / took, (signals - signals_before) / took, percentile(0.5),
           percentile(0.99), (cpu_used() - cpu) / took, (server_cpu_used() - server_cpu) / took);
    fflush(stdout);
}

static void run_told(void) {
    open_all(opt.connections + 1); /* the last one is the sender */
    struct conn *sender = &conns[opt.connections];
    double begin = now(), measured = begin + opt.warmup, server_cpu = 0, cpu = 0;
    uint64_t total = (opt.warmup + opt.seconds) * opt.rate, first = opt.warmup * opt.rate;
    for (sent = 0; sent < total;) {
        double due = begin + sent / opt.rate, t = now();
        if (t >= due) {
            if (sent == first) sampling = true, measured = t, server_cpu = server_cpu_used(), cpu = cpu_used();
            sent_at[sent++ % (RING * 64)] = t;
            say_message(sender);
        } else {
            turn((int)((due - t) * 1000), NULL);
        }
    }
    for (double end = now() + STALL_S; signals < total * (opt.connections + 1) && now() < end;) turn(10, NULL);
    double took = now() - measured;
    if (signals < total * (opt.connections + 1))
        die("of %llu messages to %d connections %llu arrived", (unsigned long long)total, opt.connections + 1,
            (unsigned long long)signals);
    printf("{\"mode\":\"told\",\"listeners\":%d,\"rate\":%.1f,\"p50_ms\":%.2f,\"p99_ms\":%.2f,\"max_ms\":%.2f,"
           "\"generator_cpu\":%.2f,\"server_cpu\":%.2f}\n",
           opt.connections, opt.rate, percentile(0.5), percentile(0.99), percentile(1), (cpu_used() - cpu) / took,
           (server_cpu_used() - server_cpu) / took);
    fflush(stdout);
}

static void run_return(void) {
    puts("ready");
    fflush(stdout);
    await_driver();
    double start = now(), server_cpu = server_cpu_used();
    while (opened < (uint64_t)opt.connections) open_conn(&conns[opened]);
    double knocked = now() - start, heard = now();
    for (uint64_t before = signals; ready < (uint64_t)opt.connections;) {
        turn(1000, NULL);
        if (signals != before) before = signals, heard = now();
        if (now() - heard > STALL_S * 2)
            die("%llu of %d connections were welcomed and %llu had everything, then nothing for %d s",
                (unsigned long long)welcomed, opt.connections, (unsigned long long)ready, STALL_S * 2);
    }
    double took = now() - start;
    printf("{\"mode\":\"return\",\"connections\":%d,\"behind\":%d,\"knocked_s\":%.3f,\"seconds\":%.3f,"
           "\"messages\":%llu,\"server_cpu\":%.2f}\n",
           opt.connections, opt.behind, knocked, took, (unsigned long long)signals,
           (server_cpu_used() - server_cpu) / took);
    fflush(stdout);
    await_driver();
}

/* ---- start ---------------------------------------------------------------------------------------------------- */

static void read_tokens(void) {
    if (!opt.tokens) die("--tokens FILE is needed, one token per line");
    FILE *file = fopen(opt.tokens, "r");
    if (!file) die("%s: %s", opt.tokens, strerror(errno));
    char *line = NULL;
    size_t size = 0;
    for (ssize_t n; (n = getline(&line, &size, file)) > 0;) {
        line[strcspn(line, "\r\n")] = 0;
        if (!*line) continue;
        tokens = realloc(tokens, (token_count + 1) * sizeof *tokens);
        tokens[token_count++] = strdup(line);
    }
    free(line);
    fclose(file);
    if (!token_count) die("%s holds no token", opt.tokens);
}

static void read_options(int argc, char **argv) {
    static const struct option longs[] = {
        {"port", 1, 0, 'p'},        {"tokens", 1, 0, 't'},      {"connections", 1, 0, 'n'}, {"in-flight", 1, 0, 'k'},
        {"concurrency", 1, 0, 'c'}, {"seconds", 1, 0, 's'},     {"warmup", 1, 0, 'w'},      {"heartbeat", 1, 0, 'h'},
        {"raw", 0, 0, 'r'},         {"frame-bytes", 1, 0, 'f'}, {"body-bytes", 1, 0, 'b'},  {"control", 0, 0, 'd'},
        {"pid", 1, 0, 'i'},         {"apart", 0, 0, 'a'},       {"behind", 1, 0, 'e'},      {"rate", 1, 0, 'q'},
        {0, 0, 0, 0}};
    for (int o; (o = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        switch (o) {
        case 'p': opt.port = atoi(optarg); break;
        case 't': opt.tokens = optarg; break;
        case 'n': opt.connections = atoi(optarg); break;
        case 'k': opt.in_flight = atoi(optarg); break;
        case 'c': opt.concurrency = atoi(optarg); break;
        case 's': opt.seconds = atof(optarg); break;
        case 'w': opt.warmup = atof(optarg); break;
        case 'h': opt.heartbeat = atof(optarg); break;
        case 'r': opt.raw = true; break;
        case 'f': opt.frame_bytes = atoi(optarg); break;
        case 'b': opt.body_bytes = atoi(optarg); break;
        case 'i': opt.pid = atoi(optarg); break;
        case 'd': opt.control = true; break;
        case 'a': opt.apart = true; break;
        case 'e': opt.behind = atoi(optarg); break;
        case 'q': opt.rate = atof(optarg); break;
        default: exit(2);
        }
    }
    if (opt.connections < 1) opt.connections = mode == IDLE ? 15000 : mode == SEND || mode == TOLD ? 50 : 1000;
    if (opt.seconds <= 0) opt.seconds = mode == IDLE ? 60 : 5;
    if (opt.port < 1 || opt.port > 65535) die("--port is needed");
    if (opt.in_flight < 1 || opt.in_flight >= RING) die("--in-flight is 1 to %d", RING - 1);
    if (opt.concurrency < 1 || opt.heartbeat <= 0) die("--concurrency and --heartbeat are positive");
    if (opt.body_bytes < 1 || opt.body_bytes > 4096) die("--body-bytes is 1 to 4096");
    if (opt.raw && (mode != BROADCAST || opt.frame_bytes < 130 || opt.frame_bytes > 8192))
        die("--raw is for broadcast and needs --frame-bytes of 130 to 8192");
}

int main(int argc, char **argv) {
    static void (*const runs[])(void) = {run_broadcast, run_idle, run_connect, run_send, run_told, run_return};
    int chosen = 0, modes = sizeof MODES / sizeof *MODES;
    while (chosen < modes && (argc < 2 || strcmp(argv[1], MODES[chosen]))) chosen++;
    if (chosen == modes) die("say what to run: broadcast, idle, connect, send, told or return");
    mode = chosen;
    read_options(argc - 1, argv + 1);
    if (!opt.raw) read_tokens();

    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    int slots = mode == CONNECT ? opt.concurrency : opt.connections + 1;
    conns = calloc(slots, sizeof *conns);
    epoll_fd = epoll_create1(0);
    if (!conns || epoll_fd < 0) die("no memory or no epoll");
    struct epoll_event from_driver = {.events = EPOLLIN, .data.ptr = NULL};
    if (opt.control && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &from_driver))
        die("--control needs a pipe or terminal on stdin");

    runs[mode]();
    return 0;
}
