/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hooking the functions of a device's provider, in a table like that of libibverbs: they are
 * found wherever they are, and left alone if they are ambiguous.
 */
#include <config.h>

#include "regpool/provider.h"
#include "regpool/proxy.h"
#include "regpool/evict.h"
#include "test/fake-kernel.h"
#include "test/lines.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>

#define WORDS 100

typedef void function(void);

/* As libibverbs', which allocates the words. */
struct device {
	struct verbs_context extended;
	struct ibv_device device;
	function **words;
};

/* libibverbs' malloc tells how much there is. */
size_t __wrap_malloc_usable_size(void *p)
{
	return WORDS * sizeof(function *);
}

static const struct pin_ibverbs *theirs;
static unsigned deregistered, reregistered, deallocated;

static int their_dereg_mr(struct ibv_mr *mr)
{
	deregistered++;
	return pin_ibverbs()->dereg_mr(mr);
}

static int their_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			  size_t length, int access)
{
	reregistered++;
	return pin_ibverbs()->rereg_mr(mr, flags, pd, addr, length, access);
}

static int their_dealloc_pd(struct ibv_pd *pd)
{
	deallocated++;
	return theirs->dealloc_pd(pd);
}

static void other(void)
{
}

enum { DEREG = 31, REREG = 77, DEALLOC = 30 }; /* where they are among the words */

static struct pin_span *span;

static struct ibv_context *fill(struct device *device)
{
	struct ibv_context *context = &device->extended.context;

	*device = (struct device){.words = (function **)(void *)grow(&span, PIECE)};
	strcpy(device->device.name, "fake1");
	device->extended.sz = sizeof device->extended;
	device->extended.priv = (void *)device->words;
	context->device = &device->device;
	context->abi_compat = __VERBS_ABI_IS_EXTENDED;
	for (int i = 1; i < WORDS; i++)
		device->words[i] = other;
	device->words[DEREG] = (function *)their_dereg_mr;
	device->words[REREG] = (function *)their_rereg_mr;
	device->words[DEALLOC] = (function *)their_dealloc_pd;
	context->ops._compat_dereg_mr = (void *(*)(void))(function *)their_dereg_mr;
	context->ops._compat_rereg_mr = (void *(*)(void))(function *)their_rereg_mr;
	context->ops._compat_dealloc_pd = (void *(*)(void))(function *)their_dealloc_pd;
	return context;
}

static void found(struct device *device)
{
	struct ibv_context *context = fill(device);
	struct ibv_context_ops ops = context->ops;
	function *before[WORDS];
	unsigned changed = 0;

	memcpy(before, device->words, sizeof before);
	pin_provider_hook(context);
	for (int i = 0; i < WORDS; i++)
		changed += before[i] != device->words[i];
	ok(changed == 3 && device->words[DEREG] != before[DEREG] &&
		   device->words[REREG] != before[REREG] &&
		   device->words[DEALLOC] != before[DEALLOC] &&
		   !memcmp(&ops, &context->ops, sizeof ops),
	   "three provider functions are hooked, and the public copies stay");
	memcpy(before, device->words, sizeof before);
	pin_provider_hook(context);
	ok(!memcmp(before, device->words, sizeof before), "hooking again changes nothing");
}

#define WORD(device, at, type) ((__typeof__(&type))(device)->words[at])

/* As libibverbs' own, which calls what is among the words. */
static int dealloc_by_word(struct ibv_pd *pd)
{
	struct device *its = (struct device *)verbs_get_ctx(pd->context);

	return WORD(its, DEALLOC, their_dealloc_pd)(pd);
}

