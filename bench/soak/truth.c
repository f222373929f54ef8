/* Checks of received frames. The process knows when each client had a session, so it knows which states are impossible. */
#define _GNU_SOURCE
#include "soak.h"
#include <stdlib.h>
#include <string.h>

static const unsigned LOGGED = 200; /* faults with details */

/* Returns the value of a field between two places of a text, or NULL. */
const char *value_of(const char *from, const char *to, const char *name) {
    char wanted[40];
    size_t size = snprintf(wanted, sizeof wanted, "\"%s\":", name);
    const char *found = memmem(from, to - from, wanted, size);
    return found ? found + size : NULL;
}

static bool is(const char *value, const char *text) { return value && !strncmp(value, text, strlen(text)); }

/* Returns the client of a user id, u<number> or g<day>x<number>. There is none for guests of other days. */
static struct conn *client_of(const char *id) {
    long day;
    int number;
    if (sscanf(id, "u%d", &number) == 1 && number >= 0 && number < opt.connections - opt.guests) return &conns[number];
    if (sscanf(id, "g%ldx%d", &day, &number) != 2 || number < 0 || number >= opt.connections) return NULL;
    return conns[number].day == day ? &conns[number] : NULL;
}

/* Whether the user has certainly had a session for a while, or was lost less than the grace ago. */
static bool is_held(const struct conn *c, double t) {
    if (!c->held_since || t - c->held_since < opt.settle) return false;
    return c->stage >= RESTORING || t - c->lost_at < opt.grace - 2;
}

static void log_fault(const char *what, const struct conn *watcher, const struct conn *user, const char *entry, int size) {
    static unsigned logged;
    double t = now();
    if (!story || logged++ >= LOGGED) return;
    fprintf(story, "%.2f %s: client %d of node %d", t - opt.start, what, watcher->number, watcher->node);
    if (user)
        fprintf(story, ", user %d of node %d, held for %.1f s, lost %.1f s ago, gone for %.1f s", user->number,
                user->node, user->held_since ? t - user->held_since : 0, t - user->lost_at,
                user->gone_at ? t - user->gone_at : 0);
    fprintf(story, ": %.*s\n", size, entry);
    fflush(story);
}

static void check_entry(struct conn *watcher, const char *entry, const char *end, bool is_reply) {
    struct conn *user = client_of(entry + strlen("{\"user\":\""));
    double t = now();
    counts.checked++;
    if (is(value_of(entry, end, "stale"), "true")) {
        counts.stale++;
    } else if (!user || user == watcher) {
        return;
    } else if (is(value_of(entry, end, "state"), "\"offline\"")) {
        if (!is_held(user, t)) return;
        counts.offline++;
        log_fault("offline", watcher, user, entry, end - entry);
    } else if (is_reply && user->gone_at && t - user->gone_at > opt.ghost) {
        counts.ghosts++;
        log_fault("ghost", watcher, user, entry, end - entry);
    }
}

/* Checks all presence entries of an event or a reply. */
void check_presence(struct conn *watcher, const char *text, bool is_reply) {
    static const char BEGIN[] = "{\"user\":\"";
    for (const char *entry = strstr(text, BEGIN), *next; entry; entry = next) {
        next = strstr(entry + 1, BEGIN);
        check_entry(watcher, entry, next ? next : entry + strlen(entry), is_reply);
    }
}

/* Checks that messages of the room arrive in the order of their numbers, each once. */
void check_message(struct conn *c, const char *text) {
    char room[64];
    const char *end = text + strlen(text), *value = value_of(text, end, "seq");
    snprintf(room, sizeof room, "\"soak%d-%ld\"", c->number / opt.in_room, c->day);
    if (!value || !is(value_of(text, end, "room"), room)) return; /* a message of yesterday's room */
    long seq = atol(value);
    counts.delivered++;
    if (c->seq >= 0 && seq != c->seq + 1) {
        char what[80];
        snprintf(what, sizeof what, "%s after message %ld", seq > c->seq ? "gap" : "repetition", c->seq);
        *(seq > c->seq ? &counts.gaps : &counts.repeats) += 1;
        log_fault(what, c, NULL, text, end - text < 160 ? end - text : 160);
    }
    if (seq > c->seq) c->seq = seq;
}
