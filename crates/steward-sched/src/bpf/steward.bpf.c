/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Steward's scheduler: the callbacks of sched_ext, and the hook at exec. The daemon's requests are in requests.bpf.h
 * and domains.bpf.h.
 *
 *  1. Each CPU serves its interactive tasks first, by earliest deadline, as long as they have budget
 *     (interactive.bpf.h; rules in decide/edf.h).
 *  2. What is left goes to best-effort work: the tree of cgroups, by virtual time (best_effort.bpf.h; rules in
 *     decide/domain.h, order.h and best_effort.h). An interactive task whose budget is spent is best-effort until its
 *     next period begins.
 *  3. Once a second each CPU's load is measured; overload revokes, room reactivates (sampler.bpf.h; rules in
 *     decide/load.h).
 *  4. A program gets its specification when it executes, by its inode, before its first instruction; a child gets
 *     it when it is forked (executions.bpf.h).
 *
 * A per-CPU kernel thread that wakes goes before best-effort work for one slice, also after it was preempted: the
 * kernel's own progress depends on it. Admitted tasks that have less time than it has go first, and what it needs
 * beyond the slice is best-effort.
 */
#include "domains.bpf.h"
#include "executions.bpf.h"
#include "gap.bpf.h"
#include "periods.bpf.h"
#include "requests.bpf.h"
#include "sampler.bpf.h"
#include "tasks.bpf.h"

char _license[] SEC("license") = "GPL";

/*
 * Accounts the CPU time used on this CPU since the last call, and lets a spent budget end the period.
 *
 * Whoever changes a task that runs elsewhere has it stop and run again there: ops.stopping and ops.running are then
 * called on another CPU than the one that they are about, which is the task's.
 */
static __noinline int charge(struct task_state *t, u32 cpu, u64 now_ns)
{
	struct task_slot *slot;
	struct cpu_run *run;
	struct cpu_state *state;
	u64 used_ns;

	if (!t || t->mode == MODE_OFF)
		return 0;
	used_ns = now_ns - t->charged_ns;
	if ((s64)used_ns <= 0)
		return 0;
	t->charged_ns = now_ns;
	run = cpu_run_of(cpu);
	slot = slot_of(t);
	if (t->mode == MODE_INTERACTIVE && slot) {
		slot->reserved_time_ns += used_ns;
		charge_reserved(run, t, used_ns, cpu);
		class_used(&run->class_use, used_ns, now_ns);
		state = cpu_state_of(cpu);
		if (state)
			state->reserved_time_ns += used_ns;
		if (edf_charge(&slot->edf, used_ns)) {
			edf_update(&slot->edf, now_ns);
			if (slot->standing == STANDING_ADMITTED && slot->edf.start_ns > now_ns)
				watch_period(t->slot - 1, slot->edf.start_ns - now_ns);
		} else {
			edf_update(&slot->edf, now_ns);
		}
		return 0;
	}
	if (t->mode == MODE_STARTING) {
		t->window_ns = t->window_ns > used_ns ? t->window_ns - used_ns : 0;
		if (!t->window_ns && t->loans_left)
			ask_again(t->lender);
		charge_reserved(run, t, used_ns, cpu);
		class_used(&run->class_use, used_ns, now_ns);
		state = cpu_state_of(cpu);
		if (state)
			state->reserved_time_ns += used_ns;
		if (t->executed)
			end_loans(t);
		return 0;
	}
	if (slot)
		slot->best_effort_time_ns += used_ns;
	t->kernel_ns = t->kernel_ns > used_ns ? t->kernel_ns - used_ns : 0;
	charge_best_effort(run, t, used_ns, cpu);
	return 0;
}

/* The task runs, or goes on, out of its reservation: its budget is the slice, and is watched. */
static __always_inline void run_interactive(struct task_struct *p, struct task_state *t, struct task_slot *slot,
					    struct cpu_run *run, u32 cpu)
{
	u64 left_ns = slot->edf.left_ns > 0 ? slot->edf.left_ns : 1;

	t->mode = MODE_INTERACTIVE;
	task_set_slice(p, left_ns);
	run->deadline_ns = slot->edf.deadline_ns;
	run->domain = 0;
	run->gap = 0;
	run->restriction = restriction_of(p);
	watch_budget(run, cpu, left_ns);
}

