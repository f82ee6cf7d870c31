/* SPDX-License-Identifier: BSD-2-Clause */
/* gnuplot as a child: its input and output, and the file it makes. */
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

/* Its last line is the one that says what is wrong. */
static void complain_of(FILE *errors, const char *path)
{
	char line[300], last[300] = "it does not say why";

	rewind(errors);
	while (fgets(line, sizeof line, errors)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[strspn(line, " \t^")])
			strcpy(last, line);
	}
	pin_command_complain("%s is not drawn, gnuplot fails: %s", path,
			     last + strspn(last, " \t"));
}

static int start(int input, int output, int errors, pid_t *pid)
{
	/* -d: whatever the user's own settings are, the plot looks the same. */
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

static int draw(int input, int output, FILE *errors, const char *path)
{
	pid_t pid;
	int status = 0, error = start(input, output, fileno(errors), &pid);

	if (error == ENOENT)
		pin_command_complain("%s is not drawn: gnuplot is not installed (Debian: "
				     "gnuplot-nox)",
				     path);
	else if (error)
		pin_command_complain("%s is not drawn: gnuplot cannot be run: %s", path,
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
	pin_command_complain("%s cannot be written: %s", path, strerror(errno));
	return -1;
}

static int draw_to(FILE *script, FILE *errors, const char *draft, const char *path)
{
	int error, output = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	if (output < 0)
		return complain_file(path);
	error = draw(fileno(script), output, errors, path);
	if (close(output) && !error)
		error = complain_file(path);
	if (!error && rename(draft, path))
		error = complain_file(path);
	if (error)
		unlink(draft);
	return error;
}

int pin_gnuplot_run(FILE *script, const char *path)
{
	char draft[PATH_MAX + 32];
	FILE *errors = tmpfile();
	struct stat status;
	int error;

	/* The child reads from where the file's own position is. */
	if (!errors || fflush(script) || lseek(fileno(script), 0, SEEK_SET)) {
		pin_command_complain("%s is not drawn: %s", path, strerror(errno));
		return -1;
	}
	if (!stat(path, &status) && !S_ISREG(status.st_mode)) {
		pin_command_complain("%s cannot be written: it is no regular file", path);
		error = -1;
	} else {
		snprintf(draft, sizeof draft, "%s.%d.part", path, (int)getpid());
		error = draw_to(script, errors, draft, path);
	}
	fclose(errors);
	return error;
}
