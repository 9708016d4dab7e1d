/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Best-effort work: domains, their queues, quotas, suspension, and work bound to one CPU.
 *
 * A waiting task stands in its domain's queue, ordered by its virtual time; the domains that have waiting tasks
 * stand in the order of decide/order.h. Any CPU with nothing interactive to do serves the first domain's
 * first task: as there is one order for all CPUs, a CPU that spends much on reservations takes correspondingly
 * less of it, which is what the paper's scaled balancing aims at (Yang 2009, section 8.3).
 *
 * A domain pays for all CPU time that its tasks get, out of reservations or not: a reservation puts a task ahead of
 * others, and its domain behind them. What the tasks of one domain use on a CPU is put together and paid in parts of
 * half a millisecond, or when another domain's task follows, because a payment costs more than a switch.
 *
 * Work that may run on one CPU only would have to be skipped by all others, so it has a queue per CPU and shares
 * that CPU with the domains by its shares.
 */
#ifndef STEWARD_BEST_EFFORT_BPF_H
#define STEWARD_BEST_EFFORT_BPF_H

#include "interactive.bpf.h"

#define SERVE_ATTEMPTS 64
/* How many that stood first in vain are brought to where they have to be, before the next one is served as it is. */
#define REVISE_ATTEMPTS 16
/* How many CPUs are looked at for one to preempt. Those not found here notice at their next tick. */
#define PREEMPT_SCAN_MAX 8
/* How many tasks of a queue are looked at for having waited too long. */
#define OVERDUE_SCAN_MAX 4096
#define REFILL_INTERVAL_NS (5 * NSEC_PER_MSEC)

/*
 * The domain's queue was found empty, or it is held: take it out of the order, unless a task is on its way into the
 * queue. A task is counted before it is inserted, so a count above zero means that it will be there.
 */
__noinline int unqueue_domain(u32 index, bool held)
{
	struct domain_table *table = domains();
	struct domain *d;

	if (!table)
		return 0;
	d = domain_at(table, index);
	bpf_spin_lock(&domains_lock);
	order_dequeue(table, index);
	if (held)
		d->parked = 1;
	bpf_spin_unlock(&domains_lock);
	if (!held && *(volatile u32 *)&d->waiting)
		domain_make_queued(table, index);
	return 0;
}

/* A domain pays for CPU time that its tasks got. */
__noinline int pay_domain(u32 index, u64 used_ns)
{
	struct domain_table *table = domains();
	u64 share = standing_share(standing_of_domain(index)), now_ns = clock_now();

	if (!table || !used_ns)
		return 0;
	bpf_spin_lock(&domains_lock);
	domain_at(table, index)->used_ns += used_ns;
	order_charge(table, index, used_ns, share, now_ns);
	bpf_spin_unlock(&domains_lock);
	return 0;
}

/* The quotas of a domain and of those above it pay for best-effort time. */
__noinline int pay_quotas(u32 index, u64 used_ns)
{
	struct domain_table *table = domains();
	u32 level;

	if (!table)
		return 0;
	for (level = 0; level < MAX_DEPTH && index; level++) {
		struct domain *payer = domain_at(table, index);

		quota_charge(payer, used_ns);
		index = payer->parent;
	}
	return 0;
}

/* Adds to what the domain owes for this CPU, and lets it pay when that is worth it. */
static __always_inline void charge_domain(struct cpu_run *run, u32 index, u64 used_ns)
{
	u32 before = run->unpaid_domain;
	u64 unpaid_ns = run->unpaid_ns;

	if (before != index) {
		run->unpaid_domain = index;
		run->unpaid_ns = used_ns;
		if (before && unpaid_ns)
			pay_domain(before, unpaid_ns);
		unpaid_ns = used_ns;
	} else {
		unpaid_ns += used_ns;
		run->unpaid_ns = unpaid_ns;
	}
	if (unpaid_ns >= (run->alone ? CHARGE_ALONE_NS : CHARGE_BATCH_NS)) {
		run->unpaid_ns = 0;
		pay_domain(index, unpaid_ns);
	}
}

/* Brings a domain that waits to where it has to stand now. True when it stood in the other heap. */
__noinline int revise_domain(u32 index)
{
	struct domain_table *table = domains();
	struct domain *d;

	if (!table)
		return 0;
	d = domain_at(table, index);
	if (!*(volatile u8 *)&d->queued || d->behind == standing_behind(standing_of_domain(index)))
		return 0;
	unqueue_domain(index, false);
	return 1;
}

