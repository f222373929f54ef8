/* Declarations of the load generator. main.c describes its modes, dialects.c the wire protocols. */
#ifndef LOAD_H
#define LOAD_H
#include "../wire/wire.h"

enum { STALL_S = 5 };
enum { MARKER = '~' }; /* first byte of every broadcast body; servers send it nowhere else */
enum stage { UNUSED, UPGRADING, OPENING, READY, LEAVING };

struct conn {
    struct link link; /* the first member, so that a link can be cast to its connection */
    enum stage stage;
    bool subscriber;
    uint64_t number;   /* of all connections ever opened */
    unsigned exchange; /* index of the current exchange of the opening */
    uint64_t received; /* deliveries; the n-th received is the n-th sent, because a connection keeps the order */
    double said;       /* time at which the unacknowledged message was sent */
};

/* Sends `say`, then waits for a frame that begins with `await`. In every text $T is the token, $N the number of the
 * connection, $B the body of a message. */
struct exchange {
    const char *say, *await; /* NULL: nothing */
};

struct dialect {
    const char *name;
    const char *subscriber, *plain, *sender; /* paths of subscribers, idle connections and the sender; NULL: no HTTP */
    struct exchange opening[2], joining;     /* joining: not for idle connections */
    bool sender_joins;                       /* the sender must join first */
    const char *sender_speaks;               /* dialect of the sender; NULL: the same */
    const char *message;                     /* text of a broadcast */
    const char *ping, *pong;                 /* ping of a server, and the answer */
    const char *heartbeat, *beaten;          /* heartbeat of an idle client, and the start of its answer */
    const char *bye;                         /* NULL: a close frame */
    const char *refusal;                     /* start of a refusal */
};

struct mode {
    const char *name;
    void (*run)(void);
    bool subscribes;
    void (*on_ready)(struct conn *);    /* may be NULL */
    void (*on_text)(struct conn *);     /* a frame other than opening and keep-alive frames */
    void (*on_delivery)(struct conn *); /* a marker was received */
    int connections;                    /* default */
    double seconds;
};

struct options {
    int port, sender_port, pid, connections, most, concurrency, frame_bytes, body_bytes, behind;
    int levels[8], level_count; /* numbers of messages in flight */
    double seconds, warmup, heartbeat, rate, latency, patience, within;
    const char *tokens;
    const struct dialect *dialect;
    bool control, apart;
};

extern struct options opt;
extern const struct mode *mode;
extern struct conn *conns;
extern uint64_t opened, ready, closed, lost, acks; /* running totals */
extern bool told;                                   /* the driver wrote a line (--control) */
extern const char *refused;                         /* if `tolerant`: reason for the end of new connections */
extern bool tolerant;
extern bool timed;      /* record the times of received frames */
extern double heard_at; /* if `timed`: time at which the current bytes were read */
extern struct samples timings;

/* cpu.c */
double cpu_used(void);
double server_cpu_used(void);

/* ws.c */
void send_all(struct conn *c, const void *data, size_t size);
void say_text(struct conn *c, const char *text);
size_t expand(char *out, size_t room, const char *text, const struct conn *c);
double timed_ms(double share); /* a percentile of the timings; an error without timings */
bool begins(const struct conn *c, const char *text);
void open_conn(struct conn *c);
void leave(struct conn *c);

/* loop.c */
void start_loop(int slots);
void turn(int timeout_ms, void (*after)(void));
void turn_until(double end);
void await_driver(void);
void open_all(int n);
void leave_all(int n);
void watch(struct conn *c);

/* dialects.c */
const struct dialect *dialect_named(const char *name);

/* the modes */
extern const struct mode broadcast_mode, idle_mode, connect_mode, send_mode, told_mode, return_mode;
#endif
