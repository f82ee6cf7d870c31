/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory node on which a registration allocates pages, with a kernel that only keeps each
 * thread's policy.
 */
#include <config.h>

#include "allocator/os.h"
#include "test/beside.h"
#include "test/cases.h"
#include "test/fake-kernel.h"
#include "test/spans.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>

/* The linker puts these in place of the library's (--wrap). */
bool __real_pin_os_prefer_node(uint32_t node);
long __real_pin_io_read(const char *path, char *buf, size_t size);

#define NONE -1

static bool has_own;			   /* the process has a policy of its own */
static _Atomic unsigned looked;		   /* for nodes, how often */
static _Thread_local int preferred = NONE; /* by this thread */
static _Atomic unsigned on_its_node, elsewhere, nowhere; /* registrations */

long __wrap_pin_io_read(const char *path, char *buf, size_t size)
{
	if (strcmp(path, "/sys/devices/system/node/online") != 0)
		return __real_pin_io_read(path, buf, size);
	looked++;
	return pin_format(buf, size, "0-1\n");
}

bool __wrap_pin_os_prefer_node(uint32_t node)
{
	if (!has_own)
		preferred = (int)node;
	return !has_own;
}

void __wrap_pin_os_prefer_none(void)
{
	preferred = NONE;
}

/* --- the system calls --------------------------------------------------------------- */

/* No va_arg(), which would read what nobody has passed. */
long __real_syscall(long number, ...);

static int policy; /* of the thread, and how it was set */
static unsigned long nodes_of_policy;

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	switch (number) {
	case SYS_get_mempolicy:
		*(int *)a = policy;
		return 0;
	case SYS_set_mempolicy:
		policy = (int)a;
		nodes_of_policy = b ? *(unsigned long *)b : 0;
		return 0;
	default:
		return __real_syscall(number, a, b, c, d, e, f);
	}
}

static void asked_of_kernel(void)
{
	ok(__real_pin_os_prefer_node(3) && policy == MPOL_PREFERRED &&
		   nodes_of_policy == 1 << 3,
	   "a thread without a policy prefers a node");
	policy = MPOL_BIND;
	nodes_of_policy = 1;
	ok(!__real_pin_os_prefer_node(3) && policy == MPOL_BIND && nodes_of_policy == 1,
	   "a thread with a policy from numactl keeps it");
	policy = MPOL_DEFAULT;
}

static const struct pin_ibverbs *fake;

static struct ibv_mr *reg_somewhere(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				    unsigned access)
{
	if (preferred == NONE)
		nowhere++;
	else if (preferred == (int)pin_span_find(addr, length)->node)
		on_its_node++;
	else
		elsewhere++;
	return fake->reg_mr_iova2(pd, addr, length, iova, access);
}

/* --- words ---------------------------------------------------------------------------- */

static char *near, *far;

/* In a span of its own, as another node's memory is. */
static char *span_on(uint32_t node)
{
	struct pin_span *span = NULL;

	return span_grow(&span, 4 * PIECE, node);
}

static void move(char *p, size_t n, bool is_on)
{
	heap = is_on ? far : near;
}

/* This thread's. */
static void set_policy(char *p, size_t n, bool is_on)
{
	has_own = is_on;
	preferred = is_on ? 5 : NONE;
}

static void begin_registrar(char *p, size_t n, bool is_on)
{
	fake_touch(span_on(7), PIECE);
	fake_touch(near, PIECE);
	pin_options.mode = PIN_MODE_EAGER;
}

/* So many registrations, or more, each on the node of its memory; none has left its policy. */
static void must_be_near(char *p, size_t n, bool is_on)
{
	must(soon(on_its_node >= n) && !elsewhere && !nowhere, "%u are, %u elsewhere",
	     on_its_node, elsewhere + nowhere);
	must(preferred == NONE && looked == 1, "nodes were looked up %u times", looked);
}

/* The one that it has set, also meanwhile; or none. */
static void must_prefer(char *p, size_t n, bool is_on)
{
	must(is_on ? elsewhere == 1 && preferred == 5 : preferred == NONE, "it is %d",
	     preferred);
}

static const struct case_word words[] = {{"near", move},
					 {"far", move, true},
					 {"own", set_policy, true},
					 {"kept", must_prefer, true},
					 {"none", must_prefer},
					 {"registrar", begin_registrar},
					 {"on_its_node:", must_be_near},
					 {NULL}};

static const struct test_case cases[] = {
	{"a request registers on the node of the thread that made the heap grow",
	 "far a=0,64 near b=0,64 on_its_node:0,2"},
	{"the thread has its policy again if the registration failed",
	 "far fail:1,EINVAL a=0,64?any none"},
	{"a thread's own policy is not changed", "own far a=0,64 kept"},
	{"the registrar registers on that node, too", "registrar near a=0,64 on_its_node:0,3"},
};

int main(int argc, char **argv)
{
	if (!lazy_pool())
		return 99;
	fake_kernel.keeps_memory = true;
	fake = replace_verbs(reg_somewhere, NULL);
	heap = near = span_on(0);
	far = span_on(3);
	more_words = words;
	ok(pin_span_find(far, 1)->node == 3 && !looked,
	   "a span knows the node of the thread that made the heap grow; others are not looked "
	   "up");
	run_cases(cases, PIN_ARRAY_SIZE(cases), argv);
	asked_of_kernel();
	return done_testing();
}
