/* Probe: a connection whose heartbeats measure the time that a command waits for the server's loop. */
#include "storm.h"

enum { UNDER_WAY = 4096 };
static const double PROBE_S = 0.01;

struct samples probes;
uint64_t probes_sent, probes_heard;
double worst;
unsigned slow, quick;
bool probing;
static double probed_at[UNDER_WAY]; /* time at which a heartbeat was due, by number */

void on_probe(void) {
    double took = now() - probed_at[probes_heard++ % UNDER_WAY];
    if (took > worst) worst = took;
    if (took > SLOW_S) slow++; else quick++;
    if (probing) sample(&probes, took);
}

bool probe_is_late(void) { return probes_sent > probes_heard && now() - probed_at[probes_heard % UNDER_WAY] > SLOW_S; }

void probe(void) {
    static double next;
    struct conn *c = &conns[opt.connections];
    double t = now();
    if (c->stage != READY) return;
    if (next < t - 1) next = t;
    for (; next <= t; next += PROBE_S) {
        /* Timed from when it was due: a delay of the generator counts against the server. */
        probed_at[probes_sent % UNDER_WAY] = next;
        if (!say(c, "{\"type\":\"heartbeat\"}")) return;
        probes_sent++;
    }
    if (probes_sent - probes_heard >= UNDER_WAY) die("the probe was not answered for %.0f s", UNDER_WAY * PROBE_S);
}
