/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Carries out on the heap of libgc what decide.h says. libgc itself can only discard all that was unused for some
 * collections; so much less is discarded here: unused memory is allocated in pieces that nobody uses, and of those the
 * kernel has the memory back and libgc keeps the addresses.
 *
 * For the adapter and for the benchmark, of which each knows in its own way where the functions of libgc are. One
 * thread at a time looks; any may ask `boehm_gives_up`, with the collector's lock held.
 */
#ifndef STEWARD_BOEHM_HEAP_H
#define STEWARD_BOEHM_HEAP_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "decide.h"

/*
 * By so much less than a piece is asked for, so that libgc, which adds a byte, takes no page more than that: it would
 * stay, and with it the whole huge page that it is in, where the kernel has made one.
 */
#define BOEHM_SLOP 16
/* Collections that it takes until libgc has discarded a block that one of them has freed. */
#define BOEHM_PASSES 3

/* The beginning of what libgc counts: GC_prof_stats_s in gc.h, of version 8.2 on as far as this. */
struct boehm_counts {
    size_t heap, free, unmapped, allocated, allocated_before, uncollectable, collections, markers;
    size_t reclaimed, reclaimed_before, freed, from_kernel;
};

/* The functions of libgc that this calls; their types are those of gc.h. The first three wait for no lock. */
struct boehm_calls {
    size_t (*heap_bytes)(void);
    size_t (*free_bytes)(void);
    size_t (*bytes_since_gc)(void);
    size_t (*counts)(struct boehm_counts *counts, size_t bytes); /* how much of it is known; NULL where nothing is */
    void (*set_free_space_divisor)(size_t divisor);
    void (*collect)(void); /* with a stop function that lets it */
    void (*collect_and_unmap)(void);
    void *(*malloc_atomic_uncollectable)(size_t bytes);
    void (*free)(void *object);
};

struct boehm_piece_of {
    void *object;
    size_t bytes;
};

struct boehm_heap {
    struct boehm_calls gc;
    struct boehm_piece_of *pieces; /* what is discarded */
    size_t count, room;
    size_t divisor; /* the one that the collector was given last */
    _Atomic uint64_t discarded;
    _Atomic uint64_t beside; /* what the collector has beside its heap: a twelfth of the largest that it had */
};

static inline void boehm_see_what_is_beside(struct boehm_heap *heap)
{
    struct boehm_counts counts;

    if (heap->gc.counts == NULL || heap->gc.counts(&counts, sizeof(counts)) < sizeof(counts))
        return;
    atomic_store_explicit(&heap->beside, counts.from_kernel > counts.heap ? counts.from_kernel - counts.heap : 0,
                          memory_order_relaxed);
}

/* What of `available` the heap may have: at least half, though what is beside it were more. */
static inline uint64_t boehm_of_heap(struct boehm_heap *heap, uint64_t available)
{
    uint64_t beside = atomic_load_explicit(&heap->beside, memory_order_relaxed);

    return available - (beside < available / 2 ? beside : available / 2);
}

static inline struct boehm_state boehm_state_of(struct boehm_heap *heap, uint64_t available)
{
    uint64_t discarded = atomic_load_explicit(&heap->discarded, memory_order_relaxed);
    uint64_t whole = heap->gc.heap_bytes();

    return (struct boehm_state){.available = boehm_of_heap(heap, available),
                                .heap = whole > discarded ? whole - discarded : 0,
                                .free = heap->gc.free_bytes(),
                                .allocated = heap->gc.bytes_since_gc(),
                                .discarded = discarded};
}

/* Has the heap grow by its part of what is not discarded: libgc counts all of it. */
static inline void boehm_set_growth(struct boehm_heap *heap, const struct boehm_state *state)
{
    uint64_t times = state->heap == 0 ? 1 : (state->heap + state->discarded) / state->heap;
    size_t divisor = BOEHM_GROWS_BY_PART * (size_t)(times > 1024 ? 1024 : times);

    if (divisor != heap->divisor)
        heap->gc.set_free_space_divisor(divisor);
    heap->divisor = divisor;
}

/* The collector asks, with its lock held, whether to give up a collection that it has not begun. */
static inline bool boehm_gives_up(struct boehm_heap *heap, uint64_t available)
{
    struct boehm_state state = boehm_state_of(heap, available);

    return !boehm_collects_in_place(&state);
}

