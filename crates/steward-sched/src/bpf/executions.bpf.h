/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Programs that tasks execute, and the specifications that they get for it (Yang 2009, section 7.2.2).
 */
#ifndef STEWARD_EXECUTIONS_BPF_H
#define STEWARD_EXECUTIONS_BPF_H

#include "interactive.bpf.h"

/*
 * The task has replaced its program by this file, by the kernel's count of such: give it what the file's specification
 * says. Each is acted on once, whoever sees it first.
 */
static __noinline int executed(struct task_struct *p, const struct executable *executable, u64 execution)
{
	struct executable key;
	struct task_state *t;
	struct task_slot *slot;
	struct grant *entry, grant;
	u64 seen;

	if (!p || !executable || !attached)
		return 0;
	t = task_state_of(p);
	if (!t)
		return 0;
	seen = *(volatile u64 *)&t->execution;
	if (seen == execution || __sync_val_compare_and_swap(&t->execution, seen, execution) != seen)
		return 0;
	/* Before anything depends on who started it: whoever that was may have ended. */
	report_heir(p, t);
	if (!t->slot && !t->may_start_interactive)
		return 0;
	t->may_start_interactive = 0;
	executes(t);
	if (!begin_change(t))
		return 0; /* The daemon is deciding about this task at this moment; its word holds. */
	slot = slot_of(t);
	if (slot && (slot->grant.flags & GRANT_KEEP_OVER_EXEC)) {
		keep_slot(p, slot);
		goto out;
	}
	key = *executable;
	entry = bpf_map_lookup_elem(&executables, &key);
	if (entry && !entry->budget_ns) {
		release(t); /* Its specification says best-effort. */
	} else if (entry) {
		grant = *entry;
		adopt(p, t, &grant);
	} else if (slot && !(slot->grant.flags & GRANT_INHERIT)) {
		release(t);
	} else if (slot) {
		keep_slot(p, slot);
	}
out:
	end_change(t);
	return 0;
}

/*
 * Whether the task has executed a program since it was given its specification, or allowed to start one, and
 * steward_exec() was not told. The kernel takes it for a recursion where a program that watches is met on a CPU on
 * which it is at work (`recursion_misses`): a task that is preempted in the midst of it, or in the kernel's few
 * instructions around it, hides what others execute there until it goes on, which behind sixty others takes long. One
 * that is in the middle of executing may still be seen there, and does not lose what it was lent for that before.
 */
static __always_inline bool execution_missed(struct task_struct *p, struct task_state *t)
{
	if (!(t->slot || t->may_start_interactive) || t->execution == p->self_exec_id ||
	    t->permitted_in == p->self_exec_id)
		return false;
	return !bpf_core_field_exists(p->in_execve) || !BPF_CORE_READ_BITFIELD_PROBED(p, in_execve);
}

/* It gets what it should have had already. One that ends has no program any more. */
static __noinline int executed_unseen(struct task_struct *p)
{
	struct executable executable = {};
	struct inode *inode;
	u64 execution;

	if (!p || !p->mm)
		return 0;
	/* Before the file: another one may be executed at this moment, and is seen by itself. */
	execution = *(volatile u64 *)&p->self_exec_id;
	inode = BPF_CORE_READ(p, mm, exe_file, f_inode);
	if (!inode)
		return 0;
	executable.device = BPF_CORE_READ(inode, i_sb, s_dev);
	executable.inode = BPF_CORE_READ(inode, i_ino);
	return executed(p, &executable, execution);
}

/* To be called before anything depends on what the task has executed. */
static __always_inline void look_for_execution(struct task_struct *p, struct task_state *t)
{
	if (execution_missed(p, t))
		executed_unseen(p);
}

#endif
