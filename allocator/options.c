/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parsing runs inside the first malloc: nothing here may allocate or use stdio, locale or the
 * C library's number parsers.
 */
#include <config.h>

#include "allocator/options.h"
#include "allocator/file.h"
#include "allocator/log.h"
#include "allocator/os.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

extern char **environ;

struct pin_options pin_options = {.report = "", .programs = ""};

static int parse_names(const char *text, const char *const names[], size_t n, int *value)
{
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(text, names[i])) {
			*value = (int)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_level(const char *text, void *field)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	int error = parse_names(text, names, PIN_ARRAY_SIZE(names), field);

	if (!error)
		pin_log_limit = (enum pin_log_level) * (int *)field;
	return error;
}

static int parse_mode(const char *text, void *field)
{
	static const char *const names[] = {"eager", "lazy", "off"};

	return parse_names(text, names, PIN_ARRAY_SIZE(names), field);
}

static int parse_watch(const char *text, void *field)
{
	static const char *const names[] = {"off", "on", "strict"};

	return parse_names(text, names, PIN_ARRAY_SIZE(names), field);
}

static int parse_huge(const char *text, void *field)
{
	static const char *const names[] = {"auto", "thp", "hugetlb", "off"};

	return parse_names(text, names, PIN_ARRAY_SIZE(names), field);
}

static int parse_format(const char *text, void *field)
{
	static const char *const names[] = {"auto", "text", "json"};

	return parse_names(text, names, PIN_ARRAY_SIZE(names), field);
}

static bool is_default(const char *text);

/*
 * Values are copied, because programs that set their title overwrite their environment.
 * Defaults are not copied: that would cost every process a page of memory each.
 */
static int parse_path(const char *text, void *field)
{
	static char report[PATH_MAX], pattern[PATH_MAX];
	char *copy = field == &pin_options.report ? report : pattern;
	size_t n = strlen(text);

	if (!n || n >= PATH_MAX)
		return -EINVAL;
	*(const char **)field = is_default(text) ? text : memmove(copy, text, n + 1);
	return 0;
}

static int parse_digits(const char **text, size_t *n)
{
	const char *p = *text;
	size_t value = 0;

	if (*p < '0' || *p > '9')
		return -EINVAL;
	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (size_t)(*p - '0'), &value))
			return -EINVAL;
	*text = p;
	*n = value;
	return 0;
}

static int parse_count(const char *text, void *field)
{
	size_t n;

	if (parse_digits(&text, &n) || *text || n > UINT32_MAX)
		return -EINVAL;
	*(size_t *)field = n;
	return 0;
}

static int parse_verify(const char *text, void *field)
{
	static const char *const names[] = {"off", "exit"};
	size_t n;
	int word;

	if (!parse_names(text, names, PIN_ARRAY_SIZE(names), &word))
		n = word ? PIN_VERIFY_EXIT : 0;
	else if (parse_count(text, &n) || !n)
		return -EINVAL;
	*(size_t *)field = n;
	return 0;
}

/*
 * The number of a signal by its name, with SIG or without; 0 if there is none of that name.
 */
static size_t named_signal(const char *name)
{
	size_t n;

	name += strncmp(name, "SIG", 3) ? 0 : 3;
	for (int sig = 1; sig < SIGRTMIN; sig++) {
		const char *known = sigabbrev_np(sig);

		if (known && !strcmp(name, known))
			return (size_t)sig;
	}
	if (strncmp(name, "RTMIN", 5) || (name[5] && name[5] != '+'))
		return 0;
	name += name[5] ? 6 : 5;
	if (!*name)
		return (size_t)SIGRTMIN;
	return parse_digits(&name, &n) || *name || n > NSIG ? 0 : (size_t)SIGRTMIN + n;
}

/*
 * Whether a signal is free to use: neither one that the C library reserves, nor one that ends
 * a program.
 */
