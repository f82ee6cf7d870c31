/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file in which all processes of a user count what they pin: one that nobody else may
 * write, whatever was there before, and the same for all, however many make or replace it at
 * the same time, and whoever is killed then.
 */
#include <config.h>

#include "test/sharers.h"
#include "test/tap.h"

#include <fcntl.h>

static char next[80]; /* what is to become the file */

static void write_file(const char *at, size_t n_bytes, mode_t mode, char with)
{
	int fd = open(at, O_WRONLY | O_CREAT, 0600);
	char *text = malloc(n_bytes);

	memset(text, with, n_bytes);
	if (fd < 0 || write(fd, text, n_bytes) != (ssize_t)n_bytes || fchmod(fd, mode))
		abort();
	close(fd);
	free(text);
}

/* Some places of the file, and not its head. */
static void damage_slots(void)
{
	int fd = open(path, O_WRONLY);
	char text[640];

	memset(text, 0x55, sizeof text);
	if (fd < 0 || pwrite(fd, text, sizeof text, 64) != sizeof text)
		abort();
	close(fd);
}

static bool is_untouched(const char *at, size_t n_bytes)
{
	struct stat status;

	return !stat(at, &status) && (size_t)status.st_size == n_bytes;
}

static void files(void)
{
	char other[80];
	int fd;

	snprintf(other, sizeof other, "%s/other", directory);
	ok(!joins() && !joins(), "the first process makes the file, others use it");
	for (int with = 0; with < 256; with += 85) {
		write_file(path, 65536, 0600, (char)with);
		ok(!joins(), "a damaged file is replaced: %d", with);
	}
	damage_slots();
	ok(!joins(), "places with damaged figures are free");
	unlink(path);
	write_file(path, 100, 0600, 1);
	ok(!joins(), "a file of another size is");
	chmod(path, 0666);
	ok(!joins(), "one that others may write is");
	link(path, other);
	ok(!joins(), "one that has another name is");
	unlink(other);
	unlink(path);
	write_file(other, 70000, 0600, 7);
	if (symlink(other, path))
		abort();
	ok(!joins() && is_untouched(other, 70000), "a link is replaced, and not followed");
	unlink(other);
	forget_all();
	if (mkdir(path, 0700))
		abort();
	ok(joins() == 2, "if it cannot be replaced, the limit holds for each process alone");
	rmdir(path);
	if (mkdir(next, 0700))
		abort();
	ok(joins() == 2, "or not be made");
	rmdir(next);
	write_file(next, 65536, 0644, 7);
	fd = open(next, O_RDWR);
	if (fcntl(fd, F_SETLK, &(struct flock){.l_type = F_WRLCK}))
		abort();
	ok(joins() == 2 && is_untouched(next, 65536),
	   "or others may open it while it is made, who could make all wait");
	close(fd);
	chmod(next, 0600);
	link(next, other);
	ok(joins() == 2 && is_untouched(other, 65536), "or it is another file, too");
	unlink(other);
	ok(!joins() && access(next, F_OK), "what one has left that was killed is used");
}

static void take_one_and_stay(unsigned i)
{
	shared->rounds += take(i, CELL);
	while (!shared->stop)
		usleep(1000);
}

/* All at the same time, while there is no file: all must find the same. */
static void makers(void)
{
	pid_t children[MOST];
	unsigned bad = 0;

	for (int round = 0; round < 20; round++) {
		forget_all();
		for (unsigned i = 0; i < MOST; i++)
			children[i] = begin(take_one_and_stay, i);
		await_started(MOST);
		while (shared->rounds < MOST)
			usleep(1000);
		bad += joins() != 1;
		shared->stop = true;
		for (unsigned i = 0; i < MOST; i++)
			bad += end(children[i]) != 0;
	}
	ok(!bad, "of processes that make the file at the same time, all use the same");
}

/* --- a file that all have to replace --------------------------------------------------- */

static void damage(int round)
{
	static const size_t sizes[] = {65536, 100, 70000, 0};

	forget_all();
	if (round % 5 < 4)
		write_file(path, sizes[round % 5], round % 2 ? 0600 : 0666, 0x55);
	else if (symlink(directory, path))
		abort();
}

/* As the file that has the name says. */
static bool takes_part(pid_t pid)
{
	uint32_t words[16384];
	int fd = open(path, O_RDONLY);
	bool found = false;

	if (fd < 0 || read(fd, words, sizeof words) != sizeof words)
		abort();
	close(fd);
	/* The upper half of the first eight bytes of every place. */
	for (size_t i = 17; i < 16384; i += 16)
		found |= words[i] == (uint32_t)pid;
	return found;
}

/* Each has taken one, in the same file. */
static bool have_joined(const pid_t *children, unsigned n)
{
	bool all = false, same = true;

	for (int tries = 0; tries < 60000 && !all; tries++) {
		all = true;
		for (unsigned i = 0; i < n; i++)
			all &= !children[i] || shared->has[i];
		usleep(all ? 0 : 1000);
	}
	for (unsigned i = 0; i < n; i++)
		same &= !children[i] || takes_part(children[i]);
	return all && same;
}

/* Returns whether those that were not killed use the same. */
static bool replace_together(int round, unsigned n_killed)
{
	pid_t children[8];
	bool good;

	damage(round);
	for (unsigned i = 0; i < 8; i++)
		children[i] = begin_after(1, take_one_and_stay, i);
	shared->rounds = 1;
	while (n_killed--) {
		unsigned i = (unsigned)rand() % 8;

		usleep((unsigned)rand() % 300);
		if (children[i])
			kill_and_end(children[i], i);
		children[i] = 0;
	}
	good = have_joined(children, 8);
	shared->stop = true;
	for (unsigned i = 0; i < 8; i++)
		good &= !children[i] || !end(children[i]);
	return good;
}

static void replacers(void)
{
	unsigned bad = 0, worse = 0;

	for (int round = 0; round < 300; round++)
		bad += !replace_together(round, 0);
	ok(!bad,
	   "of processes that replace the file at the same time, all use the same: %u bad",
	   bad);
	ok(access(next, F_OK), "and nothing else is left");
	for (int round = 0; round < 300; round++)
		worse += !replace_together(round, 5);
	ok(!worse, "also if some are killed meanwhile: %u bad", worse);
	unlink(next);
}

int main(void)
{
	if (!begin_sharing())
		return 99;
	snprintf(next, sizeof next, "%s.new", path);
	files();
	makers();
	replacers();
	unlink(path);
	ok(!rmdir(directory), "no other file is left");
	return done_testing();
}
