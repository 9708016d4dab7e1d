/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The order of best-effort work: who is served next.
 *
 * Each domain is a level of the tree: its children and its own tasks contend there for what the domain gets. Whoever
 * chooses goes down from the root and takes the first contender of each level; whoever was served pays at each level
 * above it. So what a contender pays depends on what it weighs and on nothing else: not on who else happens to be
 * there, nor on what a share comes to at the moment. That is what makes the order exact: two that want the CPU all the
 * time stay within a slice or two of each other, at their level, whatever comes and goes beside them.
 *
 * Virtual time, the order unless settings say otherwise. At each level:
 *
 *  - A contender pays used / weight; of those of the highest priority that waits, the one that has paid least is
 *    served. The level's clock is the virtual time of whoever was served last, the latest so far.
 *  - Credit. Who comes back after a time away has paid less than the clock says. It keeps of that what it is due in one
 *    service cycle among those who are there, also when they become more later: it may take at once what it did not use
 *    of that. This is what Move-To-Rear List Scheduling gives (Eclipse 1998, section 5: delay, cumulative service),
 *    from one number instead of a list of tokens.
 *  - Little at a time. Who left of its own will having used less than a slice since it came back with all of its
 *    credit, and uses no more than that in each cycle, stands before what it has paid, and before others with credit:
 *    contender_place() says where and why.
 *  - Weights change: a cgroup's by its owner, those of a domain's own tasks with whoever of them is runnable. What is
 *    owed stays the same service, at whatever weight.
 *  - Debt. Nobody lies further behind the clock than DOMAIN_LAG_MAX_NS of service.
 *  - A reservation is a fraction of what the level's domain gets, on the clock of that service. Its own clock advances
 *    by used / fraction; while it is not ahead of the level's, the contender is served before all that have none,
 *    whatever their priorities, the one that is furthest behind first, and what it uses is paid out of the reservation.
 *    It may be ahead by the slices that were running when it became so; beyond that it pays by its weight. So it gets
 *    its fraction, and its weight's part of the rest. It, too, keeps credit for one cycle.
 *
 * What may run on some CPUs only (pinned, in a cpuset, or with migration disabled) contends in the same order, but a
 * CPU must not have to look through all that it may not serve. So such tasks wait apart, and each CPU knows which
 * domains have some for it; a comparison of two domains where their ways up the tree meet says which comes first. Work
 * that is restricted to few CPUs may be served less than it is due, for as long as it wants more than they have. Beside
 * what may run everywhere it keeps no more of that than anybody's credit. Among its like it stands by a place of its
 * own on each CPU (struct restricted_place): there each falls behind those that are free as far as the others do, for
 * ever, and their weights hold all the same.
 *
 * The orders of the paper are in cycles.h.
 */
#ifndef STEWARD_DECIDE_ORDER_H
#define STEWARD_DECIDE_ORDER_H

#include "cycles.h"

/*
 * Nobody lies further before a level's clock than this, however long it wants more than the few CPUs have on which it
 * may run: places further apart than half of all numbers could not be compared.
 */
#define VIRTUAL_TIME_BEHIND_MAX (1ULL << 61)
/* How far a reservation may be overdrawn, for each CPU: two slices. */
#define RESERVED_DEBT_NS (2 * SLICE_NS)

/* What one step of a walk up the tree does to the contender there. */
enum order_step {
	STEP_ENTERS, /* it begins to wait, and its level may with it */
	STEP_LEAVES, /* it waits no more, and its level may not either */
	STEP_PAYS,
	STEP_JOINS, /* it waits, whether in the heaps or not: credit that is too old is forgotten */
};

DECIDE u64 later(u64 a, u64 b)
{
	return clock_before(a, b) ? b : a;
}

/*
 * Where a contender stands when its weight is no longer the one by which its debt was counted: what it owes is service,
 * so that it counts for less to a heavier one. Else a slice of one task of nice 19 would keep all kernel threads, which
 * are the root's own tasks as well, behind everybody for as long as it alone would have had to wait. Who seems to owe
 * more than anybody can was away for so long that half of all numbers have passed, and owes nothing.
 */