static void used(struct device *device)
{
	struct pin_ibverbs by_words = *pin_ibverbs();
	__typeof__(&their_dereg_mr) dereg = WORD(device, DEREG, their_dereg_mr);
	__typeof__(&their_dealloc_pd) dealloc = WORD(device, DEALLOC, their_dealloc_pd);
	__typeof__(&their_rereg_mr) rereg = WORD(device, REREG, their_rereg_mr);
	struct ibv_pd *pd = pin_ibverbs()->alloc_pd(&device->extended.context);
	char *heap = grow(&span, PIECE);
	static char foreign[100];
	struct ibv_mr *mr, *real;
	uint32_t changes;

	theirs = pin_ibverbs();
	by_words.dealloc_pd = dealloc_by_word;
	pin_ibverbs_replace(&by_words);
	pin_domain_notice(pd);
	mr = reg(pd, heap, 100, RIGHTS);
	pin_mr_deregister(reg(pd, heap + PIECE / 2, 100, RIGHTS));
	real = reg(pd, foreign, sizeof foreign, RIGHTS);
	ok(dealloc(pd) == EBUSY && !deallocated && fake_verbs.live == 3,
	   "a PD with a proxy is busy, and keeps what is idle");
	ok(!rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, heap + 200, 50, 0) &&
		   !reregistered && mr->addr == heap + 200 && mr->length == 50,
	   "ibv_rereg_mr of a proxy does not call the provider");
	ok(!rereg(real, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, foreign, 50, 0) &&
		   reregistered == 1,
	   "ibv_rereg_mr of a real MR does");
	changes = pin_state_changes();
	ok(dealloc(pd) == EBUSY && deallocated == 1 && fake_verbs.live == 2 &&
		   pin_state_changes() != changes,
	   "if the provider keeps it, the heap's may be registered ahead again");
	ok(!dereg(mr) && !deregistered && dereg(mr) == EINVAL,
	   "deregistering a proxy does not call the provider, and twice is refused");
	ok(!dereg(real) && deregistered == 1 && !fake_verbs.live,
	   "the provider deregisters a real MR");
	ok(!dealloc(pd) && deallocated == 2, "the PD can be deallocated");
	pin_ibverbs_replace(theirs);
	pd = pin_ibverbs()->alloc_pd(&device->extended.context);
	ok(!dealloc(pd) && deallocated == 3, "an unknown PD is deallocated by the provider");
}

#define LARGEST 88 /* bytes of a provider's structure */

static struct ibv_mr *inside, *behind;

/* A provider that has its structures in a block of its own, the last at the end of the heap. */
static struct ibv_mr *reg_inside(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				 unsigned access)
{
	behind = theirs->reg_mr_iova2(pd, addr, length, iova, access);
	memset(inside, 0x77, LARGEST);
	*inside = *behind;
	return inside;
}

static int dereg_inside(struct ibv_mr *mr)
{
	return mr == inside ? theirs->dereg_mr(behind) : EINVAL;
}

static void pooled(void)
{
	char *heap = grow(&span, PIECE);
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr;

	theirs = replace_verbs(reg_inside, dereg_inside);
	inside = (struct ibv_mr *)(void *)(heap + PIECE - LARGEST);
	mr = reg(pd, heap, 100, RIGHTS);
	ok(pin_proxy_of(mr) && mr->lkey == inside->lkey && mr->length == 100 &&
		   !memcmp(mr + 1, inside + 1, LARGEST - sizeof *mr) &&
		   !pin_proxy_of((struct ibv_mr *)(void *)((char *)mr + PIN_GIB)),
	   "a proxy has all of a structure in the middle of a block, where the heap ends");
	ok(!pin_mr_deregister(mr) && !pin_domain_dealloc(pd) && !fake_verbs.live,
	   "it is deregistered");
	pin_ibverbs_replace(theirs);
}

/* Nothing is changed, and one line says so the first time. */
static void left(struct device *device, const char *why, unsigned n_lines)
{
	function *before[WORDS];
	struct lines lines = lines_begin();

	memcpy(before, device->words, sizeof before);
	pin_provider_hook(&device->extended.context);
	lines_end(&lines);
	ok(!memcmp(before, device->words, sizeof before) && lines.n == n_lines,
	   "nothing is hooked if %s, which is logged once in a process: here %u times", why,
	   n_lines);
}

static void not_found(struct device *device)
{
	static function *elsewhere[WORDS];

	fill(device);
	device->words[40] = device->words[REREG];
	left(device, "a function occurs twice", 1);
	fill(device);
	device->words[DEALLOC] = other;
	left(device, "a function is missing", 0);
	fill(device)->ops._compat_dereg_mr = NULL;
	left(device, "a function is unknown", 0);
	fill(device);
	device->extended.sz = sizeof(struct ibv_context);
	left(device, "the context is not of libibverbs", 0);
	fill(device);
	memcpy(elsewhere, device->words, sizeof elsewhere);
	device->words = elsewhere;
	device->extended.priv = (void *)elsewhere;
	left(device, "the private memory is not on the heap", 0);
}

