/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory node on which a registration allocates pages, with a kernel that only keeps each
 * thread's policy.
 */
#include <config.h>

#include "allocator/os.h"
#include "regpool/state.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The linker puts these in place of the library's (--wrap). */
bool __real_pin_os_prefer_node(uint32_t node);

#define NONE -1

static uint32_t here;			   /* the node this program is on */
static bool has_own;			   /* the process has a policy of its own */
static _Atomic unsigned looked;		   /* for nodes, how often */
static _Thread_local int preferred = NONE; /* by this thread */
static _Atomic unsigned on_its_node, elsewhere, nowhere; /* registrations */

uint32_t __wrap_pin_os_node(void)
{
	return here;
}

bool __wrap_pin_os_has_nodes(void)
{
	looked++;
	return true;
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

static void install(void)
{
	static struct pin_ibverbs table;

	fake = pin_ibverbs();
	table = *fake;
	table.reg_mr_iova2 = reg_somewhere;
	pin_ibverbs_replace(&table);
}

#define LENGTH (4 * PIECE)

/* In a span of its own, as another node's memory is. */
static char *span_on(uint32_t node)
{
	struct pin_span *span = NULL;
	char *p = span_grow(&span, LENGTH, node);

	return p;
}

static void begin(void)
{
	on_its_node = elsewhere = nowhere = 0;
}

static void asked_for(char *near, char *far)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *one, *other;

	begin();
	here = 0;
	one = reg(pd, far, 64, RIGHTS);
	other = reg(pd, near, 64, RIGHTS);
	ok(on_its_node >= 2 && !elsewhere && !nowhere,
	   "a request registers on the node of the thread that made the heap grow");
	ok(preferred == NONE, "afterwards the thread has its previous policy");
	pin_mr_deregister(one);
	pin_mr_deregister(other);
	pin_domain_dealloc(pd);
	pd = new_pd();
	fake_verbs.fail_next = 1;
	fake_verbs.fail_errno = EINVAL;
	one = reg(pd, far, 64, RIGHTS);
	ok(preferred == NONE, "it also has it if the registration failed");
	if (one)
		pin_mr_deregister(one);
	pin_domain_dealloc(pd);
}

static void policy_of_its_own(char *far)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr;

	begin();
	has_own = true;
	preferred = 5;
	mr = reg(pd, far, 64, RIGHTS);
	ok(elsewhere == 1 && preferred == 5, "a thread's own policy is not changed");
	preferred = NONE;
	has_own = false;
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
}

static void ahead(char *near)
{
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	memset(span_on(7), 1, LENGTH);
	memset(near, 1, PIECE);
	pin_options.mode = PIN_MODE_EAGER;
	begin();
	pd = new_pd();
	mr = reg(pd, near, 64, RIGHTS);
	for (int i = 0; i < 5000 && on_its_node < 2; i++)
		usleep(1000);
	ok(on_its_node >= 2 && !elsewhere && !nowhere,
	   "the registrar registers on that node, too");
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
}

int main(void)
{
	char *near, *far;

	ok(lazy_pool(), "initialised");
	install();
	near = span_on(0);
	far = span_on(3);
	ok(pin_span_find(far, 1)->node == 3,
	   "a span knows the node of the thread that made the heap grow");
	ok(!looked, "memory nodes are not looked up before the first registration");
	asked_for(near, far);
	policy_of_its_own(far);
	ahead(near);
	ok(looked == 1, "memory nodes were looked up once");
	asked_of_kernel();
	return done_testing();
}
