/* Simulates a full disk while the file FULL_DISK exists: files can be overwritten within their size, but cannot grow.
 * Exempt are standard output and error, so that the process can log the error, and PostgreSQL's write-ahead log, as if it
 * were on a separate disk: a server that cannot extend it shuts down, which is another fault. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *flag;

/* Copied because PostgreSQL overwrites the environment with its process title. */
__attribute__((constructor)) static void read_flag(void) {
    const char *path = getenv("FULL_DISK");
    if (path != NULL) flag = strdup(path);
}

static int is_write_ahead_log(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, "/pg_wal/") != NULL;
}

/* Whether writing up to this offset would extend a regular file. */
static int is_full(int fd, off_t end) {
    int before = errno;
    struct stat file;
    int full = flag != NULL && fd > STDERR_FILENO && access(flag, F_OK) == 0 && fstat(fd, &file) == 0 &&
               S_ISREG(file.st_mode) && end > file.st_size && !is_write_ahead_log(fd);
    errno = full ? ENOSPC : before;
    return full;
}

static off_t bytes_of(const struct iovec *parts, int count) {
    off_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += (off_t)parts[i].iov_len;
    return bytes;
}

ssize_t write(int fd, const void *from, size_t bytes) {
    off_t at = lseek(fd, 0, SEEK_CUR); /* -1 if fd is not seekable */
    if (at >= 0 && is_full(fd, at + (off_t)bytes)) return -1;
    return syscall(SYS_write, fd, from, bytes);
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at) {
    if (is_full(fd, at + (off_t)bytes)) return -1;
    return syscall(SYS_pwrite64, fd, from, bytes, at);
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off_t at) { return pwrite(fd, from, bytes, at); }

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    if (is_full(fd, at + bytes_of(parts, count))) return -1;
    return syscall(SYS_pwritev, fd, parts, count, at, 0L);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at) { return pwritev(fd, parts, count, at); }

int posix_fallocate(int fd, off_t at, off_t bytes) {
    if (is_full(fd, at + bytes)) return ENOSPC;
    return syscall(SYS_fallocate, fd, 0, at, bytes) == 0 ? 0 : errno;
}

int posix_fallocate64(int fd, off_t at, off_t bytes) { return posix_fallocate(fd, at, bytes); }
