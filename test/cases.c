/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "test/cases.h"
#include "regpool/budget.h"
#include "regpool/evict.h"
#include "regpool/fork.h"
#include "regpool/keys.h"
#include "regpool/proxy.h"
#include "regpool/segments.h"
#include "test/fake-kernel.h"
#include "test/lines.h"
#include "test/spans.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>

#define MOST_HELD 64
#define LETTERS	  26

static struct held {
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	char *addr;
	size_t length;
	unsigned access;
	uint32_t lkey;
	bool is_held; /* and its device open */
} mrs[LETTERS + MOST_HELD];
static struct looked_up {
	struct pin_mr_key key;
	struct ibv_pd *pd; /* NULL: none */
	unsigned access;
} keys[LETTERS];
static struct ibv_pd *pds[LETTERS];
static unsigned n_more; /* that are held without a letter */
static const struct test_case *current;
static _Thread_local const char *at; /* in the word that is done */
static _Thread_local char word[128];

static char foreign[4096];
static struct {
	size_t made, tried, evicted, served, ahead, looked;
} before; /* the word zero */

char *heap;
const struct case_word *more_words;
bool case_checks = true;

void case_fails(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("# %s: \"%s\": ", current->name, word);
	vprintf(format, args);
	printf("\n");
	va_end(args);
	fflush(stdout);
	_exit(1);
}

struct ibv_pd *case_pd(void)
{
	return pds['P' - 'A'];
}

/* --- what a word consists of --------------------------------------------------------- */

bool case_skips(const char *text)
{
	bool has = !strncmp(at, text, strlen(text));

	at += has ? strlen(text) : 0;
	return has;
}

size_t case_number(void)
{
	static const struct {
		const char *name;
		size_t n_bytes;
	} units[] = {{"p", PIN_PAGE}, {"g", PIECE}, {"m", PIN_MIB}, {"c", 128 * PIECE}};
	size_t sum = 0, n;
	bool is_less;

	if (case_skips("none,") || case_skips("none"))
		return SIZE_MAX;
	do {
		is_less = case_skips("-");
		case_skips("+");
		n = strtoull(at, (char **)&at, 10);
		for (size_t i = 0; i < PIN_ARRAY_SIZE(units); i++)
			n *= case_skips(units[i].name) ? units[i].n_bytes : 1;
		sum += is_less ? -n : n;
	} while (*at == '+' || *at == '-');
	case_skips(",");
	return sum;
}

char *case_address(void)
{
	char *start = case_skips("f") ? foreign : heap;

	return start + case_number();
}

unsigned case_rights(void)
{
	static const char letters[] = "lwraomd";
	static const unsigned access[] = {IBV_ACCESS_LOCAL_WRITE,      IBV_ACCESS_REMOTE_WRITE,
					  IBV_ACCESS_REMOTE_READ,      IBV_ACCESS_REMOTE_ATOMIC,
					  IBV_ACCESS_RELAXED_ORDERING, IBV_ACCESS_MW_BIND,
					  IBV_ACCESS_ON_DEMAND};
	unsigned sum = 0;
	const char *letter;

	case_skips("-");
	for (; *at && (letter = strchr(letters, *at)); at++)
		sum |= access[letter - letters];
	return sum;
}

static int error_number(void)
{
	for (int error = 1; *at && error < 200; error++)
		if (strerrorname_np(error) && !strcmp(at, strerrorname_np(error))) {
			at += strlen(at);
			return error;
		}
	return (int)case_number();
}

#define ANY PIN_REASONS

static enum pin_reason reason(void)
{
	static const struct {
		const char *name;
		enum pin_reason reason;
	} reasons[] = {{"split", PIN_SPLIT},	   {"replaced", PIN_REPLACED},
		       {"iova", PIN_IOVA},	   {"rights", PIN_RIGHTS},
		       {"unsound", PIN_UNSOUND},   {"shared", PIN_SHARED},
		       {"unpinned", PIN_UNPINNED}, {"protected", PIN_PROTECTED},
		       {"unseen", PIN_UNSEEN},	   {"guard", PIN_FORK_GUARD},
		       {"child", PIN_CHILD}};

