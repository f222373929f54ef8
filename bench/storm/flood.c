/* Mode `flood`: more signals than the server can send, and messages that must still arrive. */
#define _GNU_SOURCE
#include "storm.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const double STEP_S = 1;

static double write_due[MOST_WRITES]; /* time to send a message (again), by number */
static bool accepted[MOST_WRITES];
static uint64_t written, writes_accepted, writes_refused;

void on_answer(struct conn *c, bool is_error) {
    const char *id = field_of(&c->link, "id"), *wait = field_of(&c->link, "retry_in_ms");
    long number = id ? atol(id) : -1;
    if (c->role != WRITER || number < 0 || number >= MOST_WRITES) return;
    if (is_error) {
        if (!wait) die("a message was refused without a retry time: %s", (char *)c->link.head);
        writes_refused++;
        write_due[number] = now() + atol(wait) / 1e3;
    } else if (!accepted[number]) {
        accepted[number] = true;
        writes_accepted++;
    }
}

static void write_messages(struct conn *c, double rate, double start, double t) {
    char text[512];
    while (written < MOST_WRITES && start + written / rate <= t) write_due[written++] = t;
    for (uint64_t i = 0; i < written; i++) {
        if (accepted[i] || write_due[i] > t) continue;
        snprintf(text, sizeof text, "{\"type\":\"room.send\",\"room\":\"bench0\",\"key\":\"w%llu\",\"body\":\"%064d\",\"id\":%llu}",
                 (unsigned long long)i, 0, (unsigned long long)i);
        write_due[i] = t + 10; /* retry if there is no answer */
        if (!say(c, text)) return;
    }
}

static uint64_t offered, held_back;

/* Sends a signal of one sender, or the rest of its last one. Returns false if the server has stopped reading. */
static bool send_signal(int number, const unsigned char *signal, size_t whole) {
    static size_t sent[SENDERS];
    size_t at = sent[number];
    ssize_t n = send(conns[opt.connections + 2 + number].link.fd, signal + at, whole - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) die("a sender: %s", strerror(errno));
    sent[number] = n < 0 ? at : (at + n) % whole;
    return n > 0 && !sent[number];
}

/* Sends a signal with the next sender from which the server reads. Returns false if there is none. */
static bool send_next(const unsigned char *signal, size_t whole) {
    static int next;
    for (int tried = 0; tried < SENDERS; tried++) {
        int number = next++ % SENDERS;
        if (send_signal(number, signal, whole)) return true;
    }
    return false;
}

/* Sends signals at this rate until `end`. Returns whether 10 % of the probes were slow: a single one may be slow on a busy
 * machine. */
static bool flood(double rate, double end, double start) {
    static unsigned char signal[512];
    char text[256];
    int size = snprintf(text, sizeof text, "{\"type\":\"signal.send\",\"room\":\"bench0\",\"kind\":\"b\",\"body\":\"%0128d\"}", 0);
    size_t whole = frame(signal, 1, text, size);
    struct conn *writer = &conns[opt.connections + 1];
    double from = now();
    uint64_t done = 0;
    slow = quick = 0;
    for (double t = from; t < end; t = now()) {
        uint64_t due = (t - from) * rate;
        for (; done < due; done++, offered++) {
            if (!send_next(signal, whole)) {
                held_back += due - done; /* the server does not read: these signals are dropped */
                done = due;
                break;
            }
        }
        if (start) write_messages(writer, opt.writes, start, t);
        turn(1);
    }
    return slow * 10 > slow + quick;
}

void run_flood(void) {
    int n = opt.connections;
    open_some(0, conn_count);
    until_told();
    pass(0.5);
    worst = 0;
    double start = now(), rate = opt.first;
    while (!flood(rate, now() + STEP_S, start)) rate *= 1.25;
    pass(2); /* queued signals must not affect the next phase */
    uint64_t ramped = offered, signals_before = signals;
    probing = true;
    printf("{\"passed_at\":%.0f}\n", rate);
    fflush(stdout);
    flood(rate * opt.times, now() + opt.seconds, start);
    double p50 = percentile(&probes, 0.5), p99 = percentile(&probes, 0.99), most = percentile(&probes, 1);
    uint64_t during = offered - ramped, heard = signals - signals_before;
    puts("over");
    fflush(stdout);
    /* Recovered: the start of the first second without a slow probe. */
    double over = now(), calm = 0, since = over;
    while (now() < over + 20 && !calm) {
        worst = 0;
        write_messages(&conns[opt.connections + 1], 1e-9, start, now());
        pass(0.1);
        if (worst > SLOW_S || probe_is_late()) since = now();
        if (now() - since > 1) calm = since - over;
    }
    for (double end = now() + 30; writes_accepted < written && now() < end;) {
        write_messages(&conns[opt.connections + 1], 1e-9, start, now());
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
