/* Generator of the soak test: clients that live like people, in days of some minutes. One thread, epoll. It lives, checks
 * and counts; bench/soak.py is the driver.
 *
 *   soak --ports P,P,… --tokens FILE --connections N --guests N --start T --day S [--watched 10] [--room 20]
 *        [--heartbeat 15] [--grace 20] [--settle 20] [--ghost 90] [--acts 20] [--seed 1] [--log FILE]
 *
 * Clients are the users u0 …; the last `guests` of them are the users g<day>x<client>, others every day. The file has the
 * tokens of all users, then those of the guests of day 0, day 1 and so on. Clients are in rooms of `room` clients, which
 * are others every day. Commands on stdin:
 *
 *   report        print the counts as a line of JSON
 *   slow SHARE S  this share of the connected clients does not read for S seconds
 *   crowd SHARE   this share of the connected clients loses its connection and returns at once
 *
 * It ends when stdin ends.
 */
#define _GNU_SOURCE
#include "soak.h"
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { BATCH = 1024, PENDING = 64 };
static const double TICK_S = 0.02, OPEN_WITHIN_S = 15, SILENT_BEATS = 2.5;
struct options opt = {.watched = 10, .in_room = 20, .heartbeat = 15, .grace = 20, .settle = 20, .ghost = 90, .acts = 20,
                      .seed = 1};
struct conn *conns;
FILE *story;
static int epoll_fd;
static struct { int fd; double until; } *kept; /* half-open sockets */
static size_t kept_count, kept_room;

double chance(void) { /* xorshift64* */
    static uint64_t x;
    if (!x) x = opt.seed * 0x9e3779b97f4a7c15 | 1;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    return (x * 0x2545f4914f6cdd1d >> 11) / 9007199254740992.0;
}

double between(double low, double high) { return low + chance() * (high - low); }

long today(void) {
    double days = (now() - opt.start) / opt.day_s;
    return days > 0 ? (long)days : 0;
}

void want(struct conn *c, uint32_t events, int how) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll_fd, how, c->link.fd, &event)) die("epoll: %s", strerror(errno));
}

void keep_open(struct conn *c, double seconds) {
    epoll_ctl(epoll_fd, EPOLL_CTL_DEL, c->link.fd, NULL);
    if (kept_count == kept_room) {
        kept_room = kept_room ? kept_room * 2 : 256;
        kept = realloc(kept, kept_room * sizeof *kept);
        if (!kept) die("no memory for sockets");
    }
    kept[kept_count].fd = c->link.fd;
    kept[kept_count++].until = now() + seconds;
}

static void close_kept(double t) {
    for (size_t i = 0; i < kept_count;) {
        if (kept[i].until > t) {
            i++;
            continue;
        }
        close(kept[i].fd);
        kept[i] = kept[--kept_count];
    }
}

static void read_ports(char *text) {
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        if (opt.port_count == PORTS) die("at most %d ports", PORTS);
        opt.ports[opt.port_count++] = atoi(word);
    }
}

static void read_options(int count, char **words) {
    static const struct option known[] = {
        {"ports", 1, 0, 'p'}, {"tokens", 1, 0, 't'}, {"connections", 1, 0, 'c'}, {"guests", 1, 0, 'u'},
        {"start", 1, 0, 's'}, {"day", 1, 0, 'd'}, {"watched", 1, 0, 'w'}, {"room", 1, 0, 'r'}, {"heartbeat", 1, 0, 'h'},
        {"grace", 1, 0, 'g'}, {"settle", 1, 0, 'e'}, {"ghost", 1, 0, 'o'}, {"acts", 1, 0, 'a'}, {"seed", 1, 0, 'x'},
        {"log", 1, 0, 'l'}, {0}};
    for (int c; (c = getopt_long(count, words, "", known, NULL)) != -1;) {
        switch (c) {
        case 'p': read_ports(optarg); break;
        case 't': opt.tokens = optarg; break;
        case 'c': opt.connections = atoi(optarg); break;
        case 'u': opt.guests = atoi(optarg); break;
        case 's': opt.start = atof(optarg); break;
        case 'd': opt.day_s = atof(optarg); break;
        case 'w': opt.watched = atoi(optarg); break;
        case 'r': opt.in_room = atoi(optarg); break;
        case 'h': opt.heartbeat = atof(optarg); break;
        case 'g': opt.grace = atof(optarg); break;
        case 'e': opt.settle = atof(optarg); break;
        case 'o': opt.ghost = atof(optarg); break;
        case 'a': opt.acts = atof(optarg); break;
        case 'x': opt.seed = strtoull(optarg, NULL, 10); break;
        case 'l': opt.log = optarg; break;
        default: exit(2);
        }
    }
    if (!opt.port_count || !opt.tokens || opt.day_s <= 0) die("--ports, --tokens, --start and --day are required");
    if (opt.guests < 1 || opt.connections < opt.guests + 20) die("at least 1 guest and 20 other clients are required");
    if (opt.watched < 1 || opt.watched > WATCHED || opt.in_room < 1) die("--watched or --room is out of range");
}

