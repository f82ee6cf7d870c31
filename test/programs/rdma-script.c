/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a script of verbs, and of what a program does with memory, one of test/scripts.bash.
 * Prints TAP, a line for each of the script: "ok 3 - x=reg a; send x y".
 *
 *     rdma-script SCRIPT             exit status 3: it takes the library, which is absent
 *     rdma-script print SCRIPT       prints what each step returns instead, for comparison
 *
 * Instead of a script it takes the path of a file, which may begin with "#!".
 *
 * Steps of a line are separated by ";". A step is [EXPECTED] [NAME=]COMMAND [WORD…]. What a
 * command makes is called NAME, or as the command. A step succeeds, unless the first word is an
 * errno value (EBUSY; ?EBUSY allows both), a number, "refused" (a completion says so), or "!"
 * (it fails). A line may begin with
 *
 *     20 times:               # is the number of the round, from 0; #*7%100 is 7 times that,
 *                             modulo 100, and #/7 a seventh
 *     4 threads 20 times:     each with things and queue pairs of its own; @ is the thread's
 *                             number
 *     20 children:            each a process of its own
 *     beside:                 again and again, in another thread, until "end"
 *     child:                  the same in a process of its own
 */
#include "test/programs/script.h"
#include "test/tap.h"

#include <ctype.h>
#include <pthread.h>
#include <sys/wait.h>

#define MOST_THINGS ((size_t)1 << 18)
#define MOST_STEPS  32
#define MOST_QUEUES 4

/* Not in the heap, of which scripts count what is there. */
static struct thing *main_things;
static __thread struct thing *things;
static __thread struct ibv_context *context;
static __thread struct ibv_pd *pd;
static __thread struct rdma queues[MOST_QUEUES];
static __thread uint64_t random_state;
static __thread unsigned thread_number;
static bool prints;
static __thread bool line_has_rounds;
static _Atomic bool *are_over; /* of this process and its children */

/* --- things ------------------------------------------------------------------------------ */

static struct thing *slot(struct thing *table, const char *name)
{
	size_t at = 5381;

	for (const char *p = name; *p; p++)
		at = at * 33 + (unsigned char)*p;
	while (table[at % MOST_THINGS].name[0] && strcmp(table[at % MOST_THINGS].name, name))
		at++;
	return &table[at % MOST_THINGS];
}

bool has_thing(const char *name)
{
	return slot(things, name)->name[0] || slot(main_things, name)->name[0];
}

struct thing *thing_of(const char *name)
{
	struct thing *own = slot(things, name);

	if (!has_thing(name))
		fprintf(stderr, "there is no %s\n", name);
	need(has_thing(name));
	return own->name[0] ? own : slot(main_things, name);
}

static struct thing *new_thing(const char *name)
{
	struct thing *it = slot(things, name);

	*it = (struct thing){.shift = 0};
	snprintf(it->name, sizeof it->name, "%s", name);
	return it;
}

size_t random_below(size_t n)
{
	return rdma_random(&random_state) % n;
}

size_t number_of(const char *text)
{
	static const char units[] = "KMG";
	const char *unit;
	char *end;
	size_t n;

	if (*text == '?')
		return rdma_random_size(&random_state, (unsigned)atoi(text + 1));
	if (*text == '~')
		return random_below(number_of(text + 1));
	n = strtoull(text, &end, 0);
	need(end > text);
	if (*end && (unit = strchr(units, *end))) {
		n <<= 10 * (unit - units + 1);
		end++;
	}
	return *end == '+' ? n + number_of(end + 1) : *end == '<' ? n << number_of(end + 1) : n;
}

struct range range_of(const char *text)
{
	size_t length = strcspn(text, "+-:");
	char name[16] = "";
	struct range range;

	need(length < sizeof name);
	range.thing = thing_of(memcpy(name, text, length));
	range.p = range.thing->p;
	range.n = range.thing->n;
	text += length;
	if (*text == '-')
		range.p -= number_of(text + 1);
	if (*text == '+') {
		range.p += number_of(text + 1);
		range.n -= (size_t)(range.p - range.thing->p);
	}
	if ((text = strchr(text, ':')))
		range.n = number_of(text + 1);
	return range;
}

unsigned rights_of(const struct step *step, int word)
{
	static const char letters[] = "lwrabzoh";
	unsigned rights = 0;

	if (step->n <= word)
		return RDMA_ACCESS;
	for (const char *p = step->words[word]; *p; p++)
		if (*p == 'x')
			rights |= IBV_ACCESS_RELAXED_ORDERING;
		else if (strchr(letters, *p))
			rights |= 1u << (strchr(letters, *p) - letters);
	return rights; /* none: "0" */
}

/* --- what is in use ------------------------------------------------------------------------
 */

struct ibv_context *context_in_use(void)
{
	return context ? context : (context = rdma_open());
}

struct ibv_pd *pd_in_use(void)
{
	if (!pd)
		need((pd = ibv_alloc_pd(context_in_use())));
	return pd;
}

void use_context(struct ibv_context *used)
{
	context = used;
	pd = NULL;
}

void use_pd(struct ibv_pd *used)
{
	pd = used;
}

