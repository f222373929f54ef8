/* Declarations of the storm generator. main.c describes its modes. */
#ifndef STORM_H
#define STORM_H
#include "../wire/wire.h"

enum { WATCHED = 1000, MOST_WRITES = 1 << 16 };
enum stage { AWAY, CONNECTING, UPGRADING, GREETING, READY };
enum role { CROWD, WATCHER, PROBE, WRITER, SENDER };
#define SENDERS 32 /* senders of a flood; the server limits how much it reads from one */
#define SLOW_S 0.1

struct conn {
    struct link link; /* the first member, so that a link can be cast to its connection */
    int number;
    enum stage stage;
    enum role role;
    double due;        /* time of the next connect, while the connection is closed */
    double back_at;    /* time of the welcome */
    double hint;       /* delay in seconds that the server gave; negative: none */
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
void open_conn(struct conn *c);
void on_event(struct conn *c, uint32_t events);

/* probe.c */
extern struct samples probes;
extern uint64_t probes_sent, probes_heard;
extern double worst;         /* slowest probe since the last reset */
extern unsigned slow, quick; /* numbers of slow and fast probes since the last reset */
extern bool probing;         /* whether probes are recorded */
void on_probe(void);
void probe(void);
bool probe_is_late(void); /* whether an unanswered probe is late */

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
void on_answer(struct conn *c, bool is_error); /* answer to a message of the writer */
#endif
