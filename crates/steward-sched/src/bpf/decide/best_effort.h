/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The order of best-effort work: weighted virtual time over a tree of domains.
 *
 * Every cgroup is a domain. A domain's tasks share what it gets by their weight (nice); domains share what
 * reservations leave by their weight (cpu.weight) at each level of the tree, where the tasks that sit in the
 * parent itself stand beside its children, each with its own weight, as the default scheduler has it.
 *
 * The tree is flattened: a domain's share is the product, up to the root, of its weight over the weight that is
 * runnable beside it. Runnable domains stand in a binary heap by virtual time, which advances with the time used
 * divided by the share. Choosing, inserting and moving a domain costs O(log n).
 *
 * cpu.max is kept by a pool of run time per domain, refilled every period; a domain is held back while it or one
 * of its ancestors has none left.
 */
#ifndef STEWARD_DECIDE_BEST_EFFORT_H
#define STEWARD_DECIDE_BEST_EFFORT_H

#include "types.h"

#define MAX_DOMAINS 4096 /* a power of two: indices are masked with MAX_DOMAINS - 1 */
#define MAX_DEPTH 16
#define HEAP_LEVELS 12 /* log2(MAX_DOMAINS) */
#define ROOT_DOMAIN 1 /* index 0 means none */
#define NO_POSITION 0xffff

/* A share of 1 (the whole of what is left to best-effort work). */
#define SHARE_ONE (1ULL << 20)
#define WEIGHT_DEFAULT 100
/* cpu.idle: 3 of 1,024 in the default scheduler's units, of 100 here, kept in tenths below. */
#define WEIGHT_SCALE 10
#define WEIGHT_IDLE 3

/* A slice of best-effort work. Slices end at the tick after it. */
#define SLICE_NS (3 * NSEC_PER_MSEC)
/* Nobody may lie further behind the clock than this; a nice 19 task pays 400 ms for a slice that ends at its tick. */
#define TASK_LAG_MAX_NS (2 * NSEC_PER_SEC)
#define DOMAIN_LAG_MAX_NS (8 * NSEC_PER_SEC)
/* Of the two classes of best-effort work before a CPU, neither saves up more than this. */
#define CLASS_LAG_MAX_NS (100 * NSEC_PER_MSEC)
/*
 * Weights alone may keep a task waiting for minutes, and so may cpu.max and cpu.idle. One that has waited
 * RESCUE_AFTER_NS is given RESCUE_SLICE_NS, ahead of other best-effort work and whatever its quota says, at most
 * every RESCUE_INTERVAL_NS on a CPU. So everything makes some progress, at a cost of 5 % of a CPU at most, and the
 * kernel, which takes a scheduler out when a task has waited 30 s, has no reason to.
 */
#define RESCUE_AFTER_NS (8 * NSEC_PER_SEC)
#define RESCUE_SLICE_NS (NSEC_PER_MSEC / 10)
#define RESCUE_INTERVAL_NS (2 * NSEC_PER_MSEC)

#define QUOTA_NONE (~0ULL)
/* No quota needs to be larger (13 days); a thousand of them must fit a signed number. */
#define QUOTA_MAX_NS (1ULL << 50)

struct domain {
	u64 cgroup_id;
	u64 vtime; /* position among domains */
	u64 task_clock; /* virtual time of its tasks */
	u64 quota_ns; /* cpu.max; QUOTA_NONE: no limit */
	u64 quota_period_ns;
	u64 burst_ns;
	u64 refill_at_ns;
	s64 quota_left_ns;
	u64 used_ns; /* best-effort CPU time, for ever */
	u32 weight; /* in WEIGHT_SCALE-ths */
	u32 child_weight; /* of the active children */
	u32 runnable_weight; /* of its own runnable tasks */
	u32 runnable; /* its own runnable tasks */
	u32 active_children;
	u32 waiting; /* its own tasks that stand in its queue */
	u32 tasks; /* its own tasks, asleep or not */
	u16 parent;
	u16 depth;
	u8 in_use;
	u8 active; /* something is runnable in it or below it */
	u8 queued; /* stands in the heap */
	u8 throttled; /* has used up its quota */
	u8 parked; /* kept out of the heap because it or an ancestor is throttled */
	u8 dying; /* the cgroup is gone; tasks of it may still run */
	u8 unused[2];
};

