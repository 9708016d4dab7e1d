/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What bounds the interactive class of one CPU while it runs, whatever was admitted.
 *
 * Admission bounds what is expected. Tasks that use more than that are revoked, but only when four samples have
 * shown it, and what is never revoked stays. Until then best-effort work, with the kernel's own threads among it, must
 * not stand still: the class is a bucket that fills with the CPU time of reservations and leaks CLASS_RATE of all time.
 * While it is full and best-effort work waits, that goes first for CLASS_GAP_NS at a time.
 *
 * What holds, and is tested: in any interval in which best-effort work waits, reservations get at most 19/20 of it,
 * CLASS_BURST_NS, and what one of them ran on until it was noticed; and a class that asks for less than that is never
 * held back.
 */
#ifndef STEWARD_DECIDE_CLASS_H
#define STEWARD_DECIDE_CLASS_H

#include "types.h"

/* What reservations together may have of a CPU beside best-effort work that waits, in twentieths. */
#define CLASS_PARTS 20
#define CLASS_RATE_PARTS 19
/* By how much they may be ahead of that: 200 ms of nothing else fill it. */
#define CLASS_BURST_NS (10 * NSEC_PER_MSEC)
/* How long best-effort work then runs. */
#define CLASS_GAP_NS (NSEC_PER_MSEC / 2)

struct class_use {
	u64 level_ns; /* by how much the class is ahead, at at_ns */
	u64 at_ns;
};

/*
 * Most CPUs have no interactive task that waits most of the time, and do not look for one: they are told when to.
 * Within ops.enqueue the kernel notes where the task is to go, and puts it there afterwards; whoever is told to choose
 * again because of it is told later still. So one look that finds nothing may have come too early, and only the second
 * one counts. Should the CPU that puts it there stand still meanwhile, the sampler finds it.
 */
#define INTERACTIVE_EXPECTED 2

/* A task is about to be put into the CPU's interactive queue. */
DECIDE void interactive_expect(u32 *expected)
{
	*(volatile u32 *)expected = INTERACTIVE_EXPECTED;
}

/* The CPU's interactive queue was found empty, `seen` having been read before. */
DECIDE void interactive_in_vain(u32 *expected, u32 seen)
{
	__sync_val_compare_and_swap(expected, seen, seen - 1);
}

/* By how much the class is ahead at now, if it has not run since. */
DECIDE u64 class_level(const struct class_use *c, u64 now_ns)
{
	u64 passed_ns = now_ns > c->at_ns ? now_ns - c->at_ns : 0, leaked_ns = passed_ns / CLASS_PARTS * CLASS_RATE_PARTS;

	return c->level_ns > leaked_ns ? c->level_ns - leaked_ns : 0;
}

/* A task of the class ran for used_ns up to now. What exceeds a gap is forgotten: nobody is held back for longer. */
DECIDE void class_used(struct class_use *c, u64 used_ns, u64 now_ns)
{
	u64 level_ns = class_level(c, now_ns - used_ns) + used_ns / CLASS_PARTS * (CLASS_PARTS - CLASS_RATE_PARTS);

	c->level_ns = min_u64(level_ns, CLASS_BURST_NS + CLASS_GAP_NS);
	c->at_ns = now_ns;
}

/* Whether best-effort work goes first, if there is any. running_ns: for how long one of the class has run since. */
DECIDE bool class_held(const struct class_use *c, u64 running_ns, u64 now_ns)
{
	return class_level(c, now_ns - running_ns) + running_ns / CLASS_PARTS * (CLASS_PARTS - CLASS_RATE_PARTS) >=
	       CLASS_BURST_NS;
}

#endif
