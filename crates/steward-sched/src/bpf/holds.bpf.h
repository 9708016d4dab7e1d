/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Holding tasks back only where they have none of the kernel's locks; the rules are in decide/holds.h.
 *
 * How it is known where a task is. When it ceases to run, a tracepoint at the head of __schedule() has said whether it
 * was preempted inside the kernel (from 6.16 on), or gave the CPU up by itself. If it could go on, that is on its way
 * to user space; except that who waits for a lock and gets it before it sleeps gives the CPU up, too. So it counts as
 * on its way only if it came into the kernel by an interrupt, and not by a system call. One that sleeps does so inside
 * the kernel.
 *
 * How one that leaves is caught. It is given task work, which the kernel does when the task is about to enter user
 * space (from 6.18 on). In the middle of that work it is a reader of RCU for tracing and pinned to its CPU, so its CPU
 * is rather told to choose again a moment later, when the task is in user space. If it is back in the kernel by then,
 * it is stopped in the middle of the work the next time, for GATE_MAX_NS at most. Without task work it is caught by the
 * first tick that finds it in user space.
 */
#ifndef STEWARD_HOLDS_BPF_H
#define STEWARD_HOLDS_BPF_H

#include "bumps.bpf.h"
#include "decide/holds.h"

/* What never enters user space again. */
#define PF_STAYS_INSIDE (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER | PF_EXITING)
#define BOUNDARY_WORKS 4096 /* a power of two */

/* One CPU. */
struct hold_cpu {
	u64 leaving_due_ns; /* see leaving_charge() */
	s32 outside; /* the task that gives this CPU up on its way to user space; 0: none */
	u32 in_turn; /* the last turn of a domain went to one of its tasks that leave */
	u32 free; /* so what leaves next does so out of that turn; or nothing else waited */
} __attribute__((aligned(64)));

static struct hold_cpu hold_cpus[MAX_CPUS] SEC(".bss.hold_cpus") __attribute__((visibility("hidden")));

/* A domain's queues are looked through for those that were there before it was held. */
struct hold_look {
	u64 looked_ns; /* when they were last, while it has been held or behind; 0 otherwise */
	u32 looks; /* how often */
	u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_DOMAINS);
	__type(key, u32);
	__type(value, struct hold_look);
} hold_looks SEC(".maps");

/* Task work must lie in a map. Each task has two entries; of those that leave at once and share one, one has to
 * wait. */
struct boundary_work {
	struct bpf_task_work work;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BOUNDARY_WORKS);
	__type(key, u32);
	__type(value, struct boundary_work);
} boundary_works SEC(".maps");

static volatile u64 leaving_clock_ns = NSEC_PER_SEC; /* see leaving_clock() */
static volatile u32 leaving; /* tasks may stand in QUEUE_LEAVING */
static volatile u64 hold_look_due_ns; /* see hold_look_due() */

static __always_inline struct hold_cpu *hold_cpu_of(u32 cpu)
{
	return &hold_cpus[masked(cpu, MAX_CPUS - 1)];
}

/* Whether the task that runs came into the kernel because it was interrupted in user space. */
static __always_inline bool interrupted_outside(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);

	if (bpf_core_field_exists(regs->orig_ax))
		return (s64)regs->orig_ax < 0;
	return bpf_core_field_exists(regs->syscallno) && regs->syscallno == NO_SYSCALL;
}

/*
 * __schedule() begins, with preemption disabled: what it does with the task that runs follows on this CPU. The loader
 * attaches it only while a domain has a quota, a priority or is suspended, or somebody is held back for a moment, which
 * it is told by tell_loader(): on all other machines each switch is cheaper by more than a hundred instructions.
 */
SEC("tp_btf/sched_entry_tp")
int BPF_PROG(steward_schedule, bool preempt)
{
	struct hold_cpu *hold = hold_cpu_of(bpf_get_smp_processor_id());

	hold->outside = preempt || !interrupted_outside() ? 0 : bpf_get_current_task_btf()->pid;
	return 0;
}

/* Bits of a task's jobctl (the kernel's include/linux/sched/jobctl.h): it is to stop with its process, for a debugger,
 * or with its cgroup. */