/* Brings the order up to date with what priorities say now of those that may come first. */
__noinline int revise_domains(void)
{
	struct domain_table *table = domains();
	u16 index;
	int i;

	if (!table)
		return 0;
	index = order_next_behind(table);
	if (index)
		revise_domain(index);
	bpf_for(i, 0, REVISE_ATTEMPTS) {
		bool revised = false;

		index = order_first(table);
		if (index)
			revised = revise_domain(index);
		index = order_first_behind(table);
		if (index && revise_domain(index))
			revised = true;
		if (!revised)
			break;
	}
	return 0;
}

/* Whether a domain that runs has to stand behind now. */
static __always_inline bool runs_behind(struct domain_table *table, u16 running)
{
	return table->priorities && standing_behind(standing_of_domain(running));
}

/* Whether a task of a domain that waits is to preempt one of a domain that runs. */
static __always_inline bool goes_before(struct domain_table *table, u16 waiting, u16 running)
{
	return waiting != running && order_preempts(table, waiting, running, runs_behind(table, running));
}

/* Charges best-effort time to the task, its domain and the quotas above it. */
static __always_inline void charge_best_effort(struct cpu_run *run, struct task_state *t, u64 used_ns)
{
	struct domain_table *table = domains();

	t->vtime += task_cost(used_ns, t->weight);
	charge_domain(run, t->domain, used_ns);
	if (table && table->quotas)
		pay_quotas(t->domain, used_ns);
}

/* Charges time out of a reservation: the task's domain pays for it. */
static __always_inline void charge_reserved(struct cpu_run *run, struct task_state *t, u64 used_ns)
{
	struct domain_table *table = domains();

	if (table)
		__sync_fetch_and_add(&domain_at(table, t->domain)->reserved_used_ns, used_ns);
	charge_domain(run, t->domain, used_ns);
}

static __always_inline bool held_by_quota(struct task_state *t)
{
	struct domain_table *table = domains();

	return table && table->quotas && domain_held(table, t->domain);
}

/* Puts a task into its domain's queue. */
static __always_inline void enqueue_domain(struct task_struct *p, struct task_state *t, u64 enq_flags)
{
	struct domain_table *table = domains();
	struct domain *d;

	if (!table)
		return;
	d = domain_at(table, t->domain);
	t->vtime = task_join(t->vtime, d->task_clock);
	t->waiting_since_ns = clock_now();
	t->queue = QUEUE_DOMAIN(t->domain);
	if (!__sync_lock_test_and_set(&t->counted_waiting, 1))
		__sync_fetch_and_add(&d->waiting, 1);
	queue_insert_ordered(p, QUEUE_DOMAIN(t->domain), SLICE_NS, t->vtime, enq_flags);
	domain_make_queued(table, t->domain);
}

/* Whether anything waits in the domains. One that was served last may stand in the order still, with an empty queue. */
static __always_inline bool others_wait(struct domain_table *table, u16 running)
{
	u32 count = heap_count(table, false) + heap_count(table, true);

	if (!count)
		return false;
	return count > 1 || order_first(table) != running || *(volatile u32 *)&domain_at(table, running)->waiting;
}

/*
 * A task that wakes up while another one of its domain runs comes next if no other one of the domain waits and no domain
 * that waits comes before theirs. It is put straight into the CPU's own queue, and the kernel takes it from there without
 * asking: that saves programs which hand work to each other most of what a switch costs, also while something in the
 * background waits for its turn. Only one task at a time, because that queue knows no order: whoever comes after it is queued
 * as usual, runs_direct() lets those go first that should, and so does each tick.
 */
static __always_inline bool enqueue_direct(struct task_struct *p, struct task_state *t, u32 cpu, u64 enq_flags)
{
	struct domain_table *table = domains();
	struct cpu_run *run = cpu_run_of(cpu);

	if (!table || !run || run->domain != t->domain || run->direct || run->interactive || run->bound_shares)
		return false;
	if (held_by_quota(t) || table->order != ORDER_MTR_LS || overdue || maybe_idle)
		return false;
	if (*(volatile u32 *)&domain_at(table, t->domain)->waiting ||
	    !order_nobody_before(table, t->domain, runs_behind(table, t->domain)))
		return false;
	t->vtime = task_join(t->vtime, domain_at(table, t->domain)->task_clock);
	t->waiting_since_ns = clock_now();
	t->direct_cpu = cpu + 1;
	run->direct = 1;
	queue_insert(p, SCX_DSQ_LOCAL, SLICE_NS, enq_flags);
	return true;
}