static __always_inline void run_best_effort(struct task_struct *p, struct task_state *t, struct cpu_run *run)
{
	t->mode = MODE_BEST_EFFORT;
	run->deadline_ns = NEVER;
	run->budget_end_ns = 0;
	run->domain = t->domain;
	run->vtime = t->vtime;
	run->vtime_at_ns = t->charged_ns;
	run->weight = t->weight;
	run->alone = 0;
	run->restriction = restriction_of(p);
}

/* prev goes on as best-effort: for long if nothing else waits, because then nobody is kept waiting. */
static __always_inline void keep_best_effort(struct task_struct *prev, struct task_state *t, struct cpu_run *run, u32 cpu)
{
	struct domain_table *table = domains();
	struct cpu_order *order = cpu_order_of(cpu);
	bool alone = !others_wait(table, t->domain, cpu) && !leaving;

	goes_on_in_turn(t, run, cpu, t->charged_ns);
	if (order) {
		serve_order(table, order, run, t->domain, is_restricted(prev));
		clock_follow(&domain_at(table, t->domain)->task_clock, t->vtime);
	}
	run_best_effort(prev, t, run);
	run->alone = alone;
	task_set_slice(prev, alone ? SLICE_ALONE_NS : SLICE_NS);
}

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

s32 STRUCT_OPS(steward_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_state *t = task_state_of(p);
	struct task_slot *slot;
	bool idle = false;
	s32 cpu;

	if (!t)
		return prev_cpu;
	slot = slot_of(t);
	if (slot && slot->standing == STANDING_ADMITTED && !migration_disabled(p) && may_run_on(p, slot->cpu))
		return slot->cpu;
	/* Where none may be idle, none is looked for: here as in find_idle_cpu(). */
	if (!maybe_idle)
		return prev_cpu;
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	if (idle && !held_by_quota(t) && !bumped(p, t)) {
		becomes_runnable(t, slot, true, clock_now());
		has_left(t);
		t->queue = QUEUE_NONE;
		join_clock(t, domain_at(domains(), t->domain), true);
		t->unjoined = 1;
		queue_insert(p, SCX_DSQ_LOCAL, SLICE_NS, 0);
	}
	return cpu;
}

/*
 * Whether the task is put back because it ceases to run here, on the CPU whose queue it goes to. The CPU has chosen
 * what follows, knowing of the task, and is not to choose again.
 */
static __always_inline bool ceases_here(struct task_struct *p, u32 cpu)
{
	return p == bpf_get_current_task_btf() && cpu == bpf_get_smp_processor_id();
}

/*
 * Puts a task without a reservation before the CPU's best-effort work for one slice, in the order of deadlines behind
 * the admitted tasks that have less time.
 */
