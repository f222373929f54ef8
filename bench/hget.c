/* Baseline of a presence read in plain C: sends HGETs in one write and reads all answers.
 *
 *   hget PORT FILE ROUNDS      FILE holds a line with the number of commands, then the commands in RESP
 *
 * Prints one line of JSON: the median and the 99th percentile of a round in microseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LIFE_S = 120, BUFFER = 1 << 20 };
static char answers[BUFFER];

static void fail(const char *what) {
    fprintf(stderr, "hget: %s\n", what);
    exit(1);
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int connect_to(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    to.sin_port = htons(port);
    if (fd < 0 || connect(fd, (void *)&to, sizeof to)) fail("Redis cannot be reached");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* Counts the complete bulk strings at the start of `answers`. Parses from the start each time, which costs little. */
static int complete(size_t have) {
    int found = 0;
    for (char *p = answers, *end = answers + have; p < end; found++) {
        char *line = memchr(p, '\n', end - p);
        if (!line) break;
        if (*p != '$') fail("not the answer of an HGET");
        long size = atol(p + 1);
        p = line + 1 + (size < 0 ? 0 : size + 2);
        if (p > end) break;
    }
    return found;
}

static void read_answers(int fd, int wanted) {
    for (size_t have = 0; complete(have) < wanted;) {
        ssize_t n = recv(fd, answers + have, sizeof answers - have, 0);
        if (n <= 0) fail("the answers stopped");
        have += n;
    }
}

int main(int argc, char **argv) {
    static char commands[BUFFER];
    if (argc != 4) fail("usage: hget PORT FILE ROUNDS");
    alarm(LIFE_S); /* ends the program if its driver was killed */
    int rounds = atoi(argv[3]), wanted = 0;
    FILE *file = fopen(argv[2], "r");
    if (!file || fscanf(file, "%d\n", &wanted) != 1) fail("no commands");
    size_t size = fread(commands, 1, sizeof commands, file);
    double *took = calloc(rounds, sizeof *took);
    if (!took || rounds < 1) fail("no rounds");
    int fd = connect_to(atoi(argv[1]));
    for (int round = 0; round < rounds; round++) {
        double start = now_us();
        if (send(fd, commands, size, 0) != (ssize_t)size) fail("a short write");
        read_answers(fd, wanted);
        took[round] = now_us() - start;
    }
    qsort(took, rounds, sizeof *took, by_size);
    printf("{\"p50_us\":%.1f,\"p99_us\":%.1f}\n", took[rounds / 2], took[rounds * 99 / 100]);
    return 0;
}