/* A task that was put into the CPU's own queue begins to run: what came meanwhile and should go first does. */
static __always_inline void runs_direct(struct domain_table *table, struct task_state *t, struct cpu_run *run, u32 cpu)
{
	u16 first = order_first(table);

	if (run->interactive || run->bound_shares || (first && goes_before(table, first, t->domain)))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* A CPU has nothing to do: one that has a task in its own queue behind the one that runs takes that, and hands on the other. */
static __always_inline void hand_on_direct(u32 idle_cpu)
{
	u32 cpus = settings.cpus;
	int i;

	bpf_for(i, 1, PREEMPT_SCAN_MAX) {
		u32 cpu = idle_cpu + i;
		struct cpu_run *run;

		if (i >= cpus)
			break;
		if (cpu >= cpus)
			cpu -= cpus;
		run = cpu_run_of(cpu);
		if (run && run->direct) {
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
			break;
		}
	}
}

/* A bound task no longer counts among what its CPU owes to bound work. */
static __always_inline void bound_leaves(struct task_state *t)
{
	struct cpu_run *run = cpu_run_of(t->bound_cpu);

	if (!t->was_bound)
		return;
	t->was_bound = 0;
	if (run)
		__sync_fetch_and_sub(&run->bound_shares, t->bound_share);
}

/*
 * Puts a task that may run on this CPU only into the CPU's queue of bound work, and counts its share among what the
 * CPU owes to such work until it sleeps. Done at each enqueue, because shares and CPUs change.
 */
static __always_inline void enqueue_bound(struct task_struct *p, struct task_state *t, u32 cpu, u64 enq_flags)
{
	struct domain_table *table = domains();
	struct cpu_run *run = cpu_run_of(cpu);
	struct domain *d;

	if (!table || !run)
		return;
	bound_leaves(t);
	d = domain_at(table, t->domain);
	t->bound_share = share_at_the_moment(standing_of_domain(t->domain)) * t->weight * WEIGHT_SCALE /
			 max_u64(d->runnable_weight, t->weight * WEIGHT_SCALE);
	t->bound_cpu = cpu;
	t->was_bound = 1;
	__sync_fetch_and_add(&run->bound_shares, t->bound_share);
	t->vtime = task_join(t->vtime, run->task_clock);
	t->waiting_since_ns = clock_now();
	t->queue = QUEUE_BOUND(cpu);
	queue_insert_ordered(p, QUEUE_BOUND(cpu), SLICE_NS, t->vtime, enq_flags);
}

/* Advances the clock of the class that used this CPU. */
static __always_inline void charge_classes(struct cpu_run *run, bool bound, u64 used_ns)
{
	u64 fraction;

	if (!run->bound_shares)
		return;
	fraction = bound_fraction(run->bound_shares, settings.cpus);
	if (bound)
		run->bound_vtime += used_ns * SHARE_ONE / fraction;
	else
		run->floating_vtime += used_ns * SHARE_ONE / (SHARE_ONE - fraction);
}

/* A task begins or ceases to count among what is runnable in its domain. */
static __noinline int domain_counts(struct task_state *t, u32 weight)
{
	struct domain_table *table = domains();
	struct domain *d;
	bool settle;

	if (!table || !t)
		return 0;
	d = domain_at(table, t->domain);
	if (weight) {
		t->runnable_weight = weight;
		__sync_fetch_and_add(&d->runnable_weight, weight * WEIGHT_SCALE);
		settle = domain_runnable_changes(d, true, clock_now());
	} else {
		if (!t->runnable_weight)
			return 0;
		__sync_fetch_and_sub(&d->runnable_weight, t->runnable_weight * WEIGHT_SCALE);
		t->runnable_weight = 0;
		settle = domain_runnable_changes(d, false, clock_now());
	}
	if (settle && d->parent) {
		bpf_spin_lock(&domains_lock);
		domain_settle(table, t->domain);
		bpf_spin_unlock(&domains_lock);
	}
	return 0;
}

/* Lets those behind a domain go before it. */
__noinline int step_domain_back(u32 index)
{
	struct domain_table *table = domains();

	if (!table)
		return 0;
	bpf_spin_lock(&domains_lock);
	order_step_back(table, index);
	bpf_spin_unlock(&domains_lock);
	return 0;
}

enum served {
	SERVED,
	SERVED_NONE, /* no domain waits */
	SERVE_NEXT, /* this one had nothing for this CPU */
};

/* Serves the first domain. */
static __always_inline enum served serve_first(struct domain_table *table)
{
	/* Read without the lock: a moment later the answer would be another one anyway. */
	u16 index = order_first(table);
	struct domain *d;

	if (!index)
		return SERVED_NONE;
	order_serve(table, index);
	if (table->quotas && domain_held(table, index)) {
		unqueue_domain(index, true);
		return SERVE_NEXT;
	}
	d = domain_at(table, index);
	if (*(volatile u32 *)&d->waiting && queue_to_local(QUEUE_DOMAIN(index)))
		return SERVED;
	/* Its tasks are on their way in or out, or may not run here; or there are none. */
	if (*(volatile u32 *)&d->waiting)
		step_domain_back(index);
	else
		unqueue_domain(index, false);
	return SERVE_NEXT;
}

/* Serves the first domain whose queue yields a task for this CPU. */
static __noinline bool serve_domains(void)
{
	struct domain_table *table = domains();
	enum served served;
	int attempt;

	if (!table)
		return false;
	if (table->priorities)
		revise_domains();
	served = serve_first(table);
	if (served != SERVE_NEXT)
		return served == SERVED;
	bpf_for(attempt, 1, SERVE_ATTEMPTS) {
		served = serve_first(table);
		if (served != SERVE_NEXT)
			return served == SERVED;
	}
	return false;
}

/* Whether prev, which could go on, comes before everything that waits in the domains. */
static __always_inline bool before_domains(struct task_state *t)
{
	struct domain_table *table = domains();
	u64 key;

	if (!table)
		return true;
	if (table->priorities)
		revise_domains();
	if (order_first(table) == t->domain && queue_first_key(QUEUE_DOMAIN(t->domain), &key))
		return !clock_before(key, t->vtime);
	return order_nobody_before(table, t->domain, runs_behind(table, t->domain));
}

/* Whether a best-effort task that runs is to let another one go before its slice is over; asked at each tick. */
static __always_inline bool overtaken(struct task_state *t, struct cpu_run *run, u64 now_ns)
{
	struct domain_table *table = domains();
	u16 index;

	if (!table || now_ns - run->began_ns < settings.preemption_interval_ns)
		return false;
	if (run->alone && (others_wait(table, t->domain) || run->bound_shares || run->direct))
		return true;
	index = order_first(table);
	return index && goes_before(table, index, t->domain);
}

/* Makes the CPU choose again if it runs a task of a domain which comes after this one. */
static __always_inline bool preempt_on(struct domain_table *table, struct task_struct *p, u16 domain, u32 cpu, u64 now_ns)
{
	struct cpu_run *run = cpu_run_of(cpu);
	u32 running;

	if (!run)
		return false;
	running = run->domain;
	if (!running || running == domain || now_ns - run->began_ns < settings.preemption_interval_ns)
		return false;
	/* One that ran alone has not been charged for a while, and its place is not yet known. */
	if ((!run->alone && !goes_before(table, domain, running)) || !may_run_on(p, cpu))
		return false;
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return true;
}

/* The same, on the CPU where the task was or on one of those after it. */
static __always_inline void preempt_later_domain(struct task_struct *p, u16 domain, u32 cpu, u64 now_ns)
{
	struct domain_table *table = domains();
	u32 cpus = settings.cpus;
	int i;

	if (!table || preempt_on(table, p, domain, cpu, now_ns) || cpus == 1)
		return;
	bpf_for(i, 1, PREEMPT_SCAN_MAX) {
		u32 candidate = cpu + i;

		if (i >= cpus)
			break;
		if (candidate >= cpus)
			candidate -= cpus;
		if (preempt_on(table, p, domain, candidate, now_ns))
			break;
	}
}

/* An idle CPU for the task, -1 when there is none. Idle CPUs are looked for only if one may have become idle. */
static __always_inline s32 find_idle_cpu(struct task_struct *p)
{
	s32 cpu;

	if (!maybe_idle)
		return -1;
	maybe_idle = 0;
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0 || p->nr_cpus_allowed < settings.cpus)
		maybe_idle = 1;
	return cpu;
}