static __always_inline void enqueue_ahead(struct task_struct *p, struct task_state *t, u32 cpu, u64 slice_ns,
					  u64 relative_deadline_ns, u64 enq_flags)
{
	struct cpu_run *run = cpu_run_of(cpu);

	t->queue = QUEUE_INTERACTIVE(cpu);
	queue_insert_ordered(p, QUEUE_INTERACTIVE(cpu), slice_ns, clock_now() + relative_deadline_ns, enq_flags);
	expect_interactive(cpu);
	if (ceases_here(p, cpu))
		return;
	if (scx_bpf_test_and_clear_cpu_idle(cpu))
		kick_cpu(cpu, SCX_KICK_IDLE);
	else if (run->deadline_ns == NEVER)
		kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/*
 * Whether a kernel thread is one of the CPU's own. Where there is one CPU only, no thread may run on another. Of those
 * that work off queues most of what is not the CPU's own is done by then, such as writing files back: they are told
 * apart, so that they do not keep behind them who waits for what they would have.
 */
static __always_inline bool is_per_cpu(struct task_struct *p)
{
	struct kthread *kthread;

	if (p->nr_cpus_allowed != 1)
		return false;
	if (!(p->flags & PF_WQ_WORKER) || !bpf_core_field_exists(p->worker_private))
		return true;
	kthread = p->worker_private;
	return BPF_CORE_READ(kthread, flags) & (1UL << KTHREAD_IS_PER_CPU);
}

/*
 * Whether the task is a per-CPU kernel thread that has woken and not used up its slice since. Somebody with a
 * reservation may have gone before it meanwhile: mostly who waits for what it does, as for each page of a file that has
 * reached the disk, and would wait as often for its turn among others.
 */
static __always_inline bool goes_ahead(struct task_struct *p, struct task_state *t, u64 enq_flags)
{
	if (!(p->flags & PF_KTHREAD) || !is_per_cpu(p))
		return false;
	if (enq_flags & SCX_ENQ_WAKEUP)
		t->kernel_ns = SLICE_NS;
	return t->kernel_ns;
}

/*
 * Best-effort work runs on the CPU and nobody with a reservation waits there: the task comes next, and is put straight
 * into the CPU's own queue. The kernel preempts what runs and takes the task from there without asking, which saves an
 * interrupt of the CPU's own and ops.dispatch at each wake-up. Who has a reservation may come until it runs:
 * steward_running() looks. Where another kernel thread is to go on before best-effort work, both stand in one queue.
 */
static __always_inline bool enqueue_next(struct task_struct *p, struct task_state *t, u32 cpu, u64 enq_flags)
{
	struct cpu_run *run = cpu_run_of(cpu);

	if (!*(volatile u32 *)&run->domain || run->ahead || *(volatile u32 *)&run->interactive || ceases_here(p, cpu))
		return false;
	t->comes_next = 1;
	run->next = 1;
	queue_insert(p, SCX_DSQ_LOCAL, t->kernel_ns, enq_flags | SCX_ENQ_FIRST() | SCX_ENQ_PREEMPT);
	return true;
}

/*
 * The last task of a CPU was queued because its domain is held: the CPU becomes idle without another look. Either the
 * next refill lets the domain go and tells the CPU, or it has been let go already.
 */
static __always_inline void wait_for_release(struct task_state *t, u32 cpu)
{
	u32 holder = held_domain(t->domain);

	if (holder)
		change_order(CHANGE_PARK, holder, 0, 0);
	if (!holder || !held_by_quota(t))
		kick_cpu(cpu, SCX_KICK_IDLE);
}

void STRUCT_OPS(steward_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_state *t = task_state_of(p);
	u32 cpu = scx_bpf_task_cpu(p);
	struct task_slot *slot;
	struct domain_table *table = domains();
	u64 now_ns = clock_of(cpu);
	s32 idle_cpu;
	bool held, is_bumped;

	if (!t) {
		queue_insert(p, SCX_DSQ_LOCAL, SLICE_NS, enq_flags);
		return;
	}
	leave_queue(t);
	t->rescued = RESCUED_NOT;
	t->leaving = 0;
	t->put_aside = 0;
	slot = slot_of(t);
	becomes_runnable(t, slot, enq_flags & SCX_ENQ_WAKEUP, now_ns);
	if (slot && slot->standing == STANDING_ADMITTED) {
		if (served_by_deadline(slot, now_ns) && may_wait_for(p, slot->cpu, cpu)) {
			t->queue = QUEUE_INTERACTIVE(slot->cpu);
			queue_insert_ordered(p, QUEUE_INTERACTIVE(slot->cpu), slot->edf.left_ns,
					     slot->edf.deadline_ns, enq_flags);
			expect_interactive(slot->cpu);
			if (!ceases_here(p, slot->cpu))
				preempt_for(slot, enq_flags & SCX_ENQ_WAKEUP);
			return;
		}
		if (slot->edf.start_ns > now_ns)
			watch_period(t->slot - 1, slot->edf.start_ns - now_ns);
	}
	if (!slot && t->window_ns && may_wait_for(p, t->window_cpu, cpu)) {
		enqueue_ahead(p, t, t->window_cpu, t->window_ns, START_DEADLINE_NS, enq_flags);
		return;
	}
	if (goes_ahead(p, t, enq_flags)) {
		if (!enqueue_next(p, t, cpu, enq_flags))
			enqueue_ahead(p, t, cpu, t->kernel_ns, KERNEL_DEADLINE_NS, enq_flags);
		return;
	}
	held = held_by_quota(t);
	is_bumped = bumped(p, t);
	if (leaves(t, held || is_bumped) || (t->leaving_place_ns && was_called(p))) {
		enqueue_leaving(p, t, now_ns, enq_flags);
		goto find_cpu;
	}
	if (is_bumped && enqueue_bumped(p, t, enq_flags))
		return;
	has_left(t);
	join_clock(t, domain_at(table, t->domain), enq_flags & SCX_ENQ_WAKEUP);
	if (is_restricted(p)) {
		enqueue_restricted(p, t, cpu, now_ns, enq_flags);
	} else {
		if ((enq_flags & SCX_ENQ_WAKEUP) && enqueue_direct(p, t, cpu, now_ns, enq_flags))
			return;
		enqueue_domain(p, t, now_ns, enq_flags);
	}
	if (enq_flags & SCX_ENQ_LAST) {
		wait_for_release(t, cpu);
		return;
	}
find_cpu:
	idle_cpu = find_idle_cpu(p);
	if (idle_cpu >= 0)
		kick_cpu(idle_cpu, SCX_KICK_IDLE);
	else if (!t->leaving && (enq_flags & SCX_ENQ_WAKEUP))
		preempt_later(p, t, cpu, now_ns);
}

/* Whether best-effort work runs here that nothing else waits for, and that may go on. Mostly others of its domain
 * wait. */
static __always_inline bool runs_alone(struct cpu_run *run, u32 cpu)
{
	struct domain_table *table = domains();
	u16 running = run->domain;

	return running && !misses_any(run) && !*(volatile u32 *)&domain_at(table, running)->waiting &&
	       !*(volatile u32 *)&run->interactive && !*(volatile u32 *)&run->next && !overdue && !leaving && !any_bumps() &&
	       !(table->quotas && held_domain(running)) &&
	       !others_wait(table, running, cpu);
}

/* Whether prev, whose slice is over, goes on because nothing else waits: the rest need not be looked at. */
static __always_inline bool goes_on_alone(struct task_state *t, struct cpu_run *run, u32 cpu)
{
	return t->mode == MODE_BEST_EFFORT && !t->slot && runs_alone(run, cpu);
}

/* Lets prev, whose slice is over, go on if it comes first. True when that is decided. */
static __always_inline bool keep_interactive(struct task_struct *prev, struct task_state *t, struct cpu_run *run,
					     u32 cpu, u64 now_ns, bool others, u64 deadline_ns)
{
	struct task_slot *slot = slot_of(t);

	if (!slot || slot->cpu != cpu || !served_by_deadline(slot, now_ns))
		return false;
	if (others && clock_before(deadline_ns, slot->edf.deadline_ns))
		return false;
	run_interactive(prev, t, slot, run, cpu);
	return true;
}

void STRUCT_OPS(steward_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_run *run = cpu_run_of(cpu);
	struct domain_table *table = domains();
	struct task_state *t = NULL;
	enum served served;
	bool others;
	u64 now_ns = clock_of(cpu), deadline_ns = 0;
	u32 expected;

	/* The CPU's own queue is empty, or the kernel would not ask. */
	run->next = 0;
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED)) {
		t = task_state_of(prev);
		if (t) {
			charge(t, cpu, now_ns);
			if (t->slot)
				look_for_request(prev, slot_of(t), now_ns);
		}
	}
	if (t && run->rescues)
		end_rescue(run, now_ns);
	if (t && goes_on_alone(t, run, cpu)) {
		keep_best_effort(prev, t, run, cpu);
		return;
	}
	if (misses_any(run))
		look_after_missed(run, cpu, now_ns);
	others = false;
	expected = *(volatile u32 *)&run->interactive;
	if (expected) {
		others = queue_first_key(QUEUE_INTERACTIVE(cpu), &deadline_ns);
		if (!others)
			interactive_in_vain(&run->interactive, expected);
	}
	if ((others || (t && t->mode == MODE_INTERACTIVE)) && serve_gap(run, cpu, now_ns))
		return;
	if (t && keep_interactive(prev, t, run, cpu, now_ns, others, deadline_ns))
		return;
	if (others && queue_to_local(QUEUE_INTERACTIVE(cpu)))
		return;

	if (serve_overdue(run, now_ns, false) || serve_leaving(cpu, now_ns, false))
		return;

	if (t && (held_by_quota(t) || bumped(prev, t) || belongs_elsewhere(prev, t, cpu, now_ns)))
		t = NULL;
	if (t)
		join_late(table, t, cpu);
	served = serve_domains(t, cpu);
	if (served == SERVED)
		return;
	if (t)
		keep_best_effort(prev, t, run, cpu);
	else if (!serve_leaving(cpu, now_ns, true))
		serve_overdue(run, now_ns, true);
}

