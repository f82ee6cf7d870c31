/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_REPORT_TRIGGER_H
#define PIN_REPORT_TRIGGER_H

#include <stdbool.h>

/* What causes a report to be written. */
struct pin_report_trigger {
	const char *name; /* as the report says it: "at exit" */
	bool signal_safe; /* may be in a signal handler: only do what is safe there */
	bool last;	  /* the program ends: this is its last report */
	bool crash;	  /* may have happened while a report was written: do not try again */
	bool before_exec; /* the process goes on as another program */
};

#endif