DECIDE u64 reweighed(u64 key, u64 clock, u32 paid_weight, u32 weight)
{
	u64 debt = key - clock;

	if (!clock_before(clock, key))
		return key;
	if (debt > VIRTUAL_TIME_BEHIND_MAX)
		return clock - VIRTUAL_TIME_BEHIND_MAX;
	if (!paid_weight || paid_weight == weight)
		return key;
	if (debt >> 32)
		return clock + min_u64(debt / weight, VIRTUAL_TIME_BEHIND_MAX / paid_weight) * paid_weight;
	return clock + debt * paid_weight / weight;
}

/*
 * Whether a contender that comes back used less than a slice in the last cycle as well: whose credit was counted among
 * many, and is counted among few now, need not have all of it for as long as the others come and go. It must not have
 * used more than its due, since however little that is, it may be less than a slice in a cycle.
 */
DECIDE bool stays_little(struct domain_table *t, u32 level, u32 node, u64 paid, u64 clock)
{
	return account_of(t, node)->little && !clock_before(clock, paid) &&
	       domain_at(t, level)->served_ns - account_of(t, node)->since_served_ns >= order_window(t);
}

/*
 * How much of what a contender has paid beyond what leaves it all of its credit was for time out of its tasks'
 * reservations, at most: what else it was served is made up for first, as the clock goes on.
 */
DECIDE u64 still_ahead(u64 ahead, u64 paid, u64 credit)
{
	return clock_before(credit, paid) ? min_u64(ahead, paid - credit) : 0;
}

/*
 * Whether a contender has all of its credit, or would have if its tasks had got nothing out of reservations of theirs:
 * these run ahead of the order wherever it stands there, so that it may still use little of its place. It must not have
 * used more than its due, all in all.
 */
DECIDE bool has_all_credit(u64 ahead, u64 paid, u64 credit, u64 clock)
{
	return !clock_before(credit + ahead, paid) && (!ahead || !clock_before(clock, paid));
}

/*
 * Virtual time, in three parts, which are functions of their own for the same reason as those of a step: see there.
 *
 * First: what the walk's contender weighs, alone and beside the others, and where it would stand with all of its
 * credit.
 */
DECIDE_CALLED void virtual_weighs(struct domain_table *t)
{
	volatile struct walk *walk = &t->walk;
	u32 level = walk->level, node = walk->node;

	walk->weight = node_weight(t, node);
	walk->beside = level_weight(t, level, walk->priority, walk->weight);
	walk->credit = walk->clock - cycle_credit(t, level, walk->priority, walk->weight);
}

/* Then: what it has paid, at that weight. */
DECIDE_CALLED void virtual_owes(struct domain_table *t)
{
	volatile struct walk *walk = &t->walk;
	u32 node = walk->node;
	struct account *account = account_of(t, node);
	u64 clock = walk->clock;
	u32 *paid_weight = paid_weight_of(t, node);

	walk->paid = reweighed(account->paid, clock, *paid_weight, walk->weight);
	walk->latest = clock + virtual_cost(DOMAIN_LAG_MAX_NS * order_cpus(t), walk->beside);
	*paid_weight = walk->weight;
	if (account->ahead)
		account->ahead = still_ahead(account->ahead, walk->paid, walk->credit);
}

/* Last, when it joins those who wait: credit beyond a cycle is forgotten. */
DECIDE_CALLED void virtual_joins(struct domain_table *t)
{
	volatile struct walk *walk = &t->walk;
	u32 level = walk->level, node = walk->node, first;
	u64 served_ns = domain_at(t, level)->served_ns, clock = walk->clock;
	u64 credit = walk->credit, paid = walk->paid, least = credit;
	struct account *account = account_of(t, node);

	/* It does not stand behind one that waits because there were fewer when that one's credit was counted. */
	first = domain_at(t, level)->first[walk->priority & (PRIORITIES - 1)];
	if (first && !account_of(t, first)->little && clock_before(*key_at(t, first), credit))
		least = *key_at(t, first);
	if (node_was_away(t, node) && account->since_back_ns && account->since_back_ns < SLICE_NS)
		account->little = 1;
	/* It has all of its credit. What it used before counts no more, but that it was little is known. */
	if (has_all_credit(account->ahead, paid, credit, clock) || stays_little(t, level, node, paid, clock)) {
		account->since_back_ns = 0;
		account->since_served_ns = served_ns;
	}
	paid = later(paid, least);
	account->paid = clock_before(walk->latest, paid) ? walk->latest : paid;
	walk->key = contender_place(t, level, node, walk->weight, credit);
	walk->reserved_key = later(walk->reserved_key, served_ns - order_window(t));
}

