/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is done for domains every few milliseconds or once a second: quotas are refilled, held domains let go, the order
 * among domains changed, and domains freed that have ended.
 */
#ifndef STEWARD_UPKEEP_BPF_H
#define STEWARD_UPKEEP_BPF_H

#include "best_effort.bpf.h"

#define REFILL_INTERVAL_NS (5 * NSEC_PER_MSEC)

/*
 * CPUs that found these tasks held have forgotten them. Some may not run everywhere that this is noted: those CPUs will
 * find that out.
 */
static __noinline bool note_restricted_everywhere(u32 index)
{
	u32 cpus = settings.cpus;
	int i;

	bpf_for(i, 0, cpus)
		note_restricted(index, i);
	return true;
}

/* The order that the daemon chose last. */
static volatile struct order_request wanted_order;

/* Brings the order among domains that the daemon chose into force; all of them begin anew. */
static __noinline int change_of_order(void)
{
	struct domain_table *table = domains();
	u32 high_water;
	int i;

	if (table->order == wanted_order.order && table->service_cycle_ns == wanted_order.service_cycle_ns)
		return 0;
	high_water = table->high_water;
	bpf_for(i, 1, high_water)
		change_order(CHANGE_RESET, i, 0, 0);
	bpf_spin_lock(&domains_lock);
	table->order = wanted_order.order;
	table->service_cycle_ns = wanted_order.service_cycle_ns;
	bpf_spin_unlock(&domains_lock);
	bpf_for(i, 1, high_water) {
		/* One that was put in meanwhile was under the order that it left, or the new one: either way it begins anew. */
		change_order(CHANGE_RESET, i, 0, 0);
		if (scx_bpf_dsq_nr_queued(QUEUE_DOMAIN(i)) > 0)
			domain_make_queued(table, i);
	}
	return 0;
}

/* Whether a domain's cgroup is gone, and nothing is left of it. */
static __always_inline bool domain_ended(struct domain *d)
{
	return d->in_use && d->dying && !d->tasks && !d->children && d->parent;
}

/* Gives an index out again, with those above it that were kept for it. */
static __noinline int free_domain(u32 index)
{
	struct domain_table *table = domains();
	int i;

	bpf_for(i, 0, MAX_DEPTH) {
		struct domain *d = domain_at(table, index);
		u32 parent = d->parent;
		bool ended = false;

		if (!domain_ended(d))
			break;
		change_order(CHANGE_UNQUEUE, index, 0, 0);
		bpf_spin_lock(&domains_lock);
		if (domain_ended(d) && !order_is_queued(table, index)) {
			domain_end(table, index);
			ended = true;
		}
		bpf_spin_unlock(&domains_lock);
		if (!ended)
			break;
		bpf_map_push_elem(&free_domains, &index, BPF_ANY);
		index = parent;
	}
	return 0;
}

/*
 * Brings a domain's place in the order in line with whether tasks of it wait. One whose last task was taken stays in
 * the order until it comes first and is found empty; beside one that is always before it that is never, and as long as
 * another domain stands in the order, who comes first has to be looked for at each switch.
 */
static __always_inline void set_right(struct domain_table *table, u32 index)
{
	if (order_is_queued(table, index) && !*(volatile u32 *)&domain_at(table, index)->waiting)
		change_order(CHANGE_UNQUEUE, index, 0, 0);
	/* One may have come meanwhile; or a CPU that missed one on its way in (unqueue_domain()) came too early twice. */
	if (!order_is_queued(table, index) &&
	    (*(volatile u32 *)&domain_at(table, index)->waiting || scx_bpf_dsq_nr_queued(QUEUE_DOMAIN(index)) > 0))
		domain_make_queued(table, index);
}

/*
 * Tasks that outlive their cgroup, and domains below that have such tasks, keep its domain until they are gone. Looked
 * at with each sample, and not when the last of them goes: that is in the way of nobody, and keeps what every ending
 * task does short.
 */
