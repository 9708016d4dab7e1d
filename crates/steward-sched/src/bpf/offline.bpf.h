/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPUs that go offline. The kernel waits until no task stands on such a CPU any more, in whatever queue, and asks us
 * for none from the moment that it calls ops.cpu_offline; what comes there later goes to its own queue unasked. So
 * everybody is let go who stands there and would not be taken by another CPU soon: who can run nowhere else, and who is
 * held.
 */
#ifndef STEWARD_OFFLINE_BPF_H
#define STEWARD_OFFLINE_BPF_H

#include "best_effort.bpf.h"

/* How often such CPUs' queues were looked through; the sampler comes again. */
static volatile u32 drains;
/* Wherever the tasks stand. */
#define ANY_CPU (~0U)

/*
 * Gives what waits in a queue, or of that what stands on a CPU that goes offline, to the kernel's own queue: every CPU
 * looks there first, the one that goes offline too, as long as something can run nowhere else. Who was stopped at a
 * gate leaves from there. Whoever else is not on its way out of the kernel runs for a moment only: it may be held, and
 * is queued again at once, where it runs then.
 */
static __noinline int drain(u64 queue, u32 cpu)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	int i;

	if (!bpf_iter_scx_dsq_new(&it, queue, looks_from_end(drains) ? SCX_DSQ_ITER_REV : 0)) {
		bpf_for(i, 0, QUEUE_SCAN_MAX) {
			struct task_state *t;

			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			if (cpu != ANY_CPU && scx_bpf_task_cpu(p) != (s32)cpu)
				continue;
			t = task_state_of(p);
			if (!t) {
				iterated_move(&it, p, SCX_DSQ_GLOBAL);
				continue;
			}
			if (t->whereabouts == AT_GATE) {
				t->boundary_missed = 0;
				begin_to_leave(t);
			}
			t->rescued = t->leaving ? RESCUED_NOT : RESCUED_UNPAID;
			if (iterated_move(&it, p, SCX_DSQ_GLOBAL)) {
				leave_queue(t);
			} else {
				t->rescued = RESCUED_NOT;
				has_left(t);
			}
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return 0;
}

/* Should somebody have come into the queue when nobody was held for a moment any more: nobody else looks there. */
static __always_inline void drain_bumped(void)
{
	if (!any_bumps() && scx_bpf_dsq_nr_queued(QUEUE_BUMPED) > 0)
		drain(QUEUE_BUMPED, ANY_CPU);
}

/* The CPU comes online: restricted tasks of all domains may wait for it. */
static __noinline int note_all_restricted(u32 cpu)
{
	struct domain_table *table = domains();
	struct cpu_order *order = cpu_order_of(cpu);
	u32 high_water;
	int i;

	if (!order)
		return 0;
	high_water = table->high_water;
	bpf_for(i, 1, high_water) {
		if (domain_at(table, i)->in_use && scx_bpf_dsq_nr_queued(QUEUE_RESTRICTED(i)) > 0)
			restricted_waits(order, i);
	}
	bpf_for(i, 0, MAX_DOMAINS / 64)
		restricted_word(order, i);
	return 0;
}

/* Whether tasks run, or wait, on the CPU. */
static __always_inline bool tasks_stand_on(u32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && rq->nr_running;
}

/* Lets those of a domain go who stand on a CPU that goes offline. */
static __noinline int drain_domain(u32 index, u32 cpu)
{
	struct domain_table *table = domains();
	struct cpu_order *order = cpu_order_of(cpu);

	if (!order || !domain_at(table, index)->in_use)
		return 0;
	if (restricted_noted(order, index))
		restricted_forget(order, index);
	if (scx_bpf_dsq_nr_queued(QUEUE_RESTRICTED(index)) > 0)
		drain(QUEUE_RESTRICTED(index), cpu);
	if (*(volatile u32 *)&domain_at(table, index)->waiting &&
	    ((table->quotas && domain_held(table, index)) || (table->priorities && domain_stands_behind(index))))
		drain(QUEUE_DOMAIN(index), cpu);
	return 0;
}

/* Empties the queues of all CPUs that are offline, or begin to go there. */
static __noinline int drain_offline(void)
{
	struct domain_table *table = domains();
	u32 cpus = settings.cpus, high_water = table->high_water;
	bool moved = false;
	int cpu, i;

	drains += 1;
	bpf_for(cpu, 0, cpus) {
		if (cpu_online(cpu) && cpu_active(cpu))
			continue;
		/* Some may stand on another CPU still. */
		if (scx_bpf_dsq_nr_queued(QUEUE_INTERACTIVE(cpu)) > 0)
			drain(QUEUE_INTERACTIVE(cpu), ANY_CPU);
		else if (!tasks_stand_on(cpu))
			continue;
		drain(QUEUE_RESCUE, cpu);
		drain(QUEUE_LEAVING, cpu);
		drain(QUEUE_BUMPED, cpu);
		bpf_for(i, 1, high_water)
			drain_domain(i, cpu);
		/* It may be on its way out, with something that can run nowhere else. */
		kick_cpu(cpu, SCX_KICK_PREEMPT);
		moved = true;
	}
	if (!moved)
		return 0;
	bpf_for(cpu, 0, cpus) {
		if (scx_bpf_test_and_clear_cpu_idle(cpu))
			kick_cpu(cpu, SCX_KICK_IDLE);
	}
	return 0;
}

static int drain_begins(void *map, u32 *index, struct timer_entry *entry)
{
	drain_offline();
	return 0;
}

/* A CPU goes offline. Moving between queues is not allowed in that callback; a timer comes at once. */
static __always_inline void drain_soon(void)
{
	u32 two = 2;
	struct timer_entry *entry = bpf_map_lookup_elem(&system_timers, &two);

	if (entry)
		bpf_timer_start(&entry->timer, 0, 0);
}

static __always_inline int prepare_drain(void)
{
	u32 two = 2;
	struct timer_entry *entry = bpf_map_lookup_elem(&system_timers, &two);
	int error;

	if (!entry)
		return -ENOENT;
	error = bpf_timer_init(&entry->timer, &system_timers, CLOCK_MONOTONIC);
	return error ? error : bpf_timer_set_callback(&entry->timer, drain_begins);
}

#endif