static struct ibv_cq_ex a_queue;
static unsigned n_tried, most_mrs; /* with more MRs there is no room */
static int full_with;

/* Changes what it is given, as providers do. */
static struct ibv_cq_ex *their_create_cq_ex(struct ibv_context *context,
					    struct ibv_cq_init_attr_ex *attr)
{
	n_tried += attr->cqe == 16 && context;
	attr->cqe = 99;
	errno = full_with;
	return fake_verbs.live <= most_mrs ? &a_queue : NULL;
}

static struct ibv_cq_ex *create_cq(struct ibv_context *context)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 16};

	n_tried = 0;
	return ibv_create_cq_ex(context, &attr);
}

static struct ibv_mw a_window;

static struct ibv_mw *their_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	return pd && type == IBV_MW_TYPE_1 ? &a_window : NULL;
}

/* What the header's functions make. */
static void objects(struct device *device)
{
	struct ibv_context *context = fill(device);
	uint64_t evicted = pin_state.evicted;
	struct ibv_pd *pd = new_pd_of(context);
	struct ibv_mr *used = reg(pd, grow(&span, PIECE), 64, RIGHTS);

	device->extended.create_cq_ex = their_create_cq_ex;
	context->ops.alloc_mw = their_alloc_mw;
	pin_provider_hook(context);
	pin_provider_hook(context);
	ok(ibv_alloc_mw(pd, IBV_MW_TYPE_1) == &a_window, "the provider makes a memory window");
	for (int i = 0; i < 3; i++)
		pin_mr_deregister(reg(pd, grow(&span, PIECE), PIECE, RIGHTS));
	full_with = EINVAL;
	ok(!create_cq(context) && errno == EINVAL && n_tried == 1 && fake_verbs.live == 4,
	   "a completion queue that cannot be is not tried again");
	full_with = EAGAIN;
	most_mrs = 3;
	ok(create_cq(context) == &a_queue && n_tried == 2 && fake_verbs.live == 3 &&
		   pin_state.evicted == evicted + 1,
	   "one for which there is no room evicts an idle memory region");
	most_mrs = 0;
	ok(!create_cq(context) && errno == EAGAIN && n_tried == 3 && fake_verbs.live == 1,
	   "or as many as there are");
	while (pin_evict_one(NULL, false))
		;
	ok(!create_cq(context) && errno == EAGAIN && n_tried == 1 && fake_verbs.live == 1 &&
		   reaches(used),
	   "those in use stay, and the error is the provider's");
	pin_mr_deregister(used);
	nothing_is_left(pd);
	device->extended.create_cq_ex = NULL;
	pin_provider_hook(context);
	ok(!create_cq(context) && errno == EOPNOTSUPP, "what a provider lacks is not hooked");
}

/* Structures of libraries that are older and newer than the headers. */
static void contexts(void)
{
	const size_t known = sizeof(struct verbs_context),
		     least = sizeof(struct ibv_context) + 8,
		     sizes[] = {least, known, known + 8, known + 24, known + 48, known + 4096};
	unsigned wrong = 0;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(sizes); i++) {
		void **words = calloc(1, sizes[i]), **last = words + (sizes[i] - least) / 8;

		for (void **it = words; it < last; it += 2)
			*it = (void *)(uintptr_t)objects;
		*last = (void *)sizes[i];
		wrong += pin_ibverbs_context_in((struct verbs_context *)(void *)words) !=
			 (void *)(last + 1);
		free(words);
	}
	ok(!wrong, "the context within a structure of any release is found: %u are not", wrong);
}

int main(void)
{
	struct device device;

	fake_kernel.memlock = SIZE_MAX;
	if (!ok(lazy_pool(), "there is a heap"))
		return done_testing();
	found(&device);
	used(&device);
	pooled();
	not_found(&device);
	objects(&device);
	contexts();
	return done_testing();
}
