/* What the files of the load generator share. main.c says what it does, dialects.c what it speaks. */
#ifndef LOAD_H
#define LOAD_H
#include "../wire/wire.h"

enum { STALL_S = 5 };
enum { MARKER = '~' }; /* begins every broadcast body and is in nothing else a server says */
enum stage { UNUSED, UPGRADING, OPENING, READY, LEAVING };

struct conn {
    struct link link; /* the first: a link is its connection */
    enum stage stage;
    bool subscriber;
    uint64_t number;   /* among all ever opened */
    unsigned exchange; /* of the dialect's opening: which one is under way */
    uint64_t received; /* deliveries: the n-th received is the n-th sent, since a connection keeps the order */
    double said;       /* when the message was sent that is not acknowledged yet */
};

/* Say something, then await a frame that begins like this. In every text $T is the token, $N the connection's number,
 * $B the body of a message. */
struct exchange {
    const char *say, *await; /* NULL: nothing */
};

struct dialect {
    const char *name;
    const char *subscriber, *plain, *sender; /* paths: of who subscribes, who is only there, who sends; NULL: no HTTP */
    struct exchange opening[2], joining;     /* joining: not who is only there */
    bool sender_joins;                       /* only who has joined may send */
    const char *message;                     /* what a broadcast is */
    const char *ping, *pong;                 /* a server's question whether we are there, and the answer */
    const char *heartbeat, *beaten;          /* what an idle client says by itself, and how the answer begins */
    const char *bye;                         /* NULL: a close frame */
    const char *refusal;                     /* how a refusal begins */
};

struct mode {
    const char *name;
    void (*run)(void);
    bool subscribes;
    void (*on_ready)(struct conn *);    /* NULL where nothing is to be done */
    void (*on_text)(struct conn *);     /* a frame other than those of the opening and of keeping alive */
    void (*on_delivery)(struct conn *); /* a marker */
    int connections;                    /* unless told */
    double seconds;
};

struct options {
    int port, sender_port, pid, connections, most, concurrency, frame_bytes, body_bytes, behind;
    int levels[8], level_count; /* messages in flight, one after the other */
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
extern const char *refused;                         /* while `tolerant`: why no further connection was to be had */
extern bool tolerant;
extern bool timed;      /* note when things are heard */
extern double heard_at; /* while `timed`: when what is being taken apart was read */
extern struct samples timings;

/* cpu.c */
double cpu_used(void);
double server_cpu_used(void);

/* ws.c */
void send_all(struct conn *c, const void *data, size_t size);
void say_text(struct conn *c, const char *text);
size_t expand(char *out, size_t room, const char *text, const struct conn *c);
double timed_ms(double share); /* a percentile of the timings; it is an error if there are none */
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