static __noinline int free_ended_domains(void)
{
	struct domain_table *table = domains();
	u32 high_water = table->high_water;
	bool more = true;
	int i;

	/* From the last to the first, so that the first is given out again first, and the last ones stay unused. */
	bpf_for(i, 1, high_water) {
		u32 index = high_water - i;

		if (domain_ended(domain_at(table, index)))
			free_domain(index);
		else if (domain_at(table, index)->in_use)
			set_right(table, index);
	}
	bpf_for(i, 0, MAX_DOMAINS / LOWERED_MAX) {
		bpf_spin_lock(&domains_lock);
		more = domains_lower(table);
		bpf_spin_unlock(&domains_lock);
		if (!more)
			break;
	}
	return 0;
}

/* The refill's timer runs. */
static volatile u32 refill_armed;
/* A domain was let go at the last refill. */
static u32 released_before;

/* Refills quotas, lets parked domains go on, and whoever is held inside the kernel leave it. */
static int refill_quotas(void *map, u32 *index, struct timer_entry *entry)
{
	struct domain_table *table = domains();
	u64 now_ns = clock_now();
	bool released = false, waits;
	u32 high_water;
	int i;

	/* From here on whoever needs it starts it again. */
	__sync_lock_test_and_set(&refill_armed, 0);
	change_of_order();
	high_water = table->high_water;
	if (table->quotas) {
		bpf_for(i, 1, high_water) {
			if (quota_refill(domain_at(table, i), now_ns)) {
				forget_look(i);
				released = true;
			}
		}
	}
	bpf_for(i, 1, high_water) {
		struct domain *d = domain_at(table, i);

		if (d->held || !d->in_use)
			continue;
		if (d->parked) {
			change_order(CHANGE_UNPARK, i, 0, 0);
			released = true;
		}
		if (d->restricted_held && !domain_held(table, i)) {
			d->restricted_held = 0;
			released |= note_restricted_everywhere(i);
		}
	}
	waits = look_after_holds(now_ns);
	waits |= end_bumps(now_ns);
	/* An idle CPU looks for work only when it is told to; twice, for it may have been about to become idle. */
	if (released || released_before || waits || scx_bpf_dsq_nr_queued(QUEUE_RESCUE) > 0) {
		u32 cpus = settings.cpus;

		bpf_for(i, 0, cpus) {
			if (scx_bpf_test_and_clear_cpu_idle(i))
				kick_cpu(i, SCX_KICK_IDLE);
		}
	}
	released |= any_bumps();
	if (table->quotas || released || waits || table->priorities) {
		refill_armed = 1;
		bpf_timer_start(&entry->timer, table->quotas || released || waits ? REFILL_INTERVAL_NS : HOLD_LOOK_NS, 0);
	}
	released_before = released;
	return 0;
}

/* The refill's timer, which steward_init() prepares. */
static __always_inline struct timer_entry *refill_timer(void)
{
	u32 one = 1;

	return bpf_map_lookup_elem(&system_timers, &one);
}

static __always_inline int prepare_refill(void)
{
	struct timer_entry *entry = refill_timer();
	int error;

	if (!entry)
		return -ENOENT;
	error = bpf_timer_init(&entry->timer, &system_timers, CLOCK_MONOTONIC);
	return error ? error : bpf_timer_set_callback(&entry->timer, refill_quotas);
}

/* Tasks may be held from now on: the loader attaches what says where they are preempted. */
static __noinline int tell_loader(void)
{
	struct domain_table *table = domains();
	struct event *event;

	if (settings.boundary != BOUNDARY_UNWATCHED || !(table->quotas || table->priorities || any_bumps()))
		return 0;
	event = new_event(EVENT_HOLDS);
	if (event)
		bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Starts the refill's timer. One that runs already is left alone: whoever changes a quota again and again must not
 * put it off. */
static __always_inline void watch_quotas(void)
{
	struct timer_entry *entry = refill_timer();

	tell_loader();
	if (entry && !__sync_lock_test_and_set(&refill_armed, 1))
		bpf_timer_start(&entry->timer, REFILL_INTERVAL_NS, 0);
}

#endif
