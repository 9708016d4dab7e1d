/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Programs that tasks execute, and the specifications that they get for it (Yang 2009, section 7.2.2).
 */
#ifndef STEWARD_EXECUTIONS_BPF_H
#define STEWARD_EXECUTIONS_BPF_H

#include "interactive.bpf.h"

/* The task has replaced its program by this file: give it what the file's specification says. */
static __noinline int executed(struct task_struct *p, const struct executable *executable)
{
	struct executable key;
	struct task_state *t;
	struct task_slot *slot;
	struct grant *entry, grant;
	bool allowed;

	if (!p || !executable || !attached)
		return 0;
	t = task_state_of(p);
	if (!t || t->execution == p->self_exec_id)
		return 0;
	t->execution = p->self_exec_id;
	slot = slot_of(t);
	allowed = slot || t->may_start_interactive;
	if (!allowed)
		return 0;
	t->may_start_interactive = 0;
	report_heir(p);
	executes(t);
	if (!begin_change(t))
		return 0; /* The daemon is deciding about this task at this moment; its word holds. */
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
 * instructions around it, hides what others execute there until it goes on, which behind sixty others takes long.
 */
static __always_inline bool execution_missed(struct task_struct *p, struct task_state *t)
{
	return (t->slot || t->may_start_interactive) && t->execution != p->self_exec_id &&
	       t->permitted_in != p->self_exec_id;
}

/* It gets what it should have had already; it ceases to run at this moment. One that ends has no program any more. */
static __noinline int executed_unseen(struct task_struct *p)
{
	struct executable executable = {};
	struct inode *inode;

	if (!p || !p->mm)
		return 0;
	inode = BPF_CORE_READ(p, mm, exe_file, f_inode);
	if (!inode)
		return 0;
	executable.device = BPF_CORE_READ(inode, i_sb, s_dev);
	executable.inode = BPF_CORE_READ(inode, i_ino);
	return executed(p, &executable);
}

#endif
