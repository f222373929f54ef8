/* Mode `return`: all clients are disconnected at once and return. */
#define _GNU_SOURCE
#include "storm.h"
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static struct samples backs;

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

void run_return(void) {
    int n = opt.connections;
    open_some(0, n);
    open_some(n, conn_count);
    for (int i = n + 1; i < conn_count; i++) say_watch(&conns[i]);
    pass(opt.calm);
    until_told();
    heard_by_watchers = refused = failed = 0;
    probing = true;
    double start = now();
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    for (int i = 0; i < n; i++) {
        setsockopt(conns[i].link.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(conns[i].link.fd);
        conns[i].link.fd = -1;
        conns[i].stage = AWAY;
        conns[i].due = start + chance() * opt.spread;
        ready--;
        if (i % 100 == 0) turn(0); /* the time of the resets must not count as the server's */
    }
    double cut = now() - start, looked = 0, all_back = 0;
    int first = 0; /* all connections before it are open */
    while (now() < start + opt.patience && (!all_back || now() < all_back + opt.after)) {
        double t = now();
        if (t - looked >= 0.001) {
            looked = t;
            /* Limits connects in a row, because the server's answers must be read and timed meanwhile. */
            for (int i = 0, tried = 0; i < n && tried < 100; i++, first = (first + 1) % n)
                if (conns[first].stage == AWAY && conns[first].due <= t) open_conn(&conns[first]), tried++;
        }
        turn(1);
        if (!all_back && ready == (uint64_t)conn_count) {
            all_back = now();
            probing = false; /* the time after the test must not improve the figures */
        }
    }
    for (int i = 0; i < n; i++)
        if (conns[i].stage == READY) sample(&backs, conns[i].back_at - start);
    double half = percentile(&backs, 0.5); /* sorts the samples */
    printf("{\"mode\":\"return\",\"connections\":%d,\"back\":%zu,\"resumed\":%llu,\"p50_s\":%.2f,\"p99_s\":%.2f,"
           "\"max_s\":%.2f,\"cut_s\":%.2f,\"refused\":%llu,\"refused_http\":%llu,\"failed\":%llu,\"lost\":%llu,"
           "\"watchers_told\":%llu,\"probes\":%zu,\"probe_p50_ms\":%.1f,\"probe_p99_ms\":%.1f,\"probe_max_ms\":%.1f}\n",
           n, backs.count, (unsigned long long)resumed, half,
           backs.count * 100 >= (size_t)n * 99 ? backs.of[(size_t)(n * 0.99) - 1] : -1.0, percentile(&backs, 1), cut,
           (unsigned long long)refused, (unsigned long long)refused_http, (unsigned long long)failed,
           (unsigned long long)lost, (unsigned long long)heard_by_watchers, probes.count, percentile(&probes, 0.5) * 1e3,
           percentile(&probes, 0.99) * 1e3, percentile(&probes, 1) * 1e3);
}
