/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/host-budget.h"
#include "allocator/file.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* If this or what follows changes, so must the number in the file's name. */
#define MAGIC 0x64656e6e6970u
#define SLOTS 1023

/* An owner that is gone is being removed. */
#define LEAVING 1u

struct slot {
	_Atomic uint64_t owner;	  /* pid << 32 | PID namespace; 0: the slot is free */
	_Atomic uint64_t started; /* clock ticks after boot; 0: not known */
	_Atomic uint64_t pinned;  /* bytes */
	_Atomic uint64_t wanted;  /* bytes it is entitled to and did not get */
} __attribute__((aligned(64)));

struct file {
	_Atomic uint64_t magic, n_slots;
	struct slot slots[SLOTS];
};

/* If a share was not asked for again for so long, it is not wanted any more. */
#define WANTED_NS 10000000000ull

/* How often to look for processes that are gone, which reads a file for each. */
#define LOOK_NS 100000000ull

const char *pin_host_budget_directory = "/dev/shm";

struct pin_host_budget pin_host_budget;
static struct file *file; /* NULL: there is none, and `own` is `alone` */
static struct slot *own, alone;
static _Atomic uint64_t wanted_at, looked_at;

/* --- processes ------------------------------------------------------------------- */

static uint64_t owner_of(pid_t pid)
{
	struct stat status;
	uint64_t namespace = stat("/proc/self/ns/pid", &status) ? 0 : (uint32_t)status.st_ino;

	return (uint64_t)pid << 32 | namespace;
}

/* The words of /proc/PID/stat after the program's name, which may contain anything. */
static bool read_status(pid_t pid, char *state, uint64_t *started)
{
	char path[64], text[1024], *at;

	pin_format(path, sizeof path, "/proc/%d/stat", pid);
	if (pin_file_read(path, text, sizeof text) <= 0 || !(at = strrchr(text, ')')) || !at[1])
		return false;
	*state = at[2];
	for (int word = 2; word < 22 && at; word++)
		at = strchr(at + 1, ' ');
	*started = 0;
	for (; at && at[1] >= '0' && at[1] <= '9'; at++)
		*started = *started * 10 + (uint64_t)(at[1] - '0');
	return at;
}

static uint64_t start_of(pid_t pid)
{
	uint64_t started;
	char state;

	return read_status(pid, &state, &started) ? started : 0;
}

/*
 * A process of another PID namespace cannot be seen: it is believed to live. None has pinned
 * more than there is.
 */
static bool is_gone(const struct slot *slot, uint64_t owner)
{
	uint64_t since = slot->started, started;
	pid_t pid = (pid_t)(owner >> 32);
	int saved = errno;
	bool is_dead;
	char state;

	if (pin_os_ram() && slot->pinned > pin_os_ram())
		return true;
	if ((uint32_t)owner != (uint32_t)own->owner)
		return false;
	is_dead = kill(pid, 0) && errno == ESRCH;
	errno = saved;
	if (is_dead || !since || !read_status(pid, &state, &started))
		return is_dead;
	return started != since || state == 'Z' || state == 'X';
}

/* Returns whether something was given back. */
static bool remove_the_dead(void)
{
	uint64_t now = pin_os_now_ns(), last = looked_at;
	bool removed = false;

	if (!file || now - last < LOOK_NS ||
	    !atomic_compare_exchange_strong(&looked_at, &last, now))
		return false;
	for (int i = 0; i < SLOTS; i++) {
		struct slot *slot = &file->slots[i];
		uint64_t owner = slot->owner;

		if (owner <= LEAVING || slot == own || !is_gone(slot, owner) ||
		    !atomic_compare_exchange_strong(&slot->owner, &owner, LEAVING))
			continue;
		removed |= slot->pinned != 0;
		slot->started = slot->pinned = slot->wanted = 0;
		slot->owner = 0;
	}
	return removed;
}

/* --- the file -------------------------------------------------------------------- */

/* A program that was replaced with exec() has its slot still. */
static struct slot *claim_slot(struct file *in)
{
	uint64_t me = owner_of(getpid()), none;

	for (int i = 0; i < SLOTS; i++)
		if (in->slots[i].owner == me) {
			in->slots[i].pinned = in->slots[i].wanted = 0;
			return &in->slots[i];
		}
	for (int i = 0; i < SLOTS; i++) {
		none = 0;
		if (atomic_compare_exchange_strong(&in->slots[i].owner, &none, me))
			return &in->slots[i];
	}
	return NULL;
}

/* Nobody else may open it. */
static bool is_private(const struct stat *status)
{
	return S_ISREG(status->st_mode) && !(status->st_mode & 077) &&
	       status->st_uid == geteuid();
}

static struct file *map_existing(const char *path)
{
	int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct file *found = NULL;
	struct stat status;

	if (fd < 0)
		return NULL;
	/* It may have no other name either. */
	if (!fstat(fd, &status) && is_private(&status) && status.st_nlink == 1 &&
	    status.st_size == sizeof(struct file))
		found = pin_os_map_shared(fd, sizeof *found);
	close(fd);
	return found && found->magic == MAGIC && found->n_slots == SLOTS ? found : NULL;
}

/* A lock that a process has, and not those it forks; it ends with the process. */
static int lock(int fd)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	while (fcntl(fd, F_SETLKW, &whole))
		if (errno != EINTR)
			return -errno;
	return 0;
}

/*
 * What is to become the file. Only who has it locked takes its name away, so one process at a
 * time is here. What one has left that was killed is used.
 */
