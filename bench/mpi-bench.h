/* SPDX-License-Identifier: BSD-2-Clause */
/* What the MPI programs of bench/ share, which are compiled one by one with no flags but -O2.
 */
#ifndef MPI_BENCH_H
#define MPI_BENCH_H

#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the job where there is no memory. */
static inline void *mpi_bench_buffer(size_t n_bytes)
{
	void *p = malloc(n_bytes);

	if (!p) {
		fprintf(stderr, "out of memory\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return p;
}

static inline int mpi_bench_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts them; `part` 0.5 is the median. */
static inline double mpi_bench_quantile(double *values, int n, double part)
{
	qsort(values, (size_t)n, sizeof *values, mpi_bench_compare);
	return values[(int)(part * (double)(n - 1))];
}

#endif