/* sched_yield(2): the slice is over, unless there is nobody to go before the task. */
bool STRUCT_OPS(steward_yield, struct task_struct *from, struct task_struct *to)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_run *run = cpu_run_of(cpu);
	struct task_state *t;

	/* To one task in particular (yield_to(), of virtual machines): sched_ext has no such thing unless it is asked for. */
	if (to)
		return false;
	/* One that was rescued has had its turn, however short: it does not wait on, to be rescued again before others. */
	if (run->rescues && (t = task_state_of(from)))
		t->waits_on = 0;
	if (run->direct || !runs_alone(run, cpu))
		task_set_slice(from, 0);
	return false;
}

/*
 * Looks whether what runs is to let others go first. It charges nothing: where that is due it ends the slice, and the
 * dispatch that follows charges and may let the same task go on.
 */
void STRUCT_OPS(steward_tick, struct task_struct *p)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_run *run = cpu_run_of(cpu);
	struct domain_table *table = domains();
	struct task_state *t;
	struct task_slot *slot;
	u32 request = 0;
	u64 now_ns;

	/* Nobody's turn depends on what it has used. */
	if (run->alone && !table->quotas && !any_bumps() && !run->direct && runs_alone(run, cpu))
		return;
	t = task_state_of(p);
	if (!t)
		return;
	now_ns = clock_of(cpu);
	if (t->mode == MODE_INTERACTIVE) {
		slot = slot_of(t);
		if (!slot || !served_by_deadline(slot, now_ns) || now_ns - t->charged_ns >= CHARGE_LATEST_NS ||
		    has_announced(p, slot, &request) ||
		    (class_held(&run->class_use, now_ns - t->charged_ns, now_ns) &&
		     (overdue || others_wait(table, 0, cpu))))
			task_set_slice(p, 0);
	} else if (run->rescues) {
		/* Its turn is short and ends by itself; one that began right before a tick would be none. */
		return;
	} else if (held_by_quota(t) || bumped(p, t) || (run->alone && table->quotas) || run->next ||
		   misses_any(run)) {
		task_set_slice(p, 0);
	} else if (!p->scx.slice) {
		/* It is over: what comes next is chosen when the kernel asks for it, which it does now. */
		return;
	} else if (t->mode == MODE_BEST_EFFORT && overtaken(t, run, cpu, now_ns)) {
		task_set_slice(p, 0);
	}
}