static struct rdma *queue_in(const struct ibv_pd *of)
{
	for (struct rdma *it = queues; it < queues + MOST_QUEUES; it++)
		if (it->pd == of)
			return it;
	return NULL;
}

struct rdma *queue(void)
{
	struct rdma *it = queue_in(pd_in_use());

	if (!it) {
		need((it = queue_in(NULL)));
		rdma_connect(it, pd_in_use());
	}
	return it;
}

static void end(struct rdma *it)
{
	if (it->pd)
		rdma_disconnect(it);
	it->pd = NULL;
}

void end_queue(void)
{
	end(queue());
}

/* --- steps ---------------------------------------------------------------------------------
 */

static const struct {
	int value;
	const char *name;
} errors[] = {
	{EBUSY, "EBUSY"},   {EINVAL, "EINVAL"}, {ENOENT, "ENOENT"},
	{EACCES, "EACCES"}, {EEXIST, "EEXIST"}, {ENOTSUP, "ENOTSUP"},
	{ENOMEM, "ENOMEM"}, {EFBIG, "EFBIG"},	{EIO, "EIO"},
};

static bool is_expected(const char *expected, int result)
{
	if (!expected)
		return !result;
	if (*expected == '?')
		return !expected[1] || !result || is_expected(expected + 1, result);
	if (*expected == '!')
		return result && result != WRONG;
	if (!strcmp(expected, "refused"))
		return rdma_is_refused(result - COMPLETION);
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (!strcmp(expected, errors[i].name))
			return abs(result) == errors[i].value;
	return result == atoi(expected);
}

static const char *meaning(int result)
{
	static __thread char text[32];

	if (result > 0 && result < COMPLETION)
		return strerror(result);
	snprintf(text, sizeof text, "%d", result);
	return result == WRONG ? "wrong" : result ? text : "ok";
}

static int (*command_of(const char *name))(const struct step *step)
{
	static const struct command *const all[] = {memory_commands, verbs_commands,
						    pinalloc_commands};

	for (size_t i = 0; i < 3; i++)
		for (const struct command *it = all[i]; it->name; it++)
			if (!strcmp(it->name, name))
				return it->run;
	fprintf(stderr, "there is no command %s\n", name);
	exit(2);
}

/* For each # and @ the round's number, or the thread's, multiplied and divided as it says. */
static void fill_in(char *to, size_t most, const char *text, unsigned round)
{
	char *end = to + most;

	while (*text) {
		unsigned long value = *text == '@' ? thread_number : round;

		need(to + 22 < end);
		if (*text != '#' && *text != '@') {
			*to++ = *text++;
			continue;
		}
		text++;
		if (*text == '*')
			value *= strtoul(text + 1, (char **)&text, 10);
		if (*text == '/')
			value /= strtoul(text + 1, (char **)&text, 10);
		if (*text == '%')
			value %= strtoul(text + 1, (char **)&text, 10);
		to += sprintf(to, "%lu", value);
	}
	*to = '\0';
}

static bool is_expectation(const char *word)
{
	return !strchr(word, '=') && (isupper(*word) || isdigit(*word) || *word == '-' ||
				      strchr("!?", *word) || !strcmp(word, "refused"));
}

static bool run_step(const char *text, unsigned round)
{
	char buffer[256], *rest, *word, *expected = NULL, *name = NULL;
	struct step step = {.n = 0};
	bool is_right;
	int result;

	fill_in(buffer, sizeof buffer, text, round);
	word = strtok_r(buffer, " \t", &rest);
	if (!word)
		return true;
	if (is_expectation(word)) {
		expected = word;
		need((word = strtok_r(NULL, " \t", &rest)));
	}
	if (strchr(word, '=')) {
		name = word;
		word = strchr(word, '=');
		*word++ = '\0';
	}
	for (; word; word = strtok_r(NULL, " \t", &rest)) {
		need(step.n < 12);
		step.words[step.n++] = word;
	}
	step.it = new_thing(name ? name : step.words[0]);
	errno = 0;
	result = command_of(step.words[0])(&step);
	is_right = is_expected(expected, result);
	if (prints && !line_has_rounds)
		printf("%s: %s\n", text, meaning(result));
	else if (!is_right)
		printf("# %s: %s, round %u, thread %u\n", text, meaning(result), round,
		       thread_number);
	return is_right || (prints && !line_has_rounds);
}

/* --- lines ---------------------------------------------------------------------------------
 */

struct line {
	unsigned threads, times;
	bool in_children;
	int n;
	const char *steps[MOST_STEPS];
};

/* How many rounds went wrong. */
static unsigned run_rounds(const struct line *line)
{
	unsigned failed = 0;

	for (unsigned round = 0; round < line->times && !*are_over; round++) {
		bool is_right = true;

		for (int i = 0; i < line->n && is_right; i++)
			is_right = run_step(line->steps[i], round);
		failed += !is_right;
	}
	return failed;
}

static pid_t fork_for(const struct line *line)
{
	pid_t child = fork();

	if (!child) {
		alarm(600);
		exit(run_rounds(line) != 0);
	}
	if (child < 0)
		printf("# fork: %s\n", strerror(errno));
	return child;
}

