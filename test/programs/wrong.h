/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What messages in the lab's programs are made of, and what is said if one arrives wrong: which
 * words, what was found instead and of which other message that is, and the memory concerned.
 */
#ifndef WRONG_H
#define WRONG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Messages of which that is said; the next ones are only counted. */
#ifndef WRONG_SAID
#define WRONG_SAID 10
#endif

#define WRONG_OWNER 160

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

/* Whether this one is still to be said. */
static inline bool wrong_is_said(void)
{
	static _Atomic unsigned said;

	return said++ < WRONG_SAID;
}

/* Who has it, in which round and so on, and into which memory it came. */
static inline void wrong_say(const char *who, const struct wrong *wrong, const char *kind,
			     const void *at)
{
	char owner[WRONG_OWNER];

	if (wrong_is_said())
		fprintf(stderr,
			"%s: %zu of %zu words of message %#lx wrong, from byte %#zx on: found "
			"%#018lx, "
			"expected %#018lx; %zu of them are %s\n\tinto %s at %p\n",
			who, wrong->count, wrong->n_words, (unsigned long)wrong->seed,
			8 * wrong->first, (unsigned long)wrong->found,
			(unsigned long)wrong->expected, wrong->of_found,
			wrong_owner(wrong, owner), kind, at);
}

/* And the one who has sent it. */
static inline void wrong_say_sent(const char *who, uint64_t seed, size_t count,
				  const char *kind, const void *at)
{
	if (wrong_is_said())
		fprintf(stderr,
			"%s: %zu words of message %#lx arrived wrong\n\tfrom %s at %p\n", who,
			count, (unsigned long)seed, kind, at);
}

#endif