void STRUCT_OPS(steward_running, struct task_struct *p)
{
	struct task_state *t = task_state_of(p);
	u32 cpu = task_cpu(p);
	struct cpu_run *run = cpu_run_of(cpu);
	struct domain_table *table;
	struct task_slot *slot;
	u64 now_ns = clock_of(cpu);
	bool ahead, next;

	if (!t)
		return;
	table = domains();
	next = t->comes_next;
	ahead = next || QUEUE_IS_INTERACTIVE(t->queue);
	if (t->counted_waiting || t->restricted_waiting || t->direct_cpu)
		__sync_fetch_and_add(&domain_at(table, t->domain)->waited_ns, passed_since(t->waiting_since_ns, now_ns));
	leave_queue(t);
	t->charged_ns = now_ns;
	run->began_ns = now_ns;
	if (!t->rescued)
		t->waits_on = 0;
	slot = slot_of(t);
	becomes_runnable(t, slot, false, now_ns);
	if (slot && slot->standing == STANDING_ADMITTED) {
		edf_update(&slot->edf, now_ns);
		if (slot->cpu == cpu && served_by_deadline(slot, now_ns)) {
			run_interactive(p, t, slot, run, cpu);
			return;
		}
	}
	if (!slot && t->window_ns) {
		t->mode = MODE_STARTING;
		task_set_slice(p, t->window_ns);
		run->deadline_ns = now_ns + START_DEADLINE_NS;
		run->domain = 0;
		watch_budget(run, cpu, t->window_ns);
		return;
	}
	run_best_effort(p, t, run);
	run->ahead = ahead;
	if (next) {
		run->next = 0;
		if (*(volatile u32 *)&run->interactive)
			kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	begin_gap(p, run, cpu);
	if (begin_rescue(p, t, run, cpu) || begin_leaving(p, t, run, cpu))
		return;
	catch_bumped(p, t, run, cpu);
	follow_clock(domain_at(table, t->domain), t, ahead || t->put_aside);
	/* One that an idle CPU was found for runs without having stood in the order, too, and so before all that the same
	 * event woke after it. */
	if (t->unjoined || t->put_aside)
		runs_direct(table, t, run, cpu);
}

/*
 * The task that ran here is taken off the CPU: it sleeps, or something of it is changed and it goes on. Here and not in
 * ops.quiescent, which would be one more callback at each sleep. That would also tell of one that is taken out of a
 * queue to be changed; it leaves when it is put into another (steward_enqueue), with its class (steward_disable), or
 * with its cgroup or weight (steward_cgroup_move, steward_set_weight).
 */
static __always_inline void ceases(struct task_struct *p, struct task_state *t, u64 now_ns)
{
	struct task_slot *slot = slot_of(t);

	domain_counts(t, 0, now_ns);
	if (slot && p->__state && p == bpf_get_current_task_btf())
		edf_sleep(&slot->edf, p->__state & TASK_INTERRUPTIBLE);
}

void STRUCT_OPS(steward_stopping, struct task_struct *p, bool runnable)
{
	struct task_state *t = task_state_of(p);
	u32 cpu = task_cpu(p);
	struct cpu_run *run = cpu_run_of(cpu);
	u64 now_ns = clock_of(cpu);

	if (!t)
		return;
	run->alone = 0;
	/* Else the CPU was just asked for the next task, and charged this one. */
	if (t->charged_ns != now_ns)
		charge(t, cpu, now_ns);
	if (t->slot)
		look_for_request(p, slot_of(t), now_ns);
	t->whereabouts = whereabouts_of(p, t, cpu, runnable);
	charge_leaving(t, run, cpu, now_ns);
	if (run->rescues)
		end_rescue(run, now_ns);
	/* Something else may have come before it had run. */
	t->waits_on &= runnable && passed_since(run->began_ns, now_ns) < RESCUE_SLICE_NS / 4;
	t->mode = MODE_OFF;
	look_for_execution(p, t);
	/* As the kernel decides it. One whose slice is over is asked about, except on a CPU that goes offline: there it
	 * goes on. */
	t->put_aside = runnable && p->scx.slice;
	run->deadline_ns = NEVER;
	run->budget_end_ns = 0;
	run->domain = 0;
	run->charged_to = 0;
	if (!runnable)
		ceases(p, t, now_ns);
}

void STRUCT_OPS(steward_update_idle, s32 cpu, bool idle)
{
	if (!idle)
		return;
	/*
	 * The kernel has noted already that the CPU is idle: whoever puts a task somewhere from now on finds that out,
	 * and what was put there before is found here.
	 */
	__sync_lock_test_and_set(&maybe_idle, 1);
	if (work_waits(cpu))
		kick_cpu(cpu, 0);
	if (settings.cpus > 1)
		hand_on_direct(cpu);
}

void STRUCT_OPS(steward_cpu_online, s32 cpu)
{
	struct cpu_state *state = cpu_state_of(cpu);

	if (state)
		state->online = 1;
	note_all_restricted(cpu);
}

/* Reservations of a CPU that goes away are admitted elsewhere, or wait. */
void STRUCT_OPS(steward_cpu_offline, s32 cpu)
{
	struct cpu_state *state = cpu_state_of(cpu);
	u32 end = places_end(slots_taken);
	int i;

	if (!state)
		return;
	state->online = 0;
	drain_soon();
	bpf_for(i, 0, end) {
		u32 index = i;
		struct task_slot *slot = bpf_map_lookup_elem(&slots, &index);
		struct task_struct *p;
		struct task_state *t;

		if (!slot)
			break;
		if (slot->standing != STANDING_ADMITTED || slot->cpu != cpu)
			continue;
		p = bpf_task_from_pid(slot->tid);
		if (!p)
			continue;
		t = task_state_of(p);
		if (t && t->slot == index + 1)
			displace(p, index);
		bpf_task_release(p);
	}
}

s32 STRUCT_OPS_SLEEPABLE(steward_init)
{
	struct domain_table *table = domains();
	u32 cpus = settings.cpus;
	int cpu, error;

	table->cpus = cpus;
	bpf_for(cpu, 0, cpus) {
		struct cpu_run *run = cpu_run_of(cpu);

		run->deadline_ns = NEVER;
		error = scx_bpf_create_dsq(QUEUE_INTERACTIVE(cpu), -1);
		if (error)
			return error;
	}
	error = scx_bpf_create_dsq(QUEUE_RESCUE, -1);
	if (error)
		return error;
	error = scx_bpf_create_dsq(QUEUE_LEAVING, -1);
	if (error)
		return error;
	error = scx_bpf_create_dsq(QUEUE_BUMPED, -1);
	if (error)
		return error;
	error = prepare_periods();
	if (error)
		return error;
	error = prepare_drain();
	if (error)
		return error;
	error = prepare_refill();
	if (error)
		return error;
	attached = 1;
	return start_sampler();
}

void STRUCT_OPS(steward_exit, struct scx_exit_info *info)
{
	attached = 0;
	exit_record.code = info->exit_code;
	exit_record.kind = info->kind;
	bpf_probe_read_kernel_str((void *)exit_record.reason, sizeof(exit_record.reason), info->reason);
	bpf_probe_read_kernel_str((void *)exit_record.message, sizeof(exit_record.message), info->msg);
	exit_record.recorded = 1;
}

SEC(".struct_ops.link")
struct sched_ext_ops steward_ops = {
	.select_cpu = (void *)steward_select_cpu,
	.enqueue = (void *)steward_enqueue,
	.dispatch = (void *)steward_dispatch,
	.yield = (void *)steward_yield,
	.tick = (void *)steward_tick,
	.update_idle = (void *)steward_update_idle,
	.running = (void *)steward_running,
	.stopping = (void *)steward_stopping,
	.set_weight = (void *)steward_set_weight,
	.set_cpumask = (void *)steward_set_cpumask,
	.init_task = (void *)steward_init_task,
	.exit_task = (void *)steward_exit_task,
	.enable = (void *)steward_enable,
	.disable = (void *)steward_disable,
	.cgroup_init = (void *)steward_cgroup_init,
	.cgroup_exit = (void *)steward_cgroup_exit,
	.cgroup_move = (void *)steward_cgroup_move,
	.cgroup_set_weight = (void *)steward_cgroup_set_weight,
	.cgroup_set_bandwidth = (void *)steward_cgroup_set_bandwidth,
	.cgroup_set_idle = (void *)steward_cgroup_set_idle,
	.cpu_online = (void *)steward_cpu_online,
	.cpu_offline = (void *)steward_cpu_offline,
	.init = (void *)steward_init,
	.exit = (void *)steward_exit,
	.flags = SCX_OPS_KEEP_BUILTIN_IDLE | SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED,
	.timeout_ms = 30000,
	.name = "steward",
};

/*
 * A task executes, after the point from which on the old program cannot go on (fs/exec.c), before the new one's first
 * instruction.
 */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(steward_exec, struct task_struct *p, s32 old_pid, struct linux_binprm *bprm)
{
	struct inode *inode = bprm->file->f_inode;
	struct executable executable = { .device = inode->i_sb->s_dev, .inode = inode->i_ino };
	bool whole = bpf_ksym_exists(bpf_preempt_disable) && bpf_ksym_exists(bpf_preempt_enable);

	/* Else whoever is preempted here hides from us what others execute on this CPU: see execution_missed(). */
	if (whole)
		bpf_preempt_disable();
	executed(p, &executable, p->self_exec_id);
	if (whole)
		bpf_preempt_enable();
	return 0;
}
