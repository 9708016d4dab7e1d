/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * When a collector of garbage collects, given how much memory its program may use (Walfield, section 5.1): not as long
 * as the heap fits, and then as soon as it does not.
 *
 * The paper's collector can discard what it does not use without collecting. That of libgc discards only at the end of
 * a collection, and only blocks that were free in the two before: here discarding is up to three collections in a
 * row, and therefore also waits until enough was allocated since the last one, unless less may be used than before.
 *
 * All amounts are bytes. Nothing here calls anything.
 */
#ifndef STEWARD_BOEHM_DECIDE_H
#define STEWARD_BOEHM_DECIDE_H

#include <stdbool.h>
#include <stdint.h>

/* Collections that it takes until a block that one of them has freed is discarded. */
#define BOEHM_PASSES_MAX 3

/* What is known when it is decided. */
struct boehm_state {
    uint64_t available; /* how much may be used */
    uint64_t heap; /* what the collector has, without what it has discarded */
    uint64_t free; /* whole blocks of it that are unallocated */
    uint64_t allocated; /* since the last collection */
    bool less; /* whether less may be used than when this was decided last */
};

enum boehm_step {
    BOEHM_GROW, /* let the heap grow: collect nothing */
    BOEHM_DISCARD, /* much is unused: discard it */
    BOEHM_COLLECT, /* collect, and discard what that frees */
};

/* Whether the heap exceeds 15/16 of what may be used. */
static inline bool boehm_is_short(uint64_t available, uint64_t heap)
{
    return heap > available - available / 16;
}

/* Whether at least 1 % of what may be used was allocated since the last collection: less is not worth one. */
static inline bool boehm_is_worth_collecting(const struct boehm_state *state)
{
    return state->allocated >= state->available / 100 && state->allocated > 0;
}

static inline enum boehm_step boehm_decide(const struct boehm_state *state)
{
    if (!boehm_is_short(state->available, state->heap))
        return BOEHM_GROW;
    if (state->free > state->available / 3 && (state->less || boehm_is_worth_collecting(state)))
        return BOEHM_DISCARD;
    return boehm_is_worth_collecting(state) ? BOEHM_COLLECT : BOEHM_GROW;
}

/*
 * Whether to collect once more, so that more is discarded: the heap still exceeds 7/8 of what may be used, and what is
 * unallocated would make a difference, that between 15/16 and 7/8.
 */
static inline bool boehm_goes_on(uint64_t available, uint64_t heap, uint64_t free_bytes, int passes)
{
    return passes < BOEHM_PASSES_MAX && heap > available - available / 8 && free_bytes > available / 16;
}

#endif /* STEWARD_BOEHM_DECIDE_H */
