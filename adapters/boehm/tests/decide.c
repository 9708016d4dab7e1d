/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Holds the rules of decide.h to what they say. Prints what is not so, and ends with 1. */
#include <stdio.h>

#include "decide.h"

#define MIB (1024ULL * 1024)

static int failures;

#define EXPECT(condition)                                                                                            \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            fprintf(stderr, "decide.c:%d: not so: %s\n", __LINE__, #condition);                                      \
            failures++;                                                                                              \
        }                                                                                                            \
    } while (0)

/* Of 1600 MiB. */
static enum boehm_step decide(uint64_t heap, uint64_t free_blocks, uint64_t allocated, bool less)
{
    struct boehm_state state = {
        .available = 1600 * MIB,
        .heap = heap * MIB,
        .free = free_blocks * MIB,
        .allocated = allocated * MIB,
        .less = less,
    };

    return boehm_decide(&state);
}

static void a_heap_that_fits_grows_whatever_was_allocated(void)
{
    EXPECT(decide(0, 0, 0, false) == BOEHM_GROW);
    EXPECT(decide(1500, 0, 1500, false) == BOEHM_GROW);
    EXPECT(decide(1500, 1400, 1500, true) == BOEHM_GROW);
}

static void a_heap_beyond_fifteen_sixteenths_is_collected_once_a_hundredth_was_allocated(void)
{
    EXPECT(decide(1501, 0, 16, false) == BOEHM_COLLECT);
    EXPECT(decide(1501, 0, 15, false) == BOEHM_GROW);
    EXPECT(decide(5000, 0, 15, true) == BOEHM_GROW);
}

static void what_is_mostly_unused_is_discarded_at_once_when_there_is_less(void)
{
    EXPECT(decide(1600, 534, 0, true) == BOEHM_DISCARD);
    EXPECT(decide(1600, 533, 0, true) == BOEHM_GROW);
    /* Discarding takes collections, so that it is not tried again and again. */
    EXPECT(decide(1600, 534, 0, false) == BOEHM_GROW);
    EXPECT(decide(1600, 534, 16, false) == BOEHM_DISCARD);
}

static void collecting_goes_on_while_that_discards_enough_to_matter(void)
{
    EXPECT(boehm_goes_on(1600, 1500, 200, 1) && boehm_goes_on(1600, 1500, 200, 2));
    EXPECT(!boehm_goes_on(1600, 1500, 200, BOEHM_PASSES_MAX));
    EXPECT(!boehm_goes_on(1600, 1400, 200, 1));
    EXPECT(!boehm_goes_on(1600, 1500, 100, 1));
}

static void amounts_at_the_end_of_their_range_are_no_surprise(void)
{
    struct boehm_state none = {0};
    struct boehm_state all = {.available = UINT64_MAX, .heap = UINT64_MAX, .free = UINT64_MAX, .allocated = UINT64_MAX};

    EXPECT(boehm_decide(&none) == BOEHM_GROW);
    EXPECT(boehm_decide(&all) == BOEHM_DISCARD);
    /* Nothing may be used: as little as possible, but no collection without an allocation. */
    none.heap = 1;
    EXPECT(boehm_decide(&none) == BOEHM_GROW);
    none.allocated = 1;
    EXPECT(boehm_decide(&none) == BOEHM_COLLECT);
}

int main(void)
{
    a_heap_that_fits_grows_whatever_was_allocated();
    a_heap_beyond_fifteen_sixteenths_is_collected_once_a_hundredth_was_allocated();
    what_is_mostly_unused_is_discarded_at_once_when_there_is_less();
    collecting_goes_on_while_that_discards_enough_to_matter();
    amounts_at_the_end_of_their_range_are_no_surprise();
    return failures != 0;
}