/* Or when it pays for what it was served, out of its reservation or by its weight. served_ns includes it already. */
DECIDE_CALLED void virtual_pays(struct domain_table *t)
{
	volatile struct walk *walk = &t->walk;
	u32 level = walk->level, node = walk->node, reserved = node_reserved(t, node);
	u64 served_ns = domain_at(t, level)->served_ns, reserved_key = walk->reserved_key;
	u64 clock = walk->clock, turn, paid;
	struct account *account = account_of(t, node);

	if (reserved && !clock_before(served_ns + RESERVED_DEBT_NS * order_cpus(t) * SHARE_ONE / reserved, reserved_key)) {
		walk->reserved_key = reserved_key + walk->used_ns * SHARE_ONE / reserved;
		return;
	}
	/* Who came back among few has more credit than is due among many: what it has now and is served, it is served on
	 * the credit of now. But what was forgotten of that during this turn goes first: who is served less than it is due
	 * has all of its credit at every moment, not a slice less than those that wait. */
	turn = virtual_cost(2 * SLICE_NS * order_cpus(t), walk->beside);
	paid = later(later(walk->paid, clock - VIRTUAL_TIME_BEHIND_MAX), walk->credit - turn);
	paid = later(paid + virtual_cost(walk->used_ns, walk->weight), walk->credit);
	account->paid = clock_before(walk->latest, paid) ? walk->latest : paid;
	account->ahead += virtual_cost(walk->used_ns - walk->placed_ns, walk->weight);
	account->total += virtual_cost(walk->used_ns, walk->weight);
	account->since_back_ns = min_u64(account->since_back_ns + walk->placed_ns, SLICE_NS);
	if (account->since_back_ns == SLICE_NS)
		account->little = 0;
	walk->key = contender_place(t, level, node, walk->weight, walk->credit);
}

/*
 * A step of a walk has three parts. Each is a function that has everything from the walk, so that the BPF verifier goes
 * on after it from one state, whichever way it went.
 *
 * First: whether the contender takes the step, and where it then stands.
 */
DECIDE_CALLED void step_begins(struct domain_table *t)
{
	volatile struct walk *walk = &t->walk;
	u32 level = walk->level, node = walk->node, step = walk->step, to = node_at(t, node)->heap;
	struct domain *d = domain_at(t, level);
	u32 priority = node_priority(t, node);

	walk->priority = priority;
	walk->clock = d->clocks[priority];
	walk->ends = !level || (step == STEP_ENTERS && to) || (step == STEP_LEAVES && !to);
	walk->key = *key_at(t, node);
	walk->reserved_key = *key_at(t, node + NODE_RESERVED);
	if (walk->ends)
		return;
	if (step == STEP_ENTERS)
		to = priority + 1;
	else if (step == STEP_LEAVES)
		to = 0;
	else if (step == STEP_PAYS)
		d->served_ns += walk->used_ns;
	walk->to = to;
}

/* Second: what its keys are then. */
DECIDE_CALLED void step_counts(struct domain_table *t)
{
	volatile struct walk *walk = &t->walk;
	u32 level = walk->level, node = walk->node;
	u64 used_ns = walk->used_ns;

	if (walk->step == STEP_LEAVES)
		return;
	if (t->order == ORDER_VIRTUAL_TIME) {
		virtual_weighs(t);
		virtual_owes(t);
		if (used_ns)
			virtual_pays(t);
		else
			virtual_joins(t);
	} else if (t->order == ORDER_WRR) {
		walk->key = wrr_turn(t, level, node, used_ns, walk->now_ns);
	} else {
		walk->key = mtr_ls_turn(t, level, node, used_ns);
	}
}

/* Third: it goes there. */
DECIDE_CALLED void step_ends(struct domain_table *t)
{
	volatile struct walk *walk = &t->walk;
	struct domain *d;

	walk->placed = walk->node;
	walk->placed_key = walk->key;
	node_place(t);
	walk->placed = walk->node + NODE_RESERVED;
	walk->placed_key = walk->reserved_key;
	if (!node_reserved(t, walk->node) || t->order != ORDER_VIRTUAL_TIME)
		walk->to = 0;
	if (walk->to)
		walk->to = HEAP_RESERVED + 1;
	node_place(t);
	d = domain_at(t, walk->level);
	walk->ends = (walk->step == STEP_ENTERS && d->parked) || (walk->step == STEP_LEAVES && d->waiting_priorities);
}