	for (size_t i = 0; i < PIN_ARRAY_SIZE(reasons); i++)
		if (case_skips(reasons[i].name))
			return reasons[i].reason;
	must(case_skips("any"), "there is no such reason");
	return ANY;
}

/* What is behind a range. */
struct asked {
	char *addr;
	size_t length;
	unsigned access;
	bool has_rights, has_iova, fails;
	enum pin_reason reason;
	int error;
};

static struct asked asked_behind(struct asked asked)
{
	if (case_skips("/")) {
		asked.access = case_rights();
		asked.has_rights = true;
	}
	asked.has_iova = case_skips("@");
	if (case_skips("?"))
		asked.reason = reason();
	asked.fails = case_skips("!");
	if (asked.fails)
		asked.error = error_number();
	return asked;
}

static struct asked asked_for(unsigned access)
{
	struct asked asked = {.access = access, .addr = case_address()};

	asked.length = case_number();
	asked.reason = pin_reserve_contains(asked.addr) ? PIN_SERVED : PIN_FOREIGN;
	return asked_behind(asked);
}

static struct ibv_pd **pd_at(char letter)
{
	must(letter >= 'P' && letter <= 'Z', "there is no such PD");
	return &pds[letter - 'A'];
}

/* --- what must always hold ------------------------------------------------------------ */

static void check_held(void)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(mrs); i++) {
		const struct held *it = &mrs[i];
		const struct ibv_mr *mr = it->mr;

		must(!it->is_held || (mr->addr == it->addr && mr->length == it->length &&
				      mr->pd == it->pd && mr->context == it->pd->context &&
				      mr->lkey == it->lkey && reaches(mr) &&
				      fake_access_of(mr->lkey) == it->access),
		     "MR %c is not right any more", i < LETTERS ? 'a' + (char)i : '*');
	}
	for (size_t i = 0; i < LETTERS; i++) {
		const struct pin_mr_key *key = &keys[i].key;

		must(!keys[i].pd || (fake_keys_reach(key->lkey, key->rkey, keys[i].pd,
						     (char *)key->start, key->length) &&
				     fake_access_of(key->lkey) == keys[i].access),
		     "keys %c are not right any more", 'A' + (char)i);
	}
}

/* Who has keys of a PD that goes, or is disarmed, has none any more; nor have its MRs, if so.
 */
static void forget(const struct ibv_pd *pd, bool also_mrs)
{
	for (size_t i = 0; i < LETTERS; i++)
		keys[i].pd = keys[i].pd == pd ? NULL : keys[i].pd;
	for (size_t i = 0; also_mrs && i < PIN_ARRAY_SIZE(mrs); i++)
		mrs[i].is_held &= mrs[i].pd != pd;
}

/* --- requests ------------------------------------------------------------------------- */

static void request(struct held *it, struct ibv_pd *pd, const struct asked *asked)
{
	uint64_t n = asked->reason == ANY ? 0 : pin_state_requests(asked->reason);

	errno = 0;
	*it = (struct held){.pd = pd, .addr = asked->addr, .length = asked->length};
	it->mr = pin_mr_register(pd, asked->addr, asked->length,
				 asked->has_iova ? 0 : (uintptr_t)asked->addr, asked->access,
				 NULL);
	must(asked->error ? !it->mr && errno == asked->error : it->mr != NULL,
	     "the registration %s: %s", it->mr ? "succeeds" : "fails", strerrordesc_np(errno));
	n -= asked->reason == ANY ? 0 : pin_state_requests(asked->reason);
	/* Without checks another thread may have had one, too. */
	must(asked->reason == ANY || (n && (!case_checks || n == UINT64_MAX)),
	     "the request is not \"%s\"", pin_reason_names[asked->reason]);
	if (!it->mr)
		return;
	must(asked->reason == ANY || !pin_proxy_of(it->mr) == (asked->reason != PIN_SERVED),
	     "whose the MR is");
	it->access = asked->access;
	it->lkey = it->mr->lkey;
	it->is_held = true;
}