struct domain_table {
	u64 clock; /* virtual time of the domain served last */
	u32 heap_count;
	u32 high_water; /* no index at or above it was ever used */
	u32 quotas; /* how many domains have a quota */
	u32 cursor; /* where heap_rise() and heap_sink() are */
	u16 heap[MAX_DOMAINS];
	u16 position[MAX_DOMAINS];
	struct domain domains[MAX_DOMAINS];
};

DECIDE struct domain *domain_at(struct domain_table *t, u32 index)
{
	return &t->domains[index & (MAX_DOMAINS - 1)];
}

DECIDE u64 heap_key(struct domain_table *t, u32 position)
{
	return domain_at(t, t->heap[position & (MAX_DOMAINS - 1)])->vtime;
}

DECIDE void heap_place(struct domain_table *t, u32 position, u16 index)
{
	t->heap[position & (MAX_DOMAINS - 1)] = index;
	t->position[index & (MAX_DOMAINS - 1)] = (u16)position;
}

/*
 * The two walks keep their position in the table instead of in a variable: the BPF verifier follows what a variable
 * may hold along every path, and two paths a level through twelve levels are too many; what is read back from memory
 * is one unknown number.
 */
DECIDE void heap_rise(struct domain_table *t, u32 start, u16 index)
{
	volatile u32 *position = &t->cursor;
	u64 key = domain_at(t, index)->vtime;
	u32 level;

	*position = start;
	for (level = 0; level < HEAP_LEVELS; level++) {
		u32 here = *position, parent = (here - 1) / 2;

		if (here == 0 || !clock_before(key, heap_key(t, parent)))
			break;
		heap_place(t, here, t->heap[parent & (MAX_DOMAINS - 1)]);
		*position = parent;
	}
	heap_place(t, *position, index);
}

DECIDE void heap_sink(struct domain_table *t, u32 start, u16 index)
{
	volatile u32 *position = &t->cursor;
	u64 key = domain_at(t, index)->vtime;
	u32 level;

	*position = start;
	for (level = 0; level < HEAP_LEVELS; level++) {
		u32 here = *position, size = *(volatile u32 *)&t->heap_count, child = 2 * here + 1;
		u64 child_key;

		if (child >= size)
			break;
		child_key = heap_key(t, child);
		if (child + 1 < size && clock_before(heap_key(t, child + 1), child_key)) {
			child++;
			child_key = heap_key(t, child);
		}
		if (!clock_before(child_key, key))
			break;
		heap_place(t, here, t->heap[child & (MAX_DOMAINS - 1)]);
		*position = child;
	}
	heap_place(t, *position, index);
}

/* Puts a domain that has waiting tasks into the heap, no further ahead of the clock than one slice. */
DECIDE void domain_enqueue(struct domain_table *t, u16 index)
{
	struct domain *d = domain_at(t, index);

	if (d->queued || t->heap_count >= MAX_DOMAINS)
		return;
	if (clock_before(d->vtime, t->clock - SLICE_NS))
		d->vtime = t->clock - SLICE_NS;
	d->queued = 1;
	t->heap_count++;
	heap_rise(t, t->heap_count - 1, index);
}

DECIDE void domain_dequeue(struct domain_table *t, u16 index)
{
	struct domain *d = domain_at(t, index);
	u32 position = t->position[index & (MAX_DOMAINS - 1)];
	u16 last;

	if (!d->queued || !t->heap_count || position >= t->heap_count)
		return;
	d->queued = 0;
	t->heap_count--;
	t->position[index & (MAX_DOMAINS - 1)] = NO_POSITION;
	if (position == t->heap_count)
		return;
	last = t->heap[t->heap_count & (MAX_DOMAINS - 1)];
	if (position > 0 && clock_before(domain_at(t, last)->vtime, heap_key(t, (position - 1) / 2)))
		heap_rise(t, position, last);
	else
		heap_sink(t, position, last);
}

