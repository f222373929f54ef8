/* Load generator for Greendot and its peers. It is fast enough not to limit the figures: one thread, epoll, broadcast
 * frames built once, one recv() per wake-up. It only counts and times; bench/run.py is the driver.
 *
 *   load broadcast --port P [--dialect D] [--connections 1000] [--in-flight 1,16,256] [--latency S [--rate R]]
 *                  [--sender-port P] [--frame-bytes B] [--patience S] [--warmup 1] [--seconds 5]
 *   load idle      --port P [--dialect D] [--connections 15000] [--heartbeat 30] [--seconds 60] [--control] [--most N]
 *                  [--within S]
 *   load connect   --port P [--dialect D] [--concurrency 64] [--warmup 1] [--seconds 5]
 *   load send      --port P [--connections 50] [--apart] [--warmup 1] [--seconds 5]
 *   load told      --port P [--connections 50] [--rate 200] [--warmup 1] [--seconds 5]
 *   load return    --port P [--connections 1000] [--behind 50] [--control]
 *
 * All modes take --tokens FILE, if the server needs tokens, and --pid PID. With --pid they also print the share of a core
 * that this process used (below 1.0 the server was waiting for the generator). Each prints a line of JSON per measurement.
 *
 * `idle` first prints "ready" and its number of connections. With --within it accepts the number reached in that time.
 * With --control it then waits for a line on stdin. After its JSON it keeps the connections until stdin ends, so that the
 * driver can inspect the server. Another line makes it open as many further connections as possible, up to --most.
 *
 * broadcast: a message counts as received when every subscriber has it. Only then the next one is sent, so that exactly
 *            --in-flight messages are in flight. The levels run one after the other. With --latency, messages are then
 *            sent at even intervals, at --rate or at half the rate reached with at most 16 in flight. A level that would
 *            take this server more than --patience seconds is skipped.
 * connect:   a cycle is TCP connect, upgrade, the opening of the dialect, its goodbye, the server's close frame, TCP close.
 *            A TCP close alone would leave a lingering session, which would slow down later rounds.
 * send:      every connection joins the room (with --apart, its own room) and sends one message after the other, each
 *            after the acknowledgement of the previous one. In one room each also receives the messages of all others.
 * told:      one connection sends messages at even intervals. Each is timed until it arrives on the other sockets.
 * return:    all connections are opened at once and send their last message number. A connection is back when it has the
 *            next --behind messages in order. `ready` and --control work as for `idle`.
 */
#define _GNU_SOURCE
#include "load.h"
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

struct options opt = {.concurrency = 64, .body_bytes = 128, .warmup = 1, .heartbeat = 30, .behind = 50, .patience = 8};
const struct mode *mode;
static const struct mode *const modes[] = {&broadcast_mode, &idle_mode, &connect_mode,
                                           &send_mode,      &told_mode, &return_mode};

static void read_levels(char *text) {
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        if (opt.level_count == sizeof opt.levels / sizeof *opt.levels) die("--in-flight accepts at most 8 numbers");
        if (atoi(word) < 1 || atoi(word) > 1023) die("--in-flight must be 1 to 1023");
        opt.levels[opt.level_count++] = atoi(word);
    }
}

static void read_options(int argc, char **argv) {
    static const struct option longs[] = {
        {"port", 1, 0, 'p'},        {"tokens", 1, 0, 't'},  {"connections", 1, 0, 'n'}, {"in-flight", 1, 0, 'k'},
        {"concurrency", 1, 0, 'c'}, {"seconds", 1, 0, 's'}, {"warmup", 1, 0, 'w'},      {"heartbeat", 1, 0, 'h'},
        {"dialect", 1, 0, 'r'},     {"frame-bytes", 1, 0, 'f'}, {"body-bytes", 1, 0, 'b'}, {"control", 0, 0, 'd'},
        {"pid", 1, 0, 'i'},         {"apart", 0, 0, 'a'},   {"behind", 1, 0, 'e'},      {"rate", 1, 0, 'q'},
        {"latency", 1, 0, 'l'},     {"most", 1, 0, 'm'},    {"sender-port", 1, 0, 'o'}, {"patience", 1, 0, 'y'},
        {"within", 1, 0, 'v'},
        {0, 0, 0, 0}};
    for (int o; (o = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        switch (o) {
        case 'p': opt.port = atoi(optarg); break;
        case 't': opt.tokens = optarg; break;
        case 'n': opt.connections = atoi(optarg); break;
        case 'k': read_levels(optarg); break;
        case 'c': opt.concurrency = atoi(optarg); break;
        case 's': opt.seconds = atof(optarg); break;
        case 'w': opt.warmup = atof(optarg); break;
        case 'h': opt.heartbeat = atof(optarg); break;
        case 'r': opt.dialect = dialect_named(optarg); break;
        case 'f': opt.frame_bytes = atoi(optarg); break;
        case 'b': opt.body_bytes = atoi(optarg); break;
        case 'i': opt.pid = atoi(optarg); break;
        case 'd': opt.control = true; break;
        case 'a': opt.apart = true; break;
        case 'e': opt.behind = atoi(optarg); break;
        case 'q': opt.rate = atof(optarg); break;
        case 'l': opt.latency = atof(optarg); break;
        case 'm': opt.most = atoi(optarg); break;
        case 'o': opt.sender_port = atoi(optarg); break;
        case 'v': opt.within = atof(optarg); break;
        case 'y': opt.patience = atof(optarg); break;
        default: exit(2);
        }
    }
}

static void complete_options(void) {
    if (!opt.dialect) opt.dialect = dialect_named(mode == &return_mode ? "returning" : opt.apart ? "apart" : "greendot");
    if (!opt.level_count) opt.levels[opt.level_count++] = 1;
    if (opt.connections < 1) opt.connections = mode->connections;
    if (opt.seconds <= 0) opt.seconds = mode->seconds;
    if (opt.most < opt.connections) opt.most = opt.connections;
    if (opt.port < 1 || opt.port > 65535) die("--port is required");
    if (opt.concurrency < 1 || opt.heartbeat <= 0) die("--concurrency and --heartbeat must be positive");
    if (opt.body_bytes < 2 || opt.body_bytes > 4096) die("--body-bytes must be 2 to 4096");
    if (!opt.dialect->plain && (mode != &broadcast_mode || opt.frame_bytes < 130 || opt.frame_bytes > 8192))
        die("dialect raw works with broadcast only and needs --frame-bytes of 130 to 8192");
    if (strstr(opt.dialect->opening[0].say ? opt.dialect->opening[0].say : "", "$T") && !opt.tokens)
        die("--tokens FILE is required, with one token per line");
}

int main(int argc, char **argv) {
    size_t count = sizeof modes / sizeof *modes, chosen = 0;
    while (chosen < count && (argc < 2 || strcmp(argv[1], modes[chosen]->name))) chosen++;
    if (chosen == count) die("unknown mode: use broadcast, idle, connect, send, told or return");
    mode = modes[chosen];
    read_options(argc - 1, argv + 1);
    complete_options();
    if (opt.tokens) read_tokens(opt.tokens);
    raise_file_limit();
    start_loop((mode == &connect_mode ? opt.concurrency : opt.most) + 1);
    mode->run();
    return 0;
}