/*
 * Goes up the tree from the walk's contender: puts it into the order, and as far as it is the first there, the domains
 * above it, up to one that is kept out of its parent's heaps; or takes it out, and those above it in which nobody else
 * waits; or lets it and all above it pay, or join. One function for all of this, because each is verified again in
 * every program that calls it. O(depth log n).
 */
DECIDE_CALLED void order_walk(struct domain_table *t)
{
	volatile struct walk *walk = &t->walk;
	u32 step;

	for (step = loop_begin(); step <= MAX_DEPTH && can_loop; step++) {
		step_begins(t);
		if (walk->ends)
			return;
		step_counts(t);
		step_ends(t);
		if (walk->ends)
			return;
		walk->node = walk->level;
		walk->level = domain_at(t, walk->level)->parent;
	}
}

/* Nobody stands behind all its like on a CPU for longer than its level is served so many cycles, whatever it was served
 * elsewhere. */
#define RESTRICTED_BEHIND_CYCLES 8

DECIDE struct restricted_place *restricted_of(struct cpu_order *cpu, u32 node)
{
	return &cpu->places[node & (2 * MAX_DOMAINS - 1)];
}

/* The virtual time of a level on one CPU, among what may run on some CPUs only. */
DECIDE u64 *restricted_clock(struct cpu_order *cpu, u32 level)
{
	return &cpu->clocks[level & (MAX_DOMAINS - 1)];
}

/* Where a contender of a level stands on this CPU among its like; the smallest is served first. */
DECIDE u64 restricted_key(struct domain_table *t, struct cpu_order *cpu, u32 level, u32 node)
{
	const struct restricted_place *place = restricted_of(cpu, node);
	u64 clock = *restricted_clock(cpu, level), waited_ns = domain_at(t, level)->served_ns - place->served_ns;

	if (account_of(t, node)->little)
		return clock - VIRTUAL_TIME_BEHIND_MAX;
	if (place->begun != domain_at(t, node)->begun)
		return clock;
	if (waited_ns >= RESTRICTED_BEHIND_CYCLES * order_window(t) && clock_before(clock, place->paid))
		return clock;
	return place->paid;
}

/*
 * One level of restricted_walk(): where the contender stands on this CPU among those that may run on some CPUs only.
 * The clock of these follows whoever of them is served there, and falls behind the level's while they want more than
 * the CPU has.
 *
 *  - What it was served there it pays. What it was served elsewhere as well, while it contends for more than this CPU:
 *    so that whoever may run on one CPU only has that, beside who has others. But not for tasks that may run nowhere
 *    else, such as the kernel's own of each CPU: these would wait there for what their domain has on other CPUs.
 *  - Who never wanted such a thing begins at that clock: at the level's it would wait until all others have caught up
 *    with that, which may be never. Who has not for a cycle stands a slice behind it at most, for the same reason.
 *  - Credit, debt and who comes with little at a time are as in the order.
 *
 * Not for other priorities than the default: what has one goes first or last, and by the order.
 */
DECIDE_CALLED void restricted_step(struct domain_table *t, struct cpu_order *cpu)
{
	volatile struct walk *walk = &t->walk;
	u32 level = walk->level, node = walk->node, weight = node_weight(t, node), begun = domain_at(t, node)->begun;
	struct restricted_place *place = restricted_of(cpu, node);
	u64 served_ns = domain_at(t, level)->served_ns, clock = *restricted_clock(cpu, level), used_ns = walk->used_ns;
	u64 total = account_of(t, node)->total, cost = total - place->total, paid = place->paid, latest;

	if (node_priority(t, node) != PRIORITY_DEFAULT)
		return;
	latest = clock + virtual_cost(DOMAIN_LAG_MAX_NS * order_cpus(t), level_weight(t, level, PRIORITY_DEFAULT, weight));
	if (!used_ns && served_ns - place->served_ns >= order_window(t)) {
		latest = clock + virtual_cost(SLICE_NS, weight);
		cost = 0;
	}
	if (place->begun != begun) {
		paid = clock;
		cost = virtual_cost(used_ns, weight);
	} else {
		paid = reweighed(paid, clock, place->weight, weight);
	}
	if (walk->confined)
		cost = min_u64(cost, virtual_cost(used_ns, weight));
	paid = later(paid, clock - cycle_credit(t, level, PRIORITY_DEFAULT, weight)) + cost;
	place->paid = clock_before(latest, paid) ? latest : paid;
	place->total = total;
	place->served_ns = served_ns;
	place->weight = weight;
	place->begun = begun;
}

