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

/* Of 1600 MiB, in MiB. */
static struct boehm_state state(uint64_t heap, uint64_t free_blocks, uint64_t allocated, uint64_t discarded)
{
    return (struct boehm_state){
        .available = 1600 * MIB,
        .heap = heap * MIB,
        .free = free_blocks * MIB,
        .allocated = allocated * MIB,
        .discarded = discarded * MIB,
    };
}

static bool collects_in_place(uint64_t heap, uint64_t free_blocks, uint64_t allocated, uint64_t discarded)
{
    struct boehm_state seen = state(heap, free_blocks, allocated, discarded);

    return boehm_collects_in_place(&seen);
}

static void a_heap_grows_as_long_as_the_next_piece_fits_and_is_collected_then(void)
{
    EXPECT(!collects_in_place(0, 0, 0, 0));
    EXPECT(!collects_in_place(1411, 0, 1400, 0)); /* with a sixteenth 1499 */
    EXPECT(collects_in_place(1412, 0, 1400, 0)); /* 1500 and a quarter */
    EXPECT(collects_in_place(1500, 24, 16, 0));
    EXPECT(!collects_in_place(1500, 25, 1400, 0)); /* there is room in it */
    EXPECT(!collects_in_place(1500, 0, 15, 0)); /* not a hundredth was allocated */
    EXPECT(collects_in_place(100, 0, 16, 1)); /* what was discarded comes before what is new */
}

static bool collects(uint64_t heap, uint64_t allocated)
{
    struct boehm_state seen = state(heap, 0, allocated, 0);

    return boehm_collects(&seen);
}

static void a_heap_beyond_fifteen_sixteenths_is_collected_once_a_hundredth_was_allocated(void)
{
    EXPECT(!collects(1500, 1500));
    EXPECT(collects(1501, 16));
    EXPECT(!collects(1501, 15));
}

static uint64_t to_discard(uint64_t heap, uint64_t free_blocks)
{
    struct boehm_state seen = state(heap, free_blocks, 0, 0);

    return boehm_to_discard(&seen) / MIB;
}

static void no_more_is_discarded_than_has_the_heap_fit_and_is_unused(void)
{
    EXPECT(to_discard(1500, 1500) == 0);
    EXPECT(to_discard(1501, 1500) == 101);
    EXPECT(to_discard(5000, 4000) == 3600);
    EXPECT(to_discard(5000, 50) == 50);
}

static void what_is_mostly_unused_is_discarded_without_a_collection(void)
{
    struct boehm_state a_third = state(1600, 533, 0, 0), more = state(1600, 534, 0, 0), fits = state(1500, 1400, 0, 0);

    EXPECT(!boehm_discards_first(&a_third) && boehm_discards_first(&more) && !boehm_discards_first(&fits));
}

static uint64_t to_use_again(uint64_t heap, uint64_t free_blocks, uint64_t discarded)
{
    struct boehm_state seen = state(heap, free_blocks, 16, discarded);

    return boehm_to_use_again(&seen) / MIB;
}

static void what_was_discarded_is_used_again_when_it_is_needed_and_fits(void)
{
    EXPECT(to_use_again(1000, 0, 400) == 400);
    EXPECT(to_use_again(1000, 0, 600) == 500); /* to 15/16 */
    EXPECT(to_use_again(1000, 25, 400) == 0);
    EXPECT(to_use_again(1501, 0, 400) == 0);
    struct boehm_state collected = state(1600, 0, 15, 400);
    EXPECT(boehm_to_use_again(&collected) == 100 * MIB);
    struct boehm_state much = state(0, 0, 0, 16 * 1601), many = state(0, 0, 0, 16 * 1600);
    EXPECT(boehm_has_discarded_much(&much) && !boehm_has_discarded_much(&many));
}

static void pieces_are_neither_too_small_to_be_told_apart_nor_too_large_to_be_found(void)
{
    EXPECT(boehm_piece(32 * MIB) == MIB / 2);
    EXPECT(boehm_piece(18 * MIB + 12345) == 4 * BOEHM_PIECE_MIN);
    EXPECT(boehm_piece(0) == BOEHM_PIECE_MIN && boehm_piece(UINT64_MAX) == BOEHM_PIECE_MAX);
}

static void amounts_at_the_end_of_their_range_are_no_surprise(void)
{
    struct boehm_state none = {0};
    struct boehm_state all = {
        .available = UINT64_MAX, .heap = UINT64_MAX, .allocated = UINT64_MAX, .discarded = UINT64_MAX};

    EXPECT(!boehm_collects(&none) && !boehm_collects_in_place(&none) && boehm_to_discard(&none) == 0);
    EXPECT(boehm_collects(&all) && boehm_collects_in_place(&all) && boehm_to_use_again(&all) == 0);
    /* Nothing may be used: as little as possible, but no collection without an allocation. */
    none.heap = 1;
    none.free = 1;
    EXPECT(!boehm_collects(&none) && boehm_discards_first(&none) && boehm_to_discard(&none) == 1);
    none.allocated = 1;
    EXPECT(boehm_collects(&none));
}

int main(void)
{
    a_heap_grows_as_long_as_the_next_piece_fits_and_is_collected_then();
    a_heap_beyond_fifteen_sixteenths_is_collected_once_a_hundredth_was_allocated();
    no_more_is_discarded_than_has_the_heap_fit_and_is_unused();
    what_is_mostly_unused_is_discarded_without_a_collection();
    what_was_discarded_is_used_again_when_it_is_needed_and_fits();
    pieces_are_neither_too_small_to_be_told_apart_nor_too_large_to_be_found();
    amounts_at_the_end_of_their_range_are_no_surprise();
    return failures != 0;
}
