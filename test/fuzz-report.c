/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `pinalloc report` of any text: the files of a job, separated by lines of %%. What must hold
 * of its output is checked; a failure ends the process. For test/fuzz, which has libFuzzer's
 * main(); the one here tries the texts that are kept in test/fuzz-seeds: what fuzzing starts
 * from, and what it found.
 */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"
#include "preload/running.h"
#include "test/tap.h"

#include <dirent.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define must(condition) ((condition) ? (void)0 : must_fail(#condition, __LINE__))

static void must_fail(const char *what, int line)
{
	fprintf(stderr, "line %d: does not hold: %s\n", line, what);
	abort();
}

static const char between[] = "\n%%\n";

static void add(struct cmd_job *job, const char *text, size_t n_bytes)
{
	int fd = memfd_create("report", MFD_CLOEXEC);
	char path[64];

	must(fd >= 0 && write(fd, text, n_bytes) == (ssize_t)n_bytes);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	cmd_job_add(job, path);
	close(fd);
}

static void add_all(struct cmd_job *job, const char *text, size_t n_bytes)
{
	const char *next;

	for (; (next = memmem(text, n_bytes, between, sizeof between - 1)); text = next) {
		add(job, text, (size_t)(next - text));
		next += sizeof between - 1;
		n_bytes -= (size_t)(next - text);
	}
	add(job, text, n_bytes);
}

/* The text as a record, with each byte spoilt that is before the text, and then with none. */
static void add_records(struct cmd_job *job, const char *text, size_t n_bytes)
{
	static struct pin_running_part parts[PIN_RUNNING_PARTS];
	unsigned char *head = (unsigned char *)parts;

	if (n_bytes > PIN_RUNNING_MOST)
		return;
	parts->number = 1;
	parts->n_bytes = n_bytes;
	memcpy(parts->text, text, n_bytes);
	memcpy(parts->text + n_bytes, &parts->number, sizeof parts->number);
	for (size_t i = 0; i <= offsetof(struct pin_running_part, text); i++) {
		head[i] ^= 0xff;
		add(job, (const char *)parts, sizeof parts);
		head[i] ^= 0xff;
	}
	add(job, (const char *)parts, sizeof parts);
}

static void free_job(struct cmd_job *job)
{
	for (size_t i = 0; i < job->n_ranks; i++)
		cmd_rank_free(job->ranks[i]);
	free(job->ranks);
	free(job->tops);
	for (size_t i = 0; i < job->n_runs; i++)
		free(job->runs[i]->missing);
	free(job->runs);
	free(job->all_runs);
	free(job->hosts);
	free(job->phases);
	free(job->sites);
	json_decref(job->skipped);
	json_decref(cmd_texts);
	cmd_texts = NULL;
}

/* --- what is written ------------------------------------------------------------------- */

struct output {
	FILE **stream, *former;
	char *text;
	size_t n_bytes;
};

static void begin(struct output *output, FILE **stream)
{
	output->stream = stream;
	output->former = *stream;
	must((*stream = open_memstream(&output->text, &output->n_bytes)));
}

static void end(struct output *output)
{
	fclose(*output->stream);
	*output->stream = output->former;
}

/* No terminal does anything but show it: neither control characters nor those of C1 are in it.
 */
static void must_be_clean(const struct output *output)
{
	for (size_t i = 0; i < output->n_bytes; i++) {
		unsigned char c = (unsigned char)output->text[i];

		must((c >= ' ' && c != 0x7f) || c == '\n');
		must(c != 0xc2 || (unsigned char)output->text[i + 1] >= 0xa0);
	}
}

static void must_be_json(const struct output *output)
{
	json_t *report = json_loadb(output->text, output->n_bytes, 0, NULL);

	must(json_integer_value(json_object_get(report, "schema")) == 3);
	json_decref(report);
}

/* What gnuplot is given: of the heading, the names in it included, two tabs are the only
 * ones.
 */
static void print_table(const struct cmd_job *job)
{
	struct output output;
	size_t n_tabs = 0;

	begin(&output, &stderr);
	cmd_plot_table(job, stderr);
	end(&output);
	for (const char *c = output.text; *c && *c != '\n'; c++)
		n_tabs += *c == '\t';
	must(!output.n_bytes || n_tabs == 2);
	for (const char *c = output.text; *c; c++)
		putchar(*c == '\t' ? ' ' : *c);
	free(output.text);
}

static void print_text(const struct cmd_job *job)
{
	cmd_text_print(job, 10);
}

static void print(const struct cmd_job *job, void (*how)(const struct cmd_job *job),
		  void (*check)(const struct output *output))
{
	struct output output;

	begin(&output, &stdout);
	how(job);
	end(&output);
	must_be_clean(&output);
	check(&output);
	free(output.text);
}

/* libFuzzer's name. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
	struct cmd_job job = {.is_for_people = n_bytes % 2};
	struct output complaints;

	begin(&complaints, &stderr);
	add_all(&job, (const char *)data, n_bytes);
	add_records(&job, (const char *)data, n_bytes);
	if (job.n_ranks)
		cmd_job_merge(&job);
	end(&complaints);
	must_be_clean(&complaints);
	free(complaints.text);
	if (job.n_ranks) {
		print(&job, print_text, must_be_clean);
		print(&job, cmd_json_print, must_be_json);
		print(&job, print_table, must_be_clean);
	}
	free_job(&job);
	return 0;
}

#ifndef FUZZING
static bool replay(const char *directory, const char *name)
{
	static uint8_t text[1 << 20];
	char path[2 * PATH_MAX];
	FILE *in;
	size_t n;

	snprintf(path, sizeof path, "%s/%s", directory, name);
	if (!(in = fopen(path, "re")))
		return false;
	n = fread(text, 1, sizeof text, in);
	fclose(in);
	return n < sizeof text && !LLVMFuzzerTestOneInput(text, n);
}

int main(void)
{
	const char *top = getenv("top_srcdir");
	char directory[PATH_MAX];
	struct dirent *entry;
	DIR *seeds;

	snprintf(directory, sizeof directory, "%s/test/fuzz-seeds", top ? top : ".");
	must((seeds = opendir(directory)));
	while ((entry = readdir(seeds)))
		if (entry->d_name[0] != '.')
			ok(replay(directory, entry->d_name), "%s", entry->d_name);
	closedir(seeds);
	return done_testing();
}
#endif
