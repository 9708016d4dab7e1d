/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The tree of domains: what each weighs, has reserved, and who is held back.
 *
 * Every cgroup is a domain, and each domain a level of the tree: its children stand there, and beside them its own
 * tasks together. A child has its reservation, a fraction of what its parent gets; what the reservations leave goes to
 * those of the highest priority that wants to run, by weight (Walfield, section 3.2; Eclipse 1998, section 6). A
 * reservation holds whatever the priority. order.h says who is served next.
 *
 * cpu.max is kept by a pool of run time per domain, refilled every period; a domain is held back while it or one
 * of its ancestors has none left, or is suspended. A suspended one counts for its siblings like one in which nothing is
 * runnable. (CPU Futures, section 5.2, suspends background work whenever it disturbs; there by a signal.)
 */
#ifndef STEWARD_DECIDE_DOMAIN_H
#define STEWARD_DECIDE_DOMAIN_H

#include "types.h"

#define MAX_DOMAINS 4096 /* a power of two: indices are masked with MAX_DOMAINS - 1 */
#define MAX_DEPTH 16
#define ROOT_DOMAIN 1 /* index 0 means none */
/* Children of a domain at this depth are part of it: weights, quotas and priorities are followed so far. */
#define DEPTH_MOST (MAX_DEPTH - 1)

/* A share of 1: the whole of the CPU time. */
#define SHARE_BITS 20
#define SHARE_ONE (1ULL << SHARE_BITS)
#define WEIGHT_DEFAULT 100
/* cpu.idle: 3 of 1,024 in the default scheduler's units, of 100 here, kept in tenths below. */
#define WEIGHT_SCALE 10
#define WEIGHT_IDLE 3
#define PRIORITIES 8
#define PRIORITY_DEFAULT 4

#define QUOTA_NONE (~0ULL)
/* No quota needs to be larger (13 days); a thousand of them must fit a signed number. */
#define QUOTA_MAX_NS (1ULL << 50)

/* How many tokens of MTR-LS a contender holds at most; a power of two. order.h says what they are. */
#define MAX_TOKENS 32

struct token {
	u64 stamp; /* its place in the order */
	u64 left_ns;
};

/* What the paper's orders keep of a contender. */
struct tokens {
	struct token ring[MAX_TOKENS]; /* MTR-LS: stamps grow from the first to the last */
	u64 held_ns; /* MTR-LS: what they hold together */
	u64 last_stamp; /* MTR-LS: the stamp that it was given when it last paid */
	u64 cycle; /* WRR: the cycle that cycle_left_ns belongs to */
	s64 cycle_left_ns; /* WRR: what is left of its part of the cycle */
	u64 covered_ns; /* MTR-LS: how much of a payment they covered so far */
	u32 first;
	u32 count;
};

/* What virtual time keeps of a contender beside its key, which is its place. */
struct account {
	u64 paid; /* the virtual time that it has paid for */
	/* What it used of its place since it came back with all of its credit: 0 while it has not run; a slice if that or
	 * more. */
	u64 since_back_ns;
	u64 since_served_ns; /* what its level had been served when that was counted from */
	u64 ahead; /* virtual time that it has paid for time out of its tasks' reservations: see has_all_credit() */
	u64 total; /* all virtual time that it has ever paid by its weight */
	u8 little; /* it has left of its own will since then, having used less than a slice: see contender_place() */
};

/*
 * A contender at a level of the tree, as a node of that level's heap. Numbers of nodes: a domain's index stands for the
 * domain among its siblings, MAX_DOMAINS more for its own tasks beside its children, and 2 * MAX_DOMAINS more for its
 * place among those siblings that have something reserved. 0 means none.
 */
#define NODES (4 * MAX_DOMAINS)
#define NODE_OWN MAX_DOMAINS
#define NODE_RESERVED (2 * MAX_DOMAINS)

struct node {
	u16 left;
	u16 right;
	u16 up;
	u8 rank; /* how many nodes to the nearest place without one; the left side's is never less than the right one's */
	u8 heap; /* 0: it does not wait; else 1 and the place in the level's first[] of the heap in which it stands */
};

/* The heaps of a level: by priority, and of those that have something reserved. */
#define HEAP_RESERVED PRIORITIES
#define HEAPS (PRIORITIES + 1)

