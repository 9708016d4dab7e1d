/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Holding tasks back without holding what they hold: who is let run on until it has left the kernel, and at what rate.
 *
 * A task that is kept from running keeps the kernel's locks that it has. So a task whose domain is held (cpu.max used
 * up, suspended) is kept from running only where it has none: at the boundary, on its return to user space. One that is
 * found anywhere else leaves: it runs on, ahead of other best-effort work, until it has reached the boundary. The same
 * holds for a task that is deferred to others by its domain's priority, if it was preempted inside the kernel or waited
 * there for something other than its own will.
 *
 * Whoever leaves gets at most LEAVING_FRACTION of a CPU while other work waits there, so that nobody gains by long
 * system calls; what is used is charged like all else, and a quota is paid back later. Those that leave share that by a
 * clock of their own: each moves back by what it uses, and who begins to leave stands two slices before the clock. So
 * one that needs little comes next, however many are in long calls; and because the clock advances with what anybody
 * uses, those come to their turn as well.
 *
 * Who is deferred leaves at the cost of those that it is deferred to, and these are often through in a moment: a server
 * answers, and sleeps. So it waits for LEAVING_PATIENCE_NS first. Nearly all leave in the pauses between: every other
 * turn of their domain is theirs, which takes nothing from anybody else.
 */
#ifndef STEWARD_DECIDE_HOLDS_H
#define STEWARD_DECIDE_HOLDS_H

#include "types.h"

/* Where a task was when it last ceased to run. */
enum whereabouts {
	AT_BOUNDARY = 0, /* on its way to user space, or it has not run yet: it has no lock of the kernel */
	INSIDE_ASLEEP = 1, /* it slept inside the kernel until something happens outside, as poll(2) does */
	INSIDE_BLOCKED = 2, /* it waited inside the kernel for a lock, a page or a disk */
	INSIDE_PREEMPTED = 3, /* it was preempted inside the kernel */
	WHEREABOUTS_UNKNOWN = 4, /* it was preempted, and this kernel does not say where */
	AT_GATE = 5, /* it was stopped in the last thing that it does before it enters user space */
};

/* While other work waits, those that leave get one part in so many of a CPU. */
#define LEAVING_FRACTION 8
/* For so long one that is deferred waits before it leaves while others want its CPU. */
#define LEAVING_PATIENCE_NS (20 * NSEC_PER_MSEC)
/* A slice of one that leaves. */
#define LEAVING_SLICE_NS (3 * NSEC_PER_MSEC)
/* What a CPU did not need for those that leave counts for them later, up to this much of its time: a slice's worth. */
#define LEAVING_CREDIT_NS (LEAVING_FRACTION * LEAVING_SLICE_NS)
/* A task that is about to enter user space is interrupted so long afterwards: in user space, unless it is back
 * already. */
#define BOUNDARY_DELAY_NS (20 * 1000ULL)
/*
 * If it was back, it is stopped at the next gate instead, in the middle of the work that it does for us on its way.
 * There it has no lock either, but the kernel waits for it before it frees certain things, and it cannot leave its CPU.
 * So after a while it goes on to its next gate.
 */
#define GATE_MAX_NS (2 * NSEC_PER_SEC)
/*
 * Where the kernel does not say whether a task was inside of it, each that has waited so long runs for a slice: usually
 * until it is through.
 */
#define UNKNOWN_AFTER_NS (100 * NSEC_PER_MSEC)
/* How often the queues of domains that are held or deferred are looked through for tasks that came there before. */
#define HOLD_LOOK_NS (25 * NSEC_PER_MSEC)
/* Where very many wait a look takes long, in the time of whoever runs: all of them together take one part in so many of
 * a CPU. */
#define HOLD_LOOK_FRACTION 8

/* Whether a task that could run is let run on until it has left the kernel. held, behind: its domain is, or has to. */
DECIDE bool hold_leaves(bool held, bool behind, u32 whereabouts)
{
	if (held)
		return whereabouts >= INSIDE_ASLEEP && whereabouts <= INSIDE_PREEMPTED;
	return behind && (whereabouts == INSIDE_BLOCKED || whereabouts == INSIDE_PREEMPTED);
}

/* The same of one that has waited in its domain's queue for a while. */
DECIDE bool hold_overstays(bool held, bool behind, u32 whereabouts, u64 waited_ns)
{
	if (whereabouts == WHEREABOUTS_UNKNOWN)
		return (held || behind) && waited_ns >= UNKNOWN_AFTER_NS;
	if (whereabouts == AT_GATE)
		return (held || behind) && waited_ns >= GATE_MAX_NS;
	return hold_leaves(held, behind, whereabouts);
}

/* When a look may begin after one that ended now and took so long. */
DECIDE u64 hold_look_due(u64 took_ns, u64 now_ns)
{
	return now_ns + took_ns * (HOLD_LOOK_FRACTION - 1);
}

/* Where one that begins to leave stands; the least is served first. */
DECIDE u64 leaving_place(u64 clock_ns)
{
	return clock_ns - 2 * LEAVING_SLICE_NS;
}

/* Where it stands after it has used so much: behind those that begin to. */
DECIDE u64 leaving_again(u64 clock_ns, u64 place_ns, u64 used_ns)
{
	u64 least_ns = clock_ns - LEAVING_SLICE_NS;

	place_ns += used_ns;
	return clock_before(place_ns, least_ns) ? least_ns : place_ns;
}

/* The clock after one that stood there has used so much; standing: how many there are, itself included. */
DECIDE u64 leaving_clock(u64 clock_ns, u64 place_ns, u64 used_ns, u32 standing)
{
	if (clock_before(clock_ns, place_ns))
		clock_ns = place_ns;
	return clock_ns + used_ns / (standing ? standing : 1);
}

/* Whether a CPU may serve one that leaves although other work waits; due_ns is what leaving_charge() returned last. */
DECIDE bool leaving_due(u64 due_ns, u64 now_ns)
{
	return !clock_before(now_ns, due_ns);
}

/* Whether the next of those that leave, which has waited so long, may come before other work. behind: its domain is
 * deferred to something that can run. */
DECIDE bool leaving_presses(bool behind, u64 waited_ns)
{
	return !behind || waited_ns >= LEAVING_PATIENCE_NS;
}

/* When the CPU may do so again, one that leaves having used so much. */
DECIDE u64 leaving_charge(u64 due_ns, u64 used_ns, u64 now_ns)
{
	u64 earliest = now_ns - LEAVING_CREDIT_NS;

	if (clock_before(due_ns, earliest))
		due_ns = earliest;
	return due_ns + used_ns * LEAVING_FRACTION;
}

#endif