#define JOBCTL_STOPS (1UL << 17 | 1UL << 19 | 1UL << 23)

/* The bit of a signal that no program can catch or block: whoever sends it makes nobody run a program of theirs. */
#define SIGSTOP_BIT (1UL << (19 - 1))

/*
 * Whether the task was killed, or is to stop or freeze, and so has to run once to notice. That it is to stop it finds
 * among its signals, or its process' signals; what jobctl says of the other threads follows when one has found it.
 */
static __always_inline bool was_called(struct task_struct *p)
{
	return p->signal->flags & SIGNAL_GROUP_EXIT || p->jobctl & JOBCTL_STOPS ||
	       (p->pending.signal.sig[0] | p->signal->shared_pending.signal.sig[0]) & SIGSTOP_BIT;
}

/* The task ceases to run here: where is it? */
static __always_inline u8 whereabouts_of(struct task_struct *p, struct task_state *t, u32 cpu, bool runnable)
{
	struct hold_cpu *hold;
	s32 outside;

	if (!runnable)
		return p->__state & TASK_INTERRUPTIBLE ? INSIDE_ASLEEP : INSIDE_BLOCKED;
	if (p->flags & PF_STAYS_INSIDE)
		return INSIDE_PREEMPTED;
	if (settings.boundary == BOUNDARY_NEVER)
		return WHEREABOUTS_UNKNOWN;
	/* Nobody noted where, as long as the loader has not attached what does: one that is held is stopped at the gate. */
	if (settings.boundary != BOUNDARY_WATCHED)
		return t->at_gate ? AT_GATE : INSIDE_PREEMPTED;
	hold = hold_cpu_of(cpu);
	/* Of this task, and of this time: what was noted about another one, or before, does not count. */
	outside = hold->outside;
	hold->outside = 0;
	if (outside == p->pid)
		return AT_BOUNDARY;
	return t->at_gate ? AT_GATE : INSIDE_PREEMPTED;
}

/* Whether the domain's tasks are deferred to something that can run; verified once. */
__noinline bool domain_stands_behind(u32 index)
{
	struct domain_table *table = domains();

	return domain_behind(table, index);
}

/* Whether the task is let run on until it has left the kernel; held: its domain is. */
static __always_inline bool leaves(struct task_state *t, bool held)
{
	struct domain_table *table = domains();
	bool behind;

	behind = !held && table->priorities && t->whereabouts >= INSIDE_BLOCKED && domain_stands_behind(t->domain);
	return hold_leaves(held, behind, t->whereabouts);
}

/* Makes the task one of those that leave; returns its place among them. */
static __always_inline u64 begin_to_leave(struct task_state *t)
{
	if (!t->leaving_place_ns)
		t->leaving_place_ns = leaving_place(leaving_clock_ns);
	t->leaving = 1;
	return t->leaving_place_ns;
}

/* The task is queued or goes on, and not as one of those that leave. */
static __always_inline void has_left(struct task_state *t)
{
	t->leaving = 0;
	t->leaving_place_ns = 0;
	if (t->whereabouts == AT_BOUNDARY)
		t->boundary_missed = 0;
}

static __always_inline void enqueue_leaving(struct task_struct *p, struct task_state *t, u64 now_ns, u64 enq_flags)
{
	u64 key = begin_to_leave(t);

	begin_to_wait(t, now_ns);
	if (enq_flags & SCX_ENQ_LAST) {
		/* It just goes on, and takes nothing from anybody. */
		hold_cpu_of(bpf_get_smp_processor_id())->free = 1;
		queue_insert(p, SCX_DSQ_LOCAL, LEAVING_SLICE_NS, enq_flags);
		return;
	}
	t->queue = QUEUE_LEAVING;
	leaving = 1;
	queue_insert_ordered(p, QUEUE_LEAVING, LEAVING_SLICE_NS, key, enq_flags);
}

