/* Modes `idle` (idle connections) and `connect` (connects per second). */
#include "load.h"
#include <stdio.h>

/* ---- idle ----------------------------------------------------------------------------------------------------- */

static uint64_t beats;
static double beating_since;

/* Sends the heartbeats that are due, at even intervals. Pings of a server are answered elsewhere. */
static void beat(double t) {
    double spacing = opt.heartbeat / opt.connections;
    for (; opt.dialect->heartbeat && beating_since + beats * spacing <= t; beats++) {
        struct conn *c = &conns[beats % opt.connections];
        if (c->stage == READY) say_text(c, opt.dialect->heartbeat);
    }
}

static void beat_until(double end) {
    for (double t = now(); t < end && !told; t = now()) {
        beat(t);
        turn(2, NULL);
    }
}

static void await_beating(void) {
    told = false;
    while (opt.control && !told) beat_until(now() + 1);
    told = false;
}

static void window(double connecting) {
    double start = now();
    uint64_t beats_before = beats, acks_before = acks;
    beat_until(start + opt.seconds);
    double took = now() - start;
    for (double end = now() + 1; acks + lost < beats && now() < end;) turn(10, NULL);
    printf("{\"mode\":\"idle\",\"connections\":%d,\"connect_s\":%.2f,\"seconds\":%.3f,\"heartbeats\":%llu,"
           "\"acks\":%llu,\"lost\":%llu}\n",
           opt.connections, connecting, took, (unsigned long long)(beats - beats_before),
           (unsigned long long)(acks - acks_before), (unsigned long long)lost);
    fflush(stdout);
}

/* Opens as many further connections as possible. */
static void open_more(void) {
    tolerant = true;
    if (!refused) open_all(opt.most);
    printf("{\"mode\":\"most\",\"held\":%llu,\"lost\":%llu,\"why\":\"%s\"}\n", (unsigned long long)(ready - lost),
           (unsigned long long)lost, refused ? refused : "as many as were asked for");
    fflush(stdout);
}

static void run_idle(void) {
    double start = now();
    tolerant = opt.within > 0;
    open_all(opt.connections);
    if (!ready) die("no connection was opened within %.0f s: %s", opt.within, refused);
    opt.connections = ready;
    double connecting = now() - start;
    beating_since = now();
    printf("ready %d\n", opt.connections);
    fflush(stdout);
    await_beating();
    window(connecting);
    if (!opt.control) return;
    await_beating();
    open_more();
    await_beating();
}

const struct mode idle_mode = {.name = "idle", .run = run_idle, .connections = 15000, .seconds = 60};

/* ---- connect -------------------------------------------------------------------------------------------------- */

static void reopen_closed(void) {
    for (int i = 0; opened - closed < (uint64_t)opt.concurrency; i++)
        if (conns[i].stage == UNUSED) open_conn(&conns[i]);
}

static void connect_until(double end) {
    double progress = now();
    uint64_t before = ready;
    for (double t = progress; t < end; t = now()) {
        turn(100, NULL);
        reopen_closed();
        if (ready != before) before = ready, progress = t;
        if (t - progress > STALL_S) die("no connection was welcomed for %d s", STALL_S);
    }
}

static void run_connect(void) {
    reopen_closed();
    connect_until(now() + opt.warmup);
    double start = now(), cpu = cpu_used(), server_cpu = server_cpu_used();
    uint64_t before = ready;
    connect_until(start + opt.seconds);
    double took = now() - start;
    printf("{\"mode\":\"connect\",\"concurrency\":%d,\"seconds\":%.3f,\"cycles\":%llu,\"connects_per_s\":%.1f,"
           "\"generator_cpu\":%.2f,\"server_cpu\":%.2f}\n",
           opt.concurrency, took, (unsigned long long)(ready - before), (ready - before) / took,
           (cpu_used() - cpu) / took, (server_cpu_used() - server_cpu) / took);
    fflush(stdout);
}

const struct mode connect_mode = {.name = "connect", .run = run_connect, .on_ready = leave, .seconds = 5};
