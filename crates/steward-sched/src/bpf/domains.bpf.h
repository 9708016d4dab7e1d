/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The callbacks by which cgroups become domains: made, removed, given weights and quotas, and changed by tasks.
 */
#ifndef STEWARD_DOMAINS_BPF_H
#define STEWARD_DOMAINS_BPF_H

#include "best_effort.bpf.h"

s32 STRUCT_OPS_SLEEPABLE(steward_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	struct locked_domains *all = domains();
	u64 id = cgrp->kn->id, now_ns = clock_now(), quota_ns = QUOTA_NONE, period_ns = 0, burst_ns = 0;
	u32 index, weight = args->weight;
	bool idle = false;
	struct domain *d;
	u16 parent = 0;
	u16 depth = 0;
	s32 error;

	if (!all)
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
		depth = domain_at(&all->table, parent)->depth + 1;
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
	d = domain_at(&all->table, index);
	bpf_spin_lock(&all->lock);
	d->cgroup_id = id;
	d->vtime = all->table.clock;
	d->quota_ns = QUOTA_NONE;
	d->weight = domain_weight(weight, idle);
	d->parent = parent;
	d->depth = depth;
	d->in_use = 1;
	d->dying = 0;
	d->throttled = 0;
	d->parked = 0;
	domain_set_quota(&all->table, index, period_ns, quota_ns, burst_ns, now_ns);
	if (index >= all->table.high_water)
		all->table.high_water = index + 1;
	bpf_spin_unlock(&all->lock);
	if (quota_ns != QUOTA_NONE)
		watch_quotas();
	bpf_map_update_elem(&domain_of_cgroup, &id, &index, BPF_ANY);
	return 0;
}

void STRUCT_OPS(steward_cgroup_exit, struct cgroup *cgrp)
{
	struct locked_domains *all = domains();
	u64 id = cgrp->kn->id;
	u32 *found, index;
	struct domain *d;

	if (!all)
		return;
	found = bpf_map_lookup_elem(&domain_of_cgroup, &id);
	if (!found)
		return;
	index = *found;
	bpf_map_delete_elem(&domain_of_cgroup, &id);
	d = domain_at(&all->table, index);
	bpf_spin_lock(&all->lock);
	domain_set_quota(&all->table, index, 0, QUOTA_NONE, 0, 0);
	d->dying = 1;
	d->parked = 0;
	if (d->waiting)
		domain_enqueue(&all->table, index);
	bpf_spin_unlock(&all->lock);
	/*
	 * Tasks that outlive their cgroup keep its domain. The index is given out again only when none is left; one
	 * that still has tasks stays taken, which costs an entry and nothing else.
	 */
	if (!d->tasks) {
		bpf_spin_lock(&all->lock);
		domain_dequeue(&all->table, index);
		d->in_use = 0;
		bpf_spin_unlock(&all->lock);
		bpf_map_push_elem(&free_domains, &index, BPF_ANY);
	}
}

void STRUCT_OPS(steward_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct task_state *t = task_state_of(p);
	struct locked_domains *all = domains();
	bool counted;
	u32 weight;

	if (!t || !all)
		return;
	leave_queue(t);
	weight = t->runnable_weight;
	counted = weight > 0;
	if (counted)
		domain_counts(t, 0);
	__sync_fetch_and_sub(&domain_at(&all->table, t->domain)->tasks, 1);
	t->domain = domain_index_of(to);
	__sync_fetch_and_add(&domain_at(&all->table, t->domain)->tasks, 1);
	t->vtime = domain_at(&all->table, t->domain)->task_clock;
	if (counted)
		domain_counts(t, weight);
}

static __always_inline void set_domain_weight(struct cgroup *cgrp, u32 weight)
{
	struct locked_domains *all = domains();
	u16 index = domain_index_of(cgrp);

	if (!all)
		return;
	bpf_spin_lock(&all->lock);
	domain_set_weight(&all->table, index, weight);
	bpf_spin_unlock(&all->lock);
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
	struct locked_domains *all = domains();
	u16 index = domain_index_of(cgrp);
	u64 now_ns = clock_now(), quota_ns = quota_us == ~0ULL ? QUOTA_NONE : quota_us * 1000;

	if (!all)
		return;
	bpf_spin_lock(&all->lock);
	domain_set_quota(&all->table, index, period_us * 1000, quota_ns, burst_us * 1000, now_ns);
	bpf_spin_unlock(&all->lock);
	watch_quotas();
}

#endif
