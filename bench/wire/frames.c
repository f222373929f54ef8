/* Building and parsing of frames, and sockets. */
#define _GNU_SOURCE
#include "wire.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SOURCES = 64 };

/* Writes a masked client frame to `out`. The mask must not be zero, so that the server pays for unmasking. */
size_t frame(unsigned char *out, unsigned char opcode, const void *payload, size_t size) {
    static const unsigned char mask[4] = {0x37, 0xfa, 0x21, 0x3d};
    size_t at = 0;
    out[at++] = 0x80 | opcode;
    if (size < 126) {
        out[at++] = 0x80 | size;
    } else {
        out[at++] = 0x80 | 126;
        out[at++] = size >> 8;
        out[at++] = size & 0xff;
    }
    memcpy(out + at, mask, 4);
    at += 4;
    for (size_t i = 0; i < size; i++) out[at + i] = ((const unsigned char *)payload)[i] ^ mask[i & 3];
    return at + size;
}

unsigned header_size(const struct link *l) {
    return l->hdr_have < 2 || l->hdr[1] < 126 ? 2 : l->hdr[1] == 126 ? 4 : 10;
}

static const unsigned char *feed_http(struct link *l, const unsigned char *p, const unsigned char *end) {
    while (p < end) {
        if (l->have < HEAD) l->head[l->have++] = *p;
        l->blank = *p == "\r\n\r\n"[l->blank] ? l->blank + 1 : *p == '\r';
        p++;
        if (l->blank < 4) continue;
        l->head[l->have] = 0;
        l->upgraded = true;
        on_http(l);
        break;
    }
    return p;
}

/* Parses frames from the stream. A segment may hold several frames or end anywhere in a frame. */
void feed(struct link *l, const unsigned char *p, const unsigned char *end) {
    while (p < end && l->fd >= 0) {
        if (!l->upgraded) {
            p = feed_http(l, p, end);
            continue;
        }
        if (l->hdr_have < header_size(l)) {
            l->hdr[l->hdr_have++] = *p++;
            if (l->hdr_have < header_size(l)) continue;
            l->have = 0;
            l->size = header_size(l) == 2 ? l->hdr[1] : 0;
            for (unsigned i = 2; i < l->hdr_have; i++) l->size = l->size << 8 | l->hdr[i];
            l->left = l->size;
        }
        uint64_t take = l->left < (uint64_t)(end - p) ? l->left : (uint64_t)(end - p);
        unsigned keep = take < head_kept - l->have ? take : head_kept - l->have;
        memcpy(l->head + l->have, p, keep);
        on_payload(l, p, take);
        l->have += keep;
        l->left -= take;
        p += take;
        if (l->left) return;
        l->head[l->have] = 0;
        on_frame(l);
        l->hdr_have = 0;
    }
}

bool is_type(const struct link *l, const char *type) {
    size_t size = strlen(type);
    return l->have > 9 + size && !memcmp(l->head, "{\"type\":\"", 9) && !memcmp(l->head + 9, type, size) &&
           l->head[9 + size] == '"';
}

const char *field_of(struct link *l, const char *name) {
    char wanted[32];
    snprintf(wanted, sizeof wanted, "\"%s\":", name);
    char *found = strstr((char *)l->head, wanted);
    return found ? found + strlen(wanted) : NULL;
}

double retry_after(struct link *l) {
    char *after = strcasestr((char *)l->head, "retry-after:");
    return after ? atof(after + 12) : -1;
}

/* Uses several source addresses: one has about 28,000 ports, and a closed connection keeps its port for a minute. Returns
 * a negative number if no socket is available. */
int new_socket(uint64_t number, int flags) {
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002 + number % SOURCES)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    if (fd < 0) return fd;
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (bind(fd, (void *)&from, sizeof from)) {
        close(fd);
        return -1;
    }
    return fd;
}

int connect_to(int fd, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return connect(fd, (void *)&to, sizeof to);
}
