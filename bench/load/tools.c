/* Clocks, CPU time, percentiles, tokens. */
#define _GNU_SOURCE
#include "load.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(1);
}

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

double cpu_used(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static double process_cpu_used(int pid) {
    char path[64], text[1024];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    char *name_end = strrchr(text, ')'); /* a process name may hold spaces: count fields from behind it */
    if (name_end) sscanf(name_end, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    return (double)(user + system) / sysconf(_SC_CLK_TCK);
}

/* Seconds of CPU the watched server has used, all its threads and workers together. */
double server_cpu_used(void) {
    char path[64];
    if (!opt.pid) return 0;
    double used = process_cpu_used(opt.pid);
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", opt.pid, opt.pid);
    FILE *file = fopen(path, "r");
    if (!file) return used;
    for (int child; fscanf(file, "%d", &child) == 1;) used += process_cpu_used(child);
    fclose(file);
    return used;
}

static double *samples; /* seconds */
static size_t sample_count, sample_room;
static bool sorted;

void sample(double seconds) {
    if (sample_count == sample_room) {
        sample_room = sample_room ? sample_room * 2 : 65536;
        samples = realloc(samples, sample_room * sizeof *samples);
        if (!samples) die("no memory for so many samples");
    }
    samples[sample_count++] = seconds;
    sorted = false;
}

void forget_samples(void) { sample_count = 0; }

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double percentile(double share) {
    if (!sample_count) die("nothing was timed");
    if (!sorted) qsort(samples, sample_count, sizeof *samples, by_value);
    sorted = true;
    return samples[(size_t)((sample_count - 1) * share)] * 1000;
}

static char **tokens;
static size_t token_count;

const char *token_of(uint64_t number) { return token_count ? tokens[number % token_count] : ""; }

void read_tokens(void) {
    FILE *file = fopen(opt.tokens, "r");
    if (!file) die("%s: %s", opt.tokens, strerror(errno));
    char *line = NULL;
    size_t size = 0;
    for (ssize_t n; (n = getline(&line, &size, file)) > 0;) {
        line[strcspn(line, "\r\n")] = 0;
        if (!*line) continue;
        tokens = realloc(tokens, (token_count + 1) * sizeof *tokens);
        tokens[token_count++] = strdup(line);
    }
    free(line);
    fclose(file);
    if (!token_count) die("%s holds no token", opt.tokens);
}
