/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Does a message still use the pages that a program sees, after it has replaced them? Rank 0
 * sends from, or rank 1 receives into, a buffer; then the pages behind its address are replaced
 * in one of the ways of stale-ways.h and filled again, and another message uses the same
 * address, for which the MPI library may still have a registration of the old pages; so three
 * times, as caches treat memory that they have seen before in another way. Every word that
 * arrives is checked.
 *
 *     mpi-stale list                prints "GROUP WAY" for each way
 *     mpi-stale [blind] [CASE…]     tries these cases, WAY:send or WAY:receive, or all
 *
 * One line a case: WAY SIDE OUTCOME WRONG STALE. The outcome is
 *     right    all words are
 *     corrupt  some are not, in the replaced pages (WRONG words, of which STALE are
 *              those of the message before), and nothing said so
 *     error    the pages could not be replaced
 *     never    malloc never gave the same address again
 *     hang     it took too long, which ends the job
 * Errors of the MPI library end the job too.
 *
 * "blind" tells UCX that unmapped memory is reported to it, but nothing is: a registration
 * cache without any invalidation.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>

#define WRONG_SAID 10000 /* that is expected of some ways */
#include "stale-ways.h"
#include "wrong.h"

#define WORDS	 (BYTES / sizeof(uint64_t))
#define ATTEMPTS 8
#define SECONDS	 20 /* for a case */
#define MESSAGES 4

static const char *const sides[] = {"send", "receive"}; /* by the rank concerned */
static const char *const outcomes[] = {"right", "never", "error"};

/* The buffer of the other side: its pages never change. */
static uint64_t steady[WORDS];
static int rank;

/* What is said if the case takes too long. */
static char hang[80];

/* What a message did to the receiver's words. */
struct damage {
	unsigned long wrong, stale;
};

/*
 * Both sides write their whole buffer before it is used, the receiver something else; both say
 * what they have if it arrives wrong.
 */
static struct damage message(const char *way, uint64_t *words, uint64_t seed)
{
	const char *kind = words == steady ? "a steady array" : way;
	struct damage damage = {0, 0};
	struct wrong wrong = {0};
	char who[128];

	wrong_fill(words, BYTES, rank == 0 ? seed : ~seed);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		MPI_Send(words, WORDS, MPI_UINT64_T, 1, 0, MPI_COMM_WORLD);
	else
		MPI_Recv(words, WORDS, MPI_UINT64_T, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank == 1)
		damage.wrong = wrong_find(&wrong, words, BYTES, seed);
	for (size_t i = 0; rank == 1 && i < WORDS; i++)
		damage.stale += words[i] == wrong_word(seed - 1, i);
	MPI_Bcast(&damage, 2, MPI_UNSIGNED_LONG, 1, MPI_COMM_WORLD);
	snprintf(who, sizeof who, "mpi-stale: rank %d, %s", rank, way);
	if (damage.wrong && rank == 1)
		wrong_say(who, &wrong, kind, words);
	else if (damage.wrong)
		wrong_say_sent(who, seed, damage.wrong, kind, words);
	return damage;
}

static enum result agree(enum result mine)
{
	int result = mine, both;

	MPI_Allreduce(&result, &both, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	return both;
}

static void add_message(const struct way *way, const struct place *place, uint64_t seed,
			struct damage *damage)
{
	struct damage found = message(way->name, (uint64_t *)place->buffer, seed);

	damage->wrong += found.wrong;
	damage->stale += found.stale;
}

/*
 * A new block, a message, new pages, the same again, as often as that is possible; in some ways
 * pages can be replaced once only.
 */
static enum result try_once(const struct way *way, bool mine, uint64_t seed,
			    struct damage *damage)
{
	struct place place = {(char *)steady, BYTES, NULL, -1};
	enum result result;

	if ((result = agree(mine ? way->make(&place) : DONE)))
		return result;
	add_message(way, &place, seed, damage);
	for (int i = 1; i < MESSAGES; i++) {
		if ((result = agree(mine ? replace_pages(way, &place) : DONE)))
			return i > 1 ? DONE : result;
		add_message(way, &place, seed + (uint64_t)i, damage);
	}
	return DONE;
}

static void say_hang(int signal)
{
	(void)signal;
	_exit(write(STDOUT_FILENO, hang, strlen(hang)) > 0);
}

/* The other rank's patience ends later, and without a word. */
static void limit_time(const struct way *way, int side)
{
	snprintf(hang, sizeof hang, "%s %s hang 0 0\n", way->name, sides[side]);
	if (rank == 0)
		signal(SIGALRM, say_hang);
	alarm(rank == 0 ? SECONDS : SECONDS + 2);
}

static void try_case(const struct way *way, int side)
{
	static uint64_t seed = 1000;
	struct damage damage = {0, 0};
	enum result result = ELSEWHERE;

	limit_time(way, side);
	for (int i = 0; i < ATTEMPTS && result == ELSEWHERE; i++, seed += MESSAGES)
		result = try_once(way, side == rank, seed, &damage);
	alarm(0);
	if (rank == 0) {
		printf("%s %s %s %lu %lu\n", way->name, sides[side],
		       damage.wrong ? "corrupt" : outcomes[result], damage.wrong, damage.stale);
		fflush(stdout);
	}
}

/* Whether it is one of those named, "WAY:SIDE"; all are if none is. */
static bool wanted(const struct way *way, int side, char **names)
{
	size_t n = strlen(way->name);

	for (char **name = names; *name; name++)
		if (!strncmp(*name, way->name, n) && (*name)[n] == ':' &&
		    !strcmp(*name + n + 1, sides[side]))
			return true;
	return !*names;
}

/* Before UCX opens a device. What is asked for is in libucm, which libucs needs. */
static bool blind(void)
{
	const int unmapped = 1 << 17; /* UCM_EVENT_VM_UNMAPPED */
	void *handle = dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL);
	void (*set)(int) = handle ? (void (*)(int))dlsym(handle, "ucm_set_external_event")
				  : NULL;

	if (!set)
		return false;
	set(unmapped);
	return true;
}

static int list(void)
{
	for (size_t i = 0; i < N_WAYS; i++)
		printf("%s %s\n", ways[i].group, ways[i].name);
	return 0;
}

int main(int argc, char **argv)
{
	char **names = argv + (argc > 0);

	if (*names && !strcmp(*names, "list"))
		return list();
	if (*names && !strcmp(*names, "blind")) {
		names++;
		if (!blind()) {
			fprintf(stderr, "mpi-stale: %s\n", dlerror());
			return 2;
		}
	}
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (size_t i = 0; i < N_WAYS; i++)
		for (int side = 0; side < 2; side++)
			if (wanted(&ways[i], side, names))
				try_case(&ways[i], side);
	MPI_Finalize();
	return 0;
}
