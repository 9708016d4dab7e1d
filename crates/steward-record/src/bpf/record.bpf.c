/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Watches the scheduler's tracepoints and reports, for each thread, cycles: from one wake-up to the next it ran so
 * long, waited for a CPU so long, and slept so long.
 *
 * It only looks. Any scheduler may be in force. A switch costs two look-ups in a hash table, a wake-up one and an entry
 * in a ring buffer. User space reads the cycles that are not over at the end out of the table.
 */
#include "kernel.bpf.h"

#define THREADS_MAX 65536
#define RING_BYTES (1 << 23)

enum phase {
	PHASE_UNKNOWN = 0,
	PHASE_RUNNING = 1,
	PHASE_WAITING = 2, /* for a CPU */
	PHASE_SLEEPING = 3,
	PHASE_BLOCKED = 4, /* in an uninterruptible sleep */
};

/* What a thread has done since it last woke. */
struct thread {
	u64 since_ns; /* when its phase began */
	u64 ran_ns;
	u64 waited_ns;
	u64 slept_ns;
	u32 phase;
	u32 unused;
};

enum report_kind {
	REPORT_TASK = 1, /* who it is */
	REPORT_SLEPT = 2, /* a cycle that ended after an interruptible sleep */
	REPORT_BLOCKED = 3, /* one that ended after an uninterruptible one */
	REPORT_ENDED = 4, /* the thread's last */
};

struct report {
	u64 at_ns;
	u64 ran_ns;
	u64 waited_ns;
	u64 slept_ns;
	u64 cgroup_id;
	s32 tid;
	s32 pid;
	u32 kind;
	s32 nice;
	s32 pinned; /* the only CPU that it may use, -1 without */
	u32 unused;
	char name[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THREADS_MAX);
	__type(key, s32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} reports SEC(".maps");

/* The recorder's own process, which is left out. */
volatile s32 own_pid;
volatile u64 lost;
struct report *report_layout; /* never set: it puts the types into the program's BTF */
struct thread *thread_layout;

char _license[] SEC("license") = "GPL";

static __always_inline void report(struct task_struct *p, struct thread *t, u32 kind, u64 now_ns)
{
	struct report *r = bpf_ringbuf_reserve(&reports, sizeof(*r), 0);

	if (!r) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	r->at_ns = now_ns;
	r->ran_ns = t ? t->ran_ns : 0;
	r->waited_ns = t ? t->waited_ns : 0;
	r->slept_ns = t ? t->slept_ns : 0;
	r->tid = p->pid;
	r->pid = p->tgid;
	r->kind = kind;
	r->nice = p->static_prio - 120;
	r->pinned = p->nr_cpus_allowed == 1 ? (s32)bpf_get_smp_processor_id() : -1;
	r->unused = 0;
	r->cgroup_id = 0;
	if (kind == REPORT_TASK)
		r->cgroup_id = p->cgroups->dfl_cgrp->kn->id;
	bpf_probe_read_kernel_str(r->name, sizeof(r->name), p->comm);
	/* The reader comes by ten times a second: to wake it each time would be a workload of its own. */
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

/* The thread's entry, made and reported if it is seen for the first time; NULL for what is left out. */
static __always_inline struct thread *thread_of(struct task_struct *p, u64 now_ns)
{
	struct thread fresh = { .since_ns = now_ns };
	s32 tid = p->pid;
	struct thread *t;

	if (!tid || p->tgid == own_pid)
		return NULL;
	t = bpf_map_lookup_elem(&threads, &tid);
	if (t)
		return t;
	if (bpf_map_update_elem(&threads, &tid, &fresh, BPF_NOEXIST)) {
		__sync_fetch_and_add(&lost, 1);
		return NULL;
	}
	report(p, NULL, REPORT_TASK, now_ns);
	return bpf_map_lookup_elem(&threads, &tid);
}

/* Ends the thread's phase and begins another. */
static __always_inline void enter(struct thread *t, u32 phase, u64 now_ns)
{
	u64 spent_ns = now_ns > t->since_ns ? now_ns - t->since_ns : 0;

	if (t->phase == PHASE_RUNNING)
		t->ran_ns += spent_ns;
	else if (t->phase == PHASE_WAITING)
		t->waited_ns += spent_ns;
	else if (t->phase == PHASE_SLEEPING || t->phase == PHASE_BLOCKED)
		t->slept_ns += spent_ns;
	t->phase = phase;
	t->since_ns = now_ns;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct thread *t;

	t = thread_of(prev, now_ns);
	if (t) {
		if (preempt || !prev_state)
			enter(t, PHASE_WAITING, now_ns);
		else if (prev_state & TASK_INTERRUPTIBLE || prev_state & TASK_IDLE_NOLOAD)
			enter(t, PHASE_SLEEPING, now_ns);
		else
			enter(t, PHASE_BLOCKED, now_ns);
	}
	t = thread_of(next, now_ns);
	if (t)
		enter(t, PHASE_RUNNING, now_ns);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct thread *t = thread_of(p, now_ns);
	u32 kind;

	/* A wake-up of one that has not slept yet changes nothing. */
	if (!t || t->phase == PHASE_RUNNING || t->phase == PHASE_WAITING)
		return 0;
	kind = t->phase == PHASE_BLOCKED ? REPORT_BLOCKED : REPORT_SLEPT;
	enter(t, PHASE_WAITING, now_ns);
	report(p, t, kind, now_ns);
	t->ran_ns = 0;
	t->waited_ns = 0;
	t->slept_ns = 0;
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *p)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct thread *t = thread_of(p, now_ns);

	if (t)
		enter(t, PHASE_WAITING, now_ns);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *p, s32 old_pid, struct linux_binprm *bprm)
{
	u64 now_ns = bpf_ktime_get_ns();

	if (thread_of(p, now_ns))
		report(p, NULL, REPORT_TASK, now_ns);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *p)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct thread *t = thread_of(p, now_ns);
	s32 tid = p->pid;

	if (!t)
		return 0;
	enter(t, PHASE_RUNNING, now_ns);
	report(p, t, REPORT_ENDED, now_ns);
	bpf_map_delete_elem(&threads, &tid);
	return 0;
}
