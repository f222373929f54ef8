/* Shared code of the generators: frames, local sockets, clocks, samples, tokens. */
#ifndef WIRE_H
#define WIRE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HEAD = 320 };

/* One connection as a stream. It is the first member of a program's `struct conn`. */
struct link {
    int fd;                       /* negative: closed */
    bool upgraded;                /* the stream carries frames, no longer HTTP */
    unsigned char hdr[10];        /* header of the frame being read */
    unsigned hdr_have;            /* bytes in hdr */
    uint64_t size, left;          /* payload bytes of that frame, in total and remaining */
    unsigned have;                /* bytes in head */
    unsigned blank;               /* received characters of "\r\n\r\n", the end of the HTTP response */
    unsigned char head[HEAD + 1]; /* start of that payload, or of the HTTP response; zero-terminated */
};

#define UPGRADE                                                                                                       \
    "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"                            \
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"

/* ---- defined by each program ---- */
extern const char *const program;                                         /* its name, printed before errors */
extern const unsigned head_kept;                                          /* bytes kept of each payload, at most HEAD */
void on_http(struct link *l);                                             /* the answer to the upgrade is in head */
void on_payload(struct link *l, const unsigned char *part, size_t size);  /* part of a payload, before it is complete */
void on_frame(struct link *l);                                            /* a frame is complete, with its start in head */

/* ---- frames.c ---- */
size_t frame(unsigned char *out, unsigned char opcode, const void *payload, size_t size);
unsigned header_size(const struct link *l);
void feed(struct link *l, const unsigned char *p, const unsigned char *end);
bool is_type(const struct link *l, const char *type);         /* the frame in head is an event or reply of this type */
const char *field_of(struct link *l, const char *name);       /* value of a field in head, or NULL */
double retry_after(struct link *l);                           /* seconds in a 503 response; negative: none */
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
long raise_file_limit(void);           /* raises the limit of open files to the maximum */
#endif
