/* Publishes as fast as Redis accepts: sends prepared commands repeatedly and only counts their answers.
 *
 *   flood PORT FILE COMMANDS TOTAL     FILE holds COMMANDS commands in RESP; TOTAL are sent, in whole rounds
 *
 * Prints one line of JSON when all are answered: the messages that reached a subscriber, and the seconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LIFE_S = 120, PIECE = 64 * 1024, STALL_MS = 5000 };

static void fail(const char *what) {
    fprintf(stderr, "flood: %s\n", what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static char *load(const char *path, size_t *size) {
    FILE *file = fopen(path, "r");
    if (!file || fseek(file, 0, SEEK_END)) fail("no commands");
    *size = ftell(file);
    rewind(file);
    char *text = malloc(*size);
    if (!text || fread(text, 1, *size, file) != *size) fail("no commands");
    fclose(file);
    return text;
}

int main(int argc, char **argv) {
    if (argc != 5) fail("usage: flood PORT FILE COMMANDS TOTAL");
    alarm(LIFE_S); /* ends the program if its driver was killed */
    size_t size;
    char *commands = load(argv[2], &size);
    long rounds = (atol(argv[4]) + atol(argv[3]) - 1) / atol(argv[3]), total = rounds * atol(argv[3]);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_port = htons(atoi(argv[1]));
    if (fd < 0 || connect(fd, (void *)&to, sizeof to)) fail("Redis cannot be reached");

    double start = now();
    long answered = 0, reached = 0, round = 0;
    for (size_t at = 0; answered < total;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN | (round < rounds ? POLLOUT : 0)};
        if (poll(&ready, 1, STALL_MS) <= 0) fail("Redis does not answer");
        if (ready.revents & POLLIN) {
            char answers[PIECE];
            ssize_t n = recv(fd, answers, sizeof answers, MSG_DONTWAIT);
            if (n <= 0) fail("Redis closed the connection");
            for (ssize_t i = 0; i < n; i++) { /* ":1\r\n", possibly split */
                if (answers[i] == '-') fail("Redis refused a command");
                reached += answers[i] == '1';
                answered += answers[i] == '\n';
            }
        }
        if (ready.revents & POLLOUT) {
            ssize_t n = send(fd, commands + at, size - at < PIECE ? size - at : PIECE, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN) fail("Redis closed the connection");
            if (n > 0 && (at += n) == size) at = 0, round++;
        }
    }
    printf("{\"sent\":%ld,\"reached\":%ld,\"seconds\":%.3f}\n", total, reached, now() - start);
    return 0;
}
