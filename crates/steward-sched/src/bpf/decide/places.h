/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which places of a table are taken, a bit for each. Whoever takes one gets the first that is free, and places_end()
 * says up to which any is taken: so whoever goes through the table goes through few places while few are taken, however
 * many were before.
 *
 * Several CPUs take, give back and look at once, without a lock. A place is taken before anything is put there, and
 * given back when nothing is left there.
 */
#ifndef STEWARD_DECIDE_PLACES_H
#define STEWARD_DECIDE_PLACES_H

#include "types.h"

#define PLACES_MAX 4096
#define PLACES_WORDS (PLACES_MAX / 64)
/* A bound for the loop: each time in which no word is left behind, another CPU has changed one. */
#define PLACES_TRIES_MAX 8192

/* Takes the first place that is free. PLACES_MAX when there is none. */
DECIDE u32 places_take(u64 *taken)
{
	u32 word = loop_begin(), tries;

	for (tries = loop_begin(); tries < PLACES_TRIES_MAX && word < PLACES_WORDS && can_loop; tries++) {
		u64 *at = &taken[masked(word, PLACES_WORDS - 1)];
		u64 seen = *(volatile u64 *)at, first_free = ~seen & (seen + 1);

		if (!first_free)
			word++;
		else if (__sync_val_compare_and_swap(at, seen, seen | first_free) == seen)
			return word * 64 + bits_set(first_free - 1);
	}
	return PLACES_MAX;
}

/* Gives one back. */
DECIDE void places_give(u64 *taken, u32 place)
{
	__sync_fetch_and_and(&taken[masked(place / 64, PLACES_WORDS - 1)], ~(1ULL << (place & 63)));
}

/* No place from here on is taken: the end of the last 64 in which one is. */
DECIDE u32 places_end(const u64 *taken)
{
	u32 behind;

	for (behind = loop_begin(); behind < PLACES_WORDS && can_loop; behind++) {
		u32 word = PLACES_WORDS - 1 - behind;

		if (*(volatile const u64 *)&taken[masked(word, PLACES_WORDS - 1)])
			return word * 64 + 64;
	}
	return 0;
}

#endif