struct domain {
	u64 cgroup_id;
	u64 task_clock; /* virtual time of its tasks */
	u64 quota_ns; /* cpu.max; QUOTA_NONE: no limit */
	u64 quota_period_ns;
	u64 burst_ns;
	u64 refill_at_ns;
	s64 quota_left_ns;
	u64 used_ns; /* CPU time of its own tasks, reserved or not, for ever */
	u64 reserved_used_ns; /* CPU time out of its tasks' reservations, for ever */
	u64 reserved_paid_ns; /* how much of that it has paid for among its siblings */
	u64 waited_ns; /* time that its tasks have waited as best-effort, summed over tasks, for ever */
	u64 counted_ns; /* up to when the next two are */
	u64 runnable_ns; /* integral over time of the number of its own runnable tasks, for ever */
	u64 runnable_squared_ns; /* the same of that number's square; wraps */
	u64 served_ns; /* CPU time that it and all below it got: the clock of this level's reservations */
	u64 clocks[PRIORITIES]; /* virtual time of this level, by priority: of whoever was served last */
	u64 cycle; /* WRR: the number of this level's cycle */
	u64 cycle_ends_ns;
	u64 sequence; /* WRR: counts arrivals */
	u16 first[HEAPS]; /* the first node of each of this level's heaps */
	u16 waiting_priorities; /* bit n: somebody of priority n waits at this level */
	u32 weight; /* beside its siblings, in WEIGHT_SCALE-ths */
	u32 cgroup_weight; /* what cpu.weight and cpu.idle say, in WEIGHT_SCALE-ths */
	u32 reserved; /* of what its parent has, in SHARE_ONE-ths */
	u32 own_weight; /* of its own tasks together, in WEIGHT_SCALE-ths; 0: the sum of theirs */
	u32 child_weight[PRIORITIES]; /* of the active children, by priority */
	u32 child_reserved; /* of the active children */
	u32 all_weight; /* of all children */
	u32 all_reserved; /* of all children */
	u32 children; /* all, active or not */
	u32 below; /* all below it, at any depth */
	u32 runnable_weight; /* of its own runnable tasks */
	u32 last_weight; /* of the last of them, when there are none */
	u32 paid_weight; /* by which its debt among its siblings counts: see reweighed() */
	u32 own_paid_weight; /* by which its own tasks' debt beside its children counts */
	u32 runnable; /* its own runnable tasks */
	u32 active_children;
	u32 waiting; /* its own tasks that stand in its queue */
	u32 waiting_restricted; /* those that stand in its queue of tasks which may not run everywhere, or are on their way into it */
	u32 tasks; /* its own tasks, asleep or not */
	u32 begun; /* how often domains of this index have begun: what CPUs know of earlier ones counts no more */
	u16 parent;
	u16 depth;
	union {
		u16 held; /* either of the two; written one by one, as one is written without the lock */
		struct {
			u8 throttled; /* has used up its quota */
			u8 suspended; /* somebody asked for that */
		};
	};
	u8 priority;
	u8 own_priority;
	u8 has_weight; /* a policy says its weight, whatever cpu.weight is */
	u8 in_use;
	u8 active; /* something is runnable in it or below it */
	u8 restricted_held; /* a CPU found tasks of it that may not run everywhere, and held */
	u8 parked; /* kept out of its parent's heaps because it is held */
	u8 dying; /* the cgroup is gone; tasks of it may still run */
	u8 left; /* nothing was runnable in it and below it since it last began to wait among its siblings */
	u8 own_left; /* none of its own tasks was runnable since they last began to wait beside its children */
};

/*
 * Where a contender stands on one CPU among what may run on some CPUs only, by what it was served there: see
 * restricted_step().
 */
struct restricted_place {
	u64 paid; /* virtual time */
	u64 total; /* what it had paid anywhere, when this was counted last */
	u64 served_ns; /* what the level had been served then */
	u32 weight; /* by which its debt counts */
	u32 begun; /* of the domain that it is of; another number: it never wanted anything of this kind here */
};

/*
 * Where a walk through heaps and levels is, under the lock. It is kept in the table instead of in variables: the BPF
 * verifier follows what a variable may hold along every path, and several paths a step through all steps are too many;
 * what is read back from memory is one unknown number.
 */
