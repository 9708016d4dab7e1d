/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that have waited too long, whatever they weigh: how they are found, and their turns; the rules are in
 * decide/best_effort.h.
 */
#ifndef STEWARD_RESCUE_BPF_H
#define STEWARD_RESCUE_BPF_H

#include "best_effort.bpf.h"

/*
 * How many more tasks may be taken to be rescued at this look. In memory and not in a variable, because the verifier
 * would follow each value that a counter has in the loop below.
 */
static volatile u32 rescue_left;

/* Whether the task was preempted while it reads what RCU protects. */
static __always_inline bool is_reader(struct task_struct *p)
{
	return bpf_core_field_exists(p->rcu_read_lock_nesting) && p->rcu_read_lock_nesting > 0;
}

/* Which end of the queues the next look begins at. */
static volatile u64 overdue_flags;

/* Whether the last look found that those who stand to be rescued press. */
static volatile u32 overdue_press;

/* Brings tasks of one queue that have waited too long to the queue of those to be rescued, and who was called to those
 * that leave. */
static __noinline int find_overdue(u64 queue, u64 now_ns)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	int i;

	if (!bpf_iter_scx_dsq_new(&it, queue, overdue_flags)) {
		bpf_for(i, 0, QUEUE_SCAN_MAX) {
			struct task_state *t;
			u32 finds, leave = 0, stand = 0;
			bool called;

			p = bpf_iter_scx_dsq_next(&it);
			if (!p || !rescue_left)
				break;
			t = task_state_of(p);
			if (!t)
				continue;
			called = was_called(p);
			/* It matters of those alone, who are few, and takes more than all else that is looked at. */
			if (called) {
				leave = scx_bpf_dsq_nr_queued(QUEUE_LEAVING);
				stand = scx_bpf_dsq_nr_queued(QUEUE_RESCUE);
			}
			finds = rescue_look(t->waiting_since_ns, is_reader(p), called, leave, stand, now_ns);
			if (finds == LOOK_LETS_LEAVE && queue != QUEUE_LEAVING)
				let_leave(&it, p, t);
			if (finds != LOOK_RESCUES)
				continue;
			t->rescued = RESCUED_PAID;
			if (iterated_move(&it, p, QUEUE_RESCUE)) {
				leave_queue(t);
				rescue_left -= 1;
			} else {
				t->rescued = RESCUED_NOT;
			}
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return 0;
}

/* Whether those that stand to be rescued press: they stand in the order in which they were found. */
static __noinline bool find_pressing(u64 now_ns)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool presses = false;

	if (!bpf_iter_scx_dsq_new(&it, QUEUE_RESCUE, 0)) {
		p = bpf_iter_scx_dsq_next(&it);
		if (p) {
			struct task_state *t = task_state_of(p);

			presses = t && rescue_presses(t->waiting_since_ns, now_ns);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return presses;
}

/* Serves one overdue task that may run here, if it is time to or nothing else waits. */
static __always_inline bool serve_overdue(struct cpu_run *run, u64 now_ns, bool nothing_else)
{
	struct domain_table *table = domains();
	u64 interval_ns;

	if (!overdue)
		return false;
	interval_ns = rescue_interval_ns(scx_bpf_dsq_nr_queued(QUEUE_RESCUE), table->cpus, overdue_press);
	if (!(nothing_else || rescue_allowed(run->rescued_ns, interval_ns, now_ns)) || !queue_to_local(QUEUE_RESCUE))
		return false;
	run->rescued_ns = rescue_begins(run->rescued_ns, interval_ns, now_ns);
	run->rescue_interval_ns = interval_ns;
	return true;
}

/* A rescued task runs for a moment only. */
static __always_inline bool begin_rescue(struct task_struct *p, struct task_state *t, struct cpu_run *run, u32 cpu)
{
	u64 slice_ns;

	if (!t->rescued)
		return false;
	run->rescues = t->rescued == RESCUED_PAID;
	t->rescued = RESCUED_NOT;
	slice_ns = rescue_slice_ns(is_reader(p));
	task_set_slice(p, slice_ns);
	watch_budget(run, cpu, slice_ns);
	return true;
}

/*
 * The turn of a task that was rescued is over, or it goes on because it comes first anyway, which is no rescue any
 * more: else a CPU would rescue nobody for as long as many whole slices take.
 */
static __always_inline void end_rescue(struct cpu_run *run, u64 now_ns)
{
	run->rescues = 0;
	run->rescued_ns = rescue_paid(run->rescued_ns, passed_since(run->began_ns, now_ns), run->rescue_interval_ns);
}

#endif
