/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The timers of slots: periods that begin, and what becomes of a task whose standing or CPU changed while it waited.
 */
#ifndef STEWARD_PERIODS_BPF_H
#define STEWARD_PERIODS_BPF_H

#include "best_effort.bpf.h"

/*
 * Brings a task that waits in an interactive queue to where it waits as best-effort work, and an idle CPU to it: the
 * one that it waited for may be busy for long.
 */
static __always_inline void return_to_domain(struct task_struct *p, struct task_state *t)
{
	struct domain_table *table = domains();
	bool restricted = is_restricted(p);
	s32 idle_cpu;

	join_clock(t, domain_at(table, t->domain), false);
	if (!change_queue(p, t, restricted ? QUEUE_RESTRICTED(t->domain) : QUEUE_DOMAIN(t->domain), SLICE_NS, t->vtime))
		return;
	begin_to_wait(t, clock_now());
	if (restricted) {
		count_restricted(table, t);
		note_where_it_may_run(p, t->domain, scx_bpf_task_cpu(p));
	} else {
		count_waiting(table, t);
		domain_make_queued(table, t->domain);
	}
	bpf_rcu_read_lock();
	idle_cpu = find_idle_cpu(p);
	bpf_rcu_read_unlock();
	if (idle_cpu >= 0)
		kick_cpu(idle_cpu, SCX_KICK_IDLE);
}

/*
 * The slot's timer: a period begins for a task that had used its budget up, or its standing or CPU changed. Brings a
 * task that waits to the queue where it now belongs, or makes the CPU on which it runs choose again.
 */
static int period_begins(void *map, u32 *index, struct timer_entry *entry)
{
	struct task_slot *slot = bpf_map_lookup_elem(&slots, index);
	struct task_struct *p;
	struct task_state *t;
	u64 now_ns = clock_now();

	if (!slot || slot->standing == STANDING_NONE)
		return 0;
	p = bpf_task_from_pid(slot->tid);
	if (!p)
		return 0;
	t = task_state_of(p);
	if (!t || t->slot != *index + 1)
		goto out;
	/* Its affinity changed while its reservation did. */
	if (slot->standing == STANDING_ADMITTED && !affinity_allows(p, slot->cpu))
		slot->misplaced = 1;
	if (slot->lends && slot->standing == STANDING_ADMITTED)
		lend_again(slot, *index, !t->runnable_weight, now_ns);
	if (t->mode != MODE_OFF) {
		kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_PREEMPT);
		goto out;
	}
	if (slot->standing != STANDING_ADMITTED) {
		/* It may be left in the interactive queue of a CPU that went offline; nobody would serve it there. */
		if (QUEUE_IS_INTERACTIVE(t->queue))
			return_to_domain(p, t);
		goto out;
	}
	if (slot->edf.start_ns > now_ns) {
		/* The timer's clock and the scheduler's drift apart a little, or a later period was assigned. */
		watch_period(*index, slot->edf.start_ns - now_ns);
		goto out;
	}
	if (may_wait_for(p, slot->cpu, scx_bpf_task_cpu(p)) &&
	    change_queue(p, t, QUEUE_INTERACTIVE(slot->cpu), max_u64(slot->edf.left_ns, 1), slot->edf.deadline_ns)) {
		expect_interactive(slot->cpu);
		preempt_for(slot, false);
	}
out:
	bpf_task_release(p);
	return 0;
}

/*
 * Prepares the timers of all slots. The kernel holds a timer's callback to the rules of the callback that set it, and
 * moving a task between queues is allowed from ops.init but not from where periods end.
 */
static __always_inline int prepare_periods(void)
{
	int i, error;

	bpf_for(i, 0, MAX_SLOTS) {
		u32 index = i;
		struct timer_entry *entry = bpf_map_lookup_elem(&slot_timers, &index);

		if (!entry)
			return -EINVAL;
		error = bpf_timer_init(&entry->timer, &slot_timers, CLOCK_MONOTONIC);
		if (!error)
			error = bpf_timer_set_callback(&entry->timer, period_begins);
		if (error)
			return error;
	}
	return 0;
}

#endif
