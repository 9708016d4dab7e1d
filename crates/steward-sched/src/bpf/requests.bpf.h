/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The daemon's requests about tasks. Those about domains are in domains.bpf.h.
 */
#ifndef STEWARD_REQUESTS_BPF_H
#define STEWARD_REQUESTS_BPF_H

#include "executions.bpf.h"

/* Asks the kernel for what only its table of symbols knows; it answers who may read that table, with CAP_SYSLOG. */
SEC("syscall")
int steward_find_active(void *unused)
{
	static const char name[] = "__cpu_active_mask";

	return bpf_kallsyms_lookup_name(name, sizeof(name), 0, &active_mask);
}

/* The daemon gives a task a specification, or takes it away. */
SEC("syscall")
int steward_assign(struct assign_request *request)
{
	struct task_struct *p = bpf_task_from_pid(request->tid);
	struct task_state *t;
	struct grant grant;
	int result = 0;

	if (!p)
		return -ESRCH;
	t = task_state_of(p);
	/* The thread that was meant may have ended, and its id be that of a task of somebody else by now. */
	if (!t || (request->pid && p->tgid != request->pid)) {
		result = -ESRCH;
		goto out;
	}
	look_for_execution(p, t);
	if (!begin_change(t)) {
		result = -EAGAIN;
		goto out;
	}
	if (request->has_grant) {
		grant = request->grant;
		request->standing = adopt(p, t, &grant);
		if (request->standing == STANDING_NONE)
			result = t->ended ? -ESRCH : -ENOSPC;
		else if (request->standing == STANDING_ADMITTED)
			watch_period(t->slot - 1, 0);
	} else {
		release(t);
	}
	end_change(t);
out:
	bpf_task_release(p);
	return result;
}

/* The daemon lets a best-effort task start an interactive program. */
SEC("syscall")
int steward_allow(struct assign_request *request)
{
	struct task_struct *p = bpf_task_from_pid(request->tid);
	struct task_state *t;

	if (!p)
		return -ESRCH;
	t = task_state_of(p);
	if (t) {
		look_for_execution(p, t);
		t->permitted_in = p->self_exec_id;
		t->may_start_interactive = 1;
	}
	bpf_task_release(p);
	return t ? 0 : -ESRCH;
}

#endif