/* Goes up the tree from a domain whose tasks may run on some CPUs only, and want to, or were served used_ns on this
 * one. After order_walk(), which is about the order of all. O(depth). */
DECIDE_CALLED void restricted_walk(struct domain_table *t, struct cpu_order *cpu, u32 index)
{
	volatile struct walk *walk = &t->walk;
	u32 step;

	walk->level = index;
	walk->node = index | NODE_OWN;
	for (step = loop_begin(); step <= MAX_DEPTH && can_loop; step++) {
		if (!walk->level)
			return;
		restricted_step(t, cpu);
		walk->node = walk->level;
		walk->level = domain_at(t, walk->level)->parent;
	}
}

/* Puts a contender into its level's heaps, or takes it out of them, as it is. */
DECIDE_CALLED void node_waits(struct domain_table *t, u32 level, u32 node, bool waits)
{
	volatile struct walk *walk = &t->walk;

	walk->level = level;
	walk->node = node;
	walk->key = *key_at(t, node);
	walk->reserved_key = *key_at(t, node + NODE_RESERVED);
	walk->to = waits ? node_priority(t, node) + 1 : 0;
	step_ends(t);
}

/* What happens to a domain in the order. */
enum order_change {
	CHANGE_QUEUE, /* tasks of it wait */
	CHANGE_UNQUEUE, /* none do */
	CHANGE_PARK, /* it is held back: all below it leaves the order as one, and keeps its own */
	CHANGE_UNPARK, /* it is held back no longer */
	CHANGE_RESET, /* it leaves the order, and begins anew in the one that is in force */
	/* Its tasks were served used_ns of CPU time, with or without a reservation of theirs: tasks of each kind that may run
	 * on some CPUs (enum restriction), by the one with this cpu_order. */
	CHANGE_PAY,
	CHANGE_PAY_CONFINED,
	CHANGE_PAY_RESTRICTED,
	/* Tasks of it want to run, of each kind again: credit that is too old is forgotten. */
	CHANGE_JOIN,
	CHANGE_JOIN_CONFINED,
	CHANGE_JOIN_RESTRICTED,
};

/* Where a task may run: added to CHANGE_PAY and CHANGE_JOIN. The more its domain pays in its place, the greater. */
enum restriction {
	RESTRICTION_NONE,
	RESTRICTION_ONE_CPU,
	RESTRICTION_SOME_CPUS,
};

DECIDE void order_reset(struct domain_table *t, u16 index);

/*
 * Whether a change is still to be made, under the lock: to be parked a domain must still be held, and the opposite. Who
 * found it held did so without the lock, and it may have been let go meanwhile: then nobody would come to unpark it.
 */
DECIDE bool order_change_wanted(const struct domain *d, u32 change)
{
	return (change != CHANGE_PARK || d->held) && (change != CHANGE_UNPARK || !d->held);
}

/*
 * How much of what a domain pays was served in the order: what its tasks got out of reservations of theirs, they got
 * ahead of it, wherever their domain stood.
 */
DECIDE u64 served_in_order(struct domain *d, u64 used_ns)
{
	u64 reserved_ns = min_u64(*(volatile u64 *)&d->reserved_used_ns - d->reserved_paid_ns, used_ns);

	d->reserved_paid_ns += reserved_ns;
	return used_ns - reserved_ns;
}

/* Under the lock. `cpu`, where it happens, counts for what is about restricted tasks; used_ns is 0 but for payments.
 * O(depth log n). */
