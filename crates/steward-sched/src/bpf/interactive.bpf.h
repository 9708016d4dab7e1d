/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interactive class: the clockwork of periods and budgets.
 *
 * A task whose slot (admission.bpf.h) has the standing STANDING_ADMITTED is served on its CPU by deadline. Two timers
 * keep the promise finer than the tick: one per CPU ends the running task's budget, one per slot begins the next period
 * of a task that has used its budget up (periods.bpf.h).
 */
#ifndef STEWARD_INTERACTIVE_BPF_H
#define STEWARD_INTERACTIVE_BPF_H

#include "admission.bpf.h"

/* Whether the task's reservation can be served on its CPU at this moment. */
static __always_inline bool served_by_deadline(struct task_slot *slot, u64 now_ns)
{
	return slot->standing == STANDING_ADMITTED && edf_eligible(&slot->edf, now_ns);
}

/*
 * Requests of servers. A thread that serves one request after another says by a number in its own memory when it begins
 * with the next one: it writes another number than before, and needs no system call for that. The number is read while
 * the thread is current, on its CPU, at the tick and when it stops, which is soon enough: it changes while the thread
 * runs. What it may bring is decided by edf_announce().
 *
 * The address comes from the thread, and nothing but a number to be compared is read there, without waiting for a page:
 * where there is none, nothing was announced.
 */
static __noinline bool has_announced(struct task_struct *p, struct task_slot *slot, u32 *request)
{
	if (!p || !slot || !request || !slot->grant.requests_at || p != bpf_get_current_task_btf())
		return false;
	return !bpf_probe_read_user(request, sizeof(*request), (const void *)slot->grant.requests_at) &&
	       *request != slot->request;
}

/* To be called when what the task has used has been charged. */
static __noinline int look_for_request(struct task_struct *p, struct task_slot *slot, u64 now_ns)
{
	u32 request = 0;

	if (!p || !slot || !has_announced(p, slot, &request))
		return 0;
	slot->request = request;
	if (slot->standing == STANDING_ADMITTED)
		edf_announce(&slot->edf, now_ns);
	return 0;
}

static __always_inline bool begin_change(struct task_state *t)
{
	return !__sync_val_compare_and_swap(&t->changing, 0, 1);
}

static __always_inline void end_change(struct task_state *t)
{
	__sync_lock_test_and_set(&t->changing, 0);
}

/*
 * The running task's budget is used up (or about to be): make the CPU choose again. If another one runs by now, whose
 * budget ends later, the timer is set to that.
 */
static int budget_ends(void *map, u32 *cpu, struct timer_entry *entry)
{
	struct cpu_run *run = cpu_run_of(*cpu);
	u64 now_ns = bpf_ktime_get_ns(), end_ns;

	/* A full barrier, as its counterpart in watch_budget(): either that sees that the timer is not set any more, or
	 * the budget is seen here. */
	__sync_lock_test_and_set(&run->timer_ns, 0);
	end_ns = *(volatile u64 *)&run->budget_end_ns;
	if (!end_ns)
		return 0;
	end_ns = edf_timer_next(now_ns, end_ns);
	/* On another CPU that set it, or was given it, this would be set beside what that one sets meanwhile: it is to choose
	 * again, and sets it itself. */
	if (!end_ns || *cpu != bpf_get_smp_processor_id())
		kick_cpu(*cpu, SCX_KICK_PREEMPT);
	else if (!bpf_timer_start(&entry->timer, end_ns - now_ns, BPF_F_TIMER_CPU_PIN))
		run->timer_ns = end_ns;
	return 0;
}

/*
 * Watches the budget of the task that begins to run here. The timer is pinned to the CPU that sets it. Where it fires
 * before that anyway, it is left alone: with interrupts off, the kernel has bpf_timer_start() send the CPU one.
 */
static __always_inline void watch_budget(struct cpu_run *run, u32 cpu, u64 left_ns)
{
	struct timer_entry *entry = bpf_map_lookup_elem(&cpu_timers, &cpu);
	u64 now_ns = bpf_ktime_get_ns(), end_ns = now_ns + left_ns;

	if (!entry)
		return;
	if (!entry->ready) {
		bpf_timer_init(&entry->timer, &cpu_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&entry->timer, budget_ends);
		entry->ready = 1;
	}
	__sync_lock_test_and_set(&run->budget_end_ns, end_ns);
	if (edf_timer_serves(*(volatile u64 *)&run->timer_ns, now_ns, end_ns))
		return;
	/* One that another CPU sets is moved to this one with the next budget. */
	if (bpf_timer_start(&entry->timer, left_ns, BPF_F_TIMER_CPU_PIN) || cpu != bpf_get_smp_processor_id())
		end_ns = 0;
	run->timer_ns = end_ns;
}

/* To be called when a task is put into the CPU's interactive queue. */
static __always_inline void expect_interactive(u32 cpu)
{
	struct cpu_run *run = cpu_run_of(cpu);

	interactive_expect(&run->interactive);
}

