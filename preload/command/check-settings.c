/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The environment: options with a wrong value, and settings of other software that do harm to
 * a heap that stays where it is.
 */
#include <config.h>

#include "allocator/options.h"
#include "preload/command/check.h"
#include "preload/command/library.h"
#include "preload/conflicts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_clear = true; /* nothing was found so far */

static const struct {
	const char *name, *initial, *values;
} rows[] = {
#define OPTION(field, parser, name, initial, values, doc) {name, initial, values},
#include "allocator/options.def"
};

static void check_row(size_t row)
{
	const char *text = pin_options_text(rows[row].name);

	pin_options_set(rows[row].name, rows[row].initial);
	if (!text || !pin_options_set(rows[row].name, text))
		return;
	is_clear = false;
	cmd_check_say(CMD_WARN, "environment", "correct or unset it",
		      "%s=%s is not understood: it takes %s; %s holds instead", rows[row].name,
		      text, rows[row].values, rows[row].initial);
}

static void check_name(const char *variable)
{
	size_t n = strcspn(variable, "=");
	const char *now;
	char name[64];

	for (size_t i = 0; i < PIN_ARRAY_SIZE(rows); i++)
		if (strlen(rows[i].name) == n && !memcmp(rows[i].name, variable, n))
			return;
	if (!strncmp(variable, "PINALLOC_HELP=", n + 1))
		return;
	is_clear = false;
	snprintf(name, sizeof name, "%.*s", (int)n, variable);
	now = pin_options_renamed(name);
	if (now)
		cmd_check_say(CMD_WARN, "environment", "rename it", "%s is called %s now", name,
			      now);
	else
		cmd_check_say(CMD_WARN, "environment", "pinalloc run --help lists them",
			      "%s: there is no such option", variable);
}

/* The directory of PINALLOC_REPORT. */
static void report_directory(char directory[PATH_MAX])
{
	char *slash;

	strcpy(directory, pin_options.report);
	slash = strrchr(directory, '/');
	if (!slash)
		strcpy(directory, ".");
	else
		slash[slash == directory] = '\0';
}

/* Otherwise the user would learn that a report cannot be written when the job is over. */
static void check_report(void)
{
	char directory[PATH_MAX];
	struct stat status;

	if (!strcmp(pin_options.report, "off") || !strcmp(pin_options.report, "stderr"))
		return;
	if (!stat(pin_options.report, &status) && S_ISDIR(status.st_mode)) {
		is_clear = false;
		cmd_check_say(CMD_WARN, "environment", "name a file in it, such as %h.%r.json",
			      "PINALLOC_REPORT: %s is a directory", pin_options.report);
		return;
	}
	report_directory(directory);
	if (strchr(directory, '%') || !access(directory, W_OK | X_OK) ||
	    !access(pin_options.report, W_OK))
		return;
	is_clear = false;
	cmd_check_say(CMD_WARN, "environment", "make the directory, on every host",
		      "PINALLOC_REPORT: no file can be written in %s", directory);
}

void cmd_check_options(void)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(rows); i++)
		check_row(i);
	for (char **e = environ; *e; e++)
		if (!strncmp(*e, "PINALLOC_", 9))
			check_name(*e);
	check_report();
}

/* The variable's value; "" when it is not set. */
static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

static bool is_set_to(const char *name, const char *value)
{
	return !strcasecmp(variable(name), value);
}

/* Whether a variable switches something off in UCX. */
static bool is_switched_off(const char *name)
{
	return pin_ucx_is_off(getenv(name));
}

static bool ucx_may_replace_malloc(void)
{
	return !is_switched_off("UCX_MEM_MALLOC_RELOC");
}

/* The cache of UCX evicts nothing when memory cannot be pinned (ucs_rcache, UCX 1.13 to 1.18).
 */
static bool ucx_keeps_all(void)
{
	return cmd_check_memlock_is_limited() && cmd_check_ucx_caches();
}

static bool ucx_of_two_caches_keeps_all(void)
{
	return !cmd_check_ucx_has_one_cache() && ucx_keeps_all();
}

/* The default of UCX_IB_RCACHE_MAX_SIZE is UCX_RCACHE_MAX_SIZE. */
static bool ucx_keeps_all_by_default(void)
{
	return ucx_keeps_all() &&
	       (is_set_to("UCX_IB_RCACHE_MAX_SIZE", "") || cmd_check_ucx_has_one_cache());
}

static bool ucx_caches_all_the_same(void)
{
	return cmd_check_ucx_has_two_caches() && cmd_check_ucx_caches();
}

/* Case matters, as in the library. */
static bool nothing_is_registered(void)
{
	return !strcmp(variable("PINALLOC_REGISTER"), "off");
}

static bool open_mpi_notices_nothing(void)
{
	return strstr(variable("OMPI_MCA_memory"), "^patcher");
}

static bool fork_copies_nothing(void)
{
	return !cmd_check_fork_copies();
}

static bool always(void)
{
	return true;
}

#define UCX_KEEPS_ALL \
	"lets UCX's cache keep all memory when the limit on locked memory is reached"
#define LIMIT_UCX                                                                    \
	"set it to a quarter of the limit, or UCX_RCACHE_ENABLE=n, before UCX 1.16 " \
	"UCX_IB_REG_METHODS=direct"

/*
 * Each row is a variable and the value to look for: "" for not set, "*" for any, "n" for a
 * switch of UCX that is off. `holds` says what else must be true.
 */
