/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What gc.h would declare of libgc, as far as the benchmarks and tests need it, so that these are built with the
 * library alone (Debian: libgc1).
 */
#ifndef STEWARD_BOEHM_LIBGC_H
#define STEWARD_BOEHM_LIBGC_H

#include <stddef.h>

/* libgc names its functions; what it counts in is said here. */
typedef size_t gc_bytes;

struct boehm_counts;

extern void GC_init(void);
extern void *GC_malloc(size_t bytes);
extern void *GC_malloc_atomic(size_t bytes);
extern void *GC_malloc_atomic_uncollectable(size_t bytes);
extern void GC_free(void *object);
extern void GC_gcollect(void);
extern void GC_gcollect_and_unmap(void);
extern size_t GC_get_gc_no(void);
extern gc_bytes GC_get_heap_size(void);
extern gc_bytes GC_get_free_bytes(void);
extern gc_bytes GC_get_bytes_since_gc(void);
extern size_t GC_get_prof_stats(struct boehm_counts *counts, size_t bytes);
extern void GC_set_free_space_divisor(size_t divisor);
extern void GC_set_stop_func(int (*stop)(void));
extern void GC_set_on_collection_event(void (*heard)(int event));

#endif