struct walk {
	u32 first; /* of two heaps that are merged */
	u32 here;
	u32 other;
	u32 up;
	u32 level;
	u32 node; /* the contender at that level */
	u32 step; /* enum order_step */
	u32 to; /* the contender's heap, and 1; 0: none */
	u32 ends; /* this is the last level */
	u32 placed; /* the node that is given its place */
	u32 resets; /* the domain that begins anew after the walk */
	u32 confined; /* restricted_walk(): the task may run on this CPU alone */
	u32 unused;
	u32 priority; /* the contender's */
	u32 weight; /* the contender's */
	u32 beside; /* what contends there, weighed */
	u64 used_ns; /* what is paid on the way */
	u64 placed_ns; /* how much of that was served in the order, and not ahead of it out of reservations */
	u64 now_ns;
	u64 clock; /* what the level's virtual time is held to be */
	u64 credit; /* where the contender would stand with all of its credit */
	u64 paid; /* what it has paid */
	u64 latest; /* what it may have paid at most */
	u64 key; /* the contender's keys */
	u64 reserved_key;
	u64 placed_key;
};

struct domain_table {
	u64 service_cycle_ns; /* T */
	u32 order; /* enum order */
	u32 cpus; /* online */
	u32 high_water; /* no index at or above it is in use */
	u32 quotas; /* how many domains have a quota or are suspended; while none is, nobody is looked at for being held */
	u32 priorities; /* how many domains have a priority that is not the default; while none has, nobody is deferred */
	u32 waiting; /* how many domains have their own tasks in the heaps */
	struct walk walk;
	u64 keys[NODES]; /* of each node: virtual time, a stamp, or a place in line; the smallest is served first */
	struct node nodes[NODES];
	struct tokens tokens[2 * MAX_DOMAINS]; /* of each domain, and of its own tasks */
	struct account accounts[2 * MAX_DOMAINS]; /* the same */
	struct domain domains[MAX_DOMAINS];
};

/*
 * What one CPU keeps of the order: which domains have tasks waiting that may run on some CPUs only, among them this
 * one, and the virtual time of each level among these: of whoever of them was served here last.
 */
struct cpu_order {
	u64 clocks[MAX_DOMAINS]; /* of priority PRIORITY_DEFAULT */
	struct restricted_place places[2 * MAX_DOMAINS]; /* of each domain, and of its own tasks */
	u64 restricted[MAX_DOMAINS / 64]; /* by domain */
	u64 any_restricted; /* bit n: restricted[n] is not 0 */
};

DECIDE struct domain *domain_at(struct domain_table *t, u32 index)
{
	return &t->domains[index & (MAX_DOMAINS - 1)];
}

/* Weight of a domain in WEIGHT_SCALE-ths, from cpu.weight (1 to 10,000) and cpu.idle. */
DECIDE u32 domain_weight(u32 cgroup_weight, bool idle)
{
	if (idle)
		return WEIGHT_IDLE;
	return (cgroup_weight ? cgroup_weight : WEIGHT_DEFAULT) * WEIGHT_SCALE;
}

/* Adds what an active child stands for to its parent's sums, or takes it away. */
DECIDE void child_counts(struct domain *parent, const struct domain *child, bool active)
{
	if (active) {
		parent->child_weight[child->priority & 7] += child->weight;
		parent->child_reserved += child->reserved;
		parent->active_children++;
	} else {
		parent->child_weight[child->priority & 7] -= child->weight;
		parent->child_reserved -= child->reserved;
		parent->active_children--;
	}
}

/* As much as counts in runnable_squared_ns, so that it wraps at most once in some seconds. */
#define RUNNABLE_COUNTED_MAX 32768U

/*
 * One of a domain's own tasks begins (more) or ceases to be runnable. True when it is the first or was the last.
 *
 * The integrals say how many CPUs the domain's tasks could have used, and how evenly over time: whether it got what it
 * was promised cannot be told from the sum of its waits, since a hundred tasks that wait for the same moment want no
 * more than one. They are kept without a lock: each stretch of time is counted once, and when two CPUs are here at
 * once, with a number that may be one off.
 */
DECIDE bool domain_runnable_changes(struct domain *d, bool more, u64 now_ns)
{
	u32 before = more ? __sync_fetch_and_add(&d->runnable, 1) : __sync_fetch_and_sub(&d->runnable, 1);
	u64 since_ns = __sync_lock_test_and_set(&d->counted_ns, now_ns);
	u64 tasks = before < RUNNABLE_COUNTED_MAX ? before : RUNNABLE_COUNTED_MAX;

	if (tasks && now_ns > since_ns) {
		u64 passed_ns = (now_ns - since_ns) * tasks;

		__sync_fetch_and_add(&d->runnable_ns, passed_ns);
		__sync_fetch_and_add(&d->runnable_squared_ns, passed_ns * tasks);
	}
	if (!more && before == 1)
		d->own_left = 1;
	return before == (more ? 0 : 1);
}