/* The domain to serve next, 0 when none waits. */
DECIDE u16 domain_first(struct domain_table *t)
{
	return t->heap_count ? t->heap[0] : 0;
}

/* The domain's virtual time has grown: put it where it now belongs. */
DECIDE void domain_reposition(struct domain_table *t, u16 index)
{
	u32 position = t->position[index & (MAX_DOMAINS - 1)];

	if (domain_at(t, index)->queued && position < t->heap_count)
		heap_sink(t, position, index);
}

/* Weight of a domain in WEIGHT_SCALE-ths, from cpu.weight (1 to 10,000) and cpu.idle. */
DECIDE u32 domain_weight(u32 cgroup_weight, bool idle)
{
	if (idle)
		return WEIGHT_IDLE;
	return (cgroup_weight ? cgroup_weight : WEIGHT_DEFAULT) * WEIGHT_SCALE;
}

/*
 * The share of a domain's own tasks in all best-effort time, in SHARE_ONE-ths, at least 1. A domain that is not
 * active counts as if it were.
 */
DECIDE u64 domain_share(struct domain_table *t, u16 index)
{
	struct domain *d = domain_at(t, index);
	u64 share = SHARE_ONE, beside;
	u32 level;

	beside = (u64)d->runnable_weight + d->child_weight;
	if (beside && d->runnable_weight)
		share = share * d->runnable_weight / beside;
	for (level = 0; level < MAX_DEPTH; level++) {
		struct domain *parent;

		if (!d->parent)
			break;
		parent = domain_at(t, d->parent);
		beside = (u64)parent->runnable_weight + parent->child_weight + (u64)d->weight * (1 ^ d->active);
		if (beside > d->weight)
			share = share * d->weight / beside;
		d = parent;
	}
	return share ? share : 1;
}

/* Virtual time that used_ns costs at this share. */
DECIDE u64 domain_cost(u64 used_ns, u64 share)
{
	return used_ns * SHARE_ONE / share;
}

/* Advances the domain's virtual time, never further behind the clock than DOMAIN_LAG_MAX_NS. */
DECIDE u64 domain_advance(u64 vtime, u64 clock, u64 cost)
{
	u64 next = vtime + cost;

	return clock_before(clock + DOMAIN_LAG_MAX_NS, next) ? clock + DOMAIN_LAG_MAX_NS : next;
}

/*
 * Brings a domain's place in its parent's sums in line with whether anything in it is runnable, and the same for
 * its ancestors as far as that changes them.
 */
DECIDE void domain_settle(struct domain_table *t, u16 index)
{
	u32 level;

	for (level = 0; level < MAX_DEPTH; level++) {
		struct domain *d = domain_at(t, index);
		struct domain *parent;
		u8 active = d->runnable || d->active_children;

		if (d->active == active)
			return;
		d->active = active;
		if (!d->parent)
			return;
		parent = domain_at(t, d->parent);
		if (active) {
			parent->child_weight += d->weight;
			parent->active_children++;
		} else {
			parent->child_weight -= d->weight;
			parent->active_children--;
		}
		index = d->parent;
	}
}

DECIDE void domain_set_weight(struct domain_table *t, u16 index, u32 weight)
{
	struct domain *d = domain_at(t, index);

	if (d->active && d->parent)
		domain_at(t, d->parent)->child_weight += weight - d->weight;
	d->weight = weight;
}

/* Whether the domain or one above it has used up its quota. */
DECIDE bool domain_held(struct domain_table *t, u16 index)
{
	u32 level;

	for (level = 0; level < MAX_DEPTH; level++) {
		struct domain *d = domain_at(t, index);

		if (d->throttled)
			return true;
		if (!d->parent)
			return false;
		index = d->parent;
	}
	return false;
}

