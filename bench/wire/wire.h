/* What the generators share: frames out of a stream of bytes, sockets to one's own machine, clocks, samples, tokens. */
#ifndef WIRE_H
#define WIRE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HEAD = 320 };

/* One connection as a stream. It is the first member of a program's own `struct conn`. */
struct link {
    int fd;                       /* negative: closed */
    bool upgraded;                /* frames come now, and no longer HTTP */
    unsigned char hdr[10];        /* header of the frame being read */
    unsigned hdr_have;            /* bytes in hdr */
    uint64_t size, left;          /* payload bytes of that frame, and those still to come */
    unsigned have;                /* bytes in head */
    unsigned blank;               /* how much of "\r\n\r\n", the end of the HTTP response, was seen */
    unsigned char head[HEAD + 1]; /* beginning of that payload, or of the HTTP response; a zero follows */
};

#define UPGRADE                                                                                                       \
    "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"                            \
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"

/* ---- what each program says of itself ---- */
extern const char *const program;                                         /* its name, in front of its last words */
extern const unsigned head_kept;                                          /* of each payload, HEAD at most */
void on_http(struct link *l);                                             /* the answer to the upgrade is in head */
void on_payload(struct link *l, const unsigned char *part, size_t size);  /* some of it, before it is whole */
void on_frame(struct link *l);                                            /* it is whole, its beginning in head */

/* ---- frames.c ---- */
size_t frame(unsigned char *out, unsigned char opcode, const void *payload, size_t size);
unsigned header_size(const struct link *l);
void feed(struct link *l, const unsigned char *p, const unsigned char *end);
int new_socket(uint64_t number, int flags);
int connect_to(int fd, int port);

/* ---- tools.c ---- */
struct samples {
    double *of; /* seconds */
    size_t count, room;
    bool sorted;
};

void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
double now(void);
void sample(struct samples *s, double seconds);
double percentile(struct samples *s, double share); /* in seconds; 0 if there are none */
void read_tokens(const char *path);
size_t token_count(void);
const char *token_of(uint64_t number); /* in turn */
long raise_file_limit(void);           /* as many as the system allows */
#endif