/*
 * A task of this weight, in WEIGHT_SCALE-ths, begins (more) or ceases to count among a domain's own runnable ones. The
 * last one's weight is kept: what it used is paid after it has gone to sleep, and still at its weight.
 */
DECIDE void domain_weight_changes(struct domain *d, bool more, u32 weight)
{
	if (more)
		__sync_fetch_and_add(&d->runnable_weight, weight);
	else if (__sync_fetch_and_sub(&d->runnable_weight, weight) <= weight)
		d->last_weight = weight;
}

/*
 * Brings a domain's place in its parent's sums in line with whether anything in it is runnable, and the same for
 * its ancestors as far as that changes them.
 */
DECIDE void domain_settle(struct domain_table *t, u16 index)
{
	u32 level;

	for (level = loop_begin(); level < MAX_DEPTH && can_loop; level++) {
		struct domain *d = domain_at(t, index);
		u8 active = (d->runnable || d->active_children) && !d->suspended;

		if (d->active == active)
			return;
		d->active = active;
		d->left |= !active;
		if (!d->parent)
			return;
		child_counts(domain_at(t, d->parent), d, active);
		index = d->parent;
	}
}

/* Takes what a child of the tree stands for out of its parent's sums, before that changes. */
DECIDE void domain_leaves_sums(struct domain_table *t, const struct domain *d)
{
	struct domain *parent = domain_at(t, d->parent);

	if (!d->parent || !d->in_use)
		return;
	parent->all_weight -= d->weight;
	parent->all_reserved -= d->reserved;
	if (d->active)
		child_counts(parent, d, false);
}

DECIDE void domain_joins_sums(struct domain_table *t, const struct domain *d)
{
	struct domain *parent = domain_at(t, d->parent);

	if (!d->parent || !d->in_use)
		return;
	parent->all_weight += d->weight;
	parent->all_reserved += d->reserved;
	if (d->active)
		child_counts(parent, d, true);
}

/* What cpu.weight and cpu.idle say, in WEIGHT_SCALE-ths; a policy's own weight stands. */
DECIDE void domain_set_weight(struct domain_table *t, u16 index, u32 weight)
{
	struct domain *d = domain_at(t, index);

	d->cgroup_weight = weight;
	if (d->has_weight)
		return;
	domain_leaves_sums(t, d);
	d->weight = weight;
	domain_joins_sums(t, d);
}

/* What the owner decided for a domain. */
struct domain_policy {
	u32 weight; /* in WEIGHT_SCALE-ths; 0: what the cgroup says */
	u32 reserved; /* of what the parent has, in SHARE_ONE-ths */
	u32 own_weight; /* in WEIGHT_SCALE-ths; 0: the sum of its tasks' */
	u8 priority;
	u8 own_priority;
	u8 unused[2];
};

/* 1 if the domain, or what runs in it itself, has a priority that is not the default. */
DECIDE u32 domain_prioritized(const struct domain *d)
{
	return d->priority != PRIORITY_DEFAULT || d->own_priority != PRIORITY_DEFAULT;
}

DECIDE void domain_set_policy(struct domain_table *t, u16 index, const struct domain_policy *policy)
{
	struct domain *d = domain_at(t, index);

	domain_leaves_sums(t, d);
	t->priorities -= domain_prioritized(d);
	d->has_weight = policy->weight > 0;
	d->weight = policy->weight ? policy->weight : d->cgroup_weight;
	d->reserved = policy->reserved <= SHARE_ONE ? policy->reserved : SHARE_ONE;
	d->own_weight = policy->own_weight;
	d->priority = policy->priority & 7;
	d->own_priority = policy->own_priority & 7;
	t->priorities += domain_prioritized(d);
	domain_joins_sums(t, d);
}

/*
 * How many domains there may be below one of this depth, so that nobody who may make cgroups somewhere can use up what
 * others need: below a child of the root three quarters of all, then half, then a quarter.
 */
DECIDE u32 domain_below_max(u32 depth)
{
	if (!depth)
		return MAX_DOMAINS;
	return depth == 1 ? MAX_DOMAINS / 4 * 3 : depth == 2 ? MAX_DOMAINS / 2 : MAX_DOMAINS / 4;
}