/*
 * Whether a thread that works off a queue runs here, as best-effort work: it mostly wakes whom it works for, and is
 * made to stop a moment later. One that is made to stop sooner anyway is left to that.
 */
static __always_inline bool waker_goes_on(struct cpu_run *run, u32 cpu)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	u64 now_ns = bpf_ktime_get_ns();

	if (!(waker->flags & PF_WQ_WORKER) || cpu != bpf_get_smp_processor_id() || !run->domain)
		return false;
	/* Where what was watched is over and the thread was let go on, nothing is to come any more. */
	if (!edf_timer_serves(run->budget_end_ns, now_ns, now_ns + WAKER_GOES_ON_NS))
		watch_budget(run, cpu, WAKER_GOES_ON_NS);
	return true;
}

/* Makes the task's CPU choose again if what runs there has a later deadline, or none. */
static __always_inline void preempt_for(struct task_slot *slot, bool woken)
{
	struct cpu_run *run = cpu_run_of(slot->cpu);

	if (run->deadline_ns <= slot->edf.deadline_ns)
		return;
	if (scx_bpf_test_and_clear_cpu_idle(slot->cpu))
		kick_cpu(slot->cpu, SCX_KICK_IDLE);
	else if (!woken || !waker_goes_on(run, slot->cpu))
		kick_cpu(slot->cpu, SCX_KICK_PREEMPT);
}

/* Takes the task out of its domain's count of waiting tasks, and off the CPU that it is the next one of. */
static __always_inline void leave_queue(struct task_state *t)
{
	struct domain_table *table = domains();

	t->queue = QUEUE_NONE;
	t->comes_next = 0;
	if (t->direct_cpu) {
		struct cpu_run *run = cpu_run_of(t->direct_cpu - 1);

		t->direct_cpu = 0;
		run->direct = 0;
	}
	if (t->counted_waiting && __sync_lock_test_and_set(&t->counted_waiting, 0))
		__sync_fetch_and_sub(&domain_at(table, t->domain)->waiting, 1);
	if (t->restricted_waiting && __sync_lock_test_and_set(&t->restricted_waiting, 0))
		__sync_fetch_and_sub(&domain_at(table, t->domain)->waiting_restricted, 1);
}

/* Brings the task to where it joins its domain's queue. */
static __always_inline void join_clock(struct task_state *t, struct domain *d, bool begins)
{
	bool spreads = begins && t->weight < WEIGHT_DEFAULT;

	t->vtime = task_join(t->vtime, d->task_clock, spreads ? task_spread(d, t->weight, bpf_get_prandom_u32()) : 0);
}

/* The task begins in a domain. */
static __always_inline void begin_in_domain(struct task_state *t, struct domain *d)
{
	t->vtime = d->task_clock;
	join_clock(t, d, true);
}

/* Moves a waiting task from one ordered queue to another, with the counts that go with it. */
static __always_inline bool change_queue(struct task_struct *p, struct task_state *t, u64 to, u64 slice_ns, u64 key)
{
	u64 from = t->queue;

	if (from == QUEUE_NONE || from == to || !queue_move_ordered(p, from, to, slice_ns, key))
		return false;
	leave_queue(t);
	t->queue = to;
	return true;
}

/*
 * The functions below that are not static are checked by the verifier once, for any arguments, instead of at every
 * call: that keeps loading quick.
 */

/*
 * Something happens to a domain in the order (enum order_change); to be parked it must still be held, and the opposite.
 * `cpu` counts for what is about tasks that may run on some CPUs only.
 */
__noinline int change_order(u32 change, u32 index, u64 used_ns, u32 cpu)
{
	struct domain_table *table = domains();
	struct cpu_order *order = cpu_order_of(cpu);
	struct domain *d;
	u64 now_ns;

	if (!order)
		return 0;
	/* Only that order goes by the clock. */
	now_ns = table->order == ORDER_WRR ? clock_now() : 0;
	d = domain_at(table, index);
	bpf_spin_lock(&domains_lock);
	d->used_ns += used_ns;
	if (order_change_wanted(d, change))
		order_change(table, order, change, index, used_ns, now_ns);
	/* Last: whoever read the order meanwhile has read the number before. */
	order_changes += 1;
	bpf_spin_unlock(&domains_lock);
	return 0;
}

/* To be called after a task was put into the domain's queue. */
static __always_inline void domain_make_queued(struct domain_table *table, u16 index)
{
	if (!order_is_queued(table, index))
		change_order(CHANGE_QUEUE, index, 0, 0);
	else if (order_outgrown(table, index))
		change_order(CHANGE_JOIN, index, 0, 0);
}

/* Whether the task runs on lent time, or would if it had any: it has not executed a program yet. */
static __always_inline bool may_borrow(struct task_state *t, u32 lender)
{
	return t->lender == lender && t->loans_left && !t->slot;
}

/* Has the slot's timer fire when there could be another loan; where that has passed, in so long. */
static __always_inline void watch_next_loan(struct task_slot *slot, u32 index, u64 now_ns, u64 else_ns)
{
	u64 next_ns = edf_next_loan_ns(&slot->edf, now_ns);

	watch_period(index, next_ns > now_ns ? next_ns - now_ns : else_ns);
}