static void give_up(struct held *it, int error)
{
	struct ibv_mr before_it = *it->mr;
	bool is_own = !pin_proxy_of(it->mr);

	it->is_held &= error != 0;
	must(pin_mr_deregister(it->mr) == error, "ibv_dereg_mr() does not return %d", error);
	must(error || !is_own || !reaches(&before_it), "the key still reaches it");
}

static void look_up_keys(struct looked_up *it, struct ibv_pd *pd)
{
	struct asked asked = asked_for(pin_options.access);
	const struct pin_mr_key *key = &it->key;
	int error;

	errno = 77;
	error = pin_mr_lookup(pd, asked.addr, asked.length, asked.access, &it->key);
	must(error == -asked.error && errno == 77, "the look-up returns %d, errno is %d", error,
	     errno);
	*it = (struct looked_up){it->key, error ? NULL : pd, asked.access};
	must(error || (key->start <= (uintptr_t)asked.addr &&
		       key->start + key->length >= (uintptr_t)asked.addr + asked.length &&
		       !fake_keys_reach(key->lkey, key->rkey, pd, (char *)key->start,
					key->length + 1)),
	     "the keys are not those of the range");
}

static void change(struct held *it)
{
	struct held next = *it;
	struct asked asked = {0};
	int flags = 0, error;

	if (*at >= 'P' && *at <= 'Z') {
		flags |= IBV_REREG_MR_CHANGE_PD;
		next.pd = *pd_at(*at++);
		asked = asked_behind(asked);
	} else if (*at == '/') {
		asked = asked_behind(asked);
	} else {
		flags |= IBV_REREG_MR_CHANGE_TRANSLATION;
		asked = asked_for(0);
		next.addr = asked.addr;
		next.length = asked.length;
	}
	flags |= asked.has_rights ? IBV_REREG_MR_CHANGE_ACCESS : 0;
	next.access = asked.has_rights ? asked.access : it->access;
	error = pin_mr_reregister(it->mr, flags, next.pd, asked.addr, asked.length,
				  (int)asked.access, NULL, NULL);
	must(asked.error ? error == IBV_REREG_MR_ERR_CMD && errno == asked.error : !error,
	     "ibv_rereg_mr() returns %d, %s", error, strerrordesc_np(errno));
	if (!error)
		*it = next;
	it->lkey = it->mr->lkey;
}

static void add_pd(void)
{
	struct ibv_pd **pd = pd_at(*at++);
	bool is_elsewhere = case_skips("1");

	*pd = pin_ibverbs()->alloc_pd(is_elsewhere ? fake_context_elsewhere() : fake_context());
	if (!case_skips("?"))
		pin_domain_notice(*pd);
}

static void give_back(void)
{
	char letter = *at++;
	int error = case_skips("!") ? error_number() : 0;
	struct ibv_pd **pd;

	if (letter >= 'a') {
		give_up(&mrs[letter - 'a'], error);
		return;
	}
	pd = pd_at(letter);
	must(pin_domain_dealloc(*pd) == error, "ibv_dealloc_pd() does not return %d", error);
	if (!error) {
		forget(*pd, true);
		*pd = NULL;
	}
}

/* COUNT,STRIDE,RANGE */
static void several(char *p, size_t n, bool is_on)
{
	size_t stride;
	struct asked asked;

	n = case_number();
	stride = case_number();
	asked = asked_for(RIGHTS);
	for (size_t i = 0; i < n; i++, asked.addr += stride) {
		must(n_more < MOST_HELD, "too many are held");
		request(&mrs[LETTERS + n_more], case_pd(), &asked);
		if (is_on)
			n_more++;
		else
			give_up(&mrs[LETTERS + n_more], 0);
	}
}

static void drop(char *p, size_t n, bool is_on)
{
	while (n_more)
		give_up(&mrs[LETTERS + --n_more], 0);
}

/* --- libibverbs does not deregister --------------------------------------------------- */

static const struct pin_ibverbs *real;
static int denied_with;
static uint32_t denied; /* the lkey of one, or 0 */

