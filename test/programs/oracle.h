/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For programs that use the adapters of test/lab/providers: opens one by its name, and asks
 * what it would do with a key.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include "rdma.h"

#include <fcntl.h>
#include <unistd.h>

static inline const char *error_name(int error)
{
	return error ? strerror(error) : "ok";
}

/* As the kernel answers: 0, or an errno value. */
static inline int tell_module(const char *parameter, const char *text)
{
	char path[128];
	int fd, error = 0;

	snprintf(path, sizeof path, "/sys/module/fake_rdma/parameters/%s", parameter);
	need((fd = open(path, O_WRONLY | O_CLOEXEC)) >= 0);
	if (write(fd, text, strlen(text)) < 0)
		error = errno;
	close(fd);
	return error;
}

/*
 * 0 if the key serves a request of the queue pairs of this domain, else an errno value, which
 * test/lab/providers/regions.c explains.
 */
static inline int oracle(struct ibv_pd *pd, uint32_t key, const void *p, size_t length,
			 unsigned access)
{
	char question[128];

	snprintf(question, sizeof question, "%s %x %x %lx %zx %x", pd->context->device->name,
		 pd->handle, key, (unsigned long)p, length, access);
	return tell_module("ask", question);
}

/*
 * The same of a key that the program may use. If it reaches other pages than this process has
 * there, or belongs to another domain, the program ends at once.
 */
static inline int ask_key(struct ibv_pd *pd, uint32_t key, const void *p, size_t length,
			  unsigned access)
{
	int error = oracle(pd, key, p, length, access);

	if (error == ESTALE || error == EPERM) {
		printf("key %x of %p, %zu bytes: %s\n", key, p, length, error_name(error));
		fflush(stdout);
		_exit(3);
	}
	return error;
}

/* Both keys. */
static inline int ask(struct ibv_mr *mr, const void *p, size_t length, unsigned access)
{
	int error = ask_key(mr->pd, mr->lkey, p, length, access);

	return error || mr->rkey == mr->lkey ? error
					     : ask_key(mr->pd, mr->rkey, p, length, access);
}

static inline struct ibv_device *find_device(struct ibv_device **list, const char *name)
{
	while (*list && strcmp((*list)->name, name))
		list++;
	return *list;
}

#endif
