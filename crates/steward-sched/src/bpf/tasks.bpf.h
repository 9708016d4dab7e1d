/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that come, change and go: into the scheduler's class and out of it, with their weights and affinities.
 */
#ifndef STEWARD_TASKS_BPF_H
#define STEWARD_TASKS_BPF_H

#include "domains.bpf.h"
#include "executions.bpf.h"

void STRUCT_OPS(steward_set_weight, struct task_struct *p, u32 weight)
{
	struct task_state *t = task_state_of(p);
	struct domain_table *table = domains();

	if (!t)
		return;
	/* As many threads of a process that becomes lighter stand in one place as if they had begun there. */
	if (weight < t->weight && weight < WEIGHT_DEFAULT)
		t->vtime += task_spread(domain_at(table, t->domain), weight, bpf_get_prandom_u32());
	t->weight = weight;
	if (t->runnable_weight) {
		domain_counts(t, 0, clock_now());
		domain_counts(t, weight, clock_now());
	}
}

void STRUCT_OPS(steward_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	struct task_state *t = task_state_of(p);
	struct task_slot *slot;

	if (!t)
		return;
	slot = slot_of(t);
	/* cpumask is narrowed for a moment when the task disables migration: only its affinity counts. */
	if (slot && slot->standing == STANDING_ADMITTED && !affinity_allows(p, slot->cpu))
		displace(p, t->slot - 1);
}

s32 STRUCT_OPS_SLEEPABLE(steward_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_state *t = bpf_task_storage_get(&task_states, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct task_struct *parent;
	struct task_state *parent_state;
	struct task_slot *slot;
	struct domain_table *table = domains();
	struct grant grant;

	if (!t)
		return -ENOMEM;
	t->weight = p->scx.weight ? p->scx.weight : WEIGHT_DEFAULT;
	task_joins(table, t, domain_index_of(args->cgroup));
	begin_in_domain(t, domain_at(table, t->domain));
	if (!args->fork) {
		/* It may have been anywhere when the scheduler was loaded. */
		t->whereabouts = INSIDE_PREEMPTED;
		return 0;
	}
	parent = bpf_get_current_task_btf();
	parent_state = task_state_of(parent);
	if (!parent_state)
		return 0;
	look_for_execution(parent, parent_state);
	slot = slot_of(parent_state);
	if (!slot)
		return 0;
	/* A child of an interactive task may take up a specification at its exec; one of a best-effort task not. */
	t->permitted_in = p->self_exec_id;
	t->may_start_interactive = 1;
	if (!(slot->grant.flags & GRANT_INHERIT)) {
		if (slot->standing == STANDING_ADMITTED && p->tgid == p->pid)
			begin_on_loan(p, t, slot, parent_state->slot);
		return 0;
	}
	grant = slot->grant;
	grant.flags &= ~GRANT_KEEP_OVER_EXEC;
	grant.requests_at = 0;
	adopt(p, t, &grant);
	return 0;
}

void STRUCT_OPS(steward_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task_state *t = task_state_of(p);
	struct domain_table *table = domains();

	if (!t)
		return;
	leave_queue(t);
	domain_counts(t, 0, clock_now());
	t->ended = 1;
	end_loans(t);
	release(t);
	task_leaves(table, t);
}

void STRUCT_OPS(steward_enable, struct task_struct *p)
{
	struct task_state *t = task_state_of(p);
	struct domain_table *table = domains();

	if (!t)
		return;
	t->weight = p->scx.weight ? p->scx.weight : WEIGHT_DEFAULT;
	begin_in_domain(t, domain_at(table, t->domain));
	/* It is known to others by now, as it is not in steward_init_task(). */
	report_born_heir(p, t);
}

/* The task leaves for another class, or ends. */
void STRUCT_OPS(steward_disable, struct task_struct *p)
{
	struct task_state *t = task_state_of(p);

	if (!t)
		return;
	leave_queue(t);
	domain_counts(t, 0, clock_now());
}

#endif