static int deny_dereg_mr(struct ibv_mr *mr)
{
	bool is_denied = denied_with && (!denied || mr->lkey == denied);

	return is_denied ? denied_with : real->dereg_mr(mr);
}

/* An error, for all; or with which one's memory region. */
static void deny(char *p, size_t n, bool is_on)
{
	bool is_one = *at >= 'a' && *at <= 'z';

	real = real ? real : replace_verbs(NULL, deny_dereg_mr);
	denied = is_one ? mrs[*at++ - 'a'].lkey : 0;
	denied_with = is_one ? EBUSY : error_number();
}

/* --- commands ------------------------------------------------------------------------- */

/* PD */
static void enable(char *p, size_t n, bool is_on)
{
	struct ibv_pd *pd = *pd_at(*at++);
	struct asked asked = asked_behind((struct asked){.access = RIGHTS});
	int error;

	errno = 77;
	error = is_on ? pin_domain_enable(pd, asked.access) : pin_domain_disarm(pd);
	must(error == -asked.error && errno == 77, "it returns %d, errno is %d", error, errno);
	if (!is_on)
		forget(pd, false);
}

static void close_device(char *p, size_t n, bool is_on)
{
	pin_domain_close(fake_context());
	for (size_t i = 'P' - 'A'; i < LETTERS; i++)
		if (pds[i] && pds[i]->context == fake_context())
			forget(pds[i], true);
}

static void evict(char *p, size_t n, bool is_on)
{
	n = case_number();
	for (n += !n; n--;)
		must(pin_evict_one(NULL, false) || case_skips("!"), "none is evicted");
	must(!case_skips("!"), "one is evicted");
}

static void register_ahead(char *p, size_t n, bool is_on)
{
	struct asked asked = asked_behind((struct asked){.access = RIGHTS});
	struct pin_domain *domain = pin_domain_find(case_pd());
	unsigned made = fake_verbs.made;

	pin_keys_create_ahead(pin_access_set_of(domain, asked.access), pin_range_of(p, n));
	must((fake_verbs.made == made) == asked.fails, "what is registered ahead");
}

static struct pin_segment segment;

/* RANGE,PIECE */
static void add_segment(char *p, size_t n, bool is_on)
{
	segment = (struct pin_segment){pin_range_of(p, n), .piece = case_number()};
	pin_segments_add(&segment);
	segment.is_ready = true;
}

static void replace(char *p, size_t n, bool is_on)
{
	fake_replace(p, n);
}

static void touch(char *p, size_t n, bool is_on)
{
	fake_touch(p, n);
}

static void count_from_here(char *p, size_t n, bool is_on)
{
	before.made = fake_verbs.made;
	before.tried = fake_verbs.tried;
	before.evicted = pin_state.evicted;
	before.ahead = pin_state.ahead;
	before.looked = fake_kernel.looked_at;
	before.served = pin_state_requests(PIN_SERVED);
}

static void init_fork(char *p, size_t n, bool is_on)
{
	must(!pin_fork_init(), "it fails");
}

static void call(char *p, size_t n, bool is_on)
{
	current->call();
}

/* So many registrations, with this error. */
static void fail(char *p, size_t n, bool is_on)
{
	fake_verbs.fail_next = (unsigned)case_number();
	fake_verbs.fail_errno = error_number();
}

static void set_environment(char *p, size_t n, bool is_on)
{
	at += putenv(strdup(at)) ? 0 : strlen(at);
}

static const struct case_word own_words[] = {{"close", close_device},
					     {"evict", evict},
					     {"ahead:", register_ahead},
					     {"segment:", add_segment},
					     {"replace:", replace},
					     {"touch:", touch},
					     {"zero", count_from_here},
					     {"drop", drop},
					     {"fork_init", init_fork},
					     {"call", call},
					     {"enable", enable, true},
					     {"disarm", enable},
					     {"idle", several},
					     {"hold", several, true},
					     {"deny", deny},
					     {"fail", fail},
					     {"env", set_environment},
					     {NULL}};

