/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The callbacks by which cgroups become domains: made, removed, given weights and quotas, and changed by tasks.
 */
#ifndef STEWARD_DOMAINS_BPF_H
#define STEWARD_DOMAINS_BPF_H

#include "best_effort.bpf.h"

static const struct domain_policy default_policy = {
	.priority = PRIORITY_DEFAULT,
	.own_priority = PRIORITY_DEFAULT,
};

s32 STRUCT_OPS_SLEEPABLE(steward_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	struct domain_table *table = domains();
	u64 id = cgrp->kn->id, now_ns = clock_now(), quota_ns = QUOTA_NONE, period_ns = 0, burst_ns = 0;
	u32 index, weight = args->weight;
	bool idle = false;
	struct domain *d;
	u16 parent = 0;
	u16 depth = 0;
	s32 error;

	if (!table)
		return -ENOMEM;
	if (cgrp->level == 0) {
		index = ROOT_DOMAIN;
	} else {
		struct cgroup *above;

		if (bpf_map_pop_elem(&free_domains, &index))
			return -ENOSPC;
		above = bpf_cgroup_ancestor(cgrp, cgrp->level - 1);
		parent = ROOT_DOMAIN;
		if (above) {
			parent = domain_index_of(above);
			bpf_cgroup_release(above);
		}
		depth = domain_at(table, parent)->depth + 1;
	}
	error = scx_bpf_create_dsq(QUEUE_DOMAIN(index), -1);
	/* A queue that an earlier domain with this index left is as good as a new one. */
	if (error && error != -17)
		return error;
	if (bpf_core_field_exists(args->bw_quota_us) && args->bw_quota_us != ~0ULL) {
		quota_ns = args->bw_quota_us * 1000;
		period_ns = args->bw_period_us * 1000;
		burst_ns = args->bw_burst_us * 1000;
	}
	if (bpf_core_field_exists(args->sched_idle))
		idle = args->sched_idle;
	d = domain_at(table, index);
	bpf_spin_lock(&domains_lock);
	d->cgroup_id = id;
	d->used_ns = 0;
	d->reserved_used_ns = 0;
	d->waited_ns = 0;
	d->runnable_ns = 0;
	d->runnable_squared_ns = 0;
	d->counted_ns = now_ns;
	d->quota_ns = QUOTA_NONE;
	d->cgroup_weight = domain_weight(weight, idle);
	domain_set_policy(table, index, &default_policy);
	order_reset(table, index);
	d->parent = parent;
	d->depth = depth;
	d->in_use = 1;
	d->dying = 0;
	d->throttled = 0;
	d->suspended = 0;
	d->parked = 0;
	domain_set_quota(table, index, period_ns, quota_ns, burst_ns, now_ns);
	if (index >= table->high_water)
		table->high_water = index + 1;
	bpf_spin_unlock(&domains_lock);
	if (quota_ns != QUOTA_NONE)
		watch_quotas();
	bpf_map_update_elem(&domain_of_cgroup, &id, &index, BPF_ANY);
	return 0;
}

void STRUCT_OPS(steward_cgroup_exit, struct cgroup *cgrp)
{
	struct domain_table *table = domains();
	u64 id = cgrp->kn->id;
	u32 *found, index;
	struct domain *d;

	if (!table)
		return;
	found = bpf_map_lookup_elem(&domain_of_cgroup, &id);
	if (!found)
		return;
	index = *found;
	bpf_map_delete_elem(&domain_of_cgroup, &id);
	d = domain_at(table, index);
	bpf_spin_lock(&domains_lock);
	domain_set_quota(table, index, 0, QUOTA_NONE, 0, 0);
	domain_suspend(table, index, false);
	d->dying = 1;
	d->parked = 0;
	domain_set_policy(table, index, &default_policy);
	bpf_spin_unlock(&domains_lock);
	if (*(volatile u32 *)&d->waiting)
		domain_make_queued(table, index);
	/*
	 * Tasks that outlive their cgroup keep its domain. The index is given out again only when none is left; one
	 * that still has tasks stays taken, which costs an entry and nothing else.
	 */
	if (!d->tasks) {
		bpf_spin_lock(&domains_lock);
		order_dequeue(table, index);
		d->in_use = 0;
		bpf_spin_unlock(&domains_lock);
		bpf_map_push_elem(&free_domains, &index, BPF_ANY);
	}
}

