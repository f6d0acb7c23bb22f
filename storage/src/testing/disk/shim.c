/*
 * Logs what a process does to the files below one folder, in the order in which it took effect.
 * Loaded by LD_PRELOAD; FOREBAY_DISK_ROOT names the folder, FOREBAY_DISK_LOG the log. The reader is log.rs.
 *
 * A record: kind (1 byte), inode (8), offset (8), length of path (4), of second path (4), of data (8), then the three.
 * All numbers little-endian. What is not understood on a file of the folder aborts the process: a log with a hole in it
 * would prove things that are not so.
 *
 * FOREBAY_DISK_TROUBLE makes the disk below the folder fail instead, as `kind:number`:
 *   space:N         no space is left after N more bytes
 *   readonly:0      nothing may be changed
 *   sync:N          syncing a file fails after N successes
 *   foldersync:N    syncing a folder fails after N successes
 *   links:0         there are no hard links
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static size_t root_len;
static int log_fd = -1;
static const char *trouble = "";
static int64_t left;

static void die(const char *what) {
    syscall(SYS_write, 2, "disk log: ", 10);
    syscall(SYS_write, 2, what, strlen(what));
    syscall(SYS_write, 2, "\n", 1);
    abort();
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("FOREBAY_DISK_LOG");
    root = getenv("FOREBAY_DISK_ROOT");
    if (!root) return;
    root_len = strlen(root);
    const char *kind = getenv("FOREBAY_DISK_TROUBLE");
    if (kind) {
        const char *number = strchr(kind, ':');
        if (!number) die("FOREBAY_DISK_TROUBLE needs a number");
        trouble = kind;
        left = atoll(number + 1);
    }
    if (!path) return;
    log_fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (log_fd < 0) die("cannot open FOREBAY_DISK_LOG");
}

static int has(const char *kind) { return strncmp(trouble, kind, strlen(kind)) == 0; }

/* Whether the trouble begins with this call; counts it. Under the lock. */
static int fails(const char *kind) { return has(kind) && left-- <= 0; }

/* The part of an absolute path below the root; NULL if it lies elsewhere. */
static const char *below(const char *path) {
    if (!root || strncmp(path, root, root_len) != 0) return NULL;
    if (path[root_len] == 0) return path + root_len;
    return path[root_len] == '/' ? path + root_len + 1 : NULL;
}

static const char *fd_below(int fd, char *buffer) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = root ? readlink(link, buffer, 4095) : -1;
    if (n < 0) return NULL;
    buffer[n] = 0;
    return below(buffer);
}

static const char *at_below(int dir, const char *path, char *buffer) {
    if (!root || !path) return NULL;
    if (path[0] == '/') return below(path);
    char folder[4096];
    if (dir == AT_FDCWD) {
        if (!getcwd(folder, sizeof folder)) return NULL;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        ssize_t n = readlink(link, folder, sizeof folder - 1);
        if (n < 0) return NULL;
        folder[n] = 0;
    }
    if (snprintf(buffer, 8192, "%s/%s", folder, path) >= 8192) die("path too long");
    return below(buffer);
}

static uint64_t inode(int fd) {
    struct stat s;
    if (fstat(fd, &s) != 0) die("fstat failed");
    return s.st_ino;
}

static void put(char kind, uint64_t ino, uint64_t offset, const char *a, const char *b, const void *data, uint64_t len) {
    if (log_fd < 0) return;
    char head[33];
    uint32_t la = a ? (uint32_t)strlen(a) : 0, lb = b ? (uint32_t)strlen(b) : 0;
    head[0] = kind;
    memcpy(head + 1, &ino, 8);
    memcpy(head + 9, &offset, 8);
    memcpy(head + 17, &la, 4);
    memcpy(head + 21, &lb, 4);
    memcpy(head + 25, &len, 8);
    struct iovec parts[4] = {{head, 33}, {(void *)a, la}, {(void *)b, lb}, {(void *)data, len}};
    if (syscall(SYS_writev, log_fd, parts, 4) != (long)(33 + la + lb + len)) die("cannot write the log");
}