static bool has_failed(pid_t child)
{
	int status = -1;

	if (child < 0)
		return true;
	need(waitpid(child, &status, 0) == child);
	if (status)
		printf("# child: status 0x%x\n", (unsigned)status);
	return status;
}

static unsigned run_in_children(const struct line *line)
{
	struct line once = *line;
	unsigned failed = 0;

	once.times = 1;
	for (unsigned i = 0; i < line->times; i++)
		failed += has_failed(fork_for(&once));
	return failed;
}

struct helper {
	pthread_t thread;
	struct line line;
	unsigned number;
	struct ibv_context *context;
	struct ibv_pd *pd;
};

static void *help(void *arg)
{
	const struct helper *helper = arg;
	uintptr_t failed;

	things = rdma_map(MOST_THINGS * sizeof *things);
	context = helper->context;
	pd = helper->pd;
	thread_number = helper->number;
	line_has_rounds = true;
	random_state = helper->number + 1;
	failed = run_rounds(&helper->line);
	for (int i = 0; i < MOST_QUEUES; i++)
		end(&queues[i]);
	return (void *)failed;
}

static void start(struct helper *helper, const struct line *line, unsigned number)
{
	*helper = (struct helper){
		.line = *line, .number = number, .context = context, .pd = pd};
	need(!pthread_create(&helper->thread, NULL, help, helper));
}

static unsigned join(const struct helper *helper)
{
	void *failed;

	need(!pthread_join(helper->thread, &failed));
	return (unsigned)(uintptr_t)failed;
}

static unsigned run_in_threads(const struct line *line)
{
	struct helper helpers[8];
	unsigned failed = 0;

	need(line->threads <= 8);
	for (unsigned i = 0; i < line->threads; i++)
		start(&helpers[i], line, i);
	for (unsigned i = 0; i < line->threads; i++)
		failed += join(&helpers[i]);
	return failed;
}

/* Which of them is being run besides. */
static struct helper others[4];
static unsigned n_others;
static pid_t other_child;

static unsigned end_others(void)
{
	unsigned failed = 0;

	*are_over = true;
	while (n_others)
		failed += join(&others[--n_others]);
	if (other_child)
		failed += has_failed(other_child);
	other_child = 0;
	*are_over = false;
	return failed;
}

static unsigned run_line(char *text)
{
	struct line line = {.times = 1};
	int prefix = 0;
	char *rest;

	if (sscanf(text, "%u times:%n", &line.times, &prefix) < 1 || !prefix)
		line.times = 1;
	if (!prefix)
		sscanf(text, "%u threads %u times:%n", &line.threads, &line.times, &prefix);
	if (!prefix && sscanf(text, "%u children:%n", &line.times, &prefix) == 1 && prefix)
		line.in_children = true;
	if (!prefix) {
		line.threads = 0;
		line.times = 1;
	}
	if (!strncmp(text, "beside:", 7) || !strncmp(text, "child:", 6)) {
		prefix = *text == 'b' ? 7 : 6;
		line.in_children = *text == 'c';
		line.times = UINT32_MAX;
	}
	line_has_rounds = prefix;
	for (char *step = strtok_r(text + prefix, ";", &rest); step;
	     step = strtok_r(NULL, ";", &rest)) {
		need(line.n < MOST_STEPS);
		line.steps[line.n++] = step + strspn(step, " ");
	}
	if (line.times == UINT32_MAX && line.in_children)
		return (other_child = fork_for(&line)) < 0;
	if (line.times == UINT32_MAX) {
		start(&others[n_others], &line, n_others);
		return n_others++ >= 4;
	}
	if (!strcmp(line.steps[0], "end")) {
		line_has_rounds = true;
		return end_others();
	}
	return line.in_children ? run_in_children(&line)
	       : line.threads	? run_in_threads(&line)
				: run_rounds(&line);
}

static char *script_of(char *word)
{
	static char text[1 << 14];
	FILE *file;

	if (*word != '/')
		return word;
	need((file = fopen(word, "r")) && fread(text, 1, sizeof text - 1, file));
	fclose(file);
	return text;
}

int main(int argc, char **argv)
{
	char *rest, *text, description[256];
	unsigned failed;

	need(argc == 2 || argc == 3);
	prints = argc == 3;
	setvbuf(stdout, NULL, _IOLBF, 0);
	main_things = things = rdma_map(MOST_THINGS * sizeof *things);
	are_over = mmap(NULL, sizeof *are_over, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(are_over != MAP_FAILED);
	random_state = 1;
	for (text = strtok_r(script_of(argv[argc - 1]), "\n", &rest); text;
	     text = strtok_r(NULL, "\n", &rest)) {
		text += strspn(text, " \t");
		if (!*text || *text == '#')
			continue;
		snprintf(description, sizeof description, "%s", text);
		failed = run_line(text);
		if (prints && line_has_rounds)
			printf("%s: %u wrong\n", description, failed);
		else if (!prints)
			ok(!failed, "%s", description);
	}
	end_others();
	need(prints || tap_count);
	return prints ? 0 : done_testing();
}
