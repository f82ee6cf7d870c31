/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parsing runs inside the first malloc: nothing here may allocate or use stdio, locale or the
 * C library's number parsers.
 */
#include <config.h>

#include "allocator/options.h"
#include "allocator/io.h"
#include "allocator/log.h"
#include "allocator/os.h"

#include <limits.h>
#include <string.h>
#include <sys/auxv.h>

extern char **environ;

struct pin_options pin_options = {.report = "", .programs = ""};

/* A row of options.def. */
struct row {
	const char *name, *initial, *values, *doc;
	int (*parse)(const struct row *row, const char *text);
	void *field;
};

/* The place of the word that text begins with, n bytes, in a list such as "no, yes"; or -1. */
static int place_of(const char *list, const char *text, size_t n)
{
	int place = 0;

	for (const char *p = list; n && strcspn(text, ", ") >= n; p += 2, place++) {
		if (!strncmp(p, text, n) && (!p[n] || p[n] == ','))
			return place;
		p += strcspn(p, ",");
		if (!*p)
			break;
	}
	return -1;
}

static int parse_word(const struct row *row, const char *text)
{
	int place = place_of(row->values, text, strlen(text));

	if (place < 0)
		return -EINVAL;
	*(int *)row->field = place;
	return 0;
}

/*
 * Values are copied, because programs that set their title overwrite their environment.
 * Defaults are not copied: that would cost every process a page of memory each.
 */
static int parse_path(const struct row *row, const char *text)
{
	static char report[PATH_MAX], pattern[PATH_MAX];
	char *copy = row->field == &pin_options.report ? report : pattern;
	size_t n = strlen(text);

	/* Neither is meant as the name of a file. */
	if (copy == report && n == 3 && (text[0] | ' ') == 'o' && (text[1] | ' ') == 'f' &&
	    (text[2] | ' ') == 'f')
		text = row->initial;
	if (!n || n >= PATH_MAX || (copy == report && !strcmp(text, "stdout")))
		return -EINVAL;
	*(const char **)row->field = text == row->initial ? text : memmove(copy, text, n + 1);
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

/* What may stand behind the letter of a unit: all of these mean powers of 1024. */
static bool is_end_of_unit(const char *text)
{
	text += *text == 'i' || *text == 'I' ? text[1] == 'b' || text[1] == 'B' : 0;
	return !*text || ((*text == 'b' || *text == 'B') && !text[1]);
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
		if (!unit || !is_end_of_unit(text + 1))
			return -EINVAL;
		factor = (size_t)1 << (10 * ((size_t)(unit - units) % 4 + 1));
	}
	if (__builtin_mul_overflow(n, factor, &n) || n > PTRDIFF_MAX)
		return -EINVAL;
	*n_bytes = n;
	return 0;
}

/* What words mean where there could be a size or a number. */
static const struct {
	const char *word;
	size_t value;
} meanings[] = {{"off", 0}, {"none", SIZE_MAX}, {"auto", PIN_PINNED_AUTO}};

static int parse_size(const struct row *row, const char *text)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(meanings); i++)
		if (!strcmp(text, meanings[i].word) &&
		    place_of(row->values, text, strlen(text)) >= 0) {
			*(size_t *)row->field = meanings[i].value;
			return 0;
		}
	return pin_parse_size(text, row->field);
}

/* A size of memory: what is less than a page was meant in another unit. */
static int parse_memory(const struct row *row, const char *text)
{
	size_t n;

	if (!pin_parse_size(text, &n) && n && n < PIN_PAGE_LEAST)
		return -EINVAL;
	return parse_size(row, text);
}

/* A size of memory, or a percentage of RAM. */
static int parse_share(const struct row *row, const char *text)
{
	const char *p = text;
	size_t percent;

	if (parse_digits(&p, &percent) || p[0] != '%' || p[1] || percent > 100)
		return parse_memory(row, text);
	*(size_t *)row->field = pin_os_ram() / 100 * percent;
	return 0;
}

/* Bits in the order of enum pin_access; behind them is the one that means all. */
static int parse_access(const struct row *row, const char *text)
{
	unsigned bits = 0;
	size_t n;
	int place;

	do {
		n = strcspn(text, ",");
		place = place_of("local, write, read, atomic, all", text, n);
		if (place < 0)
			return -EINVAL;
		bits |= 1u << place;
		text += n + (text[n] == ',');
	} while (*text);
	bits = bits > PIN_ACCESS_ALL ? PIN_ACCESS_ALL : bits;
	/* The verbs demand local write access for remote write access. */
	if (bits & (PIN_ACCESS_WRITE | PIN_ACCESS_ATOMIC))
		bits |= PIN_ACCESS_LOCAL;
	*(unsigned *)row->field = bits;
	return 0;
}

