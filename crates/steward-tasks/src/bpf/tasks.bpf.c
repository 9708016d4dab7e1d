/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Writes one record for each task: who it is, and what the core scheduler has counted for it.
 *
 * There are two ways through the tasks. fill_records() is one call that goes through the kernel's own list and leaves
 * the records in memory that the reader sees. Kernels before 6.8 have only the other, an iterator from which the reader
 * reads them (read_tasks()); it looks every task up by its number, and costs several times as much. One of the two is
 * loaded.
 *
 * These counters are kept for every class, sched_ext included, whoever reads them: se.sum_exec_runtime by the class at
 * each tick and switch (update_se(), kernel/sched/fair.c), sched_info by the core around each queueing
 * (kernel/sched/stats.h). So nothing is added to the path of a switch. What has not been added up yet, the run or wait
 * that lasts, is taken from the clock of the task's runqueue, which is at most a tick old while somebody runs there.
 *
 * Most tasks sleep, and are in the same place of the list as at the call before: a record that says what it said is
 * left as it is, and the reader is told which are not.
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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the reader says how many */
	__type(key, u32);
	__type(value, struct record);
} records SEC(".maps");

/* Places of the records that a call has changed, as many as it says. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* as many as records */
	__type(key, u32);
	__type(value, u64);
} changes SEC(".maps");

/* What a call is told, and what it found. */
struct pass {
	/* So many records, from the first on, are about the tasks that they were about before: at most what it is told. */
	u32 kept;
	/* How many tasks there are: more than records, if they did not suffice. */
	u32 tasks;
	u32 changed;
	/* When it began: whoever asked may have stood behind others since it looked at its clock. */
	u64 at_ns;
};

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

static __always_inline void fill(struct record *r, struct task_struct *p)
{
	struct rq *rq = bpf_per_cpu_ptr(&runqueues, p->thread_info.cpu);

	r->started_ns = p->start_boottime;
	r->cgroup_id = p->cgroups->dfl_cgrp->kn->id;
	r->run_ns = run_ns(p, rq);
	r->wait_ns = wait_ns(p, rq);
	r->tid = p->pid;
	r->pid = p->tgid;
	r->uid = p->real_cred->uid.val;
	r->static_prio = p->static_prio;
	r->policy = p->policy;
	r->runnable = p->on_cpu || p->__state == TASK_RUNNING;
	__builtin_memcpy(r->name, p->comm, sizeof(r->name));
}

/* Whether a record still says all there is to say of a task that sleeps: only the task itself changes its user, and
 * has run then; a name that it was given from outside may be seen as late as when it runs. One condition, because
 * each is two ways for the verifier to follow. */
static __always_inline bool says_all(const struct record *r, struct task_struct *p)
{
	u64 awake = r->runnable | p->on_cpu | (p->__state == TASK_RUNNING) | p->sched_info.last_queued;
	u64 counted = (r->run_ns ^ p->se.sum_exec_runtime) | (r->wait_ns ^ p->sched_info.run_delay);
	u64 given = (r->static_prio ^ p->static_prio) | (r->policy ^ p->policy) |
		    (r->cgroup_id ^ p->cgroups->dfl_cgrp->kn->id);

	return !(awake | counted | given);
}

/* Fills the records. What it counts is in memory and not in registers: to the verifier a known number is another
 * state of the loop each time round. */
SEC("syscall")
int fill_records(struct pass *pass)
{
	struct task_struct *p;

	bpf_rcu_read_lock();
	pass->at_ns = bpf_ktime_get_ns();
	bpf_for_each(task, p, NULL, BPF_TASK_ITER_ALL_THREADS) {
		u32 index = pass->tasks, next;
		bool is_other;
		struct record *r;
		u64 *change;

		if (p->exit_state)
			continue;
		pass->tasks = index + 1;
		r = bpf_map_lookup_elem(&records, &index);
		if (!r)
			continue;
		is_other = (r->tid ^ p->pid) | (r->started_ns ^ p->start_boottime) | (index >= pass->kept);
		if (is_other)
			/* All that follow are as good as new: who is started comes at the end, and who ends makes a gap. */
			pass->kept = pass->kept < index ? pass->kept : index;
		else if (says_all(r, p))
			continue;
		fill(r, p);
		next = pass->changed;
		pass->changed = next + 1;
		change = bpf_map_lookup_elem(&changes, &next);
		if (change)
			*change = index;
	}
	bpf_rcu_read_unlock();
	return 0;
}

SEC("iter/task")
int read_tasks(struct bpf_iter__task *context)
{
	struct task_struct *p = context->task;
	struct record r = {};

	if (!p || p->exit_state)
		return 0;
	fill(&r, p);
	bpf_seq_write(context->meta->seq, &r, sizeof(r));
	return 0;
}
