/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs gnuplot: its input, its output, and the file it makes. */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The last line of its errors says what is wrong. */
static void complain_of(FILE *errors, const char *path)
{
	char line[300], last[300] = "it does not say why";

	rewind(errors);
	while (fgets(line, sizeof line, errors)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[strspn(line, " \t^")])
			strcpy(last, line);
	}
	cmd_complain("%s is not drawn, gnuplot fails: %s", path, last + strspn(last, " \t"));
}

static int spawn_gnuplot(int input, int output, int errors, pid_t *pid)
{
	/* -d ignores the user's settings, so that plots look the same everywhere. */
	char *argv[] = {"gnuplot", "-d", NULL};
	posix_spawn_file_actions_t actions;
	int error;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
	error = posix_spawnp(pid, argv[0], &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return error;
}

static int run_gnuplot(int input, int output, FILE *errors, const char *path)
{
	pid_t pid;
	int status = 0, error = spawn_gnuplot(input, output, fileno(errors), &pid);

	if (error == ENOENT)
		cmd_complain("%s is not drawn: gnuplot is not installed (Debian: "
			     "gnuplot-nox)",
			     path);
	else if (error)
		cmd_complain("%s is not drawn: gnuplot cannot be run: %s", path,
			     strerror(error));
	if (error)
		return -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!status)
		return 0;
	complain_of(errors, path);
	return -1;
}

static int complain_file(const char *path)
{
	cmd_complain("%s cannot be written: %s", path, strerror(errno));
	return -1;
}

static int write_plot(FILE *script, FILE *errors, const char *temporary, const char *path)
{
	int error, output = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	if (output < 0)
		return complain_file(path);
	error = run_gnuplot(fileno(script), output, errors, path);
	if (close(output) && !error)
		error = complain_file(path);
	if (!error && rename(temporary, path))
		error = complain_file(path);
	if (error)
		unlink(temporary);
	return error;
}

int cmd_gnuplot_run(FILE *script, const char *path)
{
	char temporary[PATH_MAX + 32];
	FILE *errors = tmpfile();
	struct stat status;
	int error;

	/* The child shares the file's position. */
	if (!errors || fflush(script) || lseek(fileno(script), 0, SEEK_SET)) {
		cmd_complain("%s is not drawn: %s", path, strerror(errno));
		return -1;
	}
	if (!stat(path, &status) && !S_ISREG(status.st_mode)) {
		cmd_complain("%s cannot be written: it is not a regular file", path);
		error = -1;
	} else {
		snprintf(temporary, sizeof temporary, "%s.%d.part", path, (int)getpid());
		error = write_plot(script, errors, temporary, path);
	}
	fclose(errors);
	return error;
}
