/* Offsets the wall clock by CLOCK_OFFSET_S seconds. The monotonic clocks and all waits are unchanged: a wrong clock does
 * not make time pass faster. libfaketime does not work here: it also wraps epoll_wait, and PostgreSQL's timeouts, on which
 * leases depend, then no longer interrupt a waiting backend. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t offset_s;

__attribute__((constructor)) static void read_offset(void) {
    const char *text = getenv("CLOCK_OFFSET_S");
    if (text != NULL) offset_s = strtol(text, NULL, 10);
}

int clock_gettime(clockid_t id, struct timespec *at) {
    long failed = syscall(SYS_clock_gettime, id, at);
    if (failed == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += offset_s;
    return (int)failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
    if (at != NULL) *at = now.tv_sec;
    return now.tv_sec;
}
