// Moves the time of day of a program that is started with this library in LD_PRELOAD. The file named by REDISTEST_CLOCK holds the offset in
// nanoseconds, a native 64-bit integer; whoever writes it in place moves the clock of the running program.
//
// The kernel is asked directly, not through the next library: that would need dlsym, which allocates, and the allocator of redis-server asks for
// the time while it starts. Monotonic clocks are left alone.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static volatile int64_t *offset; // NULL: not moved

__attribute__((constructor)) static void start(void) {
  const char *path = getenv("REDISTEST_CLOCK");
  if (path == NULL) return;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (page != MAP_FAILED) offset = page;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
  int rc = (int)syscall(SYS_clock_gettime, id, ts);
  if (rc != 0 || offset == NULL || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return rc;
  int64_t now = (int64_t)ts->tv_sec * SECOND + ts->tv_nsec + *offset;
  ts->tv_sec = now / SECOND;
  ts->tv_nsec = now % SECOND;
  return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
  (void)tz;
  struct timespec ts;
  int rc = clock_gettime(CLOCK_REALTIME, &ts);
  if (rc == 0) {
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
  }
  return rc;
}

time_t time(time_t *t) {
  struct timespec ts;
  if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return (time_t)-1;
  if (t != NULL) *t = ts.tv_sec;
  return ts.tv_sec;
}