DECIDE void order_change(struct domain_table *t, struct cpu_order *cpu, u32 change, u32 index, u64 used_ns, u64 now_ns)
{
	volatile struct walk *walk = &t->walk;
	struct domain *d = domain_at(t, index);
	bool waits = node_at(t, index | NODE_OWN)->heap, whole = change == CHANGE_PARK || change == CHANGE_UNPARK;
	bool pays = change >= CHANGE_PAY && change < CHANGE_JOIN;
	u32 restriction = change >= CHANGE_PAY ? change - (pays ? CHANGE_PAY : CHANGE_JOIN) : RESTRICTION_NONE;

	walk->level = whole ? d->parent : index;
	walk->node = whole ? index : index | NODE_OWN;
	walk->used_ns = used_ns;
	walk->now_ns = now_ns;
	walk->step = STEP_LEAVES;
	if (change == CHANGE_QUEUE) {
		walk->step = STEP_ENTERS;
		t->waiting += !waits;
	} else if (change == CHANGE_UNQUEUE || change == CHANGE_RESET) {
		t->waiting -= waits;
	} else if (change == CHANGE_PARK) {
		d->parked = 1;
	} else if (change == CHANGE_UNPARK) {
		walk->step = STEP_ENTERS;
		if (!d->parked || !d->waiting_priorities)
			walk->level = 0;
		d->parked = 0;
	} else if (pays) {
		walk->step = STEP_PAYS;
		walk->placed_ns = served_in_order(d, used_ns);
	} else {
		walk->step = STEP_JOINS;
		if (t->order == ORDER_WRR)
			walk->level = 0;
	}
	walk->resets = change == CHANGE_RESET ? index : 0;
	walk->confined = restriction == RESTRICTION_ONE_CPU;
	order_walk(t);
	if (restriction && t->order == ORDER_VIRTUAL_TIME)
		restricted_walk(t, cpu, index);
	/* Read again: what is known here of the change would have the verifier follow the walk once for each. */
	if (walk->resets)
		order_reset(t, walk->resets);
}

/*
 * Whether a domain that waits in the order stands for so much more now than when its place was counted that it is to be
 * counted anew: CHANGE_JOIN does that. Read without the lock.
 */
DECIDE bool order_outgrown(struct domain_table *t, u16 index)
{
	const struct domain *d = domain_at(t, index);

	return t->order == ORDER_VIRTUAL_TIME && d->own_paid_weight && domain_own_weight(d) / 2 > d->own_paid_weight;
}

/* Whether tasks of the domain wait in the order, as far as it knows; read without the lock. */
DECIDE bool order_is_queued(struct domain_table *t, u16 index)
{
	return *(volatile u8 *)&node_at(t, index | NODE_OWN)->heap;
}

/*
 * The first contender of a level, 0 when none waits. Which heaps it looks at is read without the lock; a moment later
 * the answer would be another one anyway.
 */
DECIDE u32 level_first(struct domain_table *t, u32 level)
{
	struct domain *d = domain_at(t, level);
	u32 reserved = *(volatile u16 *)&d->first[HEAP_RESERVED];
	u32 priorities = *(volatile u16 *)&d->waiting_priorities & ((1U << PRIORITIES) - 1);

	if (reserved && !clock_before(d->served_ns, *key_at(t, reserved)))
		return node_domain(reserved);
	if (!priorities)
		return 0;
	return *(volatile u16 *)&d->first[priority_highest(priorities) & (PRIORITIES - 1)];
}

/* The domain to serve next, 0 when none waits. O(depth). */
DECIDE_CALLED u32 order_first(struct domain_table *t)
{
	u32 level = ROOT_DOMAIN, step;

	for (step = loop_begin(); step <= MAX_DEPTH && can_loop; step++) {
		u32 node = level_first(t, level);

		if (!node)
			return 0;
		level = node_domain(node);
		if (node_is_own(node))
			return level;
	}
	return 0;
}

/* A level's clock follows who is served there, as long as that is not out of a reservation. */
DECIDE void clock_follow(u64 *clock, u64 key)
{
	if (clock_before(*clock, key))
		*clock = key;
}

/* The domain is served, by a CPU with this cpu_order, with a task that may run everywhere or not: the clocks of the
 * levels above it follow. O(depth). */
DECIDE_CALLED void order_serve(struct domain_table *t, struct cpu_order *cpu, u32 index, bool restricted)
{
	u32 level = index, node = index | NODE_OWN, step;

	if (t->order != ORDER_VIRTUAL_TIME)
		return;
	for (step = loop_begin(); step <= MAX_DEPTH && can_loop; step++) {
		struct domain *d = domain_at(t, level);
		u64 key = *key_at(t, node);
		bool reserved = node_reserved(t, node) && !clock_before(d->served_ns, *key_at(t, node + NODE_RESERVED));

		if (!level)
			return;
		if (!reserved) {
			clock_follow(&d->clocks[node_priority(t, node)], key);
			if (restricted && node_priority(t, node) == PRIORITY_DEFAULT)
				clock_follow(restricted_clock(cpu, level), restricted_key(t, cpu, level, node));
		}
		node = level;
		level = d->parent;
	}
}

