/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that wake up, and the short ways to a CPU that some of them take (docs/scheduler.md, section 3).
 */
#ifndef STEWARD_WAKES_BPF_H
#define STEWARD_WAKES_BPF_H

#include "holds.bpf.h"

/*
 * The task can run: it counts in its domain, and if it has just woken its period may be a new one. Called on each way
 * into a queue instead of from ops.runnable, which would be one more callback at each wake-up.
 */
static __always_inline void becomes_runnable(struct task_state *t, struct task_slot *slot, bool woken, u64 now_ns)
{
	if (woken && slot && slot->standing == STANDING_ADMITTED)
		edf_wake(&slot->edf, now_ns);
	if (!t->runnable_weight)
		domain_counts(t, t->weight, now_ns);
}

/*
 * A task wakes up that goes before what runs on its CPU, and before all that waits there: it goes straight into that
 * CPU's own queue, and what runs lets it go. To kick the CPU instead has the kernel send itself an interrupt, which
 * costs more than the switch. One at a time, as in enqueue_direct().
 */
static __always_inline bool enqueue_preempting(struct task_struct *p, struct task_state *t, u32 cpu, u64 slice_ns,
					       u64 deadline_ns, u64 now_ns, u64 enq_flags)
{
	struct cpu_run *run = cpu_run_of(cpu);

	if (!(enq_flags & SCX_ENQ_WAKEUP) || !run || run->interactive || run->direct)
		return false;
	if (run->deadline_ns <= deadline_ns || class_held(&run->class_use, 0, now_ns))
		return false;
	t->direct_cpu = cpu + 1;
	run->direct = DIRECT_AHEAD;
	queue_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags | SCX_ENQ_PREEMPT);
	return true;
}

/*
 * A task wakes up on a CPU that has nothing to do, and the kernel has not asked for one (it does not for a task that
 * may run on this one only, of which a machine with one CPU has no other): it goes straight into that CPU's own queue,
 * as from ops.select_cpu. The kernel has the CPU choose again by itself, so nobody is kicked, and its domain neither
 * joins the order nor leaves it.
 */
static __always_inline bool enqueue_idle(struct task_struct *p, struct task_state *t, struct task_slot *slot, u32 cpu,
					 u64 now_ns, u64 enq_flags)
{
	struct domain_table *table = domains();
	struct cpu_run *run = cpu_run_of(cpu);
	u64 slice_ns = SLICE_NS;

	if (!maybe_idle || !table || !run || run->interactive || overdue || leaving || held_by_quota(t) || bumped(p, t))
		return false;
	if (slot && slot->standing == STANDING_ADMITTED) {
		if (slot->cpu != cpu || !served_by_deadline(slot, now_ns))
			return false;
		slice_ns = slot->edf.left_ns;
	}
	if (!scx_bpf_test_and_clear_cpu_idle(cpu))
		return false;
	has_left(t);
	join_clock(t, domain_at(table, t->domain), true);
	t->unjoined = 1;
	queue_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
	return true;
}

#endif