void STRUCT_OPS(steward_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct task_state *t = task_state_of(p);
	struct domain_table *table = domains();
	bool counted;
	u32 weight;

	if (!t || !table)
		return;
	leave_queue(t);
	weight = t->runnable_weight;
	counted = weight > 0;
	if (counted)
		domain_counts(t, 0);
	__sync_fetch_and_sub(&domain_at(table, t->domain)->tasks, 1);
	t->domain = domain_index_of(to);
	__sync_fetch_and_add(&domain_at(table, t->domain)->tasks, 1);
	t->vtime = domain_at(table, t->domain)->task_clock;
	if (counted)
		domain_counts(t, weight);
}

static __always_inline void set_domain_weight(struct cgroup *cgrp, u32 weight)
{
	struct domain_table *table = domains();
	u16 index = domain_index_of(cgrp);

	if (!table)
		return;
	bpf_spin_lock(&domains_lock);
	domain_set_weight(table, index, weight);
	bpf_spin_unlock(&domains_lock);
}

void STRUCT_OPS(steward_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	set_domain_weight(cgrp, domain_weight(weight, false));
}

void STRUCT_OPS(steward_cgroup_set_idle, struct cgroup *cgrp, bool idle)
{
	/* Leaving cpu.idle makes the kernel report the weight that then holds. */
	set_domain_weight(cgrp, domain_weight(WEIGHT_DEFAULT, idle));
}

void STRUCT_OPS(steward_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us)
{
	struct domain_table *table = domains();
	u16 index = domain_index_of(cgrp);
	u64 now_ns = clock_now(), quota_ns = quota_us == ~0ULL ? QUOTA_NONE : quota_us * 1000;

	if (!table)
		return;
	bpf_spin_lock(&domains_lock);
	domain_set_quota(table, index, period_us * 1000, quota_ns, burst_us * 1000, now_ns);
	bpf_spin_unlock(&domains_lock);
	watch_quotas();
}

/* The daemon gives a domain a policy. */
SEC("syscall")
int steward_set_domain(struct domain_request *request)
{
	struct domain_table *table = domains();
	u64 id = request->cgroup_id, share;
	struct domain_policy policy = request->policy;
	u32 *found = bpf_map_lookup_elem(&domain_of_cgroup, &id), index;

	if (!table || !found)
		return -ENOENT;
	index = *found;
	bpf_spin_lock(&domains_lock);
	domain_set_policy(table, index, &policy);
	bpf_spin_unlock(&domains_lock);
	share = standing_share(standing_of_domain(index));
	bpf_spin_lock(&domains_lock);
	order_refresh(table, index, share);
	bpf_spin_unlock(&domains_lock);
	return 0;
}

/*
 * The daemon suspends a domain with all below it, or lets it go on. What runs ends at its CPU's next tick; what waits is
 * found by the look at quotas, 5 ms after it was let go. When the daemon dies this scheduler goes with it, and
 * nothing is suspended any more.
 */
SEC("syscall")
int steward_suspend_domain(struct suspend_request *request)
{
	struct domain_table *table = domains();
	u64 id = request->cgroup_id;
	bool suspended = request->suspended;
	u32 *found = bpf_map_lookup_elem(&domain_of_cgroup, &id), index;

	if (!table || !found)
		return -ENOENT;
	index = *found;
	bpf_spin_lock(&domains_lock);
	domain_suspend(table, index, suspended);
	bpf_spin_unlock(&domains_lock);
	watch_quotas();
	return 0;
}

/* The daemon chooses the order among domains; all of them begin anew. */
SEC("syscall")
int steward_set_order(struct order_request *request)
{
	struct domain_table *table = domains();
	u32 high_water;
	int i;

	if (!table)
		return -ENOENT;
	bpf_spin_lock(&domains_lock);
	table->order = request->order;
	table->service_cycle_ns = request->service_cycle_ns;
	bpf_spin_unlock(&domains_lock);
	high_water = table->high_water;
	bpf_for(i, 1, high_water) {
		struct domain *d = domain_at(table, i);

		bpf_spin_lock(&domains_lock);
		order_dequeue(table, i);
		order_reset(table, i);
		bpf_spin_unlock(&domains_lock);
		if (*(volatile u32 *)&d->waiting)
			domain_make_queued(table, i);
	}
	return 0;
}

#endif