/*
 * Where a contender that waits stands beside one that runs: with all of its credit at most, which is less with each
 * moment that it waits. Only who uses less than a slice at a time stands before that.
 */
DECIDE u64 key_beside(struct domain_table *t, u32 level, u32 node)
{
	u32 priority = node_priority(t, node);
	u64 key = *key_at(t, node);

	if (account_of(t, node)->little)
		return key;
	return later(key, domain_at(t, level)->clocks[priority] - cycle_credit(t, level, priority, node_weight(t, node)));
}

/* Whether contender a, which waits, comes before contender b of the same level, which waits or runs: by the order, or
 * with `few` by their places on that CPU among what may run on some CPUs only; a tie is b's. */
DECIDE bool node_precedes(struct domain_table *t, struct cpu_order *few, u32 level, u32 a, u32 b, bool b_runs)
{
	u64 served_ns = domain_at(t, level)->served_ns;
	u32 priority_a = node_priority(t, a), priority_b = node_priority(t, b);

	if (t->order == ORDER_VIRTUAL_TIME) {
		bool reserved_a = node_reserved(t, a) && !clock_before(served_ns, *key_at(t, a + NODE_RESERVED));
		bool reserved_b = node_reserved(t, b) && !clock_before(served_ns, *key_at(t, b + NODE_RESERVED));

		if (reserved_a != reserved_b)
			return reserved_a;
		if (reserved_a)
			return node_before(t, a + NODE_RESERVED, b + NODE_RESERVED);
	}
	if (priority_a != priority_b)
		return priority_a > priority_b;
	if (few && priority_a == PRIORITY_DEFAULT && t->order == ORDER_VIRTUAL_TIME)
		return clock_before(restricted_key(t, few, level, a), restricted_key(t, few, level, b));
	if (b_runs && t->order == ORDER_VIRTUAL_TIME)
		return clock_before(key_beside(t, level, a), *key_at(t, b));
	return node_before(t, a, b);
}

/*
 * Whether tasks of domain a, which wait, come before tasks of domain b, which wait or run, on the CPU of `few` if both
 * may run on some CPUs only: at the level where their ways up the tree meet. Not for a domain and itself. O(depth).
 */
DECIDE_CALLED bool order_precedes(struct domain_table *t, struct cpu_order *few, u32 a, u32 b, bool b_runs)
{
	u32 level_a = a, level_b = b, node_a = a | NODE_OWN, node_b = b | NODE_OWN, step;

	for (step = loop_begin(); step <= 2 * MAX_DEPTH && can_loop; step++) {
		const struct domain *above_a = domain_at(t, level_a), *above_b = domain_at(t, level_b);

		if (level_a == level_b)
			return node_a != node_b && node_precedes(t, few, level_a, node_a, node_b, b_runs);
		if (!level_a || !level_b)
			return false;
		if (above_a->depth >= above_b->depth) {
			node_a = level_a;
			level_a = above_a->parent;
		} else {
			node_b = level_b;
			level_b = above_b->parent;
		}
	}
	return false;
}

/* Whether tasks of domain a ever preempt those of domain b. WRR takes turns only. */
DECIDE bool order_may_preempt(const struct domain_table *t, u32 a, u32 b)
{
	return a != b && t->order != ORDER_WRR;
}

/* A contender begins at a level whose clock is this, without credit. */
DECIDE void node_begins(struct domain_table *t, u32 node, u64 clock)
{
	*key_at(t, node) = clock;
	account_of(t, node)->paid = clock;
	account_of(t, node)->since_back_ns = SLICE_NS;
	account_of(t, node)->little = 0;
	account_of(t, node)->ahead = 0;
}

/* Forgets what the domain did so far: it begins anew in the order that is in force. It must not stand in it. */
DECIDE void order_reset(struct domain_table *t, u16 index)
{
	struct domain *d = domain_at(t, index);
	struct domain *parent = domain_at(t, d->parent);
	struct tokens *tokens = tokens_of(t, index), *own = tokens_of(t, index | NODE_OWN);

	d->begun++;
	tokens->count = 0;
	tokens->held_ns = 0;
	tokens->cycle = 0;
	tokens->cycle_left_ns = 0;
	own->count = 0;
	own->held_ns = 0;
	own->cycle = 0;
	own->cycle_left_ns = 0;
	node_begins(t, index, parent->clocks[d->priority & (PRIORITIES - 1)]);
	*key_at(t, index | NODE_RESERVED) = parent->served_ns;
	node_begins(t, index | NODE_OWN, d->clocks[d->own_priority & (PRIORITIES - 1)]);
}