static void report(void) {
    struct counts *n = &counts;
    int ready = 0, awake = 0;
    for (int i = 0; i < opt.connections; i++) ready += conns[i].stage == READY, awake += !conns[i].gone_at;
#define SHOW(name) printf(",\"" #name "\":%llu", (unsigned long long)n->name)
    printf("{\"ready\":%d,\"awake\":%d", ready, awake);
    SHOW(offline), SHOW(ghosts), SHOW(gaps), SHOW(repeats), SHOW(errors), SHOW(lost), SHOW(refused), SHOW(failed);
    SHOW(silent), SHOW(fresh), SHOW(resumed), SHOW(retried), SHOW(stale), SHOW(resyncs), SHOW(left), SHOW(switched);
    SHOW(messages), SHOW(typing), SHOW(changes), SHOW(delivered), SHOW(notified), SHOW(checked);
    puts("}");
    fflush(stdout);
}

/* Some connected clients stop to read. Their sessions may end meanwhile, so they are not certain any more. */
static void slow(double share, double seconds) {
    for (int i = 0; i < opt.connections; i++)
        if (conns[i].stage == READY && chance() < share)
            conns[i].deaf_until = now() + seconds, conns[i].held_since = 0, want(&conns[i], 0, EPOLL_CTL_MOD);
}

static void crowd(double share) {
    for (int i = 0; i < opt.connections; i++) {
        if (conns[i].stage != READY || chance() >= share) continue;
        lose(&conns[i]);
        conns[i].due = now() + chance();
    }
}

static void execute(char *line) {
    double share, seconds;
    if (!strcmp(line, "report")) report();
    else if (sscanf(line, "slow %lf %lf", &share, &seconds) == 2) slow(share, seconds);
    else if (sscanf(line, "crowd %lf", &share) == 1) crowd(share);
    else die("unknown command: %s", line);
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

/* Notices connections that do not answer, and slow readers who read again. */
static void watch_over(struct conn *c, double t) {
    if (c->deaf_until && c->deaf_until <= t) {
        c->deaf_until = 0;
        c->heard_at = t;
        want(c, EPOLLIN, EPOLL_CTL_MOD);
    }
    if (c->stage == AWAY || c->deaf_until) return;
    bool is_late = c->stage < READY && t - c->opened_at > OPEN_WITHIN_S && t - c->heard_at > OPEN_WITHIN_S;
    if (!is_late && t - c->heard_at < opt.heartbeat * SILENT_BEATS) return;
    counts.silent++;
    lose(c);
}

static void tick(void) {
    static int next;
    static double checked;
    double t = now();
    if (t - checked < TICK_S) return;
    checked = t;
    close_kept(t);
    int opening = 0;
    memset(on_node, 0, sizeof on_node);
    for (int i = 0; i < opt.connections; i++) {
        live(&conns[i], t);
        watch_over(&conns[i], t);
        on_node[conns[i].node] += conns[i].stage != AWAY;
        opening += conns[i].stage != AWAY && conns[i].stage != READY;
    }
    for (int i = 0; i < opt.connections && opening < PENDING; i++, next = (next + 1) % opt.connections)
        if (conns[next].stage == AWAY && !conns[next].gone_at && conns[next].due <= t) open_conn(&conns[next]), opening++;
}

static void turn(int timeout_ms) {
    static struct epoll_event events[BATCH];
    int n = epoll_wait(epoll_fd, events, BATCH, timeout_ms);
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr) on_event(events[i].data.ptr, events[i].events);
        else read_commands();
    }
}

int main(int count, char **words) {
    struct epoll_event driver = {.events = EPOLLIN, .data.ptr = NULL};
    read_options(count, words);
    signal(SIGPIPE, SIG_IGN);
    raise_file_limit();
    read_tokens(opt.tokens);
    if (token_count() < (size_t)opt.connections) die("%s has too few tokens", opt.tokens);
    if (opt.log && !(story = fopen(opt.log, "a"))) die("%s: %s", opt.log, strerror(errno));
    if (!opt.start) opt.start = now();
    srandom(opt.seed);
    epoll_fd = epoll_create1(0);
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &driver)) die("stdin must be a pipe or a terminal");
    conns = calloc(opt.connections, sizeof *conns);
    for (int i = 0; i < opt.connections; i++) {
        conns[i] = (struct conn){.link.fd = -1, .number = i, .guest = i >= opt.connections - opt.guests, .hint = -1};
        conns[i].gone_at = now();
        plan_day(&conns[i], today());
    }
    for (;;) {
        tick();
        turn(5);
    }
}
