/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Stands between the adapter and libgc and counts the allocations that come by:
 * LD_PRELOAD=libsteward-boehm.so:passes.so. libgc's GC_malloc is a call of GC_malloc_kind by its name, which leads
 * through the adapter once more. Prints at the end how many came as GC_malloc and how many as GC_malloc_kind.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

static unsigned long long as_malloc, as_malloc_kind;

extern void *GC_malloc(size_t bytes);
extern void *GC_malloc_kind(size_t bytes, int kind);

void *GC_malloc(size_t bytes)
{
    static void *(*real)(size_t);

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "GC_malloc");
    as_malloc++;
    return real(bytes);
}

void *GC_malloc_kind(size_t bytes, int kind)
{
    static void *(*real)(size_t, int);

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "GC_malloc_kind");
    as_malloc_kind++;
    return real(bytes, kind);
}

__attribute__((destructor)) static void tell(void)
{
    fprintf(stderr, "passes %llu %llu\n", as_malloc, as_malloc_kind);
}
