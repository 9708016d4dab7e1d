/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * When a collector of garbage collects and what it discards, given how much memory its program may use (Walfield,
 * section 5.1): nothing as long as the heap fits, and then as soon as it does not.
 *
 * The paper's heap is collected when it has come to exceed 15/16. Here the collector asks before it makes its heap
 * larger, so it is collected in place when it would come to exceed that, and there is nothing to discard. What is
 * discarded has to be had anew page by page, which costs more than collecting does.
 *
 * All amounts are bytes. Nothing here calls anything.
 */
#ifndef STEWARD_BOEHM_DECIDE_H
#define STEWARD_BOEHM_DECIDE_H

#include <stdbool.h>
#include <stdint.h>

/* By which part of itself the heap grows at once while it is known how much may be used: the room that is left. */
#define BOEHM_GROWS_BY_PART 16
/* Less than 1 of so many parts of what may be used is no room for what is allocated next. */
#define BOEHM_ROOM_PART 64
/* What is discarded is discarded in so many parts of what may be used, in a multiple of the least that is no more than
   the most, in bytes. */
#define BOEHM_PIECE_PART 64
#define BOEHM_PIECE_MIN (64 * 1024)
#define BOEHM_PIECE_MAX (1024 * 1024)

/* What is discarded may have so many times as many addresses as memory may be used. */
#define BOEHM_ADDRESSES_TIMES 16

/* What is known when it is decided. */
struct boehm_state {
    uint64_t available; /* how much may be used */
    uint64_t heap; /* what the collector has, without what is discarded */
    uint64_t free; /* whole blocks of it that are unallocated */
    uint64_t allocated; /* since the last collection */
    uint64_t discarded; /* what it has of addresses without memory, and could have memory for again */
};

/* Whether a heap exceeds 15/16 of what may be used. */
static inline bool boehm_is_short(uint64_t available, uint64_t heap)
{
    return heap > available - available / 16;
}

/* Whether at least 1 % of what may be used was allocated since the last collection: less is not worth one. */
static inline bool boehm_is_worth_collecting(const struct boehm_state *state)
{
    return state->allocated >= state->available / 100 && state->allocated > 0;
}

static inline bool boehm_has_no_room(const struct boehm_state *state)
{
    return state->free < state->available / BOEHM_ROOM_PART;
}

/*
 * Whether the collector, which is about to collect or to have a larger heap, is to collect: nothing is left in the
 * heap, and with the next piece it would be too large, or what was discarded is to be used before.
 */
static inline bool boehm_collects_in_place(const struct boehm_state *state)
{
    uint64_t grown = state->heap + state->heap / BOEHM_GROWS_BY_PART;

    return boehm_has_no_room(state) && boehm_is_worth_collecting(state) &&
           (state->discarded > 0 || grown < state->heap || boehm_is_short(state->available, grown));
}

/* How much of a heap that is too large is to be discarded of what it does not use: so much that it is below 7/8. */
static inline uint64_t boehm_to_discard(const struct boehm_state *state)
{
    uint64_t low = state->available - state->available / 8;
    uint64_t above = state->heap > low ? state->heap - low : 0;

    if (!boehm_is_short(state->available, state->heap))
        return 0;
    return above < state->free ? above : state->free;
}

/* Whether that is to be done before the heap is collected: more than a third of what may be used lies there unused. */
static inline bool boehm_discards_first(const struct boehm_state *state)
{
    return boehm_is_short(state->available, state->heap) && state->free > state->available / 3;
}

/* Whether a heap that is too large, whatever could be discarded, is to be collected. */
static inline bool boehm_collects(const struct boehm_state *state)
{
    return boehm_is_short(state->available, state->heap) && boehm_is_worth_collecting(state);
}

/*
 * How much of what was discarded may be used again: so much that the heap, in which no room is left, still fits. Where
 * it has just been collected and is too large all the same, as much as it would grow by otherwise.
 */
static inline uint64_t boehm_to_use_again(const struct boehm_state *state)
{
    uint64_t high = state->available - state->available / 16;
    uint64_t room = state->heap < high ? high - state->heap : 0;

    if (!boehm_has_no_room(state))
        return 0;
    if (room == 0 && !boehm_is_worth_collecting(state))
        room = state->heap / BOEHM_GROWS_BY_PART;
    return room < state->discarded ? room : state->discarded;
}

/*
 * Whether so many addresses are discarded that what libgc keeps for each of them counts, a 512th (8 bytes a page): more
 * than a thirty-second of what may be used. Then it is to discard all that it does not use in its own way, in which it
 * can use the addresses for something else. That is dear: all that is unused has to be had anew page by page, and what
 * libgc has discarded itself it has back without asking.
 */
static inline bool boehm_has_discarded_much(const struct boehm_state *state)
{
    return state->discarded / BOEHM_ADDRESSES_TIMES > state->available;
}

/* In pieces of which size that is done. */
static inline uint64_t boehm_piece(uint64_t available)
{
    uint64_t piece = available / BOEHM_PIECE_PART;

    piece = piece > BOEHM_PIECE_MAX ? BOEHM_PIECE_MAX : piece - piece % BOEHM_PIECE_MIN;
    return piece < BOEHM_PIECE_MIN ? BOEHM_PIECE_MIN : piece;
}

#endif /* STEWARD_BOEHM_DECIDE_H */
