/* Declarations of the scale generator. main.c describes its commands. */
#ifndef SCALE_H
#define SCALE_H
#include "../wire/wire.h"

enum { PORTS = 64, WATCHED = 100 };
enum stage { AWAY, CONNECTING, UPGRADING, GREETING, RESTORING, READY };

struct conn {
    struct link link; /* the first member, so that a link can be cast to its connection */
    int number;       /* of the user */
    int node;         /* index of the node that the connection is, or was, opened to */
    enum stage stage;
    double due;        /* time of the next connect, while the connection is closed */
    double hint;       /* delay in seconds that the server gave; negative: none */
    unsigned failures; /* in a row */
    int awaited;       /* replies until the connection is ready */
    double watch_at, join_at; /* times of repeated commands; 0: none */
    unsigned matched;  /* characters of OFFLINE at the end of the payload so far */
    unsigned offline;  /* offline users in the frame being read */
    char session[64];
};

struct options {
    int ports[PORTS], port_count;
    int first, connections; /* users of this process: u<first> … */
    int users;              /* users of all processes */
    int watched, rooms;
    double heartbeat;
    const char *tokens;
};

/* Events since the last reset. In a test without changes of presence, each of the first six is a fault. */
struct counts {
    uint64_t offline, changed, entered, left, snapshot, fresh;
    uint64_t count, stale, lost, refused, failed, errors, repeated, heartbeats, acks, resumed;
};

extern struct options opt;
extern struct counts counts;
extern struct conn *conns;
extern int ready;
extern struct samples delays; /* from status.set to presence.changed */

/* clients.c */
void open_conn(struct conn *c);
void on_event(struct conn *c, uint32_t events);
void say_heartbeat(struct conn *c);
void say_again(struct conn *c, double t);
void say_status(struct conn *c);

/* main.c */
void want(struct conn *c, uint32_t events, int how);
#endif