static const struct {
	enum cmd_grade grade;
	const char *name, *value;
	bool (*holds)(void);
	const char *finding, *cure;
} settings[] = {
	{CMD_FAIL, "UCX_MEM_MMAP_HOOK_MODE", "reloc", ucx_may_replace_malloc,
	 PIN_UCX_RELOC_FINDING, PIN_UCX_RELOC_CURE},
	{CMD_WARN, "UCX_MEM_MMAP_HOOK_MODE", "none", always,
	 "keeps UCX from noticing what is unmapped: the heap is safe, what a program maps "
	 "itself is not",
	 "unset it"},
	{CMD_WARN, "UCX_MEM_EVENTS", "n", always,
	 "keeps UCX from noticing what is unmapped and takes its cache of registrations away",
	 "unset it"},
	{CMD_WARN, "UCX_RCACHE_MAX_SIZE", "", ucx_keeps_all_by_default,
	 "is not set, and UCX's cache never gives up memory when the limit on locked memory is "
	 "reached",
	 LIMIT_UCX},
	{CMD_WARN, "UCX_RCACHE_MAX_SIZE", "inf", ucx_keeps_all_by_default, UCX_KEEPS_ALL,
	 LIMIT_UCX},
	{CMD_WARN, "UCX_IB_RCACHE_MAX_SIZE", "inf", ucx_of_two_caches_keeps_all, UCX_KEEPS_ALL,
	 LIMIT_UCX},
	{CMD_WARN, "UCX_IB_RCACHE_MAX_SIZE", "*", cmd_check_ucx_has_one_cache,
	 "is unknown to the UCX here, as to any since 1.16", "set UCX_RCACHE_MAX_SIZE"},
	{CMD_WARN, "UCX_IB_REG_METHODS", "*", cmd_check_ucx_has_one_cache,
	 "is unknown to the UCX here, as to any since 1.16",
	 "to do without its cache of registrations set UCX_RCACHE_ENABLE=n"},
	{CMD_WARN, "UCX_RCACHE_ENABLE", "n", ucx_caches_all_the_same,
	 "leaves a cache of registrations to the UCX here, as to any before 1.16",
	 "to do without set UCX_IB_REG_METHODS=direct"},
	{CMD_WARN, "OMPI_MCA_mpi_leave_pinned", "1", open_mpi_notices_nothing,
	 "caches registrations, but OMPI_MCA_memory=^patcher keeps Open MPI from noticing "
	 "what is unmapped: the heap is safe, what a program maps itself is not",
	 "unset one of them"},
	{CMD_WARN, "RDMAV_FORK_SAFE", "*", fork_copies_nothing,
	 "keeps the heap from being registered ahead on this kernel", "unset it"},
	{CMD_WARN, "IBV_FORK_SAFE", "*", fork_copies_nothing,
	 "keeps the heap from being registered ahead on this kernel", "unset it"},
	{CMD_WARN, "RDMAV_HUGEPAGES_SAFE", "*", fork_copies_nothing,
	 "makes each registration read /proc/self/smaps on this kernel", "unset it"},
	{CMD_FAIL, "PINALLOC_HELP", "1", always,
	 "lets programs print the options instead of running", "unset it"},
	{CMD_WARN, "PINALLOC_REGISTER", "off", nothing_is_registered,
	 "keeps the heap from being registered", "unset it"},
	{CMD_OK, "MALLOC_CONF", "*", always,
	 "reaches the heap as well, except for what would give memory back", NULL},
};

static bool has_value(const char *name, const char *value)
{
	if (!strcmp(value, "*"))
		return *variable(name);
	return strcmp(value, "n") ? is_set_to(name, value) : is_switched_off(name);
}

static bool matches(size_t i)
{
	return has_value(settings[i].name, settings[i].value) && settings[i].holds();
}

static void check_setting(size_t i)
{
	const char *value = variable(settings[i].name);

	if (!matches(i))
		return;
	is_clear = false;
	cmd_check_say(settings[i].grade, "environment", settings[i].cure, "%s%s%s %s",
		      settings[i].name, *value ? "=" : "", value, settings[i].finding);
}

static bool is_allocator(const char *name, size_t length)
{
	static const char *const names[] = {
		"libjemalloc", "libtcmalloc", "libmimalloc", "libtbbmalloc_proxy", "libhoard",
		"librpmalloc", "libsnmalloc", "libscalloc",  "libnedmalloc",	   "libasan",
		"liblsan",     "libtsan",     "libscudo",
	};

	for (size_t i = 0; i < PIN_ARRAY_SIZE(names); i++)
		if (length >= strlen(names[i]) && !strncmp(name, names[i], strlen(names[i])))
			return true;
	return false;
}

/* Only those before the library matter; pinalloc run puts it first. */
static void check_preloads(void)
{
	const char *at = variable("LD_PRELOAD"), *name;
	size_t length;

	while ((name = cmd_library_next(&at, &length)) &&
	       strncmp(name, CMD_LIBRARY_NAME, strlen(CMD_LIBRARY_NAME)) != 0) {
		if (!is_allocator(name, length))
			continue;
		is_clear = false;
		cmd_check_say(CMD_WARN, "environment",
			      "put libpinalloc.so first, as pinalloc run does, or leave it out",
			      "LD_PRELOAD names another malloc, %.*s", (int)length, name);
	}
}

void cmd_check_settings(void)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(settings); i++)
		check_setting(i);
	check_preloads();
	if (is_clear)
		cmd_check_say(CMD_OK, "environment", NULL,
			      "nothing is set that works against the heap");
}
