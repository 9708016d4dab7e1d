/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How the standing of a task's slot changes while several CPUs want to change it at once: load control revokes and
 * takes back, a CPU goes offline, the task ends.
 *
 * Whoever changes a standing first takes it (standing_take()): of several only one does. It then adds or gives back the
 * reservation, and settles (standing_settle()). The task may give its slot up at any moment (standing_end()): then the
 * one who has taken the standing finds that out when it settles, gives back what it has added, and frees the slot. So
 * what a CPU has reserved is at all times the sum of what is admitted there, and of what is being changed.
 */
#ifndef STEWARD_DECIDE_STANDING_H
#define STEWARD_DECIDE_STANDING_H

#include "types.h"

enum standing {
	STANDING_NONE = 0,
	STANDING_ADMITTED = 1,
	STANDING_REFUSED = 2,
	STANDING_REVOKED = 3,
	STANDING_CHANGING = 4, /* for a moment */
};

/* Takes a slot's standing for a change. False when it is another one meanwhile. */
DECIDE bool standing_take(u32 *standing, u32 from)
{
	return __sync_val_compare_and_swap(standing, from, STANDING_CHANGING) == from;
}

/*
 * Ends a change. False when the task gave the slot up meanwhile: the caller gives back the reservation if there is one,
 * and frees the slot.
 */
DECIDE bool standing_settle(u32 *standing, u32 to)
{
	return __sync_val_compare_and_swap(standing, STANDING_CHANGING, to) == STANDING_CHANGING;
}

/*
 * The task gives its slot up. Returns what the standing was: if STANDING_ADMITTED, the caller gives the reservation
 * back; if STANDING_CHANGING, the slot is no longer the caller's, and somebody else frees it; else the caller does.
 */
DECIDE u32 standing_end(u32 *standing)
{
	return __sync_lock_test_and_set(standing, STANDING_NONE);
}

/* Whether the task waits to be admitted. */
DECIDE bool standing_waits(u32 standing)
{
	return standing == STANDING_REFUSED || standing == STANDING_REVOKED;
}

#endif
