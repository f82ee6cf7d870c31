/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/base.h"

#include <errno.h>
#include <signal.h>

#ifndef HAVE_SIGABBREV_NP
const char *sigabbrev_np(int sig)
{
#define NAME(name) [SIG##name] = #name
	static const char *const names[] = {
		NAME(ABRT), NAME(ALRM), NAME(BUS),  NAME(CHLD),	  NAME(CONT),	NAME(FPE),
		NAME(HUP),  NAME(ILL),	NAME(INT),  NAME(KILL),	  NAME(PIPE),	NAME(POLL),
		NAME(PROF), NAME(PWR),	NAME(QUIT), NAME(SEGV),	  NAME(STKFLT), NAME(STOP),
		NAME(SYS),  NAME(TERM), NAME(TRAP), NAME(TSTP),	  NAME(TTIN),	NAME(TTOU),
		NAME(URG),  NAME(USR1), NAME(USR2), NAME(VTALRM), NAME(WINCH),	NAME(XCPU),
		NAME(XFSZ),
	};
#undef NAME

	return sig > 0 && (size_t)sig < PIN_ARRAY_SIZE(names) ? names[sig] : NULL;
}
#endif

#ifndef HAVE_STRERRORDESC_NP
/* Those that the system calls and verbs made here can end with. */
const char *strerrordesc_np(int error)
{
	static const struct {
		int error;
		const char *text;
	} texts[] = {
		{0, "Success"},
		{EPERM, "Operation not permitted"},
		{ENOENT, "No such file or directory"},
		{ESRCH, "No such process"},
		{EINTR, "Interrupted system call"},
		{EIO, "Input/output error"},
		{ENXIO, "No such device or address"},
		{E2BIG, "Argument list too long"},
		{EBADF, "Bad file descriptor"},
		{EAGAIN, "Resource temporarily unavailable"},
		{ENOMEM, "Cannot allocate memory"},
		{EACCES, "Permission denied"},
		{EFAULT, "Bad address"},
		{EBUSY, "Device or resource busy"},
		{EEXIST, "File exists"},
		{ENODEV, "No such device"},
		{ENOTDIR, "Not a directory"},
		{EISDIR, "Is a directory"},
		{EINVAL, "Invalid argument"},
		{ENFILE, "Too many open files in system"},
		{EMFILE, "Too many open files"},
		{EFBIG, "File too large"},
		{ENOSPC, "No space left on device"},
		{EROFS, "Read-only file system"},
		{EPIPE, "Broken pipe"},
		{ENAMETOOLONG, "File name too long"},
		{ENOSYS, "Function not implemented"},
		{ELOOP, "Too many levels of symbolic links"},
		{EPROTO, "Protocol error"},
		{EOVERFLOW, "Value too large for defined data type"},
		{EOPNOTSUPP, "Operation not supported"},
		{ETIMEDOUT, "Connection timed out"},
		{ESTALE, "Stale file handle"},
		{EDQUOT, "Disk quota exceeded"},
	};

	for (size_t i = 0; i < PIN_ARRAY_SIZE(texts); i++)
		if (texts[i].error == error)
			return texts[i].text;
	return "Unknown error";
}
#endif
