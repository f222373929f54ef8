/* Declarations of the soak generator. main.c describes its commands. */
#ifndef SOAK_H
#define SOAK_H
#include "../wire/wire.h"
#include <stdio.h>

enum { PORTS = 16, WATCHED = 40 };
enum stage { AWAY, CONNECTING, UPGRADING, GREETING, RESTORING, READY };
enum leaving { BYE, CLEAN, ABANDONED };

struct conn {
    struct link link; /* the first member, so that a link can be cast to its connection */
    int number;       /* of the client */
    bool guest;       /* has a new user id every day */
    long day;         /* of its rooms, its user id and the times below */
    int node;         /* index of the node that the connection is, or was, opened to */
    enum stage stage;
    double wake_at, bed_at; /* of this day */
    double gone_at;         /* when the user left by choice; 0: the user should be online */
    double due;             /* time of the next connect, while the connection is closed; 0: in the next morning */
    double hint;            /* delay in seconds that the server gave; negative: none */
    unsigned failures;      /* in a row */
    double opened_at, heard_at, beat_at, act_at;
    double sends_at;   /* end of typing; 0: does not type */
    double deaf_until; /* a slow reader; 0: reads */
    int awaited;       /* replies until the connection is ready */
    double watch_at, join_at; /* times of repeated commands; 0: none */
    double held_since; /* from this time on the user has had a session without a gap; 0: not certain */
    double lost_at;    /* end of the last connection */
    long seq;          /* newest message received of the room; negative: unknown */
    unsigned sent;     /* messages, for their keys */
    char session[64];
    char *text;        /* payload of a frame that is longer than the kept head */
    size_t text_size;
};

struct options {
    int ports[PORTS], port_count;
    int connections, guests; /* the last `guests` clients are guests */
    int watched, in_room;
    double start;      /* of day 0, on the monotonic clock */
    double day_s;      /* length of a day */
    double heartbeat, grace, settle, ghost;
    double acts;       /* of a client in a day */
    uint64_t seed;
    const char *tokens, *log;
};

/* Events since the start. The first five are faults of the server. */
struct counts {
    uint64_t offline, ghosts, gaps, repeats, errors;
    uint64_t lost, refused, failed, silent, fresh, resumed, retried, stale, resyncs, left, switched, messages, typing,
        changes, delivered, notified, checked;
};

extern struct options opt;
extern struct counts counts;
extern struct conn *conns;
extern int on_node[PORTS]; /* connections to each node */
extern FILE *story; /* log of faults */

/* main.c */
void want(struct conn *c, uint32_t events, int how);
void keep_open(struct conn *c, double seconds); /* the peer of a lost or half-open socket notices nothing yet */
double chance(void);
double between(double low, double high);
long today(void);

/* clients.c */
void open_conn(struct conn *c);
void lose(struct conn *c);
void leave(struct conn *c, enum leaving how);
void switch_network(struct conn *c);
void on_event(struct conn *c, uint32_t events);
void say(struct conn *c, const char *text);
void say_watch(struct conn *c, const char *type, const char *id);
void say_join(struct conn *c);
int watched_guest(const struct conn *c); /* number of the guest that the client watches */

/* life.c */
void plan_day(struct conn *c, long day);
void live(struct conn *c, double t);

/* truth.c */
void check_presence(struct conn *watcher, const char *text, bool is_reply);
void check_message(struct conn *c, const char *text);
const char *value_of(const char *from, const char *to, const char *name);
#endif
