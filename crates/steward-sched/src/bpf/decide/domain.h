/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The tree of domains: who is due what, and who is held back.
 *
 * Every cgroup is a domain. At each level of the tree stand a domain's children and, beside them, its own tasks. A
 * child has its reservation, a fraction of what its parent has; what the reservations of the active children leave
 * goes to those of the highest priority that is active, by weight (Walfield, section 3.2; Eclipse 1998, section 6). A
 * reservation holds whatever the priority.
 *
 * The tree is flattened: the share of a domain's own tasks in all CPU time is the product of these fractions up to
 * the root. It follows what is runnable at the moment, so that nothing is kept for those who do not want it.
 *
 * A domain with nothing reserved has to stand behind while a higher priority is active beside it or above: order.h serves
 * it when nobody else waits. What is left to those who stand behind is divided among them as if the others were not there.
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
#define NO_POSITION 0xffff

/* A share of 1: the whole of the CPU time. */
#define SHARE_BITS 20
#define SHARE_ONE (1ULL << SHARE_BITS)
/* In a standing, beside the share: it has to stand behind. */
#define STANDS_BEHIND (1ULL << 63)
/* Products along the tree are taken with this much more precision. */
#define SHARE_EXTRA_BITS 10
#define WEIGHT_DEFAULT 100
/* cpu.idle: 3 of 1,024 in the default scheduler's units, of 100 here, kept in tenths below. */
#define WEIGHT_SCALE 10
#define WEIGHT_IDLE 3
#define PRIORITIES 8
#define PRIORITY_DEFAULT 4

#define QUOTA_NONE (~0ULL)
/* No quota needs to be larger (13 days); a thousand of them must fit a signed number. */
#define QUOTA_MAX_NS (1ULL << 50)

/* How many tokens of MTR-LS a domain holds at most; a power of two. order.h says what they are. */
#define MAX_TOKENS 32

struct token {
	u64 stamp; /* its place in the order */
	u64 left_ns;
};

struct domain {
	u64 cgroup_id;
	u64 key; /* place in the order of domains; the smallest is served first */
	u64 task_clock; /* virtual time of its tasks */
	u64 quota_ns; /* cpu.max; QUOTA_NONE: no limit */
	u64 quota_period_ns;
	u64 burst_ns;
	u64 refill_at_ns;
	s64 quota_left_ns;
	u64 used_ns; /* CPU time of its own tasks, reserved or not, for ever */
	u64 reserved_used_ns; /* CPU time out of its tasks' reservations, for ever */
	u64 waited_ns; /* time that its tasks have waited as best-effort, summed over tasks, for ever */
	u64 counted_ns; /* up to when the next two are */
	u64 runnable_ns; /* integral over time of the number of its own runnable tasks, for ever */
	u64 runnable_squared_ns; /* the same of that number's square; wraps */
	u64 tokens_ns; /* MTR-LS: what its tokens hold together */
	u64 last_stamp; /* MTR-LS: the stamp that it was given when it last paid */
	s64 cycle_left_ns; /* WRR: what is left of its part of the cycle */
	u64 cycle; /* WRR: the cycle that cycle_left_ns belongs to */
	struct token tokens[MAX_TOKENS]; /* a ring; stamps grow from the first to the last */
	u32 first_token;
	u32 token_count;
	u32 weight; /* beside its siblings, in WEIGHT_SCALE-ths */
	u32 cgroup_weight; /* what cpu.weight and cpu.idle say, in WEIGHT_SCALE-ths */
	u32 reserved; /* of what its parent has, in SHARE_ONE-ths */
	u32 own_weight; /* of its own tasks together, in WEIGHT_SCALE-ths; 0: the sum of theirs */
	u32 child_weight[PRIORITIES]; /* of the active children, by priority */
	u32 child_count[PRIORITIES]; /* active children, by priority */
	u32 child_reserved; /* of the active children */
	u32 runnable_weight; /* of its own runnable tasks */
	u32 runnable; /* its own runnable tasks */
	u32 active_children;
	u32 waiting; /* its own tasks that stand in its queue */
	u32 tasks; /* its own tasks, asleep or not */
	u16 parent;
	u16 depth;
	u8 priority;
	u8 own_priority;
	u8 child_priorities; /* bit n: a child of priority n is active */
	u8 has_weight; /* a policy says its weight, whatever cpu.weight is */
	u8 in_use;
	u8 active; /* something is runnable in it or below it */
	u8 queued; /* stands in the heap */
	u8 parked; /* kept out of the heap because it or an ancestor is held */
	union {
		u16 held; /* either of the two; written one by one, as one is written without the lock */
		struct {
			u8 throttled; /* has used up its quota */
			u8 suspended; /* somebody asked for that */
		};
	};
	u8 dying; /* the cgroup is gone; tasks of it may still run */
	u8 behind; /* which of the two heaps it stands in, or stood in last: it had to stand behind then */
};

