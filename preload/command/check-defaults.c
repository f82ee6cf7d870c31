/* SPDX-License-Identifier: BSD-2-Clause */
/* The site's defaults, which hold for the checks that follow as they do under `pinalloc run`.
 */
#include <config.h>

#include "allocator/options.h"
#include "preload/command/check.h"
#include "preload/command/command.h"
#include "preload/command/defaults.h"

#include <stdlib.h>

static void say_default(const struct cmd_default *it)
{
	const char *value = it->name ? pin_options_text(it->name) : NULL;

	if (*it->finding)
		cmd_check_say(CMD_WARN, "defaults", it->cure, "%s: %s", it->place, it->finding);
	if (!it->name)
		return;
	if (value)
		cmd_check_say(CMD_OK, "defaults", NULL,
			      "%s: %s=%s gives way to %s in the environment", it->place,
			      it->name, it->value, value);
	else if (setenv(it->name, it->value, 1))
		cmd_no_memory();
	else
		cmd_check_say(CMD_OK, "defaults", NULL, "%s: %s=%s, under pinalloc run",
			      it->place, it->name, it->value);
}

void cmd_check_defaults(void)
{
	cmd_defaults_read(say_default);
}