static const struct row rows[] = {
#define OPTION(field, parser, name, initial, values, doc) \
	{name, initial, values, doc, parse_##parser, &pin_options.field},
#include "allocator/options.def"
};

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

/* The largest number of a text such as Slurm's 4(x2),3, without the repetitions. */
static size_t largest_number(const char *text)
{
	size_t most = 0, n;

	while (!parse_digits(&text, &n)) {
		most = n > most ? n : most;
		text += strcspn(text, ",");
		text += *text == ',';
	}
	return most;
}

size_t pin_options_ranks(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE",
					    "MPI_LOCALNRANKS",
					    "PMI_LOCAL_SIZE",
					    "PMIX_LOCAL_SIZE",
					    "PALS_LOCAL_SIZE",
					    "SLURM_STEP_TASKS_PER_NODE",
					    "SLURM_NTASKS_PER_NODE",
					    "SLURM_TASKS_PER_NODE"};
	size_t n = 0;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(names) && !n; i++) {
		const char *text = pin_environment(names[i]);

		n = text ? largest_number(text) : 0;
	}
	return n ? n : 1;
}

/* A tunable of glibc's that means the same as an option; of several the last one counts. */
static const char *const tunables[][2] = {{"PINALLOC_HUGEPAGE", "glibc.malloc.hugetlb="},
					  {"MALLOC_ARENA_MAX", "glibc.malloc.arena_max="},
					  {"MALLOC_TOP_PAD_", "glibc.malloc.top_pad="},
					  {"MALLOC_PERTURB_", "glibc.malloc.perturb="}};

/* What the environment says for an option; NULL if that is unset or empty. */
static const char *text_of(const char *option)
{
	static char value[32];
	const char *text = pin_environment(option), *name = NULL, *found = NULL;
	size_t n;

	if (text && *text)
		return text;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(tunables); i++)
		if (!strcmp(tunables[i][0], option))
			name = tunables[i][1];
	text = name ? pin_environment("GLIBC_TUNABLES") : NULL;
	while (text && (text = strstr(text, name)))
		found = text += strlen(name);
	n = found ? strcspn(found, ":") : 0;
	if (!n || n >= sizeof value)
		return NULL;
	*(char *)mempcpy(value, found, n) = '\0';
	if (name != tunables[0][1])
		return value;
	return !strcmp(value, "1") ? "thp" : !strcmp(value, "2") ? "hugetlb" : NULL;
}

static int set(const struct row *row, const char *text)
{
	int error = row->parse(row, text);

	pin_log_limit = (enum pin_log_level)pin_options.log;
	return error;
}

static void parse_row(const struct row *row)
{
	const char *text = text_of(row->name);

	set(row, row->initial);
	if (text && set(row, text))
		pin_warn("%s=%s is not understood: it takes %s; keeping %s", row->name, text,
			 row->values, row->initial);
}

int pin_options_set(const char *name, const char *text)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(rows); i++)
		if (!strcmp(name, rows[i].name))
			return set(&rows[i], text);
	return -ENOENT;
}

static bool is_known(const char *string)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(rows); i++)
		if (value_if_named(string, rows[i].name))
			return true;
	return value_if_named(string, "PINALLOC_HELP");
}

static void warn_unknown(void)
{
	for (char **e = trusted_environment(); e && *e; e++)
		if (!strncmp(*e, "PINALLOC_", 9) && (*e)[strlen(*e) - 1] != '=' &&
		    !is_known(*e))
			pin_warn("%s: no such option; PINALLOC_HELP=1 lists them", *e);
}

PIN_WRITTEN_FIRST static bool is_parsed;

void pin_options_init(void)
{
	if (is_parsed)
		return;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(rows); i++)
		parse_row(&rows[i]);
	if (!environ)
		return;
	warn_unknown();
	is_parsed = true;
}

bool pin_options_help(void)
{
	const char *value = pin_environment("PINALLOC_HELP");
	char line[512];
	size_t n;

	if (!value || !*value || !strcmp(value, "0"))
		return false;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(rows); i++) {
		n = pin_format(line, sizeof line, "%-23s %s (%s)\n%-23s %s\n", rows[i].name,
			       rows[i].values, rows[i].initial, "", rows[i].doc);
		pin_io_write(STDOUT_FILENO, line, n);
	}
	return true;
}
