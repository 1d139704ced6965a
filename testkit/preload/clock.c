/*
 * A wall clock that a test sets, for a process with this library preloaded.
 *
 * PRELOAD_CLOCK names a file of eight bytes: the error of the wall clock in microseconds, as a signed number
 * in native byte order. Writing to the file takes effect at once. Other clocks are not affected.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *wrong;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("PRELOAD_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
        wrong = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (!real_clock_gettime)
        begin();
    int failed = real_clock_gettime(clock, time);
    if (failed || !wrong || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t micros = (int64_t)time->tv_sec * 1000000 + time->tv_nsec / 1000 + *wrong;
    time->tv_sec = micros / 1000000;
    time->tv_nsec = micros % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return (time_t)-1;
    if (told)
        *told = now.tv_sec;
    return now.tv_sec;
}
