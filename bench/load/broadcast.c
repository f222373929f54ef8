/* Mode `broadcast`: one connection sends, all others receive. Measures deliveries per second, and their age at half load. */
#include "load.h"
#include <stdio.h>
#include <string.h>

enum { RING = 65536 };

static unsigned char message[16384];
static size_t message_size;
static int in_flight;
static uint64_t sent, deliveries, complete; /* complete: messages that every subscriber has */
static unsigned arrived[RING];              /* number of subscribers that have a message, by message number */
static double due_at[RING];                 /* by message number, while timed */
static unsigned delivery_bytes; /* size of a frame with one delivery */

static void on_delivery(struct conn *c) {
    if (!c->subscriber) die("the sending connection got its own message back");
    uint64_t number = c->received++ % RING;
    if (timed) sample(&timings, heard_at - due_at[number]);
    if (!delivery_bytes) delivery_bytes = header_size(&c->link) + c->link.size;
    deliveries++;
    if (++arrived[number] == (unsigned)opt.connections) {
        arrived[number] = 0;
        complete++;
    }
}

/* The raw broadcaster relays bytes unchanged, so its message is built as a server frame. */
static void build_message(void) {
    char text[8192];
    if (opt.dialect->message) {
        message_size = frame(message, 1, text, expand(text, sizeof text, opt.dialect->message, conns));
        return;
    }
    size_t size = opt.frame_bytes - 4;
    message_size = opt.frame_bytes;
    memset(message, 'x', message_size);
    memcpy(message, (unsigned char[]){0x81, 126, size >> 8, size & 0xff, MARKER}, 5);
}

/* One send() per message, as a real sender does. */
static void send_message(void) {
    send_all(&conns[opt.connections], message, message_size);
    sent++;
}

static void top_up(void) {
    while (sent < complete + in_flight) send_message();
}

static void dropped(void) {
    die("message %llu reached %u of %d subscribers, then nothing for %d s", (unsigned long long)complete,
        arrived[complete % RING], opt.connections, STALL_S);
}

static void broadcast_until(double end) {
    uint64_t before = deliveries;
    double progress = now();
    for (double t = progress; t < end; t = now()) {
        turn(100, top_up);
        if (deliveries != before) before = deliveries, progress = t;
        if (t - progress > STALL_S) dropped();
    }
}

/* Waits for all messages in flight. With several in flight, a missing delivery would only lower their number; here it is
 * an error. */
static void await_stragglers(void) {
    uint64_t before = deliveries;
    for (double heard = now(); complete < sent; turn(100, NULL)) {
        if (deliveries != before) before = deliveries, heard = now();
        if (now() - heard > STALL_S) dropped();
    }
}

/* Measures with this number of messages in flight. Returns the messages per second. */
static double run_level(int level) {
    in_flight = level;
    top_up();
    broadcast_until(now() + opt.warmup);
    double start = now(), cpu = cpu_used(), server_cpu = server_cpu_used();
    uint64_t before = deliveries;
    broadcast_until(start + opt.seconds);
    double took = now() - start, cpu_share = (cpu_used() - cpu) / took;
    double server_share = (server_cpu_used() - server_cpu) / took, rate = (deliveries - before) / took;
    if (rate == 0) die("nothing was delivered within %.1f s", took);
    await_stragglers();
    printf("{\"mode\":\"broadcast\",\"dialect\":\"%s\",\"subscribers\":%d,\"in_flight\":%d,\"seconds\":%.6f,"
           "\"deliveries_per_s\":%.0f,\"messages_per_s\":%.1f,\"frame_bytes\":%u,\"generator_cpu\":%.2f,"
           "\"server_cpu\":%.2f}\n",
           opt.dialect->name, opt.connections, level, took, rate, rate / opt.connections, delivery_bytes, cpu_share,
           server_share);
    fflush(stdout);
    return rate / opt.connections;
}

/* Sends messages at even intervals and times each from when it was due, so delays of the generator count too. */
static void run_latency(double rate) {
    double begin = now(), server_cpu = server_cpu_used(), cpu = cpu_used();
    uint64_t first = sent, total = opt.latency * rate + 1;
    timings.count = 0;
    timed = true;
    while (sent < first + total) {
        double due = begin + (sent - first) / rate, t = now();
        if (t >= due) {
            due_at[sent % RING] = due;
            send_message();
        } else {
            turn((int)((due - t) * 1000), NULL);
        }
    }
    double took = now() - begin, cpu_share = (cpu_used() - cpu) / took;
    double server_share = (server_cpu_used() - server_cpu) / took;
    await_stragglers();
    printf("{\"mode\":\"latency\",\"rate\":%.2f,\"messages\":%llu,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f,"
           "\"max_ms\":%.3f,\"generator_cpu\":%.2f,\"server_cpu\":%.2f}\n",
           rate, (unsigned long long)total, timed_ms(0.5), timed_ms(0.99), timed_ms(0.999), timed_ms(1),
           cpu_share, server_share);
    fflush(stdout);
}

static void run_broadcast(void) {
    double half = 0;
    open_all(opt.connections + 1); /* the last one is the sender */
    build_message();
    for (int i = 0; i < opt.level_count; i++) {
        double rate = run_level(opt.levels[i]);
        if (opt.levels[i] <= 16) half = rate / 2;
        /* All messages in flight must arrive before the next level. A server that is too slow skips this level. */
        if (i + 1 < opt.level_count && opt.levels[i + 1] > rate * opt.patience) {
            printf("{\"mode\":\"too slow\",\"in_flight\":%d}\n", opt.levels[i + 1]);
            fflush(stdout);
            break;
        }
    }
    if (opt.latency > 0) run_latency(opt.rate > 0 ? opt.rate : half);
    if (opt.dialect->plain) leave_all(opt.connections + 1);
}

const struct mode broadcast_mode = {.name = "broadcast",
                                    .run = run_broadcast,
                                    .subscribes = true,
                                    .on_delivery = on_delivery,
                                    .connections = 1000,
                                    .seconds = 5};
