/* What the files of the storms share. main.c says what they do. */
#ifndef STORM_H
#define STORM_H
#include "../wire/wire.h"

enum { WATCHED = 1000, MOST_WRITES = 1 << 16 };
enum stage { AWAY, CONNECTING, UPGRADING, GREETING, READY };
enum role { CROWD, WATCHER, PROBE, WRITER, SENDER };
#define SENDERS 32 /* of a flood: the server reads no more of one than it can work on */
#define SLOW_S 0.1

struct conn {
    struct link link; /* the first: a link is its connection */
    int number;
    enum stage stage;
    enum role role;
    double due;        /* when to come back, while it is away */
    double back_at;    /* when it was welcomed */
    double hint;       /* seconds the server asked it to stay away; negative: it did not say */
    unsigned failures; /* in a row */
    char session[64];
    uint64_t seq; /* the last message of the room */
};

struct options {
    int port, connections, rooms, watchers;
    double spread, patience, after, calm, first, times, seconds, writes;
    const char *tokens;
};

extern struct options opt;
extern bool flooding; /* the mode */
extern struct conn *conns;
extern int conn_count;
extern uint64_t ready, resumed, refused, refused_http, failed, lost, heard_by_watchers, signals, misordered;

/* clients.c */
double chance(void);
bool say(struct conn *c, const char *text);
const char *field(struct conn *c, const char *name); /* its value in what is heard, or NULL */
void open_conn(struct conn *c);
void on_event(struct conn *c, uint32_t events);

/* probe.c */
extern struct samples probes;
extern uint64_t probes_sent, probes_heard;
extern double worst;         /* probe since it was last asked */
extern unsigned slow, quick; /* probes, likewise */
extern bool probing;         /* they count */
void on_probe(void);
void probe(void);
bool probe_is_late(void); /* one that was not answered yet */

/* loop.c */
extern bool told; /* the driver wrote a line */
void start_loop(void);
void want(struct conn *c, uint32_t events, int how);
void turn(int timeout_ms);
void open_some(int first, int last);
void pass(double seconds);
void until_told(void);

/* the storms */
void run_return(void);
void run_flood(void);
void on_answer(struct conn *c, bool is_error); /* to what the writer said */
#endif
