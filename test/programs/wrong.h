/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What messages in the lab's programs are made of, and what is said if one arrives wrong: which
 * words, what was found instead and of which other message that is, and the memory concerned,
 * with the page frames it had when it was registered or first used and has now. Frames are told
 * to root only; they are 0 for others, and of pages that are not there.
 */
#ifndef WRONG_H
#define WRONG_H

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WRONG_PAGE ((size_t)4096)
/* Messages of which that is said; the next ones are only counted. */
#ifndef WRONG_SAID
#define WRONG_SAID 10
#endif

#define WRONG_OWNER 160
#define WRONG_LINE  512

enum {
	WRONG_FRAMES = 64, /* that are noted, at equal distances */
	WRONG_NOTES = 128, /* of memory that is seen again */
};

/* Odd, so that there is an inverse, by which a word tells its message. */
#define WRONG_FACTOR  0x9e3779b97f4a7c15u
#define WRONG_INVERSE 0xf1de83e19937733du

/* --- words --------------------------------------------------------------------------- */

/* Word i of the message with this seed. */
static inline uint64_t wrong_word(uint64_t seed, size_t i)
{
	return (seed + 1) * WRONG_FACTOR + i;
}

/* The rest at the end is a part of a word. */
static inline void wrong_fill(void *to, size_t n_bytes, uint64_t seed)
{
	char *p = to;
	uint64_t word;

	for (size_t i = 0; i < n_bytes / 8; i++) {
		word = wrong_word(seed, i);
		memcpy(p + 8 * i, &word, 8);
	}
	word = wrong_word(seed, n_bytes / 8);
	memcpy(p + n_bytes / 8 * 8, &word, n_bytes % 8);
}

/* The seed of the message whose word i this is. */
static inline uint64_t wrong_seed(uint64_t word, size_t i)
{
	return (word - i) * WRONG_INVERSE - 1;
}

/* A message as it was found; the last word may be a part of one. */
struct wrong {
	size_t n_words, count; /* all, and the wrong ones */
	size_t first;	       /* that is wrong; if none is, n_words */
	uint64_t seed, expected, found;
	uint64_t found_seed; /* of the first, if it is a word of any message */
	size_t of_found;     /* how many are of that message, or the same word */
};

static inline void wrong_expect(struct wrong *wrong, size_t i, uint64_t expected,
				uint64_t found)
{
	uint64_t seed = wrong_seed(found, i);

	if (found == expected)
		return;
	if (!wrong->count++) {
		wrong->first = i;
		wrong->expected = expected;
		wrong->found = found;
		wrong->found_seed = seed;
	}
	wrong->of_found += found == wrong->found || seed == wrong->found_seed;
}

/* Returns how many words are wrong. */
static inline size_t wrong_find(struct wrong *wrong, const void *at, size_t n_bytes,
				uint64_t seed)
{
	size_t n_words = (n_bytes + 7) / 8;

	*wrong = (struct wrong){.n_words = n_words, .first = n_words, .seed = seed};
	for (size_t i = 0; i < n_words; i++) {
		size_t size = n_bytes - 8 * i < 8 ? n_bytes - 8 * i : 8;
		uint64_t expected = wrong_word(seed, i), found = expected;

		memcpy(&found, (const char *)at + 8 * i, size);
		wrong_expect(wrong, i, expected, found);
	}
	return wrong->count;
}

/*
 * Whose the wrong words are. Programs number their messages, or nearly so, and receivers write
 * the inverse of the number before a message arrives: others are no seeds.
 */
static inline const char *wrong_owner(const struct wrong *wrong, char text[WRONG_OWNER])
{
	const uint64_t most = UINT64_C(1) << 60;
	uint64_t seed = wrong->found_seed;

	if (!wrong->found)
		return "zeros";
	if (seed == ~wrong->seed)
		return "what was there before: nothing arrived";
	if (seed < most)
		snprintf(text, WRONG_OWNER, "those of message %#lx", (unsigned long)seed);
	else if (~seed < most)
		snprintf(text, WRONG_OWNER, "what was there before message %#lx",
			 (unsigned long)~seed);
	else
		return "of no message";
	return text;
}

static inline const char *wrong_words_text(const struct wrong *wrong, const char *owner,
					   char text[WRONG_LINE])
{
	snprintf(text, WRONG_LINE,
		 "%zu of %zu words of message %#lx wrong, from byte %#zx on: found %#018lx, "
		 "expected %#018lx; %zu of them are %s",
		 wrong->count, wrong->n_words, (unsigned long)wrong->seed, 8 * wrong->first,
		 (unsigned long)wrong->found, (unsigned long)wrong->expected, wrong->of_found,
		 owner);
	return text;
}

/* --- memory -------------------------------------------------------------------------- */

