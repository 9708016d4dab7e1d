/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Writes one record for each task: who it is, and what the core scheduler has counted for it.
 *
 * These counters are kept for every class, sched_ext included, whoever reads them: se.sum_exec_runtime by the class at
 * each tick and switch (update_se(), kernel/sched/fair.c), sched_info by the core around each queueing
 * (kernel/sched/stats.h). So nothing is added to the path of a switch. What has not been added up yet, the run or wait
 * that lasts, is taken from the clock of the task's runqueue, which is at most a tick old while somebody runs there.
 *
 * Counters change while they are read. Each is read twice around what belongs to it, and what changed in between is
 * taken as it is afterwards.
 */
#include "kernel.bpf.h"

#define TASK_RUNNING 0
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))

struct record {
	u64 started_ns;
	u64 cgroup_id;
	u64 run_ns;
	u64 wait_ns;
	s32 tid;
	s32 pid;
	u32 uid;
	s32 static_prio;
	u32 policy;
	u32 runnable;
	char name[16];
};

struct record *record_layout; /* never set: it puts the type into the program's BTF */

char _license[] SEC("license") = "GPL";

static __always_inline u64 since(u64 now_ns, u64 then_ns)
{
	return now_ns > then_ns ? now_ns - then_ns : 0;
}

static __always_inline u64 run_ns(struct task_struct *p, struct rq *rq)
{
	u64 sum_ns = READ_ONCE(p->se.sum_exec_runtime);
	u64 start_ns = READ_ONCE(p->se.exec_start);
	u64 again_ns = READ_ONCE(p->se.sum_exec_runtime);

	if (!p->on_cpu || !rq || again_ns != sum_ns)
		return again_ns;
	return sum_ns + since(rq->clock_task, start_ns);
}

static __always_inline u64 wait_ns(struct task_struct *p, struct rq *rq)
{
	u64 sum_ns = READ_ONCE(p->sched_info.run_delay);
	u64 queued_ns = READ_ONCE(p->sched_info.last_queued);
	u64 again_ns = READ_ONCE(p->sched_info.run_delay);

	if (!queued_ns || !rq || again_ns != sum_ns)
		return again_ns;
	return sum_ns + since(rq->clock, queued_ns);
}

SEC("iter/task")
int read_tasks(struct bpf_iter__task *context)
{
	struct task_struct *p = context->task;
	struct record r = {};
	struct rq *rq;

	if (!p || p->exit_state)
		return 0;
	rq = bpf_per_cpu_ptr(&runqueues, p->thread_info.cpu);
	r.started_ns = p->start_boottime;
	r.cgroup_id = p->cgroups->dfl_cgrp->kn->id;
	r.run_ns = run_ns(p, rq);
	r.wait_ns = wait_ns(p, rq);
	r.tid = p->pid;
	r.pid = p->tgid;
	r.uid = p->real_cred->uid.val;
	r.static_prio = p->static_prio;
	r.policy = p->policy;
	r.runnable = p->on_cpu || p->__state == TASK_RUNNING;
	bpf_probe_read_kernel(r.name, sizeof(r.name), p->comm);
	bpf_seq_write(context->meta->seq, &r, sizeof(r));
	return 0;
}