/* Whether the first of those that leave may come before other work; where there is none, that is seen elsewhere. */
static __noinline bool first_presses(u64 now_ns)
{
	struct domain_table *table = domains();
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool presses = true;

	if (!table->priorities)
		return true;
	if (!bpf_iter_scx_dsq_new(&it, QUEUE_LEAVING, 0)) {
		p = bpf_iter_scx_dsq_next(&it);
		if (p) {
			struct task_state *t = task_state_of(p);

			if (t && !bumped(p, t) && !(table->quotas && domain_held(table, t->domain)))
				presses = leaving_presses(domain_stands_behind(t->domain),
							  passed_since(t->waiting_since_ns, now_ns));
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return presses;
}

/* Whether the first of those that leave is of that domain. */
static __noinline bool first_is_of(u32 index)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool is_of = false;

	if (!bpf_iter_scx_dsq_new(&it, QUEUE_LEAVING, 0)) {
		p = bpf_iter_scx_dsq_next(&it);
		if (p) {
			struct task_state *t = task_state_of(p);

			is_of = t && t->domain == index && !bumped(p, t);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return is_of;
}

/* It is the domain's turn: serves one of its tasks that leave, if it did not the last time. */
static __always_inline bool serve_leaving_in_turn(u32 cpu, u32 index)
{
	struct hold_cpu *hold = hold_cpu_of(cpu);

	if (!leaving)
		return false;
	hold->in_turn = !hold->in_turn && first_is_of(index) && queue_to_local(QUEUE_LEAVING);
	hold->free = hold->in_turn;
	return hold->in_turn;
}

/* Serves one of those that leave, if it is time to or nothing else waits. Then it is free: what was used so took
 * nothing from anybody, and who leaves later beside other work must not wait for as long as that would cost. */
static __always_inline bool serve_leaving(u32 cpu, u64 now_ns, bool nothing_else)
{
	struct hold_cpu *hold = hold_cpu_of(cpu);

	if (!leaving)
		return false;
	if (!nothing_else && !(leaving_due(hold->leaving_due_ns, now_ns) && first_presses(now_ns)))
		return false;
	if (queue_to_local(QUEUE_LEAVING)) {
		hold->free = nothing_else;
		return true;
	}
	/* One that is being inserted at this moment is seen by the next look after holds. */
	if (!scx_bpf_dsq_nr_queued(QUEUE_LEAVING))
		leaving = 0;
	return false;
}

/* The task, which is current, is about to enter user space. */
static int boundary_reached(struct bpf_map *map, void *key, void *value)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_state *t = task_state_of(p);
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_run *run = cpu_run_of(cpu);
	struct cpu_state *state = cpu_state_of(cpu);

	if (!t || !state)
		return 0;
	t->boundary_told = 0;
	if (!attached || !t->leaving || t->mode != MODE_BEST_EFFORT || was_called(p))
		return 0;
	/* A CPU that goes offline waits for tasks that cannot leave it. */
	if (!t->boundary_missed || !state->online) {
		t->boundary_missed = 1;
		watch_budget(run, cpu, BOUNDARY_DELAY_NS);
		return 0;
	}
	/*
	 * The kick takes effect at once, while the kernel is still in the middle of kicking and reads what RCU protects.
	 * One that was stopped there would keep everybody waiting who waits for readers of RCU.
	 */
	bpf_preempt_disable();
	t->at_gate = 1;
	kick_cpu(cpu, SCX_KICK_PREEMPT);
	bpf_preempt_enable();
	/* It was stopped in between, and may go on. */
	*(volatile u8 *)&t->at_gate = 0;
	return 0;
}

/* Gives the task work to do when it is about to enter user space. */
static __always_inline void tell_boundary(struct task_struct *p, struct task_state *t)
{
	u32 index = (p->pid * 2 + t->boundary_turn) & (BOUNDARY_WORKS - 1);
	struct boundary_work *entry = bpf_map_lookup_elem(&boundary_works, &index);

	/* One that was called does not come to user space, and the kernel does all such work that there is before it looks at
	 * signals: work that leads to more of it would go on for ever. */
	if (!entry || t->boundary_told || p->flags & PF_STAYS_INSIDE || was_called(p))
		return;
	/* Not the same entry as the last time: who is stopped at a gate is still about that. */
	t->boundary_turn ^= 1;
	t->boundary_told = !schedule_task_work(p, &entry->work, &boundary_works, boundary_reached);
}

/* One that leaves begins to run. */
static __always_inline bool begin_leaving(struct task_struct *p, struct task_state *t, struct cpu_run *run, u32 cpu)
{
	if (!t->leaving)
		return false;
	/*
	 * Before a task that cannot leave its CPU is switched out for the first time, the kernel takes it out and puts
	 * it in again as if it began to run. Its slice is over all the same.
	 */
	if (t->at_gate && t->whereabouts != AT_GATE)
		return true;
	task_set_slice(p, LEAVING_SLICE_NS);
	watch_budget(run, cpu, LEAVING_SLICE_NS);
	tell_boundary(p, t);
	return true;
}

/* One that leaves ceases to run. */
static __always_inline void charge_leaving(struct task_state *t, struct cpu_run *run, u32 cpu, u64 now_ns)
{
	u64 used_ns = now_ns - run->began_ns;
	struct hold_cpu *hold;

	if (!t->leaving || t->mode != MODE_BEST_EFFORT)
		return;
	hold = hold_cpu_of(cpu);
	leaving_clock_ns = leaving_clock(leaving_clock_ns, t->leaving_place_ns, used_ns,
					 scx_bpf_dsq_nr_queued(QUEUE_LEAVING) + 1);
	t->leaving_place_ns = leaving_again(leaving_clock_ns, t->leaving_place_ns, used_ns);
	if (hold->free)
		hold->free = 0;
	else
		hold->leaving_due_ns = leaving_charge(hold->leaving_due_ns, used_ns, now_ns);
}

/*
 * One that leaves goes on in its domain's own turn, or because nobody else wants the CPU: from here on it leaves no
 * more, and takes nothing from anybody. Otherwise all that it uses would count for the eighth, and for seconds nobody
 * would leave on this CPU. When it is preempted inside the kernel again, it leaves anew.
 */
static __always_inline void goes_on_in_turn(struct task_state *t, struct cpu_run *run, u32 cpu, u64 now_ns)
{
	if (!t->leaving)
		return;
	charge_leaving(t, run, cpu, now_ns);
	has_left(t);
}

/* Lets a task of the queue that is gone through leave. False when it is there no more. */
static __always_inline bool let_leave(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct task_state *t)
{
	u64 key;

	if (t->whereabouts == AT_GATE)
		t->boundary_missed = 0;
	key = begin_to_leave(t);
	if (!iterated_move_ordered(it, p, QUEUE_LEAVING, LEAVING_SLICE_NS, key)) {
		has_left(t);
		return false;
	}
	leave_queue(t);
	leaving = 1;
	return true;
}

/* Lets those in one of a domain's queues leave that came there before it was held or deferred. flags say from which end
 * it is gone through. */
static __noinline int find_leaving(u64 queue, bool held, bool behind, u64 now_ns, u64 flags)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	int i;

	if (!bpf_iter_scx_dsq_new(&it, queue, flags)) {
		bpf_for(i, 0, QUEUE_SCAN_MAX) {
			struct task_state *t;

			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_state_of(p);
			if (!t || !hold_overstays(held, behind, t->whereabouts, passed_since(t->waiting_since_ns, now_ns)))
				continue;
			let_leave(&it, p, t);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return 0;
}

/*
 * Holds a task that is where it has no lock; false when it is not, or needs not be. The kernel must say where tasks
 * are.
 */
static __always_inline bool enqueue_bumped(struct task_struct *p, struct task_state *t, u64 enq_flags)
{
	if (t->whereabouts != AT_BOUNDARY && t->whereabouts != AT_GATE)
		return false;
	has_left(t);
	begin_to_wait(t, clock_now());
	t->queue = QUEUE_BUMPED;
	queue_insert(p, QUEUE_BUMPED, LEAVING_SLICE_NS, enq_flags);
	return true;
}

/* One begins to run: if it is held, it stood in its domain's queue before. */
static __always_inline void catch_bumped(struct task_struct *p, struct task_state *t, struct cpu_run *run, u32 cpu)
{
	run->charged_to = any_bumps() ? charged_to(p) : 0;
	if (bumped(p, t))
		watch_budget(run, cpu, BUMP_CATCH_NS);
}

/* How often those that are held for a moment were looked at. */
static volatile u32 bump_looks;

/* Those whose time is over go on, and who has been stopped at a gate for too long: each runs a slice as one of those
 * that leave. True when any does. */
static __noinline bool end_bumps(u64 now_ns)
{
	u64 end_ns = bumps_end_ns, flags = looks_from_end(bump_looks) ? SCX_DSQ_ITER_REV : 0;
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool released = false;
	int i;

	if (!end_ns)
		return false;
	bump_looks += 1;
	if (!bpf_iter_scx_dsq_new(&it, QUEUE_BUMPED, flags)) {
		bpf_for(i, 0, BUMPED_SCAN_MAX) {
			struct task_state *t;

			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_state_of(p);
			if (!t || (bump_holds(p, now_ns) && !(p->signal->flags & SIGNAL_GROUP_EXIT) &&
				   !hold_overstays(true, false, t->whereabouts, passed_since(t->waiting_since_ns, now_ns))))
				continue;
			released |= let_leave(&it, p, t);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	/* One that was found held at the last moment may be on its way into the queue still. */
	if (!clock_before(now_ns, end_ns + BUMP_GRACE_NS) && scx_bpf_dsq_nr_queued(QUEUE_BUMPED) <= 0)
		__sync_val_compare_and_swap(&bumps_end_ns, end_ns, 0);
	return released;
}

/* A domain was let go: when it is held again, its queue is looked through anew. */
static __always_inline void forget_look(u32 index)
{
	struct hold_look *look = bpf_map_lookup_elem(&hold_looks, &index);

	if (look)
		look->looked_ns = 0;
}

/*
 * So much of the time of the task that runs here was not of its doing: a look takes some milliseconds where thousands
 * wait, and who has a budget of 5 would have used it up, and wait for that until its next period or the one after.
 */
static __always_inline void forgive(u64 took_ns)
{
	struct task_state *t = task_state_of(bpf_get_current_task_btf());

	if (t && t->mode != MODE_OFF)
		t->charged_ns += took_ns;
}

/* Looks through a domain's queues, if it is held or deferred and it is time to. */
static __noinline int look_after_hold(u32 index, u64 now_ns)
{
	struct domain_table *table = domains();
	struct hold_look *look = bpf_map_lookup_elem(&hold_looks, &index);
	bool held, behind;
	u64 flags;

	if (!look || (look->looked_ns && now_ns - look->looked_ns < HOLD_LOOK_NS))
		return 0;
	held = table->quotas && domain_held(table, index);
	behind = !held && table->priorities && domain_stands_behind(index);
	look->looked_ns = held || behind ? now_ns : 0;
	if (!held && !behind)
		return 0;
	flags = looks_from_end(look->looks) ? SCX_DSQ_ITER_REV : 0;
	look->looks += 1;
	find_leaving(QUEUE_DOMAIN(index), held, behind, now_ns, flags);
	find_leaving(QUEUE_RESTRICTED(index), held, behind, now_ns, flags);
	return 0;
}

/* Looks through the queues of domains that are held or deferred. True when somebody waits to leave. */
static __noinline bool look_after_holds(u64 now_ns)
{
	struct domain_table *table = domains();
	u32 high_water = table->high_water;
	u64 began_ns, took_ns;
	int i;

	if (!clock_before(now_ns, hold_look_due_ns)) {
		began_ns = bpf_ktime_get_ns();
		bpf_for(i, 1, high_water) {
			if (domain_at(table, i)->in_use && (*(volatile u32 *)&domain_at(table, i)->waiting ||
							    scx_bpf_dsq_nr_queued(QUEUE_RESTRICTED(i)) > 0))
				look_after_hold(i, now_ns);
		}
		took_ns = bpf_ktime_get_ns() - began_ns;
		hold_look_due_ns = hold_look_due(took_ns, now_ns + took_ns);
		forgive(took_ns);
	}
	if (scx_bpf_dsq_nr_queued(QUEUE_LEAVING) <= 0)
		return false;
	leaving = 1;
	return true;
}

#endif