/* Whether it is one of these. */
static bool does_word_of(const struct case_word *them)
{
	char *p = heap;
	size_t n = 0;

	while (them && them->name && !case_skips(them->name))
		them++;
	if (!them || !them->name)
		return false;
	if (them->name[strlen(them->name) - 1] == ':') {
		p = case_address();
		n = case_number();
	} else {
		case_skips(":");
	}
	them->call(p, n, them->is_on);
	return true;
}

static bool does_setting(void)
{
#define SETTING(name, variable, value)                     \
	if (case_skips(name ":")) {                        \
		variable = (__typeof__(+variable))(value); \
		return true;                               \
	}
	SETTING("limit", fake_verbs.limit, case_number());
	SETTING("memlock", fake_kernel.memlock, case_number());
	SETTING("ram", fake_kernel.ram, case_number());
	SETTING("cgroup", fake_kernel.cgroup, case_number());
	SETTING("most", pin_options.max_pinned,
		case_skips("auto") ? PIN_PINNED_AUTO : case_number());
	SETTING("mrs", fake_verbs.max_mr, case_number());
	SETTING("mrsize", fake_verbs.max_mr_size, case_number());
	SETTING("full", fake_verbs.full_errno, error_number());
	SETTING("rereg", fake_verbs.rereg_errno, error_number());
	SETTING("status", fake_verbs.fork_status, case_number());
	SETTING("access", pin_options.access, case_rights());
	SETTING("type", fake_context()->device->node_type, case_number());
#undef SETTING
	return false;
}

static bool figure(size_t *value)
{
#define FIGURE(name, is)                                              \
	if (strcspn(at, "=<>") == strlen(name) && case_skips(name)) { \
		*value = is;                                          \
		return true;                                          \
	}
	FIGURE("live", fake_verbs.live);
	FIGURE("bytes", fake_verbs.registered);
	FIGURE("reg", pin_state.registered);
	FIGURE("made", fake_verbs.made - before.made);
	FIGURE("tried", fake_verbs.tried - before.tried);
	FIGURE("failing", fake_verbs.fail_next);
	FIGURE("evicted", pin_state.evicted - before.evicted);
	FIGURE("served", pin_state_requests(PIN_SERVED) - before.served);
	FIGURE("ahead", pin_state.ahead - before.ahead);
	FIGURE("waited", pin_state.created - pin_state.ahead);
	FIGURE("looked", fake_kernel.looked_at - before.looked);
	FIGURE("share", pin_budget_pinned_limit());
	FIGURE("inits", fake_verbs.fork_inits);
	FIGURE("copies", pin_fork_kernel_copies());
	FIGURE("off", (size_t)pin_state_off());
	FIGURE("Qreg", pin_domain_find(*pd_at('Q'))->registered);
#undef FIGURE
	return false;
}

static bool is_as(size_t is)
{
	char how = *at++;
	size_t expected = case_number();

	return how == '=' ? is == expected : how == '<' ? is <= expected : is > expected;
}

/* Whether the word is one; then the figure must be as the word says, soon if it may take time.
 */
static bool does_figure(void)
{
	bool may_take_time = case_skips("until:");
	const char *start = at;
	size_t is = 0;
	bool holds = true;

	for (int n_ms = 0; figure(&is) && !(holds = is_as(is)); n_ms++, at = start)
		if (!may_take_time || n_ms == 60000)
			break;
		else
			usleep(1000);
	must(holds, "it is %zu, %.1f pages, %.1f granules", is, (double)is / PIN_PAGE,
	     (double)is / PIECE);
	return at > start;
}

static uint32_t key_of(char letter)
{
	return letter < 'a' ? keys[letter - 'A'].key.lkey : mrs[letter - 'a'].lkey;
}