static inline uintptr_t boehm_page(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* A page table's worth of pages: the usual huge page. Where it is another size it is only not taken apart as well. */
static inline uintptr_t boehm_huge_page(void)
{
    return boehm_page() / 8 * boehm_page();
}

/* Where a piece ends of which whole pages can go: what libgc rounds it up to is its own, too, if it begins with one. */
static inline uintptr_t boehm_end(const struct boehm_piece_of *piece)
{
    uintptr_t begin = (uintptr_t)piece->object;

    return begin + piece->bytes - (begin % boehm_page() == 0 ? 0 : BOEHM_SLOP);
}

/*
 * Has the kernel take the huge page apart of which only this part, of whole pages, is to be discarded. What is
 * discarded of a huge page stays in memory, charged to the program, until all of it is, or until the kernel takes it
 * apart because it is short of memory: it writes others to the swap before it does that. Of the calls that take it
 * apart at once (mm/madvise.c) MADV_COLD changes nothing else that counts for what goes in any case. And khugepaged
 * would make it whole again within seconds, with new memory for what is discarded, if this part did not become an area
 * of its own; which it stays, without huge pages, when it is used again.
 */
static inline void boehm_take_apart(uintptr_t begin, uintptr_t end)
{
    if (end <= begin)
        return;
    (void)madvise((void *)begin, end - begin, MADV_NOHUGEPAGE);
    (void)madvise((void *)begin, end - begin, MADV_COLD);
}

/* Gives the kernel the whole pages between two addresses. */
static inline void boehm_empty(uintptr_t begin, uintptr_t end)
{
    uintptr_t page = boehm_page(), huge = boehm_huge_page(), first_huge, last_huge;

    begin = (begin + page - 1) & ~(page - 1);
    end &= ~(page - 1);
    if (end <= begin)
        return;
    first_huge = (begin + huge - 1) & ~(huge - 1);
    last_huge = end & ~(huge - 1);
    if (first_huge > last_huge) {
        /* All of it lies within one. */
        boehm_take_apart(begin, end);
    } else {
        boehm_take_apart(begin, first_huge);
        boehm_take_apart(last_huge, end);
    }
    (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

static inline int boehm_by_address(const void *one, const void *other)
{
    uintptr_t first = (uintptr_t)((const struct boehm_piece_of *)one)->object;
    uintptr_t second = (uintptr_t)((const struct boehm_piece_of *)other)->object;

    return (first > second) - (first < second);
}

/*
 * Gives the kernel what these pieces have, those that are neighbours together: a huge page that goes whole is not taken
 * apart, and there may be a huge one again where the memory is used again.
 */
static inline void boehm_empty_pieces(struct boehm_piece_of *pieces, size_t count)
{
    size_t first = 0;

    if (count > 0)
        qsort(pieces, count, sizeof(*pieces), boehm_by_address);
    while (first < count) {
        uintptr_t end = boehm_end(&pieces[first]);
        size_t next = first + 1;

        while (next < count && (uintptr_t)pieces[next].object <= end)
            end = boehm_end(&pieces[next++]);
        boehm_empty((uintptr_t)pieces[first].object, end);
        first = next;
    }
}

/* A place for one more piece; false where there is no memory for it. */
static inline bool boehm_has_place(struct boehm_heap *heap)
{
    size_t room = heap->room == 0 ? 64 : 2 * heap->room;
    struct boehm_piece_of *pieces;

    if (heap->count < heap->room)
        return true;
    pieces = realloc(heap->pieces, room * sizeof(*pieces));
    if (pieces == NULL)
        return false;
    heap->pieces = pieces;
    heap->room = room;
    return true;
}

/* Discards so much; false where what is unused lies in pieces that are too small for that. */
static inline bool boehm_discard(struct boehm_heap *heap, uint64_t available, uint64_t bytes)
{
    uint64_t piece = boehm_piece(available), done = 0;
    size_t count = heap->count;

    /* Where hardly more is unused than a piece, the collector would make its heap larger for it. */
    while (done < bytes && heap->gc.free_bytes() >= 2 * piece && boehm_has_place(heap)) {
        size_t before = heap->gc.heap_bytes();
        void *object = heap->gc.malloc_atomic_uncollectable(piece - BOEHM_SLOP);

        if (object == NULL)
            break;
        if (heap->gc.heap_bytes() > before) {
            boehm_empty((uintptr_t)object, (uintptr_t)object + piece - BOEHM_SLOP);
            heap->gc.free(object);
            break;
        }
        heap->pieces[heap->count++] = (struct boehm_piece_of){.object = object, .bytes = piece};
        atomic_fetch_add_explicit(&heap->discarded, piece, memory_order_relaxed);
        done += piece;
    }
    boehm_empty_pieces(heap->pieces + count, heap->count - count);
    return done + piece > bytes;
}

/* Has the collector use again what was discarded, so much at most. */
static inline void boehm_use_again(struct boehm_heap *heap, uint64_t bytes)
{
    while (heap->count > 0 && heap->pieces[heap->count - 1].bytes <= bytes) {
        struct boehm_piece_of piece = heap->pieces[--heap->count];

        bytes -= piece.bytes;
        atomic_fetch_sub_explicit(&heap->discarded, piece.bytes, memory_order_relaxed);
        heap->gc.free(piece.object);
    }
}

/* Does what is to be done now, with no lock of the collector's held. Whether it has collected or discarded. */
static inline bool boehm_look(struct boehm_heap *heap, uint64_t available)
{
    struct boehm_state state;
    bool has_discarded = false;

    boehm_see_what_is_beside(heap);
    state = boehm_state_of(heap, available);
    boehm_set_growth(heap, &state);
    boehm_use_again(heap, boehm_to_use_again(&state));
    if (boehm_discards_first(&state)) {
        has_discarded = boehm_discard(heap, available, boehm_to_discard(&state));
        state = boehm_state_of(heap, available);
    }
    if (!boehm_collects(&state))
        return has_discarded;
    if (boehm_has_discarded_much(&state)) {
        boehm_use_again(heap, UINT64_MAX);
        /* It discards only what was free in the two collections before. */
        for (int pass = 0; pass < BOEHM_PASSES; pass++)
            heap->gc.collect_and_unmap();
        return true;
    }
    heap->gc.collect();
    state = boehm_state_of(heap, available);
    if (!boehm_discard(heap, available, boehm_to_discard(&state))) {
        /* It lies in pieces that are too small: then all that was unused for a collection goes. */
        heap->gc.collect_and_unmap();
    }
    return true;
}

#endif /* STEWARD_BOEHM_HEAP_H */