/* Whether a cgroup below this domain may have a domain of its own; else it is part of this one. */
DECIDE bool domain_has_room(struct domain_table *t, u32 parent)
{
	u32 level;

	if (domain_at(t, parent)->depth >= DEPTH_MOST)
		return false;
	for (level = loop_begin(); level < MAX_DEPTH && can_loop; level++) {
		struct domain *d = domain_at(t, parent);

		if (d->below >= domain_below_max(d->depth))
			return false;
		if (!d->parent)
			return true;
		parent = d->parent;
	}
	return true;
}

/* A domain begins or ends: those above it count it. */
DECIDE void domain_counts_below(struct domain_table *t, u32 parent, u32 change)
{
	u32 level;

	for (level = loop_begin(); level < MAX_DEPTH && can_loop; level++) {
		if (!parent)
			return;
		domain_at(t, parent)->below += change;
		parent = domain_at(t, parent)->parent;
	}
}

/* Whether the index is this cgroup's still, and its cgroup is there. */
DECIDE bool domain_is(struct domain_table *t, u16 index, u64 cgroup_id)
{
	const struct domain *d = domain_at(t, index);

	return d->in_use && !d->dying && d->cgroup_id == cgroup_id;
}

/* Suspends a domain with all below it, or resumes it. True when that changes anything. */
DECIDE bool domain_suspend(struct domain_table *t, u16 index, bool suspended)
{
	struct domain *d = domain_at(t, index);

	if (d->suspended == suspended)
		return false;
	d->suspended = suspended;
	t->quotas += suspended ? 1 : -1;
	domain_settle(t, index);
	return true;
}

/* The domain or the nearest one above it that has used up its quota or is suspended; 0 when none has. */
DECIDE u32 domain_held_by(struct domain_table *t, u32 index)
{
	u32 level;

	for (level = loop_begin(); level < MAX_DEPTH && can_loop; level++) {
		struct domain *d = domain_at(t, index);

		if (d->held)
			return index;
		if (!d->parent)
			return 0;
		index = d->parent;
	}
	return 0;
}

/* Whether the domain or one above it has used up its quota or is suspended. */
DECIDE bool domain_held(struct domain_table *t, u32 index)
{
	return domain_held_by(t, index);
}

/* Not 0 if something of a higher priority than this one can run at the level, whether it waits or runs. */
DECIDE u32 level_above(const struct domain *level, u32 priority)
{
	u32 above = level->runnable * ((priority - level->own_priority) >> 31), i;

	/* Without branches, which the verifier would follow one by one. */
	for (i = 0; i < PRIORITIES; i++)
		above |= level->child_weight[i] * ((priority - i) >> 31);
	return above;
}

/* Whether the domain's own tasks are deferred to something that can run: at its level, or at one above it. O(depth). */
DECIDE_CALLED bool domain_behind(struct domain_table *t, u32 index)
{
	u32 priority = domain_at(t, index)->own_priority, level;

	for (level = loop_begin(); level < MAX_DEPTH && can_loop; level++) {
		const struct domain *d = domain_at(t, index);

		if (level_above(d, priority))
			return true;
		if (!d->parent)
			return false;
		priority = d->priority;
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
	if (__sync_fetch_and_sub(&d->quota_left_ns, (s64)used_ns) <= (s64)used_ns)
		d->throttled = 1;
}

/* Refills the quota when its period is over; others may charge it meanwhile. True when that lets a throttled domain
 * go on. */
DECIDE bool quota_refill(struct domain *d, u64 now_ns)
{
	if (d->quota_ns == QUOTA_NONE || !d->quota_period_ns)
		return false;
	if (now_ns >= d->refill_at_ns) {
		u64 periods = (now_ns - d->refill_at_ns) / d->quota_period_ns + 1;
		s64 most = (s64)(d->quota_ns + d->burst_ns), left;
		/* More than a second's worth of missed periods says that nothing ran: no need to count them all. */
		s64 more = (s64)(d->quota_ns * min_u64(periods, 1000));

		d->refill_at_ns += periods * d->quota_period_ns;
		left = __sync_fetch_and_add(&d->quota_left_ns, more) + more;
		if (left > most)
			__sync_fetch_and_sub(&d->quota_left_ns, left - most);
	}
	/* Looked at each time: one that was charged the last of the old period may be found throttled after the refill. */
	if (!d->throttled || d->quota_left_ns <= 0)
		return false;
	d->throttled = 0;
	return true;
}

#endif
