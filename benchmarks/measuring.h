/* What all load generators share: how they fail, the time, and the CPU time of the processes that they watch. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

enum { WATCH_LIMIT = 8 };

static pid_t watched[WATCH_LIMIT];
static int watching;

static void fail(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void watch(const char *pid)
{
    if (watching < WATCH_LIMIT)
        watched[watching++] = (pid_t)atoi(pid);
}

/* The CPU time of all threads of the watched processes, ended threads included. */
static double watched_seconds(void)
{
    double sum = 0;
    for (int i = 0; i < watching; i++) {
        clockid_t clock;
        struct timespec spent;
        errno = clock_getcpuclockid(watched[i], &clock);
        if (errno != 0 || clock_gettime(clock, &spent) != 0)
            fail("the CPU clock of a watched process");
        sum += spent.tv_sec + spent.tv_nsec * 1e-9;
    }
    return sum;
}