/* As it was when it was noted. */
struct wrong_memory {
	char kind[24];
	const char *at;
	size_t n_bytes;
	size_t stride; /* pages from one whose frame is known to the next */
	uint64_t frames[WRONG_FRAMES];
};

static inline int wrong_open_frames(void)
{
	return open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
}

/* The lower bits of an entry are the frame, where the top one says that there is a page. */
static inline uint64_t wrong_frame(int frames, const void *at)
{
	uint64_t entry = 0;

	if (pread(frames, &entry, sizeof entry, (off_t)((uintptr_t)at / WRONG_PAGE * 8)) != 8)
		return 0;
	return entry >> 63 ? entry & ((UINT64_C(1) << 55) - 1) : 0;
}

static inline size_t wrong_n_frames(const struct wrong_memory *memory)
{
	size_t offset = (uintptr_t)memory->at % WRONG_PAGE;
	size_t n_pages = (offset + memory->n_bytes + WRONG_PAGE - 1) / WRONG_PAGE;

	return (n_pages + memory->stride - 1) / memory->stride;
}

/* An address in the page of which frame i is. */
static inline const char *wrong_page(const struct wrong_memory *memory, size_t i)
{
	return memory->at - (uintptr_t)memory->at % WRONG_PAGE +
	       i * memory->stride * WRONG_PAGE;
}

static inline void wrong_note(struct wrong_memory *memory, const char *kind, const void *at,
			      size_t n_bytes)
{
	int frames = wrong_open_frames();

	memory->at = at;
	memory->n_bytes = n_bytes;
	memory->stride = n_bytes / WRONG_PAGE / (WRONG_FRAMES - 1) + 1;
	snprintf(memory->kind, sizeof memory->kind, "%s", kind);
	for (size_t i = 0; i < wrong_n_frames(memory); i++)
		memory->frames[i] = wrong_frame(frames, wrong_page(memory, i));
	close(frames);
}

/* With the frame nearest to this offset. */
static inline const char *wrong_memory_text(const struct wrong_memory *memory, size_t offset,
					    char text[WRONG_LINE])
{
	size_t n = wrong_n_frames(memory), changed = 0, near;
	uint64_t now[WRONG_FRAMES];
	int frames = wrong_open_frames();

	near = ((uintptr_t)memory->at % WRONG_PAGE + offset) / WRONG_PAGE / memory->stride;
	near = near < n ? near : n - 1;
	for (size_t i = 0; i < n; i++) {
		now[i] = wrong_frame(frames, wrong_page(memory, i));
		changed += now[i] != memory->frames[i];
	}
	snprintf(text, WRONG_LINE,
		 "%s %p, %zu bytes, frame of the page at %p: then %#lx, now %#lx; "
		 "%zu of %zu others changed",
		 memory->kind, (const void *)memory->at, memory->n_bytes,
		 (const void *)wrong_page(memory, near), (unsigned long)memory->frames[near],
		 (unsigned long)now[near], changed - (now[near] != memory->frames[near]),
		 n - 1);
	close(frames);
	return text;
}

/*
 * Memory as it was when this process used its address first, as far back as that is known: from
 * then on an MPI library may have it registered. Any thread may ask.
 */
static inline const struct wrong_memory *wrong_use(const char *kind, const void *at,
						   size_t n_bytes)
{
	static struct wrong_memory notes[WRONG_NOTES];
	static atomic_flag busy = ATOMIC_FLAG_INIT;
	static size_t next;
	size_t i;

	while (atomic_flag_test_and_set(&busy))
		sched_yield();
	for (i = 0; i < WRONG_NOTES && notes[i].at != at; i++)
		;
	if (i == WRONG_NOTES) {
		i = next++ % WRONG_NOTES;
		wrong_note(&notes[i], kind, at, n_bytes);
	}
	atomic_flag_clear(&busy);
	return &notes[i];
}

/* Whether this one is still to be said. */
static inline bool wrong_is_said(void)
{
	static _Atomic unsigned said;

	return said++ < WRONG_SAID;
}

/* Who has it, in which round and so on, and how far into the memory the first wrong word is. */
static inline void wrong_say(const char *who, const struct wrong *wrong,
			     const struct wrong_memory *memory, size_t offset)
{
	char owner[WRONG_OWNER], words[WRONG_LINE], where[WRONG_LINE];

	if (wrong_is_said())
		fprintf(stderr, "%s: %s\n\tinto %s\n", who,
			wrong_words_text(wrong, wrong_owner(wrong, owner), words),
			wrong_memory_text(memory, offset, where));
}

/* And the one who has sent it. */
static inline void wrong_say_sent(const char *who, uint64_t seed, size_t count,
				  const struct wrong_memory *memory)
{
	char where[WRONG_LINE];

	if (wrong_is_said())
		fprintf(stderr, "%s: %zu words of message %#lx arrived wrong\n\tfrom %s\n", who,
			count, (unsigned long)seed, wrong_memory_text(memory, 0, where));
}

#endif
