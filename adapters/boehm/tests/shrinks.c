/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A heap of which more has to be given up than is left: it stays at what may be used, and neither falls to what is in
 * use, which would have all the rest to be had anew page by page, nor takes ever more addresses. With the library
 * itself. Prints what is not so, and ends with 1.
 *
 *     shrinks [CHARGED SECONDS]
 *
 * With CHARGED, the file that says what is charged to a cgroup of its own (memory.current), that is no more either,
 * also so many seconds later.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../heap.h"
#include "../libgc.h"

#define MIB (1024ULL * 1024)
#define MUCH (256 * MIB)
#define LITTLE (96 * MIB)
#define OBJECT 256
#define LOOK_EVERY 256
/* What stays in use: this many objects. */
#define KEPT (8 * MIB / OBJECT)

static void collect(void);

static struct boehm_heap heap = {.gc = {.heap_bytes = GC_get_heap_size,
                                        .free_bytes = GC_get_free_bytes,
                                        .bytes_since_gc = GC_get_bytes_since_gc,
                                        .counts = GC_get_prof_stats,
                                        .set_free_space_divisor = GC_set_free_space_divisor,
                                        .collect = collect,
                                        .collect_and_unmap = GC_gcollect_and_unmap,
                                        .malloc_atomic_uncollectable = GC_malloc_atomic_uncollectable,
                                        .free = GC_free}};
static uint64_t may_use = MUCH;
static bool is_asked_for;
static void *kept[KEPT];

static void collect(void)
{
    is_asked_for = true;
    GC_gcollect();
    is_asked_for = false;
}

static int gives_up(void)
{
    return !is_asked_for && boehm_gives_up(&heap, may_use);
}

static struct boehm_state now(void)
{
    return boehm_state_of(&heap, may_use);
}

/* Allocates so much, of which the last stays in use; the least and the most that the heap has meanwhile. */
static void allocate(uint64_t bytes, uint64_t *least, uint64_t *most)
{
    *least = UINT64_MAX;
    *most = 0;
    for (uint64_t object = 0; object < bytes / OBJECT; object++) {
        struct boehm_state state;

        kept[object % KEPT] = GC_malloc(OBJECT);
        if (object % LOOK_EVERY != 0)
            continue;
        (void)boehm_look(&heap, may_use);
        state = now();
        *least = state.heap < *least ? state.heap : *least;
        *most = state.heap > *most ? state.heap : *most;
    }
}

/* How many of the pieces that are discarded have a neighbour above, and how many of these a gap before it. */
static void look_for_gaps(size_t *neighbours, size_t *gaps)
{
    *neighbours = *gaps = 0;
    for (size_t one = 0; one < heap.count; one++) {
        for (size_t other = 0; other < heap.count; other++) {
            uintptr_t end = (uintptr_t)heap.pieces[one].object + heap.pieces[one].bytes;
            uintptr_t begin = (uintptr_t)heap.pieces[other].object;

            if (begin < end || begin - end >= heap.pieces[one].bytes / 2)
                continue;
            *neighbours += 1;
            *gaps += begin != end;
        }
    }
}

/* Whether what is charged now is what may be used, and a sixteenth more for what the program has beside its heap. */
static bool is_charged_for_no_more(const char *path)
{
    unsigned long long charged = 0;
    FILE *file = fopen(path, "r");

    if (file == NULL || fscanf(file, "%llu", &charged) != 1) {
        perror(path);
        exit(1);
    }
    (void)fclose(file);
    printf("%llu MiB are charged\n", charged / MIB);
    return charged <= LITTLE + LITTLE / 16;
}

int main(int count, char **arguments)
{
    size_t neighbours, gaps;
    uint64_t least, most;
    struct boehm_state settled, after;

    setenv("GC_USE_ENTIRE_HEAP", "1", 1);
    GC_init();
    GC_set_stop_func(gives_up);
    allocate(2 * MUCH, &least, &most);
    if (most < MUCH / 4 * 3) {
        fprintf(stderr, "shrinks.c: the heap was never large: %llu MiB\n", (unsigned long long)(most / MIB));
        return 1;
    }
    may_use = LITTLE;
    allocate(LITTLE, &least, &most);
    settled = now();
    look_for_gaps(&neighbours, &gaps);
    allocate(20 * LITTLE, &least, &most);
    after = now();
    printf("%llu to %llu MiB of %llu, discarded %llu and %llu MiB\n", (unsigned long long)(least / MIB),
           (unsigned long long)(most / MIB), (unsigned long long)(settled.available / MIB),
           (unsigned long long)(settled.discarded / MIB), (unsigned long long)(after.discarded / MIB));
    if (settled.heap < settled.available / 4 * 3 || least < settled.available / 4 * 3) {
        fprintf(stderr, "shrinks.c: the heap fell below three quarters of what may be used\n");
        return 1;
    }
    if (most > settled.available) {
        fprintf(stderr, "shrinks.c: the heap had more than may be used\n");
        return 1;
    }
    /* Where there is something in use between two there has to be one. */
    if (neighbours < 32 || gaps > neighbours / 4) {
        fprintf(stderr, "shrinks.c: of %zu pieces that are neighbours %zu have a gap between them\n", neighbours, gaps);
        return 1;
    }
    if (after.discarded > settled.discarded) {
        fprintf(stderr, "shrinks.c: ever more is discarded\n");
        return 1;
    }
    if (count == 3) {
        bool is_at_first = is_charged_for_no_more(arguments[1]);

        (void)sleep((unsigned int)atoi(arguments[2]));
        if (!is_at_first || !is_charged_for_no_more(arguments[1])) {
            fprintf(stderr, "shrinks.c: what is discarded is charged all the same\n");
            return 1;
        }
    }
    return 0;
}