static int logged_open(int dir, const char *path, int flags, mode_t mode) {
    char full[8192];
    const char *name = at_below(dir, path, full);
    if (!name || (flags & O_ACCMODE) == O_RDONLY) return (int)syscall(SYS_openat, dir, path, flags, mode);
    if (has("readonly:")) {
        errno = EROFS;
        return -1;
    }
    if (flags & O_TMPFILE & ~O_DIRECTORY) die("O_TMPFILE is not understood");
    pthread_mutex_lock(&lock);
    struct stat s;
    int existed = fstatat(dir, path, &s, 0) == 0;
    int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    int error = errno;
    if (fd >= 0 && !existed) put('C', inode(fd), 0, name, NULL, NULL, 0);
    if (fd >= 0 && existed && (flags & O_TRUNC)) put('T', inode(fd), 0, NULL, NULL, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

#define OPEN_MODE \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) { OPEN_MODE return logged_open(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { OPEN_MODE return logged_open(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int dir, const char *path, int flags, ...) { OPEN_MODE return logged_open(dir, path, flags, mode); }
int openat64(int dir, const char *path, int flags, ...) { OPEN_MODE return logged_open(dir, path, flags | O_LARGEFILE, mode); }
int creat(const char *path, mode_t mode) { return logged_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

/* How much of a write there is space for; -1 (and errno) for none. */
static ssize_t room(size_t count) {
    if (!has("space:") || count == 0) return (ssize_t)count;
    if (left <= 0) {
        errno = ENOSPC;
        return -1;
    }
    ssize_t fits = (int64_t)count < left ? (ssize_t)count : (ssize_t)left;
    left -= fits;
    return fits;
}

#define REFUSED_IF(condition, error) \
    if (condition) { \
        errno = error; \
        return -1; \
    }

/* Runs `call` under the lock; `log` runs after it if it succeeded. */
#define LOGGED(type, call, log) \
    pthread_mutex_lock(&lock); \
    type result = (call); \
    int error = errno; \
    if (result >= 0) { log; } \
    pthread_mutex_unlock(&lock); \
    errno = error; \
    return result;

ssize_t write(int fd, const void *data, size_t count) {
    char buffer[4096];
    if (!fd_below(fd, buffer)) return syscall(SYS_write, fd, data, count);
    ssize_t fits = room(count);
    if (fits < 0) return -1;
    count = (size_t)fits;
    LOGGED(ssize_t, syscall(SYS_write, fd, data, count),
           put('W', inode(fd), (uint64_t)(lseek(fd, 0, SEEK_CUR) - result), NULL, NULL, data, (uint64_t)result))
}
static ssize_t logged_pwrite(int fd, const void *data, size_t count, off_t at) {
    char buffer[4096];
    if (!fd_below(fd, buffer)) return syscall(SYS_pwrite64, fd, data, count, at);
    ssize_t fits = room(count);
    if (fits < 0) return -1;
    count = (size_t)fits;
    LOGGED(ssize_t, syscall(SYS_pwrite64, fd, data, count, at),
           put('W', inode(fd), (uint64_t)at, NULL, NULL, data, (uint64_t)result))
}
ssize_t pwrite(int fd, const void *data, size_t count, off_t at) { return logged_pwrite(fd, data, count, at); }
ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at) { return logged_pwrite(fd, data, count, at); }

/* Only the first piece is written: a short write, which callers must expect anyway. */
ssize_t writev(int fd, const struct iovec *parts, int count) {
    char buffer[4096];
    if (!fd_below(fd, buffer)) return syscall(SYS_writev, fd, parts, count);
    for (int i = 0; i < count; i++)
        if (parts[i].iov_len) return write(fd, parts[i].iov_base, parts[i].iov_len);
    return 0;
}

static int logged_truncate(int fd, off_t size) {
    char buffer[4096];
    if (!fd_below(fd, buffer)) return (int)syscall(SYS_ftruncate, fd, size);
    LOGGED(int, (int)syscall(SYS_ftruncate, fd, size), put('T', inode(fd), (uint64_t)size, NULL, NULL, NULL, 0))
}
int ftruncate(int fd, off_t size) { return logged_truncate(fd, size); }
int ftruncate64(int fd, off64_t size) { return logged_truncate(fd, size); }

static int logged_sync(int fd, long number) {
    char buffer[4096];
    const char *name = fd_below(fd, buffer);
    if (!name) return (int)syscall(number, fd);
    struct stat s;
    if (fstat(fd, &s) != 0) die("fstat failed");
    REFUSED_IF(fails(S_ISDIR(s.st_mode) ? "foldersync:" : "sync:"), EIO)
    LOGGED(int, (int)syscall(number, fd),
           S_ISDIR(s.st_mode) ? put('F', 0, 0, name, NULL, NULL, 0) : put('S', s.st_ino, 0, NULL, NULL, NULL, 0))
}
int fsync(int fd) { return logged_sync(fd, SYS_fsync); }
int fdatasync(int fd) { return logged_sync(fd, SYS_fdatasync); }

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    char a[8192], b[8192];
    const char *source = at_below(from_dir, from, a), *target = at_below(to_dir, to, b);
    if (!source && !target) return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    if (!source || !target) die("a rename into or out of the folder is not understood");
    REFUSED_IF(has("readonly:"), EROFS)
    LOGGED(int, (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags), put('R', 0, 0, source, target, NULL, 0))
}
int renameat(int from_dir, const char *from, int to_dir, const char *to) { return renameat2(from_dir, from, to_dir, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    char a[8192], b[8192];
    const char *source = at_below(from_dir, from, a), *target = at_below(to_dir, to, b);
    if (!source && !target) return (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    if (!source || !target) die("a link into or out of the folder is not understood");
    REFUSED_IF(has("links:"), EPERM)
    REFUSED_IF(has("readonly:"), EROFS)
    LOGGED(int, (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags), put('L', 0, 0, source, target, NULL, 0))
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int dir, const char *path, int flags) {
    char full[8192];
    const char *name = at_below(dir, path, full);
    if (!name) return (int)syscall(SYS_unlinkat, dir, path, flags);
    REFUSED_IF(has("readonly:"), EROFS)
    LOGGED(int, (int)syscall(SYS_unlinkat, dir, path, flags),
           put(flags & AT_REMOVEDIR ? 'D' : 'U', 0, 0, name, NULL, NULL, 0))
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int dir, const char *path, mode_t mode) {
    char full[8192];
    const char *name = at_below(dir, path, full);
    if (!name) return (int)syscall(SYS_mkdirat, dir, path, mode);
    REFUSED_IF(has("readonly:"), EROFS)
    LOGGED(int, (int)syscall(SYS_mkdirat, dir, path, mode), put('M', 0, 0, name, NULL, NULL, 0))
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* Ways to change a file that the log has no record for: callers fall back on write, or the process aborts. */
ssize_t copy_file_range(int in, off64_t *a, int out, off64_t *b, size_t n, unsigned flags) {
    char buffer[4096];
    if (!fd_below(out, buffer)) return syscall(SYS_copy_file_range, in, a, out, b, n, flags);
    errno = ENOSYS;
    return -1;
}
ssize_t sendfile64(int out, int in, off64_t *offset, size_t n) {
    char buffer[4096];
    if (!fd_below(out, buffer)) return syscall(SYS_sendfile, out, in, offset, n);
    errno = ENOSYS;
    return -1;
}
int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
    char buffer[4096];
    if (fd_below(fd, buffer)) die("fallocate is not understood");
    return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    char buffer[4096];
    REAL(pwritev64);
    if (fd_below(fd, buffer)) die("pwritev is not understood");
    return real(fd, parts, count, at);
}