/* Gives a domain a policy. One that waits keeps its place, in the heaps that the policy puts it in. */
DECIDE void order_set_policy(struct domain_table *t, u16 index, const struct domain_policy *policy)
{
	struct domain *d = domain_at(t, index);
	bool waits = node_at(t, index)->heap, own_waits = node_at(t, index | NODE_OWN)->heap;
	u32 priority = d->priority, own_priority = d->own_priority;

	if (waits)
		node_waits(t, d->parent, index, false);
	if (own_waits)
		node_waits(t, index, index | NODE_OWN, false);
	/* Time of one priority means nothing to another; nor does what another reservation has used. */
	if (!d->reserved)
		*key_at(t, index | NODE_RESERVED) = domain_at(t, d->parent)->served_ns;
	domain_set_policy(t, index, policy);
	if (d->priority != priority)
		node_begins(t, index, domain_at(t, d->parent)->clocks[d->priority & (PRIORITIES - 1)]);
	if (d->own_priority != own_priority)
		node_begins(t, index | NODE_OWN, d->clocks[d->own_priority & (PRIORITIES - 1)]);
	if (own_waits)
		node_waits(t, index, index | NODE_OWN, true);
	if (waits)
		node_waits(t, d->parent, index, true);
}

/* A cgroup is made: its domain begins, below a parent that is no deeper than DEPTH_MOST - 1 (0: it is the root). */
DECIDE void domain_begin(struct domain_table *t, u16 index, u16 parent, u32 weight)
{
	struct domain *d = domain_at(t, index);
	u32 i;

	d->parent = parent;
	d->depth = parent ? domain_at(t, parent)->depth + 1 : 0;
	d->cgroup_weight = weight;
	d->weight = weight;
	d->has_weight = 0;
	d->reserved = 0;
	d->own_weight = 0;
	d->priority = PRIORITY_DEFAULT;
	d->own_priority = PRIORITY_DEFAULT;
	d->served_ns = 0;
	d->reserved_paid_ns = d->reserved_used_ns;
	d->cycle = 0;
	d->cycle_ends_ns = 0;
	d->sequence = 0;
	d->all_weight = 0;
	d->all_reserved = 0;
	d->children = 0;
	d->below = 0;
	for (i = 0; i < PRIORITIES; i++)
		d->clocks[i] = 0;
	d->active = 0;
	d->in_use = 1;
	d->dying = 0;
	d->throttled = 0;
	d->suspended = 0;
	d->restricted_held = 0;
	d->last_weight = 0;
	d->paid_weight = 0;
	d->own_paid_weight = 0;
	d->parked = 0;
	d->left = 0;
	d->own_left = 0;
	d->quota_ns = QUOTA_NONE;
	order_reset(t, index);
	if (parent) {
		domain_joins_sums(t, d);
		domain_at(t, parent)->children++;
		domain_counts_below(t, parent, 1);
	}
	if (index >= t->high_water)
		t->high_water = index + 1;
}

/* A domain without tasks and children, which has left the order, ends: its index may be given out again. */
DECIDE void domain_end(struct domain_table *t, u16 index)
{
	struct domain *d = domain_at(t, index);

	if (d->parent) {
		domain_leaves_sums(t, d);
		domain_at(t, d->parent)->children--;
		domain_counts_below(t, d->parent, -1U);
	}
	t->priorities -= domain_prioritized(d);
	d->in_use = 0;
}

/* So many places are looked at with the lock held. */
#define LOWERED_MAX 64

/*
 * After domains have ended: those that were the last ones need not be gone through any more. Under the lock. Returns
 * whether there may be more of them.
 */
DECIDE bool domains_lower(struct domain_table *t)
{
	u32 i;

	for (i = loop_begin(); i < LOWERED_MAX && can_loop; i++) {
		if (t->high_water <= ROOT_DOMAIN + 1 || domain_at(t, t->high_water - 1)->in_use)
			return false;
		t->high_water -= 1;
	}
	return true;
}

#endif
