/* Event loop: epoll, the pipe of the driver, opening many connections. */
#define _GNU_SOURCE
#include "storm.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { BATCH = 1024, PENDING = 64 };

bool told;
static int epoll_fd;

void start_loop(void) {
    struct epoll_event driver = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_fd = epoll_create1(0);
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &driver)) die("stdin must be a pipe or a terminal");
}

void want(struct conn *c, uint32_t events, int how) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll_fd, how, c->link.fd, &event)) die("epoll: %s", strerror(errno));
}

void turn(int timeout_ms) {
    static struct epoll_event events[BATCH];
    int n = epoll_wait(epoll_fd, events, BATCH, timeout_ms);
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr) {
            on_event(events[i].data.ptr, events[i].events);
        } else {
            char line[64];
            if (read(STDIN_FILENO, line, sizeof line) <= 0) exit(0);
            told = true;
        }
    }
    probe();
}

/* Opens connections first..last-1, with at most PENDING unanswered ones. */
void open_some(int first, int last) {
    double heard = now();
    uint64_t target = ready + last - first, before = ready;
    for (int next = first; ready < target;) {
        while (next < last && (uint64_t)(next - first) - (ready - (target - (last - first))) < PENDING)
            open_conn(&conns[next++]);
        for (int i = first; i < next; i++)
            if (conns[i].stage == AWAY && conns[i].due <= now()) open_conn(&conns[i]);
        turn(5);
        if (ready != before) before = ready, heard = now();
        if (now() - heard > 20) die("only %llu connections became ready", (unsigned long long)ready);
    }
}

void pass(double seconds) {
    for (double end = now() + seconds; now() < end;) turn(2);
}

void until_told(void) {
    puts("ready");
    fflush(stdout);
    while (!told) turn(5);
}