/* A domain that stands in a heap. The key stands beside the index, so that walks through a heap touch no domain. */
struct heap_entry {
	u64 key; /* the domain's */
	u32 index;
	u32 unused;
};

struct domain_table {
	u64 served_ns; /* CPU time that all domains got together, for ever: the clock of MTR-LS */
	u64 clock; /* virtual time: of the domain served last */
	u64 service_cycle_ns; /* T */
	u64 cycle; /* WRR: the number of the cycle */
	u64 cycle_ends_ns;
	u64 sequence; /* WRR: counts arrivals */
	u32 order; /* enum order */
	u32 cpus; /* online */
	u32 heap_counts[2]; /* of those who do not, and who do have to stand behind */
	u32 high_water; /* no index at or above it was ever used */
	u32 quotas; /* how many domains have a quota or are suspended; while none is, nobody is looked at for being held */
	u32 cursor; /* where heap_rise() and heap_sink() are */
	u32 priorities; /* whether any domain ever had another priority than the default one */
	u32 revised; /* the place among those behind that was revised last */
	u32 unused;
	struct heap_entry heap[2 * MAX_DOMAINS]; /* one from the first place on, and one from the middle on */
	u16 position[MAX_DOMAINS];
	struct domain domains[MAX_DOMAINS];
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

/* The highest of a set of priorities, which is not empty. Without branches, which the verifier would follow one by one. */
DECIDE u32 priority_highest(u32 set)
{
	set |= set >> 1;
	set |= set >> 2;
	set |= set >> 4;
	/* As many ones as the highest priority and one: count them. */
	set -= set >> 1 & 0x55;
	set = (set & 0x33) + (set >> 2 & 0x33);
	return ((set + (set >> 4)) & 0xf) - 1;
}

/* What a domain's own tasks weigh together beside its children; when none is runnable, as much as one of nice 0 would. */
DECIDE u32 domain_own_weight(const struct domain *d)
{
	if (d->own_weight)
		return d->own_weight;
	return d->runnable_weight ? d->runnable_weight : WEIGHT_DEFAULT * WEIGHT_SCALE;
}

/*
 * One level of the tree: what a contender gets of what the domain has, in SHARE_ONE << SHARE_EXTRA_BITS-ths. The
 * contender is one of the domain's children, or its own tasks, which have no reservation; counted says whether it is
 * among the active ones already, and else it counts as if it were. With STANDS_BEHIND, it is what the contender gets of
 * what those of higher priority leave.
 */
DECIDE u64 level_standing(const struct domain *d, u32 priority, u32 weight, u32 reserved, bool counted)
{
	u32 own_weight = domain_own_weight(d), highest;
	u64 taken = (u64)d->child_reserved + (counted ? 0 : reserved), beside, rest, below, behind;

	highest = priority_highest(d->child_priorities | (d->runnable ? 1U << (d->own_priority & 7) : 0) |
				   1U << (priority & 7));
	/* 1 or 0, without branches: the verifier would follow each through all levels. */
	below = ((u64)priority - highest) >> 63;
	behind = (below & ((u64)reserved - 1) >> 63) * STANDS_BEHIND;
	if (below && reserved)
		return (u64)reserved << SHARE_EXTRA_BITS;
	beside = d->child_weight[priority & 7];
	if (d->runnable && d->own_priority == priority)
		beside += own_weight;
	if (!counted)
		beside += weight;
	rest = taken < SHARE_ONE ? SHARE_ONE - taken : 0;
	if (beside <= weight)
		return (reserved + rest) << SHARE_EXTRA_BITS | behind;
	return (((u64)reserved << SHARE_EXTRA_BITS) + (rest << SHARE_EXTRA_BITS) * weight / beside) | behind;
}

/* The share in a standing, in SHARE_ONE-ths: of all CPU time, or of what is left to those who stand behind. */
DECIDE u64 standing_share(u64 standing)
{
	return standing & ~STANDS_BEHIND;
}

DECIDE bool standing_behind(u64 standing)
{
	return standing & STANDS_BEHIND;
}

/*
 * Where a domain's own tasks stand: their share in SHARE_ONE-ths, at least 1, and STANDS_BEHIND. A domain that is not
 * active counts as if it were.
 */
DECIDE u64 domain_standing(struct domain_table *t, u16 index)
{
	struct domain *d = domain_at(t, index);
	u64 standing = level_standing(d, d->own_priority, domain_own_weight(d), 0, d->runnable);
	u64 share = standing_share(standing), behind = standing & STANDS_BEHIND;
	u32 level;

	for (level = loop_begin(); level < MAX_DEPTH && can_loop; level++) {
		if (!d->parent)
			break;
		standing = level_standing(domain_at(t, d->parent), d->priority, d->weight, d->reserved, d->active);
		share = share * standing_share(standing) >> (SHARE_BITS + SHARE_EXTRA_BITS);
		behind |= standing & STANDS_BEHIND;
		d = domain_at(t, d->parent);
	}
	return max_u64(share >> SHARE_EXTRA_BITS, 1) | behind;
}

/* The share of a domain's own tasks in all CPU time at the moment, in SHARE_ONE-ths, at least 1: nothing for one that has to stand behind. */
DECIDE u64 share_at_the_moment(u64 standing)
{
	return standing_behind(standing) ? 1 : standing;
}

/* Adds what an active child stands for to its parent's sums, or takes it away. */
DECIDE void child_counts(struct domain *parent, const struct domain *child, bool active)
{
	u32 priority = child->priority & 7;

	if (active) {
		parent->child_weight[priority] += child->weight;
		parent->child_count[priority]++;
		parent->child_reserved += child->reserved;
		parent->active_children++;
	} else {
		parent->child_weight[priority] -= child->weight;
		parent->child_count[priority]--;
		parent->child_reserved -= child->reserved;
		parent->active_children--;
	}
	if (parent->child_count[priority])
		parent->child_priorities |= 1U << priority;
	else
		parent->child_priorities &= ~(1U << priority);
}

/* As much as counts in runnable_squared_ns, so that it wraps at most once in some seconds. */
#define RUNNABLE_COUNTED_MAX 32768U

/*
 * One of a domain's own tasks begins (more) or ceases to be runnable. True when it is the first or was the last.
 *
 * The integrals say how many CPUs the domain's tasks could have used, and how evenly over time: whether it got what it
 * was promised cannot be told from the sum of its waits, since a hundred tasks that wait for the same moment want no
 * more than one. They are kept without a lock: each stretch of time is counted once, and when two CPUs are here at once,
 * with a number that may be one off.
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
	return before == (more ? 0 : 1);
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
		if (!d->parent)
			return;
		child_counts(domain_at(t, d->parent), d, active);
		index = d->parent;
	}
}

/* What cpu.weight and cpu.idle say, in WEIGHT_SCALE-ths; a policy's own weight stands. */
DECIDE void domain_set_weight(struct domain_table *t, u16 index, u32 weight)
{
	struct domain *d = domain_at(t, index);
	bool counted = d->active && d->parent;

	d->cgroup_weight = weight;
	if (d->has_weight)
		return;
	if (counted)
		child_counts(domain_at(t, d->parent), d, false);
	d->weight = weight;
	if (counted)
		child_counts(domain_at(t, d->parent), d, true);
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

DECIDE void domain_set_policy(struct domain_table *t, u16 index, const struct domain_policy *policy)
{
	struct domain *d = domain_at(t, index);
	bool counted = d->active && d->parent;

	if (counted)
		child_counts(domain_at(t, d->parent), d, false);
	d->has_weight = policy->weight > 0;
	d->weight = policy->weight ? policy->weight : d->cgroup_weight;
	d->reserved = policy->reserved <= SHARE_ONE ? policy->reserved : SHARE_ONE;
	d->own_weight = policy->own_weight;
	d->priority = policy->priority & 7;
	d->own_priority = policy->own_priority & 7;
	if (d->priority != PRIORITY_DEFAULT || d->own_priority != PRIORITY_DEFAULT)
		t->priorities = 1;
	if (counted)
		child_counts(domain_at(t, d->parent), d, true);
}

/* Suspends a domain with all below it, or lets it go on. True when that changes anything. */
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

/* Whether the domain or one above it has used up its quota or is suspended. */
DECIDE bool domain_held(struct domain_table *t, u16 index)
{
	u32 level;

	for (level = loop_begin(); level < MAX_DEPTH && can_loop; level++) {
		struct domain *d = domain_at(t, index);

		if (d->held)
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

#endif
