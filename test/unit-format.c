/* SPDX-License-Identifier: BSD-2-Clause */
/* The formatter for code that must not use printf, and the lines that it writes. */
#include <config.h>

#include "allocator/io.h"
#include "allocator/log.h"
#include "test/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

static void as_printf_does(void)
{
	char ours[128], theirs[128];

#define SAME(...)                                                                   \
	do {                                                                        \
		size_t n = pin_format(ours, sizeof ours, __VA_ARGS__);              \
		snprintf(theirs, sizeof theirs, __VA_ARGS__);                       \
		ok(!strcmp(ours, theirs) && n == strlen(ours), "%s", #__VA_ARGS__); \
	} while (0)

	SAME("plain");
	SAME("%s and %c and %%", "text", 'c');
	SAME("%d %d %d", 0, -1, -2147483647 - 1);
	SAME("%u %x", 4294967295u, 0xdeadbeefu);
	SAME("%ld %lu %zu", -9223372036854775807L - 1, 18446744073709551615UL, (size_t)7);
	SAME("%p", (void *)&errno);
	SAME("[%8s] [%-8s] [%2s]", "abc", "abc", "abc");
	SAME("[%8d] [%-8d] [%04x] [%06lu]", 42, 42, 0xabu, 42ul);
}

static void cuts(void)
{
	const char *volatile none = NULL;
	char small[8];

	ok(pin_format(small, sizeof small, "%s", "0123456789") == 7, "a long text is cut");
	ok(!strcmp(small, "0123456"), "and ended with a NUL");
	ok(pin_format(small, 1, "x") == 0 && !small[0], "one byte takes the NUL only");
	errno = 5;
	pin_format(small, sizeof small, "%d", 1);
	ok(errno == 5, "errno is left alone");
	pin_format(small, sizeof small, "%s", none);
	ok(!strcmp(small, "(null)"), "a null string has a text");
}

static void sizes(void)
{
	ok(!strcmp(PIN_SIZE(0), "0 B"), "0 B");
	ok(!strcmp(PIN_SIZE(1023), "1023 B"), "1023 B");
	ok(!strcmp(PIN_SIZE(1024), "1.0 KiB"), "1.0 KiB");
	ok(!strcmp(PIN_SIZE(1536 * PIN_KIB), "1.5 MiB"), "1.5 MiB");
	ok(!strcmp(PIN_SIZE(2000), "2.0 KiB"), "2.0 KiB, rounded");
	ok(!strcmp(PIN_SIZE(64 * PIN_GIB), "64.0 GiB"), "64.0 GiB");
	ok(!strcmp(PIN_SIZE(16 * PIN_TIB), "16.0 TiB"), "16.0 TiB");
	ok(strstr(PIN_SIZE(SIZE_MAX), "PiB") != NULL, "the largest is in PiB: %s",
	   PIN_SIZE(SIZE_MAX));
}

static void utf8(void)
{
	ok(pin_utf8_length("a") == 1 && pin_utf8_length("\xc2\x80") == 2 &&
		   pin_utf8_length("\xed\x9f\xbf") == 3 && pin_utf8_length("\xee\x80\x80") == 3,
	   "characters of UTF-8 have a length");
	ok(!pin_utf8_length("\xc1\xbf") && !pin_utf8_length("\xf4\x90\x80\x80") &&
		   !pin_utf8_length("\xed\xa0\x80") && !pin_utf8_length("\xed\xbf\xbf"),
	   "overlong forms, surrogates and what is beyond Unicode have none");
}

/* What writing a line returns. Signals are pending and blocked as before. */
static int written(int fd)
{
	sigset_t before[2] = {0}, after[2] = {0};
	int result;

	sigpending(&before[0]);
	pthread_sigmask(SIG_BLOCK, NULL, &before[1]);
	result = pin_io_write_line(fd, "line\n", 5);
	sigpending(&after[0]);
	pthread_sigmask(SIG_BLOCK, NULL, &after[1]);
	return memcmp(before, after, sizeof before) ? 1 : result;
}

static void fill(int fd)
{
	static const char text[4096];

	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (write(fd, text, sizeof text) > 0)
		;
	fcntl(fd, F_SETFL, 0);
}

/* It ends if a line waits for whoever reads it. */
static void lines(void)
{
	int ends[2], error, terminal = posix_openpt(O_RDWR), file = memfd_create("file", 0);
	sigset_t own = {0};
	struct rlimit none = {0, RLIM_INFINITY};
	char text[16];

	alarm(60);
	for (int is_socket = 0; is_socket < 2; is_socket++) {
		ok(!(is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)),
		   "a %s", is_socket ? "socket" : "pipe");
		ok(!written(ends[1]) && read(ends[0], text, sizeof text) == 5, "gets a line");
		fill(ends[1]);
		ok(written(ends[1]) == -EAGAIN, "and none if it is full");
		close(ends[0]);
		ok(written(ends[1]) == -EPIPE, "or nobody reads it");
	}
	ok(!grantpt(terminal) && !unlockpt(terminal), "a terminal");
	terminal = open(ptsname(terminal), O_RDWR | O_NOCTTY);
	ok(!tcflow(terminal, TCOOFF) && written(terminal) == -EAGAIN,
	   "gets none if it is stopped");
	setrlimit(RLIMIT_FSIZE, &none);
	error = written(file);
	sigaddset(&own, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &own, NULL);
	raise(SIGXFSZ);
	error = error == -EFBIG ? written(file) : error;
	none.rlim_cur = none.rlim_max;
	setrlimit(RLIMIT_FSIZE, &none);
	ok(error == -EFBIG, "nor does a file at its limit; the program's signal stays");
}

int main(void)
{
	lines();
	utf8();
	as_printf_does();
	cuts();
	sizes();
	return done_testing();
}
