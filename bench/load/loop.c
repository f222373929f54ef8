/* Event loop: epoll, the pipe of the driver, opening and closing many connections. */
#define _GNU_SOURCE
#include "load.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { BATCH = 1024, PENDING = 400 };

struct conn *conns;
bool told;
static int epoll_fd;

void on_readable(struct conn *c); /* ws.c */

void start_loop(int slots) {
    conns = calloc(slots, sizeof *conns);
    epoll_fd = epoll_create1(0);
    if (!conns || epoll_fd < 0) die("no memory or no epoll");
    struct epoll_event from_driver = {.events = EPOLLIN, .data.ptr = NULL};
    if (opt.control && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &from_driver))
        die("--control needs a pipe or terminal on stdin");
}

void watch(struct conn *c) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->link.fd, &event)) die("epoll: %s", strerror(errno));
}

static void on_driver(void) {
    char line[64];
    ssize_t n = read(STDIN_FILENO, line, sizeof line);
    if (n <= 0) exit(0); /* the driver has closed the pipe or has died */
    told = true;
}

/* Runs one turn of the loop. `after` is called after the input of each connection. */
void turn(int timeout_ms, void (*after)(void)) {
    static struct epoll_event events[BATCH];
    int n = epoll_wait(epoll_fd, events, BATCH, timeout_ms);
    for (int i = 0; i < n; i++) {
        struct conn *c = events[i].data.ptr;
        if (c) {
            on_readable(c);
        } else {
            on_driver();
        }
        if (after) after();
    }
}

void turn_until(double end) {
    for (double t = now(); t < end; t = now()) turn((int)((end - t) * 1000) + 1, NULL);
}

void await_driver(void) {
    for (told = false; opt.control && !told;) turn(1000, NULL);
}

/* Opens connections until there are n, with at most PENDING unanswered ones, so that the listen queue does not overflow.
 * If `tolerant`, it ends at the first refused connection or after --within seconds. */
void open_all(int n) {
    double heard = now(), end = heard + (tolerant && opt.within > 0 ? opt.within : 1e9);
    for (uint64_t before = ready; ready < (uint64_t)n && !refused;) {
        while (opened < (uint64_t)n && opened - ready < PENDING && !refused) open_conn(&conns[opened]);
        turn(1000, NULL);
        if (ready != before) before = ready, heard = now();
        if (now() > end) refused = "time was up";
        if (now() - heard <= (tolerant ? STALL_S : STALL_S * 2)) continue;
        if (!tolerant)
            die("only %llu of %d connections became ready, then none for %d s", (unsigned long long)ready, n,
                STALL_S * 2);
        refused = "no answer";
    }
}

void leave_all(int n) {
    for (int i = 0; i < n; i++) leave(&conns[i]);
    for (double end = now() + STALL_S; closed < (uint64_t)n && now() < end;) turn(100, NULL);
}