static bool is_usable_signal(size_t sig)
{
	static const int taken[] = {0, SIGKILL, SIGSTOP, PIN_FATAL_SIGNALS};
	bool free = sigabbrev_np((int)sig) || sig >= (size_t)SIGRTMIN;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(taken); i++)
		free &= sig != (size_t)taken[i];
	return free && sig <= (size_t)SIGRTMAX;
}

static int parse_signal(const char *text, void *field)
{
	const char *p = text;
	size_t sig = 0;

	if (strcmp(text, "off") != 0) {
		if (parse_digits(&p, &sig) || *p)
			sig = named_signal(text);
		if (!is_usable_signal(sig))
			return -EINVAL;
	}
	*(int *)field = (int)sig;
	return 0;
}

int pin_parse_size(const char *text, size_t *n_bytes)
{
	static const char units[] = "kmgtKMGT";
	const char *unit;
	size_t n, factor = 1;

	if (parse_digits(&text, &n))
		return -EINVAL;
	if (*text) {
		unit = strchr(units, *text);
		if (!unit || text[1])
			return -EINVAL;
		factor = (size_t)1 << (10 * ((size_t)(unit - units) % 4 + 1));
	}
	if (__builtin_mul_overflow(n, factor, &n))
		return -EINVAL;
	*n_bytes = n;
	return 0;
}

static int parse_size(const char *text, void *field)
{
	return pin_parse_size(text, field);
}

static int parse_size_or_off(const char *text, void *field)
{
	if (strcmp(text, "off"))
		return pin_parse_size(text, field);
	*(size_t *)field = 0;
	return 0;
}

/* The size of a growth step, at least a granule. */
static int parse_step(const char *text, void *field)
{
	size_t n;

	if (pin_parse_size(text, &n) || n < PIN_GRANULE)
		return -EINVAL;
	*(size_t *)field = n;
	return 0;
}

/* A size, or a percentage of RAM. */
static int parse_size_or_share(const char *text, size_t *n_bytes)
{
	const char *p = text;
	size_t percent;

	if (!parse_digits(&p, &percent) && p[0] == '%' && !p[1] && percent <= 100) {
		*n_bytes = pin_os_ram() / 100 * percent;
		return 0;
	}
	return pin_parse_size(text, n_bytes);
}

static int parse_amount(const char *text, void *field)
{
	if (strcmp(text, "none") != 0 && strcmp(text, "auto") != 0)
		return parse_size_or_share(text, field);
	*(size_t *)field = *text == 'n' ? SIZE_MAX : PIN_PINNED_AUTO;
	return 0;
}

static int parse_part(const char *text, void *field)
{
	if (strcmp(text, "off") != 0)
		return parse_size_or_share(text, field);
	*(size_t *)field = 0;
	return 0;
}

/*
 * The bits for the word at the start of *text, which is moved past that word; 0 if it is
 * unknown.
 */
static unsigned access_bit(const char **text)
{
	static const struct {
		const char *name;
		unsigned bits;
	} names[] = {{"local", PIN_ACCESS_LOCAL},
		     {"read", PIN_ACCESS_READ},
		     {"write", PIN_ACCESS_WRITE},
		     {"atomic", PIN_ACCESS_ATOMIC},
		     {"all", PIN_ACCESS_ALL}};
	size_t n = strcspn(*text, ",");

	for (size_t i = 0; i < PIN_ARRAY_SIZE(names); i++) {
		if (strlen(names[i].name) == n && !memcmp(*text, names[i].name, n)) {
			*text += n + ((*text)[n] == ',');
			return names[i].bits;
		}
	}
	return 0;
}

static int parse_access(const char *text, void *field)
{
	unsigned bits = 0, bit;

	do {
		bit = access_bit(&text);
		bits |= bit;
	} while (bit && *text);
	if (!bit)
		return -EINVAL;
	/* The verbs demand local write access for remote write access. */
	if (bits & (PIN_ACCESS_WRITE | PIN_ACCESS_ATOMIC))
		bits |= PIN_ACCESS_LOCAL;
	*(unsigned *)field = bits;
	return 0;
}

