/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_BACKTRACE_H
#define PIN_BACKTRACE_H

/*
 * Says on standard error through which functions the caller was reached, one
 * line a frame; nothing where libunwind is not installed. Not from inside malloc:
 * it loads a library.
 */
void pin_backtrace_say(void);

#endif
