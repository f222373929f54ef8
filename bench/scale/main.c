/* Generator of the scale test: many clients of several nodes, which stay connected and return after each loss. One thread,
 * epoll. It only sends, counts and times; bench/scale.py is the driver.
 *
 *   scale --ports P,P,… --tokens FILE --first N --connections N --users N [--watched 20] [--rooms N] [--heartbeat 30]
 *
 * Clients are u<first> … u<first + connections - 1>. Each watches 20 users of all processes, is in one room, and sends
 * heartbeats. It prints "ready" when all clients are restored for the first time. Then it executes commands from stdin:
 *
 *   reset      set the counts to 0
 *   pulse N S  N clients set their status, evenly spread over S seconds; their watchers time the change
 *   report     print the counts as a line of JSON
 *
 * It ends when stdin ends.
 */
#define _GNU_SOURCE
#include "scale.h"
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { BATCH = 1024, PENDING = 48 };
struct options opt = {.watched = 20, .rooms = 1, .heartbeat = 30};
struct conn *conns;
static int epoll_fd, pulses, pulsed;
static double pulse_from, pulse_s;

void want(struct conn *c, uint32_t events, int how) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll_fd, how, c->link.fd, &event)) die("epoll: %s", strerror(errno));
}

static void read_ports(char *text) {
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        if (opt.port_count == PORTS) die("at most %d ports", PORTS);
        opt.ports[opt.port_count++] = atoi(word);
    }
}

static void read_options(int count, char **words) {
    static const struct option known[] = {
        {"ports", 1, 0, 'p'},   {"tokens", 1, 0, 't'},  {"first", 1, 0, 'f'},     {"connections", 1, 0, 'c'},
        {"users", 1, 0, 'u'},   {"watched", 1, 0, 'w'}, {"rooms", 1, 0, 'r'},     {"heartbeat", 1, 0, 'h'}, {0}};
    for (int c; (c = getopt_long(count, words, "", known, NULL)) != -1;) {
        switch (c) {
        case 'p': read_ports(optarg); break;
        case 't': opt.tokens = optarg; break;
        case 'f': opt.first = atoi(optarg); break;
        case 'c': opt.connections = atoi(optarg); break;
        case 'u': opt.users = atoi(optarg); break;
        case 'w': opt.watched = atoi(optarg); break;
        case 'r': opt.rooms = atoi(optarg); break;
        case 'h': opt.heartbeat = atof(optarg); break;
        default: exit(2);
        }
    }
    if (!opt.port_count || !opt.tokens || opt.connections < 1 || opt.users < opt.connections || opt.rooms < 1)
        die("--ports, --tokens, --connections and --users are required");
    if (opt.watched > WATCHED || opt.watched >= opt.users) die("--watched is too large");
}

static void report(void) {
    struct counts *n = &counts;
#define SHOW(name) printf("\"" #name "\":%llu,", (unsigned long long)n->name)
    printf("{\"ready\":%d,", ready);
    SHOW(offline), SHOW(changed), SHOW(entered), SHOW(left), SHOW(snapshot), SHOW(fresh), SHOW(count), SHOW(stale);
    SHOW(lost), SHOW(refused), SHOW(failed), SHOW(errors), SHOW(repeated), SHOW(heartbeats), SHOW(acks), SHOW(resumed);
    printf("\"delays_ms\":[");
    for (size_t i = 0; i < delays.count; i++) printf("%s%.2f", i ? "," : "", delays.of[i] * 1e3);
    puts("]}");
    fflush(stdout);
}

static void execute(char *line) {
    if (!strcmp(line, "reset")) {
        memset(&counts, 0, sizeof counts);
        delays.count = 0;
    } else if (!strcmp(line, "report")) {
        report();
    } else if (sscanf(line, "pulse %d %lf", &pulses, &pulse_s) == 2) {
        pulsed = 0;
        pulse_from = now();
    } else {
        die("unknown command: %s", line);
    }
}

static void read_commands(void) {
    static char text[256];
    static size_t have;
    ssize_t n = read(STDIN_FILENO, text + have, sizeof text - 1 - have);
    if (n <= 0) exit(0);
    have += n;
    text[have] = 0;
    for (char *end; (end = memchr(text, '\n', have)); have -= end + 1 - text, memmove(text, end + 1, have + 1)) {
        *end = 0;
        execute(text);
    }
}

static void turn(int timeout_ms) {
    static struct epoll_event events[BATCH];
    int n = epoll_wait(epoll_fd, events, BATCH, timeout_ms);
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr) on_event(events[i].data.ptr, events[i].events);
        else read_commands();
    }
}

/* Opens closed connections that are due. At most PENDING connections are being opened at a time. */
static void open_due(void) {
    static int next;
    static double checked;
    double t = now();
    if (t - checked < 0.005) return;
    checked = t;
    int opening = 0;
    for (int i = 0; i < opt.connections; i++)
        opening += conns[i].stage != AWAY && conns[i].stage != READY, say_again(&conns[i], t);
    for (int i = 0; i < opt.connections && opening < PENDING; i++, next = (next + 1) % opt.connections)
        if (conns[next].stage == AWAY && conns[next].due <= t) open_conn(&conns[next]), opening++;
}

/* Sends the heartbeats that are due, evenly spread over the period. */
static void beat(void) {
    static double start;
    static uint64_t sent;
    if (!start) start = now();
    uint64_t due = (now() - start) / opt.heartbeat * opt.connections;
    for (; sent < due; sent++) {
        struct conn *c = &conns[sent % opt.connections];
        if (c->stage >= RESTORING) say_heartbeat(c);
    }
}

static void pulse(void) {
    if (pulsed >= pulses) return;
    int due = (now() - pulse_from) / pulse_s * pulses;
    for (; pulsed < due && pulsed < pulses; pulsed++) {
        struct conn *c = &conns[(uint64_t)pulsed * opt.connections / pulses];
        if (c->stage == READY) say_status(c);
    }
}

int main(int count, char **words) {
    struct epoll_event driver = {.events = EPOLLIN, .data.ptr = NULL};
    read_options(count, words);
    signal(SIGPIPE, SIG_IGN);
    raise_file_limit();
    read_tokens(opt.tokens);
    if (token_count() < (size_t)opt.connections) die("%s has too few tokens", opt.tokens);
    srandom(opt.first + 1);
    epoll_fd = epoll_create1(0);
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &driver)) die("stdin must be a pipe or a terminal");
    conns = calloc(opt.connections, sizeof *conns);
    for (int i = 0; i < opt.connections; i++)
        conns[i] = (struct conn){.link.fd = -1, .number = opt.first + i, .hint = -1};
    for (bool was_ready = false;;) {
        open_due();
        beat();
        pulse();
        turn(5);
        if (!was_ready && ready == opt.connections) {
            was_ready = true;
            puts("ready");
            fflush(stdout);
        }
    }
}
