/* Fatal errors, the clock, percentiles, tokens, files. */
#define _GNU_SOURCE
#include "wire.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(1);
}

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

void sample(struct samples *s, double seconds) {
    if (s->count == s->room) {
        s->room = s->room ? s->room * 2 : 65536;
        s->of = realloc(s->of, s->room * sizeof *s->of);
        if (!s->of) die("no memory for more samples");
    }
    s->of[s->count++] = seconds;
    s->sorted = false;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double percentile(struct samples *s, double share) {
    if (!s->count) return 0;
    if (!s->sorted) qsort(s->of, s->count, sizeof *s->of, by_value);
    s->sorted = true;
    return s->of[(size_t)((s->count - 1) * share)];
}

static char **tokens;
static size_t known;

size_t token_count(void) { return known; }

const char *token_of(uint64_t number) { return known ? tokens[number % known] : ""; }

void read_tokens(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) die("%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t size = 0;
    for (ssize_t n; (n = getline(&line, &size, file)) > 0;) {
        line[strcspn(line, "\r\n")] = 0;
        if (!*line) continue;
        tokens = realloc(tokens, (known + 1) * sizeof *tokens);
        tokens[known++] = strdup(line);
    }
    free(line);
    fclose(file);
    if (!known) die("%s contains no token", path);
}

long raise_file_limit(void) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    return (long)files.rlim_cur;
}
