/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Best-effort work: domains, their queues, quotas, and work bound to one CPU.
 *
 * A waiting task stands in its domain's queue, ordered by its virtual time; the domains that have waiting tasks
 * stand in the heap of decide/best_effort.h. Any CPU with nothing interactive to do serves the first domain's
 * first task: as there is one order for all CPUs, a CPU that spends much on reservations takes correspondingly
 * less of it, which is what the paper's scaled balancing aims at (Yang 2009, section 8.3).
 *
 * Work that may run on one CPU only would have to be skipped by all others, so it has a queue per CPU and shares
 * that CPU with the domains by its shares.
 */
#ifndef STEWARD_BEST_EFFORT_BPF_H
#define STEWARD_BEST_EFFORT_BPF_H

#include "interactive.bpf.h"

#define SERVE_ATTEMPTS 64
/* How many tasks of a queue are looked at for having waited too long. */
#define OVERDUE_SCAN_MAX 4096
#define REFILL_INTERVAL_NS (5 * NSEC_PER_MSEC)

/*
 * The domain's queue was found empty, or it is held: take it out of the heap, unless a task is on its way into the
 * queue. A task is counted before it is inserted, so a count above zero means that it will be there.
 */
static __always_inline void domain_make_unqueued(struct locked_domains *all, u16 index, bool held)
{
	struct domain *d = domain_at(&all->table, index);

	bpf_spin_lock(&all->lock);
	domain_dequeue(&all->table, index);
	if (held)
		d->parked = 1;
	bpf_spin_unlock(&all->lock);
	if (!held && *(volatile u32 *)&d->waiting)
		domain_make_queued(all, index);
}

/* Charges best-effort time to the task, its domain and the quotas above it. */
static __always_inline void charge_best_effort(struct task_state *t, u64 used_ns)
{
	struct locked_domains *all = domains();
	struct domain *d;
	u64 cost;

	t->vtime += task_cost(used_ns, t->weight);
	if (!all)
		return;
	d = domain_at(&all->table, t->domain);
	d->used_ns += used_ns;
	cost = domain_cost(used_ns, domain_share(&all->table, t->domain));
	if (d->queued) {
		bpf_spin_lock(&all->lock);
		d->vtime = domain_advance(d->vtime, all->table.clock, cost);
		domain_reposition(&all->table, t->domain);
		bpf_spin_unlock(&all->lock);
	} else {
		d->vtime = domain_advance(d->vtime, all->table.clock, cost);
	}
	if (all->table.quotas) {
		u32 level, index = t->domain;

		for (level = 0; level < MAX_DEPTH && index; level++) {
			struct domain *payer = domain_at(&all->table, index);

			quota_charge(payer, used_ns);
			index = payer->parent;
		}
	}
}

static __always_inline bool held_by_quota(struct task_state *t)
{
	struct locked_domains *all = domains();

	return all && all->table.quotas && domain_held(&all->table, t->domain);
}

/* Puts a task into its domain's queue. */
static __always_inline void enqueue_domain(struct task_struct *p, struct task_state *t, u64 enq_flags)
{
	struct locked_domains *all = domains();
	struct domain *d;

	if (!all)
		return;
	d = domain_at(&all->table, t->domain);
	t->vtime = task_join(t->vtime, d->task_clock);
	t->waiting_since_ns = clock_now();
	t->queue = QUEUE_DOMAIN(t->domain);
	if (!__sync_lock_test_and_set(&t->counted_waiting, 1))
		__sync_fetch_and_add(&d->waiting, 1);
	queue_insert_ordered(p, QUEUE_DOMAIN(t->domain), SLICE_NS, t->vtime, enq_flags);
	domain_make_queued(all, t->domain);
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
	struct locked_domains *all = domains();
	struct cpu_run *run = cpu_run_of(cpu);
	struct domain *d;

	if (!all || !run)
		return;
	bound_leaves(t);
	d = domain_at(&all->table, t->domain);
	t->bound_share = domain_share(&all->table, t->domain) * t->weight * WEIGHT_SCALE /
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
	struct locked_domains *all = domains();
	struct domain *d;
	bool settle;

	if (!all || !t)
		return 0;
	d = domain_at(&all->table, t->domain);
	if (weight) {
		t->runnable_weight = weight;
		__sync_fetch_and_add(&d->runnable_weight, weight * WEIGHT_SCALE);
		settle = __sync_fetch_and_add(&d->runnable, 1) == 0;
	} else {
		if (!t->runnable_weight)
			return 0;
		__sync_fetch_and_sub(&d->runnable_weight, t->runnable_weight * WEIGHT_SCALE);
		t->runnable_weight = 0;
		settle = __sync_fetch_and_sub(&d->runnable, 1) == 1;
	}
	if (settle && d->parent) {
		bpf_spin_lock(&all->lock);
		domain_settle(&all->table, t->domain);
		bpf_spin_unlock(&all->lock);
	}
	return 0;
}

