// SPDX-License-Identifier: Apache-2.0
// Preloaded by test_interrupted_writes.py: sends the process a signal before the nth call that changes a folder or a
// file, and keeps the names of the calls. Linux.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static long stop_at, calls;
static int stop_signal;
static char names[65536];

void stop_at_call(long at, int with) {
  stop_at = at;
  stop_signal = with;
  calls = 0;
  names[0] = 0;
}

long calls_made(void) { return calls; }

const char* names_of_calls(void) { return names; }

static void count(const char* name, const char* path) {
  if (!stop_at) return;
  const size_t used = strlen(names);
  snprintf(names + used, sizeof names - used, "%s %s\n", name, path ? path : "");
  if (++calls == stop_at) kill(getpid(), stop_signal);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPEN(name)                             \
  int name(const char* path, int flags, ...) { \
    va_list rest;                              \
    va_start(rest, flags);                     \
    const mode_t mode = va_arg(rest, mode_t);  \
    va_end(rest);                              \
    count("open", path);                       \
    return NEXT(name)(path, flags, mode);      \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                       \
  int name(int folder, const char* path, int flags, ...) { \
    va_list rest;                                          \
    va_start(rest, flags);                                 \
    const mode_t mode = va_arg(rest, mode_t);              \
    va_end(rest);                                          \
    count("open", path);                                   \
    return NEXT(name)(folder, path, flags, mode);          \
  }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void* bytes, size_t size) {
  count("write", 0);
  return NEXT(write)(file, bytes, size);
}

int rename(const char* from, const char* to) {
  count("rename", to);
  return NEXT(rename)(from, to);
}

int unlink(const char* path) {
  count("unlink", path);
  return NEXT(unlink)(path);
}

int unlinkat(int folder, const char* path, int flags) {
  count("unlink", path);
  return NEXT(unlinkat)(folder, path, flags);
}

int rmdir(const char* path) {
  count("rmdir", path);
  return NEXT(rmdir)(path);
}

int mkdir(const char* path, mode_t mode) {
  count("mkdir", path);
  return NEXT(mkdir)(path, mode);
}

int fsync(int file) {
  char link[64], path[4096] = {0};
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (readlink(link, path, sizeof path - 1) < 0) path[0] = 0;
  count("fsync", path);
  return NEXT(fsync)(file);
}

int fchmod(int file, mode_t mode) {
  count("fchmod", 0);
  return NEXT(fchmod)(file, mode);
}

int flock(int file, int operation) {
  count("flock", 0);
  return NEXT(flock)(file, operation);
}

int close(int file) {
  count("close", 0);
  return NEXT(close)(file);
}
