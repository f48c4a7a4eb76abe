// A library for LD_PRELOAD: the wall clock is what the file that $CLOCK names has in its first eight bytes, in µs
// since 1970. It stands still until somebody writes there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *now;

__attribute__((constructor)) static void open_clock(void) {
	const char *path = getenv("CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *at = mmap(0, sizeof *now, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		_exit(77);
	now = at;
}

// Within a millisecond, Valkey 9 moves its clock by the processor's counter. It needs /proc/cpuinfo for that.
typedef FILE *opener(const char *, const char *);
static FILE *hide(const char *name, const char *path, const char *mode) {
	return strcmp(path, "/proc/cpuinfo") == 0 ? NULL : ((opener *)dlsym(RTLD_NEXT, name))(path, mode);
}

FILE *fopen(const char *path, const char *mode) { return hide("fopen", path, mode); }

FILE *fopen64(const char *path, const char *mode) { return hide("fopen64", path, mode); }

int clock_gettime(clockid_t id, struct timespec *t) {
	if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)
		return syscall(SYS_clock_gettime, id, t);
	t->tv_sec = *now / 1000000;
	t->tv_nsec = *now % 1000000 * 1000;
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	(void)zone;
	t->tv_sec = *now / 1000000;
	t->tv_usec = *now % 1000000;
	return 0;
}

time_t time(time_t *t) {
	time_t s = *now / 1000000;
	if (t)
		*t = s;
	return s;
}
