/* Generator of two overload tests, each with a probe that measures the latency of the server. One thread, epoll. It only
 * sends, counts and times; bench/storms.py is the driver.
 *
 *   storm return --port P --tokens FILE [--connections 10000] [--rooms 500] [--watchers 2] [--spread 0] [--patience 60]
 *                [--after 60] [--calm 3]
 *   storm flood  --port P --tokens FILE [--connections 500] [--first 1000] [--times 5] [--seconds 30] [--writes 20]
 *
 * Each prints "ready", waits for a line on stdin, runs, prints one line of JSON, and ends when stdin ends.
 *
 * probe:   a connection that sends a heartbeat every 10 ms, even if the last one was not answered. The age of the answers
 *          is the time that a command waits for the server's loop.
 * return:  all connections are reset at once and return like clients: within --spread seconds, after the delay that the
 *          server gives (`overloaded`, Retry-After) plus jitter, or after a back-off that doubles. Each resumes its session
 *          and is behind in one room and in its inbox. Watchers watch all users and count the events they receive.
 *          The test ends after --patience seconds, or --after seconds after the last return. --calm: seconds before it.
 * flood:   signals to one room, at a rate that grows by 25 % every second until 10 % of the probes take over 100 ms. Then
 *          --times that rate for --seconds, then none. Meanwhile --writes messages per second are sent to the room, each
 *          until it is accepted. Every subscriber must receive all of them in order.
 */
#define _GNU_SOURCE
#include "storm.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options opt = {.rooms = 500, .watchers = 2, .patience = 60, .after = 60, .calm = 3,
                      .first = 1000, .times = 5, .seconds = 30, .writes = 20};
bool flooding;
struct conn *conns;
int conn_count;

static void read_options(int count, char **words) {
    static const struct option known[] = {
        {"port", 1, 0, 'p'},    {"tokens", 1, 0, 't'},   {"connections", 1, 0, 'c'}, {"rooms", 1, 0, 'r'},
        {"watchers", 1, 0, 'w'}, {"spread", 1, 0, 's'},  {"patience", 1, 0, 'P'},    {"first", 1, 0, 'f'},
        {"times", 1, 0, 'x'},   {"seconds", 1, 0, 'S'},  {"writes", 1, 0, 'W'},      {"pid", 1, 0, 'i'},
        {"after", 1, 0, 'a'},   {"calm", 1, 0, 'C'},     {0}};
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
        case 'a': opt.after = atof(optarg); break;
        case 'C': opt.calm = atof(optarg); break;
        case 'f': opt.first = atof(optarg); break;
        case 'x': opt.times = atof(optarg); break;
        case 'S': opt.seconds = atof(optarg); break;
        case 'W': opt.writes = atof(optarg); break;
        case 'i': break; /* --pid, given to all generators */
        default: exit(2);
        }
    }
    if (!opt.port || !opt.tokens || opt.connections < 1) die("--port and --tokens are required");
}

static void make_connections(void) {
    conns = calloc(conn_count, sizeof *conns);
    if (!conns) die("no memory for %d connections", conn_count);
    for (int i = 0; i < conn_count; i++) {
        conns[i].number = i;
        conns[i].link.fd = -1;
        conns[i].hint = -1;
        if (i == opt.connections) conns[i].role = PROBE;
        if (i > opt.connections) conns[i].role = !flooding ? WATCHER : i == opt.connections + 1 ? WRITER : SENDER;
    }
}

int main(int count, char **words) {
    read_options(count, words);
    conn_count = opt.connections + 1 + (flooding ? 1 + SENDERS : opt.watchers);
    read_tokens(opt.tokens);
    if (token_count() < (size_t)conn_count)
        die("%s has %zu tokens for %d connections", opt.tokens, token_count(), conn_count);
    long files = raise_file_limit();
    if (files < conn_count + 20) die("the limit of %ld open files is too low: raise it (ulimit -n)", files);
    srandom(1);
    start_loop();
    make_connections();
    if (flooding) {
        run_flood();
    } else {
        run_return();
    }
    fflush(stdout);
    for (told = false;;) turn(100); /* the driver inspects the server; the program ends with stdin */
}