static int open_next(const char *path)
{
	struct stat status, named;
	int fd, error;

	for (;;) {
		fd = open(path,
			  O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
			  0600);
		if (fd < 0)
			return -errno;
		/* What others can open, others can lock, for good. */
		error = fstat(fd, &status) ? -errno : is_private(&status) ? lock(fd) : -EPERM;
		if (!error && !lstat(path, &named) && status.st_dev == named.st_dev &&
		    status.st_ino == named.st_ino) {
			if (named.st_nlink == 1)
				return fd;
			error = -EPERM;
		}
		close(fd);
		if (error)
			return error;
	}
}

/* It is complete before it has its name. */
static int complete(int fd, const char *next, const char *path)
{
	uint64_t head[] = {MAGIC, SLOTS};

	/* Written, not only sized: without room there would be a SIGBUS later. */
	if (ftruncate(fd, 0) || posix_fallocate(fd, 0, sizeof(struct file)) ||
	    pin_file_write(fd, (const char *)head, sizeof head))
		return -ENOSPC;
	return syscall(SYS_renameat2, AT_FDCWD, next, AT_FDCWD, path, 0) ? -errno : 0;
}

/* What cannot be used is replaced, by one process. The others wait, and find that one's. */
static struct file *find_file(int *error)
{
	char path[PATH_MAX], next[PATH_MAX];
	struct file *found;
	int fd;

	pin_format(path, sizeof path, "%s/pinalloc-pinned-1-%u", pin_host_budget_directory,
		   geteuid());
	pin_format(next, sizeof next, "%s.new", path);
	found = map_existing(path);
	if (found)
		return found;
	fd = open_next(next);
	if (fd < 0) {
		*error = fd;
		return NULL;
	}
	found = map_existing(path);
	*error = found ? 0 : complete(fd, next, path);
	if (found || *error)
		unlink(next);
	else if (!(found = pin_os_map_shared(fd, sizeof *found)))
		*error = -ENOMEM;
	close(fd);
	return found;
}

static void join(void)
{
	int saved = errno, error = 0;
	struct file *found = find_file(&error);

	pin_host_budget.limit = pin_options.node_pinned;
	own = found ? claim_slot(found) : NULL;
	if (own) {
		own->started = start_of(getpid());
		file = found;
		remove_the_dead();
	} else {
		own = &alone;
		pin_warn_once(
			"PINALLOC_NODE_PINNED: %s/pinalloc-pinned-1-%u: %s; it holds for "
			"this process alone: remove the file, and that with .new, on each "
			"host",
			pin_host_budget_directory, geteuid(),
			found ? "all places are taken" : strerrordesc_np(-error));
	}
	errno = saved;
}

void pin_host_budget_join(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (pin_options.node_pinned)
		pthread_once(&once, join);
}

void pin_host_budget_leave(void)
{
	file = NULL;
	own = NULL;
	pin_host_budget.limit = 0;
}

/* --- what is pinned -------------------------------------------------------------- */

struct sums {
	size_t pinned, n;
	size_t wanted; /* by others */
};

static struct sums add_up(void)
{
	struct sums sums = {0};

	if (!file)
		return (struct sums){own->pinned, 1, 0};
	for (int i = 0; i < SLOTS; i++) {
		const struct slot *slot = &file->slots[i];

		if (slot->owner <= LEAVING)
			continue;
		sums.n++;
		sums.pinned += slot->pinned;
		sums.wanted += slot == own ? 0 : slot->wanted;
	}
	return sums;
}

static size_t share_of(const struct sums *sums)
{
	return pin_host_budget.limit / (sums->n ? sums->n : 1);
}

static size_t less(size_t a, size_t b)
{
	return a > b ? a - b : 0;
}

/* What others are entitled to is not taken beyond the own share. */
static bool is_within(const struct sums *sums)
{
	size_t reserved = own->pinned > share_of(sums) ? sums->wanted : 0;

	return sums->pinned + reserved <= pin_host_budget.limit;
}

static void note_peak(size_t pinned)
{
	size_t seen = pin_host_budget.peak;

	while (seen < pinned &&
	       !atomic_compare_exchange_weak(&pin_host_budget.peak, &seen, pinned))
		;
}

/* Only threads of this process change it. */
static void want(size_t n_bytes)
{
	if (own->wanted < n_bytes)
		own->wanted = n_bytes;
	wanted_at = pin_os_now_ns();
}

void pin_host_budget_count(size_t n_bytes)
{
	if (own)
		atomic_fetch_add(&own->pinned, n_bytes);
}

void pin_host_budget_uncount(size_t n_bytes)
{
	if (own)
		atomic_fetch_sub(&own->pinned, n_bytes);
}

bool pin_host_budget_allows(size_t n_bytes)
{
	struct sums sums;

	if (!own)
		return true;
	sums = add_up();
	if (!is_within(&sums) && remove_the_dead())
		sums = add_up();
	if (is_within(&sums)) {
		own->wanted = less(own->wanted, n_bytes);
		note_peak(sums.pinned);
		return true;
	}
	atomic_fetch_add(&pin_host_budget.refused, n_bytes);
	if (own->pinned <= share_of(&sums))
		want(n_bytes);
	return false;
}

size_t pin_host_budget_allowance(void)
{
	struct sums sums;

	if (!own)
		return SIZE_MAX;
	sums = add_up();
	return less(pin_host_budget.limit, less(sums.pinned, own->pinned));
}

bool pin_host_budget_owes(void)
{
	struct sums sums;

	if (!own)
		return false;
	sums = add_up();
	return own->pinned > share_of(&sums) &&
	       sums.wanted > less(pin_host_budget.limit, sums.pinned);
}

bool pin_host_budget_has_room(void)
{
	struct sums sums;

	if (!own || !own->wanted)
		return false;
	if (pin_os_now_ns() - wanted_at > WANTED_NS)
		own->wanted = 0;
	remove_the_dead();
	sums = add_up();
	return own->wanted && sums.pinned + own->wanted <= pin_host_budget.limit;
}