/*
 * How many more tasks may be taken to be rescued at this look. In memory and not in a variable, because the verifier
 * would follow each value that a counter has in the loop below.
 */
static volatile u32 rescue_left;

/* Whether the task was preempted while it reads what RCU protects. */
static __always_inline bool is_reader(struct task_struct *p)
{
	return bpf_core_field_exists(p->rcu_read_lock_nesting) && p->rcu_read_lock_nesting > 0;
}

/* Whether the task was killed while it is held, and so has to run once to notice. */
static __always_inline bool killed_while_held(struct task_struct *p, struct task_state *t)
{
	return held_by_quota(t) && p->signal->flags & SIGNAL_GROUP_EXIT;
}

/* Brings tasks of one queue that have waited too long to the queue of those to be rescued. */
static __noinline int find_overdue(u64 queue, u64 now_ns)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	int i;

	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		bpf_for(i, 0, OVERDUE_SCAN_MAX) {
			struct task_state *t;

			p = bpf_iter_scx_dsq_next(&it);
			if (!p || !rescue_left)
				break;
			t = task_state_of(p);
			if (!t || (!rescue_due(t->waiting_since_ns, is_reader(p), now_ns) && !killed_while_held(p, t)))
				continue;
			t->rescued = 1;
			if (iterated_move(&it, p, QUEUE_RESCUE)) {
				leave_queue(t);
				rescue_left -= 1;
			} else {
				t->rescued = 0;
			}
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return 0;
}

