/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What domains pay for the CPU time of their tasks: to the order, and out of their quotas.
 */
#ifndef STEWARD_PAYMENTS_BPF_H
#define STEWARD_PAYMENTS_BPF_H

#include "holds.bpf.h"

/* Whether no domain but this one stands in the order: who comes first need not be looked for. */
static __always_inline bool stands_alone(struct domain_table *table, u32 index)
{
	u32 waiting = *(volatile u32 *)&table->waiting;

	return !waiting || (waiting == 1 && order_is_queued(table, index));
}

/* A domain pays for time that its tasks got of this CPU, which may run where `restriction` (enum restriction) says. */
static __always_inline void pay_domain(u32 index, u64 used_ns, u32 restriction, u32 cpu)
{
	if (used_ns)
		change_order(CHANGE_PAY + restriction, index, used_ns, cpu);
}

/* The quotas of a domain and of those above it pay for best-effort time. */
__noinline int pay_quotas(u32 index, u64 used_ns)
{
	struct domain_table *table = domains();
	u32 level;

	for (level = 0; level < MAX_DEPTH && index; level++) {
		struct domain *payer = domain_at(table, index);

		quota_charge(payer, used_ns);
		index = payer->parent;
	}
	return 0;
}

/*
 * Another domain is served on this CPU than the one that owes for it. A kernel thread that runs for some microseconds
 * is another domain's, and comes again: so what one owes is put aside until it is served the next time, or until a
 * third one is.
 */
static __noinline int change_debtor(struct cpu_run *run, u32 index, u32 cpu)
{
	u32 before, aside, before_restriction, aside_restriction, taken_restriction = RESTRICTION_NONE;
	u64 before_ns, aside_ns, taken_ns = 0;

	before = run->unpaid_domain;
	aside = run->aside_domain;
	before_ns = run->unpaid_ns;
	aside_ns = run->aside_ns;
	before_restriction = run->unpaid_restriction;
	aside_restriction = run->aside_restriction;
	if (aside == index) {
		taken_ns = aside_ns;
		taken_restriction = aside_restriction;
		aside_ns = 0;
	}
	run->unpaid_domain = index;
	run->unpaid_ns = taken_ns;
	run->unpaid_restriction = taken_restriction;
	run->aside_domain = before;
	run->aside_ns = before_ns <= CHARGE_BATCH_NS ? before_ns : 0;
	run->aside_restriction = before_restriction;
	if (aside && aside_ns)
		pay_domain(aside, aside_ns, aside_restriction, cpu);
	if (before && before_ns > CHARGE_BATCH_NS)
		pay_domain(before, before_ns, before_restriction, cpu);
	return 0;
}

/* Adds to what the domain owes for this CPU, and lets it pay when that is worth it: while no other domain waits,
 * nobody's turn depends on it. */
static __always_inline void charge_domain(struct domain_table *table, struct cpu_run *run, u32 index, u64 used_ns, u32 cpu)
{
	bool watched = !run->alone && !stands_alone(table, index);
	u64 unpaid_ns;

	if (run->unpaid_domain != index)
		change_debtor(run, index, cpu);
	/* What it owes together, of several kinds, is taken for the one that pays for most. */
	if (!run->unpaid_ns || run->unpaid_restriction < run->restriction)
		run->unpaid_restriction = run->restriction;
	unpaid_ns = run->unpaid_ns + used_ns;
	if (unpaid_ns < (watched ? CHARGE_BATCH_NS : CHARGE_ALONE_NS)) {
		run->unpaid_ns = unpaid_ns;
		return;
	}
	run->unpaid_ns = 0;
	pay_domain(index, unpaid_ns, run->unpaid_restriction, cpu);
}

/* Charges best-effort time to the task, its domain and the quotas above it. */
static __always_inline void charge_best_effort(struct cpu_run *run, struct task_state *t, u64 used_ns, u32 cpu)
{
	struct domain_table *table = domains();

	t->vtime += task_cost(used_ns, t->weight);
	charge_domain(table, run, t->domain, used_ns, cpu);
	if (table->quotas)
		pay_quotas(t->domain, used_ns);
}

/* Charges time out of a reservation: the task's domain pays for it. */
static __always_inline void charge_reserved(struct cpu_run *run, struct task_state *t, u64 used_ns, u32 cpu)
{
	struct domain_table *table = domains();

	__sync_fetch_and_add(&domain_at(table, t->domain)->reserved_used_ns, used_ns);
	charge_domain(table, run, t->domain, used_ns, cpu);
}

#endif
