/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ways in which mpi-stale replaces the pages behind a buffer, in four groups: memory the
 * program mapped itself; the same where the kernel reports nothing; heap memory, through
 * malloc; heap memory, by system calls behind malloc.
 */
#ifndef STALE_WAYS_H
#define STALE_WAYS_H

#include "stale-heap.h"
#include "stale-mapped.h"
#include "stale-others.h"
#include "stale-shared.h"

/* Those that leave mallopt's settings behind are the last of their group. */
static const struct way ways[] = {
	{"mapped", "munmap+mmap/libc", make_mapped, replace_unmap, by_libc},
	{"mapped", "mmap-fixed/libc", make_mapped, replace_map, by_libc},
	{"mapped", "mremap-fixed/libc", make_mapped, replace_remap, by_libc},
	{"mapped", "madvise/libc", make_mapped, replace_advise, by_libc},
	{"mapped", "brk/libc", make_break, replace_break, by_libc},
	{"mapped", "munmap+mmap/raw", make_mapped, replace_unmap, raw_call},
	{"mapped", "mmap-fixed/raw", make_mapped, replace_map, raw_call},
	{"mapped", "mremap-fixed/raw", make_mapped, replace_remap, raw_call},
	{"mapped", "madvise/raw", make_mapped, replace_advise, raw_call},
	{"mapped", "brk/raw", make_break, replace_break, raw_call},
	{"mapped", "munmap+mmap/syscall()", make_mapped, replace_unmap, by_syscall},
	{"mapped", "munmap-more/libc", make_wide, replace_wide, by_libc},
	{"mapped", "munmap-more/raw", make_wide, replace_wide, raw_call},
	{"mapped", "munmap-half/raw", make_mapped, replace_half, raw_call},
	{"mapped", "mremap-grow/libc", make_mapped, replace_grown_away, by_libc},
	{"mapped", "mremap-grow/raw", make_mapped, replace_grown_away, raw_call},
	{"mapped", "mremap-dontunmap/libc", make_mapped, replace_emptied, by_libc},
	{"mapped", "mremap-dontunmap/raw", make_mapped, replace_emptied, raw_call},
	{"mapped", "madvise-locked/libc", make_mapped, replace_locked, by_libc},
	{"mapped", "madvise-free/raw", make_mapped, replace_free_lazily, raw_call},
	{"mapped", "madvise-cold/raw", make_mapped, replace_cold, raw_call},
	{"mapped", "madvise-pageout/raw", make_mapped, replace_paged_out, raw_call},
	{"mapped", "madvise-collapse/raw", make_small_pages, replace_collapsed, raw_call},
	{"mapped", "process_madvise/raw", make_mapped, replace_by_process, raw_call},
	{"mapped", "child:process_madvise", make_with_adviser, replace_by_child, NULL},
	{"mapped", "child:munmap+mmap/raw", make_mapped, replace_in_child, NULL},
	{"mapped", "stack:thread-ends/libc", make_on_unmapped_stack, replace_unmapped_stack,
	 raw_call},
	{"mapped", "stack:next-thread/libc", make_on_kept_stack, replace_kept_stack, NULL},
	{"mapped", "shared:madvise/libc", make_shared, replace_removed, by_libc},
	{"mapped", "shared:madvise/raw", make_shared, replace_removed, raw_call},
	{"mapped", "memfd:munmap+mmap/libc", make_memfd, replace_memfd, by_libc},
	{"mapped", "memfd:munmap+mmap/raw", make_memfd, replace_memfd, raw_call},
	{"mapped", "hugetlb:munmap+mmap/libc", make_huge, replace_huge, by_libc},
	{"mapped", "hugetlb:munmap+mmap/raw", make_huge, replace_huge, raw_call},
	{"mapped", "hugetlb:madvise/raw", make_huge, replace_advise, raw_call},
	{"untold", "memfd:fallocate", make_memfd, replace_punched, NULL},
	{"untold", "memfd:ftruncate", make_memfd, replace_truncated, NULL},
	{"untold", "memfd:remap_file_pages", make_memfd, replace_file_pages, NULL},
	{"untold", "memfd:madvise-in-child", make_common, replace_by_child, NULL},
	{"untold", "shm:shmdt+shmat/libc", make_attached, replace_attached, by_libc},
	{"untold", "shm:shmdt+shmat/raw", make_attached, replace_attached, raw_call},
	{"untold", "shm:shmat-remap/libc", make_attached, replace_attached_over, by_libc},
	{"untold", "shm:shmat-remap/raw", make_attached, replace_attached_over, raw_call},
	{"untold", "file:munmap+mmap/libc", make_file, replace_file, by_libc},
	{"untold", "file:munmap+mmap/raw", make_file, replace_file, raw_call},
	{"untold", "file:madvise/raw", make_file, replace_advise, raw_call},
	{"untold", "madvise-guard/raw", make_mapped, replace_guarded, raw_call},
	{"untold", "watched:munmap+mmap/raw", make_watched, replace_unmap, raw_call},
	{"untold", "watched-late:munmap/raw", make_mapped, replace_watched_late, raw_call},
	{"heap", "free+malloc", make_heap, replace_free, NULL},
	{"heap", "free+malloc-smaller", make_large, replace_smaller, NULL},
	{"heap", "free+malloc-larger", make_inside, replace_larger, NULL},
	{"heap", "free+malloc-in-thread", make_in_thread, replace_in_thread, NULL},
	{"heap", "free+calloc", make_heap, replace_zeroed, NULL},
	{"heap", "free+aligned_alloc", make_aligned, replace_aligned, NULL},
	{"heap", "free+malloc_trim+malloc", make_heap, replace_trimmed, NULL},
	{"heap", "free+churn+malloc", make_heap, replace_churned, NULL},
	{"heap", "realloc-up", make_hemmed_in, replace_grown, NULL},
	{"heap", "realloc-down-and-up", make_tail, replace_shrunk, NULL},
	{"heap", "free+malloc/M_MMAP", make_mmapped, replace_free, NULL},
	{"heap", "free+malloc/M_TRIM", make_trimmed, replace_free, NULL},
	{"behind", "heap:mmap-fixed/libc", make_page_aligned, replace_map, by_libc},
	{"behind", "heap:mremap-fixed/libc", make_page_aligned, replace_remap, by_libc},
	{"behind", "heap:madvise/libc", make_page_aligned, replace_advise, by_libc},
	{"behind", "heap:mmap-fixed/raw", make_page_aligned, replace_map, raw_call},
	{"behind", "heap:mremap-fixed/raw", make_page_aligned, replace_remap, raw_call},
	{"behind", "heap:madvise/raw", make_page_aligned, replace_advise, raw_call},
};

#endif
