/*
 * Kills a process with this library preloaded before its Nth change to the file system.
 *
 * PRELOAD_CRASH names a file with N as a 32-bit number in native byte order; zero kills nothing. A change is a call
 * that creates, writes, renames, removes or flushes a file or folder. Positioned writes (pwrite), which data files
 * use, are not counted.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int32_t left;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("PRELOAD_CRASH");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    int32_t number = 0;
    if (read(file, &number, sizeof number) == sizeof number)
        left = number;
    close(file);
}

static void change(void)
{
    if (__atomic_load_n(&left, __ATOMIC_RELAXED) > 0 && __atomic_sub_fetch(&left, 1, __ATOMIC_RELAXED) == 0)
        kill(getpid(), SIGKILL);
}

#define REAL(result, name, ...) ((result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    if (flags & (O_CREAT | O_TRUNC))
        change();
    return REAL(int, open64, const char *, int, ...)(path, flags, mode);
}

int mkdir(const char *path, mode_t mode)
{
    change();
    return REAL(int, mkdir, const char *, mode_t)(path, mode);
}

int rename(const char *from, const char *to)
{
    change();
    return REAL(int, rename, const char *, const char *)(from, to);
}

int unlink(const char *path)
{
    change();
    return REAL(int, unlink, const char *)(path);
}

int unlinkat(int folder, const char *path, int flags)
{
    change();
    return REAL(int, unlinkat, int, const char *, int)(folder, path, flags);
}

int rmdir(const char *path)
{
    change();
    return REAL(int, rmdir, const char *)(path);
}

int fsync(int file)
{
    change();
    return REAL(int, fsync, int)(file);
}

ssize_t write(int file, const void *bytes, size_t count)
{
    struct stat found;
    if (fstat(file, &found) == 0 && S_ISREG(found.st_mode))
        change();
    return REAL(ssize_t, write, int, const void *, size_t)(file, bytes, count);
}