/*
 * A child has used up what it was lent, and asks for more: the lender sees to that when its next period begins, or when
 * it is admitted again.
 */
__noinline int ask_again(u32 lender)
{
	u32 index = lender - 1;
	struct task_slot *slot = bpf_map_lookup_elem(&slots, &index);

	if (!slot || slot->standing == STANDING_NONE)
		return 0;
	slot->lends = 1;
	if (slot->standing == STANDING_ADMITTED)
		watch_next_loan(slot, index, clock_now(), 0);
	return 0;
}

/* A child of an admitted task begins on time that its parent lends it. */
static __always_inline void begin_on_loan(struct task_struct *p, struct task_state *t, struct task_slot *parent, u32 lender)
{
	t->lender = lender;
	t->window_cpu = parent->cpu;
	t->window_ns = edf_lend(&parent->edf, clock_now());
	t->loans_left = START_LOANS - !!t->window_ns;
	t->lent_deadline_ns = t->window_ns ? parent->edf.deadline_ns : 0;
	parent->borrowers[parent->next_borrower++ & (BORROWERS - 1)] = p->pid;
	if (!t->window_ns)
		ask_again(lender);
}

/* It gets nothing more, and its lender, if that still has the slot, what is left of the loan. */
static __noinline int end_loans(struct task_state *t)
{
	struct task_slot *slot;
	u64 unused_ns;
	u32 index;

	if (!t || !t->lender)
		return 0;
	index = t->lender - 1;
	unused_ns = t->window_ns;
	t->lender = 0;
	t->loans_left = 0;
	t->window_ns = 0;
	t->executed = 0;
	slot = bpf_map_lookup_elem(&slots, &index);
	if (unused_ns && slot && slot->standing == STANDING_ADMITTED)
		edf_return(&slot->edf, unused_ns, t->lent_deadline_ns);
	return 0;
}

/* It executes a program. One that runs on what it was lent goes on with that until it stops, but gets nothing more. */
static __always_inline void executes(struct task_state *t)
{
	if (t->mode != MODE_STARTING) {
		end_loans(t);
		return;
	}
	t->loans_left = 0;
	t->executed = 1;
}

/* Lends again to one of the slot's last children, if it has used up what it had. False: it needs more than there is
 * now. */
static __noinline bool lend_to(struct task_slot *slot, u32 lender, s32 tid, bool resting, u64 now_ns)
{
	struct task_struct *child;
	struct task_state *t;
	bool served = true;

	if (!slot || !tid)
		return true;
	child = bpf_task_from_pid(tid);
	if (!child)
		return true;
	t = task_state_of(child);
	if (!t || !may_borrow(t, lender) || t->window_ns)
		goto out;
	t->window_ns = edf_lend_again(&slot->edf, resting, t->lent_deadline_ns, now_ns);
	served = t->window_ns;
	if (!served)
		goto out;
	t->lent_deadline_ns = slot->edf.deadline_ns;
	t->window_cpu = slot->cpu;
	t->loans_left--;
	if (may_wait_for(child, slot->cpu, scx_bpf_task_cpu(child)) &&
	    change_queue(child, t, QUEUE_INTERACTIVE(slot->cpu), t->window_ns, now_ns + START_DEADLINE_NS)) {
		struct cpu_run *run = cpu_run_of(slot->cpu);

		expect_interactive(slot->cpu);
		if (run->deadline_ns == NEVER)
			kick_cpu(slot->cpu, SCX_KICK_PREEMPT);
	}
out:
	bpf_task_release(child);
	return served;
}

/* The slot's task lends again to those of its children that have not executed a program yet. */
static __always_inline void lend_again(struct task_slot *slot, u32 index, bool resting, u64 now_ns)
{
	bool served = true;
	int i;

	slot->lends = 0;
	bpf_for(i, 0, BORROWERS) {
		if (!lend_to(slot, index + 1, slot->borrowers[i & (BORROWERS - 1)], resting, now_ns))
			served = false;
	}
	if (!served) {
		slot->lends = 1;
		/*
		 * Where the timer's clock was ahead of the scheduler's, the period has not begun yet. Where it should have,
		 * the parent wants to run itself, and somebody keeps it from that.
		 */
		watch_next_loan(slot, index, now_ns, slot->edf.period_ns);
	}
}

/*
 * Whether a task that runs here as best-effort work is to be served out of its reservation, on another CPU: its period
 * has begun meanwhile. If it went on here, it would come there late, with all of its budget due within what is left of
 * the period, and others would miss their deadlines.
 */
static __always_inline bool belongs_elsewhere(struct task_struct *p, struct task_state *t, u32 cpu, u64 now_ns)
{
	struct task_slot *slot = slot_of(t);

	return slot && slot->cpu != cpu && served_by_deadline(slot, now_ns) && may_wait_for(p, slot->cpu, cpu);
}

#endif
