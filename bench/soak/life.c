/* Days of clients: they wake up, write, change the network, sleep for a while, and go to bed. */
#define _GNU_SOURCE
#include "soak.h"
#include <string.h>

static const int ALWAYS_ON = 20; /* one client in this number does not go to bed */

/* Plans the wake-up and the bedtime of a day. A guest is another user every day. */
void plan_day(struct conn *c, long day) {
    double start = opt.start + day * opt.day_s;
    bool always_on = !c->guest && c->number % ALWAYS_ON == 0;
    bool is_connected = c->stage == READY;
    if (is_connected) {
        char text[200];
        snprintf(text, sizeof text, "{\"type\":\"room.leave\",\"room\":\"soak%d-%ld\"}", c->number / opt.in_room, c->day);
        say(c, text);
        snprintf(text, sizeof text, "{\"type\":\"unwatch\",\"users\":[\"g%ldx%d\"]}", c->day, watched_guest(c));
        say(c, text);
    }
    c->day = day;
    c->seq = -1;
    c->sends_at = 0;
    c->wake_at = start + (always_on ? between(0, 0.1) : between(0.03, 0.25)) * opt.day_s;
    c->bed_at = start + (always_on ? 2 : between(0.72, 0.95)) * opt.day_s;
    if (c->guest) c->session[0] = 0;
    if (is_connected && c->stage == READY) {
        c->join_at = now() + between(0, 0.02) * opt.day_s;
        c->watch_at = c->join_at;
    }
}

static void write_message(struct conn *c) {
    char text[300];
    snprintf(text, sizeof text,
             "{\"type\":\"room.send\",\"id\":\"m\",\"room\":\"soak%d-%ld\",\"key\":\"%d-%u-%ld\",\"body\":"
             "\"Message %u, as long as most messages of people are.\"}",
             c->number / opt.in_room, c->day, c->number, c->sent, c->day, c->sent);
    c->sent++;
    say(c, text);
    counts.messages++;
}

static void start_typing(struct conn *c, double t) {
    char text[100];
    snprintf(text, sizeof text, "{\"type\":\"typing.start\",\"room\":\"soak%d-%ld\"}", c->number / opt.in_room, c->day);
    say(c, text);
    c->sends_at = t + between(0.5, 3);
    counts.typing++;
}

static void set_status(struct conn *c) {
    char text[120];
    bool busy = chance() < 0.5;
    snprintf(text, sizeof text, "{\"type\":\"status.set\",\"id\":\"s\",\"status\":\"%s\",\"text\":\"text %u\"}",
             busy ? "busy" : "auto", (unsigned)(chance() * 1000));
    say(c, text);
}

static void act(struct conn *c, double t) {
    double which = chance();
    if (which < 0.35) start_typing(c, t);
    else if (which < 0.50) write_message(c);
    else if (which < 0.60) say(c, "{\"type\":\"activity\"}");
    else if (which < 0.80) say_watch(c, "presence.get", "p");
    else if (which < 0.86) switch_network(c);
    else if (which < 0.92 && !c->guest) set_status(c);
    else if (which < 0.97) {
        leave(c, chance() < 0.4 ? ABANDONED : chance() < 0.6 ? CLEAN : BYE);
        c->due = t + between(0.01, 0.12) * opt.day_s;
    }
}

/* Does what is due for a connected client. */
static void live_connected(struct conn *c, double t) {
    if (c->watch_at && c->watch_at <= t) c->watch_at = 0, say_watch(c, "watch", "w");
    if (c->join_at && c->join_at <= t) c->join_at = 0, say_join(c);
    if (c->stage >= RESTORING && c->beat_at <= t) {
        c->beat_at = t + opt.heartbeat * between(0.8, 1);
        say(c, "{\"type\":\"heartbeat\"}");
    }
    if (c->stage != READY) return;
    if (t >= c->bed_at) {
        leave(c, chance() < 0.3 ? ABANDONED : chance() < 0.5 ? CLEAN : BYE);
        return;
    }
    if (c->sends_at && c->sends_at <= t) {
        c->sends_at = 0;
        if (chance() < 0.8) write_message(c);
    } else if (c->act_at <= t) {
        c->act_at = t + between(0, 2) * opt.day_s / opt.acts;
        act(c, t);
    }
}

void live(struct conn *c, double t) {
    long day = today();
    if (c->day != day) plan_day(c, day);
    if (c->stage != AWAY) {
        live_connected(c, t);
    } else if (t >= c->bed_at) {
        if (!c->gone_at) c->gone_at = t, c->held_since = 0;
        c->due = 0;
    } else if (c->gone_at && (c->due ? c->due <= t : c->wake_at <= t)) {
        c->gone_at = 0;
        c->due = t;
    }
}