/* Serves one overdue task that may run here, if it is time to. */
static __always_inline bool serve_overdue(struct cpu_run *run, u64 now_ns)
{
	if (!overdue || !rescue_allowed(run->rescued_ns, now_ns) || !queue_to_local(QUEUE_RESCUE))
		return false;
	run->rescued_ns = now_ns;
	return true;
}

/* Refills quotas and lets parked domains go on. */
static int refill_quotas(void *map, u32 *index, struct timer_entry *entry)
{
	struct domain_table *table = domains();
	u64 now_ns = clock_now();
	bool released = false;
	u32 high_water;
	int i;

	if (!table)
		return 0;
	high_water = table->high_water;
	if (table->quotas) {
		bpf_for(i, 1, high_water) {
			if (quota_refill(domain_at(table, i), now_ns))
				released = true;
		}
	}
	bpf_for(i, 1, high_water) {
		struct domain *d = domain_at(table, i);

		if (!d->parked || domain_held(table, i))
			continue;
		d->parked = 0;
		if (*(volatile u32 *)&d->waiting)
			domain_make_queued(table, i);
		released = true;
	}
	/* An idle CPU looks for work only when it is told to. */
	if (released || scx_bpf_dsq_nr_queued(QUEUE_RESCUE) > 0) {
		u32 cpus = settings.cpus;

		bpf_for(i, 0, cpus) {
			if (scx_bpf_test_and_clear_cpu_idle(i))
				scx_bpf_kick_cpu(i, SCX_KICK_IDLE);
		}
	}
	if (table->quotas)
		bpf_timer_start(&entry->timer, REFILL_INTERVAL_NS, 0);
	return 0;
}

static __always_inline void watch_quotas(void)
{
	u32 one = 1;
	struct timer_entry *entry = bpf_map_lookup_elem(&system_timers, &one);

	if (!entry)
		return;
	if (!entry->ready) {
		bpf_timer_init(&entry->timer, &system_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&entry->timer, refill_quotas);
		entry->ready = 1;
	}
	bpf_timer_start(&entry->timer, REFILL_INTERVAL_NS, 0);
}

static __always_inline u16 domain_index_of(struct cgroup *cgrp)
{
	u64 id;
	u32 *index;

	if (!cgrp)
		return ROOT_DOMAIN;
	id = cgrp->kn->id;
	index = bpf_map_lookup_elem(&domain_of_cgroup, &id);
	return index ? *index : ROOT_DOMAIN;
}

#endif