struct row {
	const char *name, *initial, *values, *doc;
	int (*parse)(const char *text, void *field);
	void *field;
};

static const struct row rows[] = {
#define OPTION(field, parser, name, initial, values, doc) \
	{name, initial, values, doc, parse_##parser, &pin_options.field},
#include "allocator/options.def"
};

static bool is_default(const char *text)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(rows); i++)
		if (text == rows[i].initial)
			return true;
	return false;
}

/* The value if the environment string is "NAME=value" for this name, else NULL. */
static const char *value_if_named(const char *string, const char *name)
{
	/* A loop, not calls: most comparisons end at the first character. */
	for (; *name && *string == *name; name++)
		string++;
	return !*name && *string == '=' ? string + 1 : NULL;
}

/* The environment; NULL in a set-user-ID program, which another user controls. */
static char **trusted_environment(void)
{
	return getauxval(AT_SECURE) ? NULL : environ;
}

const char *pin_environment(const char *name)
{
	const char *value = NULL;

	for (char **e = trusted_environment(); e && *e && !value; e++)
		value = value_if_named(*e, name);
	return value;
}

static const struct {
	const char *before, *now;
} renamed[] = {
#define RENAMED(before, now) {before, now},
#include "allocator/options.def"
};

const char *pin_options_renamed(const char *name)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(renamed); i++)
		if (!strcmp(name, renamed[i].before))
			return renamed[i].now;
	return NULL;
}

const char *pin_options_text(const char *name)
{
	const char *text = pin_environment(name);

	for (size_t i = 0; !text && i < PIN_ARRAY_SIZE(renamed); i++)
		if (!strcmp(name, renamed[i].now))
			text = pin_environment(renamed[i].before);
	return text;
}

static void parse_row(const struct row *row)
{
	const char *text = pin_options_text(row->name);

	row->parse(row->initial, row->field);
	if (text && row->parse(text, row->field))
		pin_warn("%s=%s is not understood: it takes %s; keeping %s", row->name, text,
			 row->values, row->initial);
}

int pin_options_set(const char *name, const char *text)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(rows); i++)
		if (!strcmp(name, rows[i].name))
			return rows[i].parse(text, rows[i].field);
	return -ENOENT;
}

static bool is_known(const char *string)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(rows); i++)
		if (value_if_named(string, rows[i].name))
			return true;
	return value_if_named(string, "PINALLOC_HELP");
}

/* Whether it is an option's former name, which is logged. */
static bool is_former(const char *string)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(renamed); i++) {
		if (!value_if_named(string, renamed[i].before))
			continue;
		pin_warn("%s is called %s now", renamed[i].before, renamed[i].now);
		return true;
	}
	return false;
}

static void warn_unknown(void)
{
	for (char **e = trusted_environment(); e && *e; e++)
		if (!strncmp(*e, "PINALLOC_", 9) && !is_known(*e) && !is_former(*e))
			pin_warn("%s: no such option; PINALLOC_HELP=1 lists them", *e);
}

static size_t power_of_two_below(size_t n)
{
	return (size_t)1 << (63 - __builtin_clzll(n));
}

static bool is_parsed;

void pin_options_init(void)
{
	if (is_parsed)
		return;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(rows); i++)
		parse_row(&rows[i]);
	pin_options.grow = power_of_two_below(pin_options.grow);
	if (!environ)
		return;
	warn_unknown();
	is_parsed = true;
}

bool pin_options_help_wanted(void)
{
	const char *value = pin_environment("PINALLOC_HELP");

	return value && *value && strcmp(value, "0") != 0;
}

void pin_options_help(void)
{
	char line[512];
	size_t n;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(rows); i++) {
		n = pin_format(line, sizeof line, "%-23s %s (%s)\n%-23s %s\n", rows[i].name,
			       rows[i].values, rows[i].initial, "", rows[i].doc);
		pin_file_write(STDOUT_FILENO, line, n);
	}
}
