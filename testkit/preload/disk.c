/*
 * A disk that a test makes slow or broken, for a process with this library preloaded.
 *
 * PRELOAD_DISK names a file of four 32-bit numbers in native byte order: the delay of every flush in
 * milliseconds, the errno of flushes, the errno of positioned writes (pwrite), and the errno of positioned reads
 * (pread) except for the first page of a file; zero injects no fault.
 * Writing to the file takes effect at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct disk {
    int32_t flush_delay_ms;
    int32_t flush_errno;
    int32_t write_errno;
    int32_t read_errno;
};

#define PAGE_BYTES 4096

static volatile const struct disk *disk;
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static ssize_t (*real_pwrite64)(int, const void *, size_t, off64_t);
static ssize_t (*real_pread64)(int, void *, size_t, off64_t);

__attribute__((constructor)) static void begin(void)
{
    real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    real_pwrite64 = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    real_pread64 = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    const char *path = getenv("PRELOAD_DISK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof(struct disk), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
        disk = page;
    close(file);
}

/* Applies the delay of a flush and returns its errno. */
static int flush_fate(void)
{
    if (!disk)
        return 0;
    int32_t delay_ms = disk->flush_delay_ms;
    if (delay_ms > 0) {
        struct timespec delay = {delay_ms / 1000, delay_ms % 1000 * 1000000L};
        while (nanosleep(&delay, &delay) && errno == EINTR)
            ;
    }
    return disk->flush_errno;
}

int fsync(int file)
{
    int broken = flush_fate();
    if (broken) {
        errno = broken;
        return -1;
    }
    return real_fsync(file);
}

int fdatasync(int file)
{
    int broken = flush_fate();
    if (broken) {
        errno = broken;
        return -1;
    }
    return real_fdatasync(file);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at)
{
    if (disk && disk->write_errno) {
        errno = disk->write_errno;
        return -1;
    }
    return real_pwrite64(file, bytes, count, at);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at)
{
    return pwrite64(file, bytes, count, at);
}

ssize_t pread64(int file, void *bytes, size_t count, off64_t at)
{
    if (disk && disk->read_errno && at >= PAGE_BYTES) {
        errno = disk->read_errno;
        return -1;
    }
    return real_pread64(file, bytes, count, at);
}

ssize_t pread(int file, void *bytes, size_t count, off_t at)
{
    return pread64(file, bytes, count, at);
}
