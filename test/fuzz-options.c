/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The options: one line for each environment variable. Compiled together with options.c, to
 * parse more than once.
 */
#include "allocator/options.c"

#include "test/fuzz-target.h"

enum { MOST = 64 };

static unsigned n_lines;

/* Each thing that is not understood gets one line. */
int __wrap_pin_io_write_line(int fd, const char *text, size_t n_bytes)
{
	must(fd == STDERR_FILENO && n_bytes > 0 && n_bytes <= 512);
	must(text[n_bytes - 1] == '\n' && !memchr(text, '\0', n_bytes));
	n_lines++;
	return 0;
}

static void all_must_be_sound(void)
{
	const struct pin_options *o = &pin_options;

	must(o->log >= PIN_LOG_ERROR && o->log <= PIN_LOG_DEBUG &&
	     (int)pin_log_limit == o->log);
	must(*o->report && strlen(o->report) < PATH_MAX);
	must(*o->programs && strlen(o->programs) < PATH_MAX);
	must(o->mode >= PIN_MODE_EAGER && o->mode <= PIN_MODE_OFF);
	must(o->access && !(o->access & ~(unsigned)PIN_ACCESS_ALL));
	must(!(o->access & (PIN_ACCESS_WRITE | PIN_ACCESS_ATOMIC)) ||
	     o->access & PIN_ACCESS_LOCAL);
	must(o->watch == 0 || o->watch == 1);
	must(o->huge >= PIN_HUGE_DENSE && o->huge <= PIN_HUGE_OFF);
	must(o->arena_max <= UINT32_MAX && o->perturb <= UINT32_MAX);
}

/* One by one, they change what they are for or nothing. */
static void set_one(const char *string)
{
	const struct pin_options before = pin_options;
	char name[64];
	size_t n = strcspn(string, "=");

	if (n >= sizeof name || !string[n])
		return;
	memcpy(name, string, n);
	name[n] = '\0';
	if (pin_options_set(name, string + n + 1))
		must(!memcmp(&before, &pin_options, sizeof before));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
	char *text = malloc(n_bytes + 1), *strings[MOST + 1], **former = environ, *rest;
	unsigned n = 0;

	memcpy(text, data, n_bytes);
	text[n_bytes] = '\0';
	for (char *line = strtok_r(text, "\n", &rest); line && n < MOST;
	     line = strtok_r(NULL, "\n", &rest))
		strings[n++] = line;
	strings[n] = NULL;
	environ = strings;
	is_parsed = false;
	n_lines = 0;
	pin_log_limit = PIN_LOG_WARN;
	pin_options_init();
	must(n_lines <= n);
	all_must_be_sound();
	for (unsigned i = 0; i < n; i++)
		set_one(strings[i]);
	pin_options_help();
	environ = former;
	free(text);
	return 0;
}
