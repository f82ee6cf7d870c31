/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is known of a wrong word in the storm: of both sides, as each has left it in the shared
 * counts, so that a process that was killed or has no part in it is known as well; and which of
 * the last messages the word belongs to.
 */
#define _GNU_SOURCE
#include "test/programs/storm.h"

#include <sys/uio.h>

static const char *const roles[] = {"drive", "serve"};

static struct storm_past *latest(struct storm_side *side)
{
	return &side->past[side->n % STORM_PAST];
}

void storm_note(bool is_server, unsigned lane, const struct storm_message *message,
		const struct storm_buffer *buffer)
{
	struct storm_side *side = &storm_counts->sides[is_server][lane];

	side->n++;
	side->pid = getpid();
	side->lkey = buffer->mr->lkey;
	side->rkey = buffer->mr->rkey;
	side->registered = buffer->when;
	side->told_then = buffer->told_then;
	side->told = buffer->told;
	side->is_cached = buffer->cached;
	side->is_hit = buffer->is_hit;
	side->then = buffer->memory;
	wrong_note(&side->now, buffer->memory.kind, buffer->at, buffer->length);
	*latest(side) = (struct storm_past){*message, rdma_now(), side->pid, buffer->at};
}

/* Which of the last messages the wrong words are of. */
static const char *owner(const struct wrong *wrong, char text[WRONG_OWNER])
{
	for (int is_server = 0; is_server < 2; is_server++)
		for (int lane = 0; lane < STORM_LANES; lane++)
			for (int i = 0; i < STORM_PAST; i++) {
				struct storm_past *past =
					&storm_counts->sides[is_server][lane].past[i];

				if (!past->pid ||
				    wrong->found_seed - past->message.seed >= STORM_PIECES)
					continue;
				snprintf(text, WRONG_OWNER,
					 "those of message %#lx, lane %d, %.3f s ago, at %p of "
					 "process %d (%s)",
					 (unsigned long)past->message.seed, lane,
					 rdma_now() - past->when, (const void *)past->at,
					 past->pid, roles[is_server]);
				return text;
			}
	return wrong->found ? "of none of the last messages" : "zeros";
}

/* What the process sees where its buffer has the wrong word. */
static const char *word_there(const struct storm_side *side, size_t offset, char text[32])
{
	uint64_t word = 0;
	struct iovec here = {&word, sizeof word};
	struct iovec there = {(char *)(uintptr_t)side->then.at + offset, sizeof word};

	if (process_vm_readv(side->pid, &here, 1, &there, 1, 0) == (ssize_t)sizeof word)
		snprintf(text, 32, "%#018lx", (unsigned long)word);
	else
		snprintf(text, 32, "not to be read");
	return text;
}

/* Since the registration, and since the message began. */
static void side_text(struct storm_side *side, bool is_server, size_t offset, char *text,
		      size_t size)
{
	char then[WRONG_LINE], now[WRONG_LINE], word[32];
	const struct storm_message *message = &latest(side)->message;
	static const char *const names[STORM_OPERATIONS] = {"write", "read", "send"};

	snprintf(text, size,
		 "\tprocess %d (%s), its message %lu, %s %#lx, %s; queue pair %#x to %#x, "
		 "lkey %#x, rkey %#x, %s %.3f s ago, told of %lu unmappings then, %lu at the "
		 "message; now there: %s\n\t\tregistered: %s\n\t\tbegan with: %s\n",
		 side->pid, roles[is_server], side->n, names[message->operation],
		 (unsigned long)message->seed, message->is_source ? "source" : "destination",
		 message->queue, message->peer, side->lkey, side->rkey,
		 side->is_hit	   ? "found in the cache, registered"
		 : side->is_cached ? "put into the cache"
				   : "registered anew",
		 rdma_now() - side->registered, side->told_then, side->told,
		 word_there(side, offset, word),
		 wrong_memory_text(&side->then, side->pid, offset, then),
		 wrong_memory_text(&side->now, side->pid, offset, now));
}

/* Lanes meet as they connect. NULL if the other side is at something else by now. */
static struct storm_side *peer_of(struct storm_side *side, bool is_server)
{
	const struct storm_message *mine = &latest(side)->message;

	for (int lane = 0; lane < STORM_LANES; lane++) {
		struct storm_side *peer = &storm_counts->sides[!is_server][lane];
		const struct storm_message *its = &latest(peer)->message;

		if (its->queue == mine->peer && its->peer == mine->queue)
			return peer;
	}
	return NULL;
}

/* At once, as the process may be killed, and in one piece. */
void storm_complain(bool is_server, unsigned lane, const struct wrong *wrong, size_t offset)
{
	struct storm_side *mine = &storm_counts->sides[is_server][lane];
	struct storm_side *peer = peer_of(mine, is_server);
	char whose[WRONG_OWNER], words[WRONG_LINE], sides[2][4 * WRONG_LINE] = {"", ""};

	if (!wrong_is_said())
		return;
	side_text(mine, is_server, offset + 8 * wrong->first, sides[0], sizeof sides[0]);
	if (peer)
		side_text(peer, !is_server, offset + 8 * wrong->first, sides[1],
			  sizeof sides[1]);
	fprintf(stderr, "lane %u, %#zx bytes into the buffer: %s\n%s%s", lane, offset,
		wrong_words_text(wrong, owner(wrong, whose), words), sides[0],
		peer ? sides[1] : "\tits peer is at something else by now\n");
}
