/* Baseline of a broadcast: the cost of the kernel when every subscriber gets every message by its own send().
 *
 *   rawcast FRAME_BYTES        prints "listening PORT" (loopback, a free port) and serves until it is killed
 *
 * There is no protocol. Each connection gets a welcome on accept, so that the client knows that it is counted. Every
 * FRAME_BYTES bytes of a connection are relayed unchanged to all others. `load broadcast --raw` sends WebSocket frames of
 * the size that Greendot delivers, so the generator's work and the bytes on the wire are the same in both runs.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_FRAME = 8192, LARGEST_FD = 20000, BATCH = 256, LIFE_S = 900 };

static struct peer {
    int fd, have;        /* bytes of the message being received */
    unsigned char *held; /* those bytes; allocated for senders only */
} *peers[LARGEST_FD];    /* dense, in order of arrival: the fan-out loop reads nothing else */
static int peer_count, frame_bytes, epoll_fd;

static void fail(const char *what) {
    fprintf(stderr, "rawcast: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void greet(int listener) {
    static const char welcome[] = "\x81\x12{\"type\":\"welcome\"}";
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), on = 1;
    if (fd < 0) return;
    if (peer_count == LARGEST_FD) fail("too many connections");
    struct peer *peer = calloc(1, sizeof *peer);
    if (!peer) fail("memory");
    peer->fd = fd;
    peers[peer_count++] = peer;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event)) fail("epoll");
    if (send(fd, welcome, sizeof welcome - 1, MSG_NOSIGNAL) < 0) return; /* already closed: its end is read next */
}

static void forget(struct peer *peer) {
    for (int i = 0; i < peer_count; i++)
        if (peers[i] == peer) peers[i] = peers[--peer_count];
    close(peer->fd);
    free(peer->held);
    free(peer);
}

static void relay(const struct peer *from) {
    for (int i = 0; i < peer_count; i++) {
        if (peers[i] == from) continue;
        ssize_t n = send(peers[i]->fd, from->held, frame_bytes, MSG_NOSIGNAL);
        /* With few messages in flight a socket buffer cannot fill up: a partial write would be a broken measurement.
         * A peer that closed is no concern here. */
        if (n != frame_bytes && (n >= 0 || errno == EAGAIN)) fail("a subscriber does not read");
    }
}

static void hear(struct peer *peer) {
    static unsigned char buffer[64 * 1024];
    ssize_t n = recv(peer->fd, buffer, sizeof buffer, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        forget(peer);
        return;
    }
    if (!peer->held && !(peer->held = malloc(frame_bytes))) fail("memory");
    for (ssize_t at = 0; at < n;) {
        ssize_t take = frame_bytes - peer->have < n - at ? frame_bytes - peer->have : n - at;
        memcpy(peer->held + peer->have, buffer + at, take);
        peer->have += take;
        at += take;
        if (peer->have < frame_bytes) break;
        peer->have = 0;
        relay(peer);
    }
}

int main(int argc, char **argv) {
    frame_bytes = argc == 2 ? atoi(argv[1]) : 0;
    if (frame_bytes < 1 || frame_bytes > MAX_FRAME) {
        fprintf(stderr, "usage: rawcast FRAME_BYTES (1 to %d)\n", MAX_FRAME);
        return 2;
    }
    alarm(LIFE_S); /* ends the program if its driver was killed */
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (void *)&address, size) || listen(listener, 2048)) fail("listen");
    if (getsockname(listener, (void *)&address, &size)) fail("getsockname");
    epoll_fd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}; /* NULL is the listener */
    if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event)) fail("epoll");
    printf("listening %d\n", ntohs(address.sin_port));
    fflush(stdout);

    static struct epoll_event events[BATCH];
    for (;;) {
        int n = epoll_wait(epoll_fd, events, BATCH, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr) {
                hear(events[i].data.ptr);
            } else {
                greet(listener);
            }
        }
    }
}
