/* CPU time of the generator and of the server. */
#include "load.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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
    char *name_end = strrchr(text, ')'); /* a process name may contain spaces: parse after it */
    if (name_end) sscanf(name_end, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    return (double)(user + system) / sysconf(_SC_CLK_TCK);
}

/* CPU seconds of the measured server, including all its threads and workers. */
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