/* Sets cpu.max and cpu.max.burst. quota_ns is QUOTA_NONE for "max". */
DECIDE void domain_set_quota(struct domain_table *t, u16 index, u64 period_ns, u64 quota_ns, u64 burst_ns,
			     u64 now_ns)
{
	struct domain *d = domain_at(t, index);
	bool had = d->quota_ns != QUOTA_NONE;
	bool has = quota_ns != QUOTA_NONE && period_ns;

	if (has && !had)
		t->quotas++;
	if (had && !has)
		t->quotas--;
	d->quota_ns = has ? min_u64(quota_ns, QUOTA_MAX_NS) : QUOTA_NONE;
	d->quota_period_ns = period_ns;
	d->burst_ns = min_u64(burst_ns, QUOTA_MAX_NS);
	d->quota_left_ns = has ? (s64)d->quota_ns : 0;
	d->refill_at_ns = now_ns + period_ns;
	d->throttled = 0;
}

/* Takes used_ns out of the quota of one domain; its ancestors' are the caller's to walk. */
DECIDE void quota_charge(struct domain *d, u64 used_ns)
{
	if (d->quota_ns == QUOTA_NONE)
		return;
	d->quota_left_ns -= (s64)used_ns;
	if (d->quota_left_ns <= 0)
		d->throttled = 1;
}

/* Refills the quota when its period is over. True when that lets a throttled domain go on. */
DECIDE bool quota_refill(struct domain *d, u64 now_ns)
{
	u64 periods;
	s64 most;

	if (d->quota_ns == QUOTA_NONE || now_ns < d->refill_at_ns || !d->quota_period_ns)
		return false;
	periods = (now_ns - d->refill_at_ns) / d->quota_period_ns + 1;
	d->refill_at_ns += periods * d->quota_period_ns;
	most = (s64)(d->quota_ns + d->burst_ns);
	/* More than a second's worth of missed periods says that nothing ran: no need to count them all. */
	d->quota_left_ns += (s64)(d->quota_ns * min_u64(periods, 1000));
	if (d->quota_left_ns > most)
		d->quota_left_ns = most;
	if (!d->throttled || d->quota_left_ns <= 0)
		return false;
	d->throttled = 0;
	return true;
}

/* Virtual time that a task of this weight (100: nice 0) pays for used_ns. */
DECIDE u64 task_cost(u64 used_ns, u32 weight)
{
	return used_ns * WEIGHT_DEFAULT / (weight ? weight : 1);
}

/* Whether a task that has waited since waiting_since_ns is to be rescued. */
DECIDE bool rescue_due(u64 waiting_since_ns, u64 now_ns)
{
	return clock_before(waiting_since_ns + RESCUE_AFTER_NS, now_ns);
}

/* Whether this CPU may rescue another task, having done so last at last_ns. */
DECIDE bool rescue_allowed(u64 last_ns, u64 now_ns)
{
	return clock_before(last_ns + RESCUE_INTERVAL_NS, now_ns);
}

/* Where a task joins its domain's queue: at most a slice ahead of the clock, at most TASK_LAG_MAX_NS behind. */
DECIDE u64 task_join(u64 vtime, u64 clock)
{
	if (clock_before(vtime, clock - SLICE_NS))
		return clock - SLICE_NS;
	if (clock_before(clock + TASK_LAG_MAX_NS, vtime))
		return clock + TASK_LAG_MAX_NS;
	return vtime;
}

/*
 * Two classes of work stand before each CPU: what may run anywhere, and what is bound to it. The bound class is
 * due its tasks' shares of the whole machine, that is, shares x CPUs of this CPU, but not all of it.
 * Returns that fraction in SHARE_ONE-ths.
 */
DECIDE u64 bound_fraction(u64 bound_shares, u32 cpus)
{
	u64 due = bound_shares * cpus;

	if (due < SHARE_ONE / 64)
		return SHARE_ONE / 64;
	if (due > SHARE_ONE - SHARE_ONE / 64)
		return SHARE_ONE - SHARE_ONE / 64;
	return due;
}

#endif