/* Serves the first domain whose queue yields a task for this CPU. */
static __noinline bool serve_domains(void)
{
	struct locked_domains *all = domains();
	int attempt;

	if (!all)
		return false;
	bpf_for(attempt, 0, SERVE_ATTEMPTS) {
		struct domain *d;
		u16 index;

		bpf_spin_lock(&all->lock);
		index = domain_first(&all->table);
		if (index && clock_before(all->table.clock, domain_at(&all->table, index)->vtime))
			all->table.clock = domain_at(&all->table, index)->vtime;
		bpf_spin_unlock(&all->lock);
		if (!index)
			return false;
		if (all->table.quotas && domain_held(&all->table, index)) {
			domain_make_unqueued(all, index, true);
			continue;
		}
		d = domain_at(&all->table, index);
		if (*(volatile u32 *)&d->waiting && queue_to_local(QUEUE_DOMAIN(index)))
			return true;
		if (*(volatile u32 *)&d->waiting) {
			/*
			 * Its tasks are on their way in or out, or may not run here. Let it pay a slice, so that
			 * it does not stand before those behind it.
			 */
			bpf_spin_lock(&all->lock);
			d->vtime = domain_advance(d->vtime, all->table.clock, SLICE_NS);
			domain_reposition(&all->table, index);
			bpf_spin_unlock(&all->lock);
		} else {
			domain_make_unqueued(all, index, false);
		}
	}
	return false;
}

/* Whether prev, which could go on, comes before everything that waits in the domains. */
static __always_inline bool before_domains(struct task_state *t)
{
	struct locked_domains *all = domains();
	struct domain *first, *own;
	u64 key;
	u16 index;

	if (!all)
		return true;
	index = domain_first(&all->table);
	if (!index)
		return true;
	if (index == t->domain) {
		if (!queue_first_key(QUEUE_DOMAIN(index), &key))
			return true;
		return !clock_before(key, t->vtime);
	}
	first = domain_at(&all->table, index);
	own = domain_at(&all->table, t->domain);
	return clock_before(own->vtime, first->vtime);
}

/* Brings the tasks of one queue that have waited too long to the queue of those to be rescued. */
static __noinline int find_overdue(u64 queue, u64 now_ns)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	int i;

	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		bpf_for(i, 0, OVERDUE_SCAN_MAX) {
			struct task_state *t;

			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_state_of(p);
			if (!t || !rescue_due(t->waiting_since_ns, now_ns))
				continue;
			t->rescued = 1;
			if (iterated_move(&it, p, QUEUE_RESCUE))
				leave_queue(t);
			else
				t->rescued = 0;
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
	struct locked_domains *all = domains();
	u64 now_ns = clock_now();
	bool released = false;
	u32 high_water;
	int i;

	if (!all)
		return 0;
	high_water = all->table.high_water;
	if (all->table.quotas) {
		bpf_for(i, 1, high_water) {
			if (quota_refill(domain_at(&all->table, i), now_ns))
				released = true;
		}
	}
	bpf_for(i, 1, high_water) {
		struct domain *d = domain_at(&all->table, i);

		if (!d->parked || domain_held(&all->table, i))
			continue;
		bpf_spin_lock(&all->lock);
		d->parked = 0;
		if (d->waiting)
			domain_enqueue(&all->table, i);
		bpf_spin_unlock(&all->lock);
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
	if (all->table.quotas)
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