/* One letter, and what is about it. */
static void do_letter(struct ibv_pd *pd)
{
	char name = *at++, what = *at++;
	struct held *it = &mrs[name < 'a' ? 0 : name - 'a'];
	struct asked asked;

	if (what == '=' && name < 'a') {
		look_up_keys(&keys[name - 'A'], pd);
	} else if (what == '=') {
		asked = asked_for(RIGHTS);
		request(it, pd, &asked);
	} else if (what == '>') {
		change(it);
	} else if (what == '|') {
		must(!fake_keys_reach(it->lkey, it->mr->rkey, it->pd, it->addr - 1, 1) &&
			     !fake_keys_reach(it->lkey, it->mr->rkey, it->pd,
					      it->addr + it->length, 1),
		     "it reaches more");
	} else {
		must(what == '~' || what == '#', "there is no such word");
		must((key_of(name) == key_of(*at++)) == (what == '~'), "the keys are not");
	}
}

static void do_word(void)
{
	struct ibv_pd *pd = case_pd();
	struct held once;
	struct asked asked;

	at = word;
	if (*at >= 'P' && *at <= 'Z' && at[1] == ':') {
		pd = *pd_at(*at);
		at += 2;
	}
	if (case_skips(".")) {
		asked = asked_for(RIGHTS);
		request(&once, pd, &asked);
		give_up(&once, 0);
	} else if (case_skips("+")) {
		add_pd();
	} else if (case_skips("-")) {
		give_back();
	} else if (strchr("=>~#|", at[1])) {
		do_letter(pd);
	} else if (!does_figure()) {
		must(does_setting() || does_word_of(own_words) || does_word_of(more_words),
		     "there is no such word");
	}
	must(!*at, "what is \"%s\"?", at);
	if (case_checks)
		check_held();
}

void case_do(const char *text)
{
	const char *at_of_caller = at;
	char of_caller[sizeof word];

	memcpy(of_caller, word, sizeof word);
	for (int n = 0; sscanf(text, " %127s%n", word, &n) == 1; text += n)
		do_word();
	memcpy(word, of_caller, sizeof word);
	at = at_of_caller;
}

/* Without limits everything can be given back, and nothing is left. */
static void end_case(void)
{
	strcpy(word, "the end");
	fake_kernel.memlock = fake_verbs.limit = fake_verbs.max_mr_size = SIZE_MAX;
	/* A thread that registers ahead reads it. */
	if (pin_options.max_pinned != SIZE_MAX)
		pin_options.max_pinned = SIZE_MAX;
	fake_verbs.max_mr = INT_MAX;
	denied_with = 0;
	drop(NULL, 0, true);
	for (size_t i = 0; i < LETTERS; i++)
		if (mrs[i].is_held)
			give_up(&mrs[i], 0);
	for (size_t i = 'P' - 'A'; i < LETTERS; i++)
		must(!pds[i] || !pin_domain_dealloc(pds[i]), "a PD is busy");
	must(!fake_verbs.live && !fake_verbs.wrong && !pin_state.registered &&
		     !pin_state.pinned,
	     "%u memory regions are left, %zu bytes registered, %zu pinned", fake_verbs.live,
	     pin_state.registered, pin_state.pinned);
}

static void check_said(const struct lines *lines)
{
	char texts[256], *rest = NULL;

	snprintf(texts, sizeof texts, "%s", current->says);
	must(lines->n == (*texts != 0), "%u lines are said: %s", lines->n, lines->text);
	for (char *text = strtok_r(texts, "|", &rest); text; text = strtok_r(NULL, "|", &rest))
		must(strstr(lines->text, text), "not said: %s", text);
}

static void run_words(void)
{
	struct lines lines;

	alarm(300);
	if (current->says)
		lines = lines_begin();
	*pd_at('P') = new_pd();
	case_do(current->words);
	if (current->says) {
		lines_end(&lines);
		check_said(&lines);
	}
	end_case();
}

bool make_case_heap(size_t n_bytes)
{
	struct pin_span *span = NULL;

	if (!lazy_pool())
		return false;
	fake_kernel.keeps_memory = true;
	heap = grow(&span, n_bytes);
	fake_touch(heap, n_bytes);
	return true;
}

bool case_holds(const struct test_case *it)
{
	int status = -1;
	pid_t child = fork();

	current = it;
	if (!child) {
		run_words();
		exit(0);
	}
	return waitpid(child, &status, 0) == child && !status;
}
