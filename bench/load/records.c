/* Modes for records in Greendot's dialects: `send`, `told` (delivery latency) and `return` (recovery). */
#include "load.h"
#include <stdio.h>

static uint64_t messages, back; /* messages received; connections that have all missed messages */
static double sent_at[65536];   /* by message number, in mode `told` */
static bool sampling;

static void say_message(struct conn *c) {
    c->said = now();
    say_text(c, opt.apart ? "{\"type\":\"room.send\",\"room\":\"bench$N\",\"body\":\"$B\",\"id\":2}"
                          : "{\"type\":\"room.send\",\"room\":\"bench\",\"body\":\"$B\",\"id\":2}");
}

static void on_said(struct conn *c) {
    if (begins(c, "{\"type\":\"room.message\"")) {
        messages++;
    } else if (begins(c, "{\"type\":\"reply\"")) {
        acks++;
        if (sampling) sample(&timings, now() - c->said);
        say_message(c);
    }
}

static void run_send(void) {
    open_all(opt.connections);
    for (int i = 0; i < opt.connections; i++) say_message(&conns[i]);
    turn_until(now() + opt.warmup);
    double start = now(), cpu = cpu_used(), server_cpu = server_cpu_used();
    uint64_t acks_before = acks, messages_before = messages;
    sampling = true;
    turn_until(start + opt.seconds);
    double took = now() - start;
    if (acks == acks_before) die("no message was acknowledged within %.1f s", took);
    printf("{\"mode\":\"send\",\"senders\":%d,\"seconds\":%.3f,\"messages_per_s\":%.1f,\"deliveries_per_s\":%.0f,"
           "\"p50_ms\":%.2f,\"p99_ms\":%.2f,\"generator_cpu\":%.2f,\"server_cpu\":%.2f}\n",
           opt.connections, took, (acks - acks_before) / took, (messages - messages_before) / took, timed_ms(0.5),
           timed_ms(0.99), (cpu_used() - cpu) / took, (server_cpu_used() - server_cpu) / took);
    fflush(stdout);
}

static void on_told(struct conn *c) {
    if (begins(c, "{\"type\":\"reply\"")) acks++;
    if (!begins(c, "{\"type\":\"room.message\"")) return;
    messages++;
    if (sampling && c != &conns[opt.connections]) sample(&timings, now() - sent_at[c->received % 65536]);
    c->received++;
}

static void run_told(void) {
    open_all(opt.connections + 1); /* the last one is the sender */
    struct conn *sender = &conns[opt.connections];
    double rate = opt.rate > 0 ? opt.rate : 200, begin = now(), measured = begin + opt.warmup, server_cpu = 0, cpu = 0;
    uint64_t total = (opt.warmup + opt.seconds) * rate, first = opt.warmup * rate;
    for (uint64_t sent = 0; sent < total;) {
        double due = begin + sent / rate, t = now();
        if (t >= due) {
            if (sent == first) sampling = true, measured = t, server_cpu = server_cpu_used(), cpu = cpu_used();
            sent_at[sent++ % 65536] = t;
            say_message(sender);
        } else {
            turn((int)((due - t) * 1000), NULL);
        }
    }
    for (double end = now() + STALL_S; messages < total * (opt.connections + 1) && now() < end;) turn(10, NULL);
    double took = now() - measured;
    if (messages < total * (opt.connections + 1))
        die("of %llu messages to %d connections %llu arrived", (unsigned long long)total, opt.connections + 1,
            (unsigned long long)messages);
    printf("{\"mode\":\"told\",\"listeners\":%d,\"rate\":%.1f,\"p50_ms\":%.2f,\"p99_ms\":%.2f,\"max_ms\":%.2f,"
           "\"generator_cpu\":%.2f,\"server_cpu\":%.2f}\n",
           opt.connections, rate, timed_ms(0.5), timed_ms(0.99), timed_ms(1), (cpu_used() - cpu) / took,
           (server_cpu_used() - server_cpu) / took);
    fflush(stdout);
}

static void on_returned(struct conn *c) {
    if (!begins(c, "{\"type\":\"room.message\"")) return;
    messages++;
    if (++c->received == (uint64_t)opt.behind) back++;
}

static void run_return(void) {
    puts("ready");
    fflush(stdout);
    await_driver();
    double start = now(), server_cpu = server_cpu_used();
    while (opened < (uint64_t)opt.connections) open_conn(&conns[opened]);
    double knocked = now() - start, heard = now();
    for (uint64_t before = messages; back < (uint64_t)opt.connections;) {
        turn(1000, NULL);
        if (messages != before) before = messages, heard = now();
        if (now() - heard > STALL_S * 2)
            die("%llu of %d connections were welcomed and %llu had everything, then nothing for %d s",
                (unsigned long long)ready, opt.connections, (unsigned long long)back, STALL_S * 2);
    }
    double took = now() - start;
    printf("{\"mode\":\"return\",\"connections\":%d,\"behind\":%d,\"knocked_s\":%.3f,\"seconds\":%.3f,"
           "\"messages\":%llu,\"server_cpu\":%.2f}\n",
           opt.connections, opt.behind, knocked, took, (unsigned long long)messages,
           (server_cpu_used() - server_cpu) / took);
    fflush(stdout);
    await_driver();
}

const struct mode send_mode = {
    .name = "send", .run = run_send, .subscribes = true, .on_text = on_said, .connections = 50, .seconds = 5};
const struct mode told_mode = {
    .name = "told", .run = run_told, .subscribes = true, .on_text = on_told, .connections = 50, .seconds = 5};
const struct mode return_mode = {
    .name = "return", .run = run_return, .on_text = on_returned, .connections = 1000, .seconds = 5};
