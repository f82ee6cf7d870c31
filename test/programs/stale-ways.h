/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All ways in which tests replace the pages behind a buffer, in four groups: memory the program
 * mapped itself; the same where the kernel reports nothing; heap memory, through malloc; heap
 * memory, by system calls behind malloc.
 */
#ifndef STALE_WAYS_H
#define STALE_WAYS_H

#include "stale-heap.h"
#include "stale-mapped.h"
#include "stale-others.h"
#include "stale-shared.h"

/* By libc, and behind it. */
#define BOTH(group, name, make, replace, fill, of)                    \
	{group, name "/libc", make, replace, fill, by_libc, of},      \
	{                                                             \
		group, name "/raw", make, replace, fill, raw_call, of \
	}

/* Those that leave mallopt's settings behind are the last of their group. */
static const struct way ways[] = {
	BOTH("mapped", "munmap+mmap", make_mapped, replace_unmap, fill_mapped, ANY),
	BOTH("mapped", "mmap-fixed", make_mapped, replace_map, NULL, ANY),
	BOTH("mapped", "mremap-fixed", make_mapped, replace_remap, NULL, ANY),
	BOTH("mapped", "madvise", make_mapped, replace_advise, NULL, ANY),
	BOTH("mapped", "brk", make_break, replace_break, fill_break, TOLD),
	BOTH("mapped", "munmap-more", make_wide, replace_wide, fill_wide, TOLD),
	BOTH("mapped", "mremap-grow", make_mapped, replace_grown_away, fill_mapped, ANY),
	BOTH("mapped", "mremap-dontunmap", make_mapped, replace_emptied, NULL, ANY),
	BOTH("mapped", "shared:madvise", make_shared, replace_removed, NULL, TOLD),
	BOTH("mapped", "memfd:munmap+mmap", make_memfd, replace_unmap, fill_memfd, TOLD),
	BOTH("mapped", "hugetlb:munmap+mmap", make_huge, replace_unmap, fill_huge, TOLD),
	{"mapped", "munmap+mmap/syscall()", make_mapped, replace_unmap, fill_mapped, by_syscall,
	 ANY},
	{"mapped", "munmap-half/raw", make_mapped, replace_half, fill_half, raw_call, 0},
	{"mapped", "madvise-locked/libc", make_mapped, replace_locked, NULL, by_libc, ANY},
	{"mapped", "madvise-free/raw", make_mapped, replace_free_lazily, NULL, raw_call, TOLD},
	{"mapped", "madvise-cold/raw", make_mapped, replace_cold, NULL, raw_call, 0},
	{"mapped", "madvise-pageout/raw", make_mapped, replace_paged_out, NULL, raw_call, 0},
	{"mapped", "madvise-collapse/raw", make_small_pages, replace_collapsed, NULL, raw_call,
	 0},
	{"mapped", "process_madvise/raw", make_mapped, replace_by_process, NULL, raw_call, 0},
	{"mapped", "child:process_madvise", make_with_adviser, replace_by_child, NULL, NULL, 0},
	{"mapped", "child:munmap+mmap/raw", make_mapped, replace_in_child, NULL, NULL, 0},
	{"mapped", "stack:thread-ends/libc", make_on_unmapped_stack, replace_unmapped_stack,
	 fill_mapped, raw_call, TOLD},
	{"mapped", "stack:next-thread/libc", make_on_kept_stack, replace_kept_stack, NULL, NULL,
	 0},
	{"mapped", "hugetlb:madvise/raw", make_huge, replace_advise, NULL, raw_call, TOLD},
	{"mapped", "mmap-none/libc", make_mapped, replace_forbid, replace_map, by_libc, ANY},
	{"mapped", "mremap-away/libc", make_mapped, replace_moved_away, fill_mapped, by_libc,
	 ANY},
	{"mapped", "shared:munmap+mmap/libc", make_shared, replace_unmap, fill_shared, by_libc,
	 TOLD},
	{"mapped", "memfd:mmap-fixed/libc", make_memfd, replace_map, NULL, by_libc, TOLD},
	{"mapped", "memfd:madvise/libc", make_memfd, replace_removed, NULL, by_libc, TOLD},
	{"mapped", "hugetlb:mmap-fixed/libc", make_huge, replace_map, NULL, by_libc, TOLD},
	{"untold", "memfd:fallocate", make_memfd, replace_punched, NULL, NULL, 0},
	{"untold", "memfd:ftruncate", make_memfd, replace_truncated, NULL, NULL, 0},
	{"untold", "memfd:remap_file_pages", make_memfd, replace_file_pages, NULL, NULL, 0},
	{"untold", "memfd:madvise-in-child", make_common, replace_by_child, NULL, NULL, 0},
	BOTH("untold", "shm:shmdt+shmat", make_attached, replace_attached, fill_attached, 0),
	BOTH("untold", "shm:shmat-remap", make_attached, replace_attached_over, NULL, 0),
	BOTH("untold", "file:munmap+mmap", make_file, replace_unmap, fill_file, 0),
	{"untold", "file:madvise/raw", make_file, replace_advise, NULL, raw_call, 0},
	{"untold", "madvise-guard/raw", make_mapped, replace_guarded, NULL, raw_call, 0},
	{"untold", "watched:munmap+mmap/raw", make_watched, replace_unmap, fill_mapped,
	 raw_call, 0},
	{"untold", "watched-late:munmap/raw", make_mapped, replace_watched_late, fill_mapped,
	 raw_call, 0},
	{"heap", "free+malloc", make_heap, replace_free, NULL, NULL, 0},
	{"heap", "free+malloc-smaller", make_large, replace_smaller, NULL, NULL, 0},
	{"heap", "free+malloc-larger", make_inside, replace_larger, NULL, NULL, 0},
	{"heap", "free+malloc-in-thread", make_in_thread, replace_in_thread, NULL, NULL, 0},
	{"heap", "free+calloc", make_heap, replace_zeroed, NULL, NULL, 0},
	{"heap", "free+aligned_alloc", make_aligned, replace_aligned, NULL, NULL, 0},
	{"heap", "free+malloc_trim+malloc", make_heap, replace_trimmed, NULL, NULL, 0},
	{"heap", "free+churn+malloc", make_heap, replace_churned, NULL, NULL, 0},
	{"heap", "realloc-up", make_hemmed_in, replace_grown, NULL, NULL, 0},
	{"heap", "realloc-down-and-up", make_tail, replace_shrunk, NULL, NULL, 0},
	{"heap", "free+malloc/M_MMAP", make_mmapped, replace_free, NULL, NULL, 0},
	{"heap", "free+malloc/M_TRIM", make_trimmed, replace_free, NULL, NULL, 0},
	BOTH("behind", "heap:mmap-fixed", make_page_aligned, replace_map, NULL, 0),
	BOTH("behind", "heap:mremap-fixed", make_page_aligned, replace_remap, NULL, 0),
	BOTH("behind", "heap:madvise", make_page_aligned, replace_advise, NULL, 0),
};

#define N_WAYS (sizeof ways / sizeof *ways)

#endif
