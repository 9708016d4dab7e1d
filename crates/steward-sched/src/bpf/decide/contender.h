/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Contenders: the children of a domain, and beside them its own tasks, with what each weighs, its priority and its
 * reservation.
 */
#ifndef STEWARD_DECIDE_CONTENDER_H
#define STEWARD_DECIDE_CONTENDER_H

#include "heap.h"

enum order {
	ORDER_VIRTUAL_TIME = 0,
	ORDER_MTR_LS = 1,
	ORDER_WRR = 2,
};

/* A slice of best-effort work. Slices end at the tick after it. */
#define SLICE_NS (3 * NSEC_PER_MSEC)
#define SERVICE_CYCLE_DEFAULT_NS (500 * NSEC_PER_MSEC)
/* Virtual time that a nanosecond costs is VIRTUAL_TIME_UNIT / weight. */
#define VIRTUAL_TIME_UNIT 16000ULL
/* Nobody lies further behind its level's clock than this service of the level, for each CPU. */
#define DOMAIN_LAG_MAX_NS (8 * NSEC_PER_SEC)

/* The domain that a node is about: as a contender, or as the level beside whose children its own tasks contend. */
DECIDE u32 node_domain(u32 node)
{
	return node & (MAX_DOMAINS - 1);
}

DECIDE bool node_is_own(u32 node)
{
	return node & NODE_OWN;
}

/* What a domain's own tasks weigh together beside its children; when none is runnable, as the last one that was, or
 * as one of nice 0. */
DECIDE u32 domain_own_weight(const struct domain *d)
{
	if (d->own_weight)
		return d->own_weight;
	if (d->runnable_weight)
		return d->runnable_weight;
	return d->last_weight ? d->last_weight : WEIGHT_DEFAULT * WEIGHT_SCALE;
}

DECIDE u32 node_weight(struct domain_table *t, u32 node)
{
	const struct domain *d = domain_at(t, node);
	u32 weight = node_is_own(node) ? domain_own_weight(d) : d->weight;

	return weight ? weight : 1;
}

/* The weight by which a contender's debt counts: that of when it paid last, or began to wait. */
DECIDE u32 *paid_weight_of(struct domain_table *t, u32 node)
{
	struct domain *d = domain_at(t, node);

	return node_is_own(node) ? &d->own_paid_weight : &d->paid_weight;
}

DECIDE struct account *account_of(struct domain_table *t, u32 node)
{
	return &t->accounts[node & (2 * MAX_DOMAINS - 1)];
}

/* Whether nothing of a contender was runnable since this was asked last. */
DECIDE bool node_was_away(struct domain_table *t, u32 node)
{
	struct domain *d = domain_at(t, node);
	u8 *left = node_is_own(node) ? &d->own_left : &d->left;
	bool was_away = *left;

	*left = 0;
	return was_away;
}

DECIDE u32 node_priority(struct domain_table *t, u32 node)
{
	const struct domain *d = domain_at(t, node);

	return (node_is_own(node) ? d->own_priority : d->priority) & (PRIORITIES - 1);
}

DECIDE u32 node_reserved(struct domain_table *t, u32 node)
{
	return node_is_own(node) ? 0 : domain_at(t, node)->reserved;
}

/* How many CPUs serve the order. */
DECIDE u64 order_cpus(const struct domain_table *t)
{
	return t->cpus ? t->cpus : 1;
}

/* What all CPUs together serve in one cycle. */
DECIDE u64 order_window(const struct domain_table *t)
{
	return t->service_cycle_ns * order_cpus(t);
}

DECIDE u64 virtual_cost(u64 used_ns, u32 weight)
{
	return used_ns * VIRTUAL_TIME_UNIT / (weight ? weight : 1);
}

/* The highest of a set of priorities, which is not empty. Without branches, which the verifier would follow one by
 * one. */
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

/* What contends at a level with this priority at the moment, weighed; at least `weight`, of the one who asks. */
DECIDE u32 level_weight(struct domain_table *t, u32 level, u32 priority, u32 weight)
{
	const struct domain *d = domain_at(t, level);
	u32 sum = d->child_weight[priority & (PRIORITIES - 1)];

	if (d->runnable && d->own_priority == priority)
		sum += domain_own_weight(d);
	return sum > weight ? sum : weight;
}

/*
 * The credit that a contender of this priority and weight keeps, as virtual time: what it is due in a cycle, as one of
 * those who are there. The level's own tasks count for no more than all its children together, so that a kernel thread
 * of nice -20 does not take nearly all of their credit from them.
 */
DECIDE u64 cycle_credit(struct domain_table *t, u32 level, u32 priority, u32 weight)
{
	const struct domain *d = domain_at(t, level);
	u32 sum = d->child_weight[priority & (PRIORITIES - 1)];

	if (d->runnable && d->own_priority == priority)
		sum += domain_own_weight(d) < sum ? domain_own_weight(d) : sum;
	return virtual_cost(order_window(t), sum > weight ? sum : weight);
}

/*
 * Where a contender stands that has this weight and credit: where it has paid up to. But one that uses less than a
 * slice at a time stands before those that use a slice or more, or may for all that is known: who has not run yet, or
 * was preempted before its slice was over. Each of these goes first for a slice; one that needs less, and comes again
 * having used the little that it needs, would wait for them all. It is ahead of what it has paid by less than a slice,
 * which it pays like any other. What its tasks got out of reservations of theirs does not count: they got it whatever
 * its place.
 */
DECIDE u64 contender_place(struct domain_table *t, u32 level, u32 node, u32 weight, u64 credit)
{
	const struct account *account = account_of(t, node);
	u32 first = domain_at(t, level)->first[node_priority(t, node)];
	u64 place, before;

	if (!account->little)
		return account->paid;
	place = credit - virtual_cost(SLICE_NS - account->since_back_ns, weight);
	if (!first)
		return place;
	/* One that waits may have more credit, because there were fewer when that was counted. */
	before = *key_at(t, first) - (first == node || !account_of(t, first)->little);
	return clock_before(before, place) ? before : place;
}

#endif
